-- Uses of keys that come together are stored together: a row of the trail can
-- hold several entries, and names the first and the last of them. In rows from
-- before, which hold one, the new columns are NULL.

-- +goose Up
ALTER TABLE audit_entries
    ADD COLUMN entries       bigint CHECK (entries >= 1),
    ADD COLUMN since         timestamptz,
    ADD COLUMN last_sequence bigint,
    ADD COLUMN last_request  uuid;

-- With all that rows are chosen by, so that what is not wanted is not read.
DROP INDEX audit_entries_by_time;
CREATE INDEX audit_entries_by_time ON audit_entries (time, ordinal, since, request, last_request);
DROP INDEX audit_entries_of_tenant;
CREATE INDEX audit_entries_of_tenant ON audit_entries (tenant, time, ordinal, since, request, last_request);

-- Those of the step before, with fewer arguments, are for API nodes of the
-- version before.
-- +goose StatementBegin
CREATE FUNCTION store_audit_entries(of_node text, before bigint, sequences bigint[], tenants uuid[], times timestamptz[],
        requests uuid[], projects text[], components text[], ops text[], keys uuid[], credentials uuid[], outcomes text[],
        payloads bytea[], counts bigint[], starts timestamptz[], last_sequences bigint[], last_requests uuid[])
    RETURNS void
    LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = sluice, pg_temp
    AS $$
    INSERT INTO audit_entries (ordinal, node, sequence, tenant, time, request, project, component, op, key_id, credential, outcome, payload,
        entries, since, last_sequence, last_request)
    SELECT before + n, of_node, sequence, tenant, time, request, project, component, op, key_id, credential, outcome, payload,
        entries, since, last_sequence, last_request
    FROM unnest(sequences, tenants, times, requests, projects, components, ops, keys, credentials, outcomes, payloads, counts, starts,
            last_sequences, last_requests)
        WITH ORDINALITY AS e (sequence, tenant, time, request, project, component, op, key_id, credential, outcome, payload,
            entries, since, last_sequence, last_request, n)
    $$;

CREATE FUNCTION newest_audit_entries(first timestamptz, until timestamptz, before timestamptz, at_ordinal bigint, most bigint)
    RETURNS SETOF audit_entries
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = sluice, pg_temp
    AS $$
    SELECT * FROM audit_entries WHERE time >= first AND coalesce(since, time) <= until AND (time, ordinal) < (before, at_ordinal)
    ORDER BY time DESC, ordinal DESC LIMIT most
    $$;

CREATE FUNCTION audit_entries_of_request(wanted uuid, first timestamptz, until timestamptz, most bigint)
    RETURNS SETOF audit_entries
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = sluice, pg_temp
    AS $$
    SELECT * FROM audit_entries WHERE request = wanted
    UNION ALL SELECT * FROM audit_entries WHERE time >= first AND time <= until + interval '10 seconds' AND since <= until
        AND request < wanted AND last_request >= wanted
    ORDER BY time DESC, ordinal DESC LIMIT most
    $$;

CREATE FUNCTION audit_entries_at(of_node text, after bigint, number bigint)
    RETURNS SETOF audit_entries
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = sluice, pg_temp
    AS $$
    SELECT * FROM audit_entries
    WHERE node = of_node AND sequence > after AND sequence <= number AND coalesce(last_sequence, sequence) >= number
    $$;
-- +goose StatementEnd
REVOKE ALL ON FUNCTION
    store_audit_entries(text, bigint, bigint[], uuid[], timestamptz[], uuid[], text[], text[], text[], uuid[], uuid[], text[], bytea[],
        bigint[], timestamptz[], bigint[], uuid[]),
    newest_audit_entries(timestamptz, timestamptz, timestamptz, bigint, bigint),
    audit_entries_of_request(uuid, timestamptz, timestamptz, bigint), audit_entries_at FROM PUBLIC;
GRANT EXECUTE ON FUNCTION
    store_audit_entries(text, bigint, bigint[], uuid[], timestamptz[], uuid[], text[], text[], text[], uuid[], uuid[], text[], bytea[],
        bigint[], timestamptz[], bigint[], uuid[]),
    newest_audit_entries(timestamptz, timestamptz, timestamptz, bigint, bigint),
    audit_entries_of_request(uuid, timestamptz, timestamptz, bigint), audit_entries_at TO sluice_service;

-- Undone, what was stored together is in the journals only.

-- +goose Down
DROP FUNCTION
    store_audit_entries(text, bigint, bigint[], uuid[], timestamptz[], uuid[], text[], text[], text[], uuid[], uuid[], text[], bytea[],
        bigint[], timestamptz[], bigint[], uuid[]),
    newest_audit_entries(timestamptz, timestamptz, timestamptz, bigint, bigint),
    audit_entries_of_request(uuid, timestamptz, timestamptz, bigint), audit_entries_at;
DELETE FROM audit_entries WHERE entries > 1;
DROP INDEX audit_entries_by_time;
CREATE INDEX audit_entries_by_time ON audit_entries (time, ordinal);
DROP INDEX audit_entries_of_tenant;
CREATE INDEX audit_entries_of_tenant ON audit_entries (tenant, time, ordinal);
ALTER TABLE audit_entries DROP COLUMN entries, DROP COLUMN since, DROP COLUMN last_sequence, DROP COLUMN last_request;
