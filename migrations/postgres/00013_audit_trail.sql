-- The journals of all API nodes, to be searched, and the usage that follows
-- from them. What counts is the journal.

-- +goose Up
-- How far each node's journal is in the trail.
CREATE TABLE shipped (
    node     text        COLLATE "C" NOT NULL PRIMARY KEY CHECK (octet_length(node) BETWEEN 1 AND 64),
    sequence bigint      NOT NULL CHECK (sequence >= 0),
    hash     bytea       NOT NULL CHECK (octet_length(hash) = 32),
    until    timestamptz NOT NULL,
    ended    boolean     NOT NULL
);
GRANT SELECT, INSERT, UPDATE ON shipped TO sluice_service;

-- The last ordinal given. Whoever ships holds the row until its batch is
-- written, so that ordinals become visible in their order.
CREATE TABLE shipping (
    one  boolean NOT NULL PRIMARY KEY CHECK (one),
    last bigint  NOT NULL
);
INSERT INTO shipping VALUES (true, 0);
GRANT SELECT, UPDATE ON shipping TO sluice_service;

CREATE TABLE audit_entries (
    ordinal    bigint      NOT NULL PRIMARY KEY,
    node       text        COLLATE "C" NOT NULL,
    sequence   bigint      NOT NULL CHECK (sequence >= 1),
    tenant     uuid        NOT NULL,
    time       timestamptz NOT NULL,
    request    uuid        NOT NULL,
    project    text        COLLATE "C" NOT NULL,
    component  text        COLLATE "C" NOT NULL,
    op         text        COLLATE "C" NOT NULL,
    key_id     uuid        NOT NULL,
    credential uuid        NOT NULL,
    outcome    text        COLLATE "C" NOT NULL,
    payload    bytea       NOT NULL CHECK (octet_length(payload) BETWEEN 1 AND 65536),
    CONSTRAINT audit_entries_position UNIQUE (node, sequence)
);
CREATE INDEX audit_entries_by_time ON audit_entries (time, ordinal);
CREATE INDEX audit_entries_of_tenant ON audit_entries (tenant, time, ordinal);
CREATE INDEX audit_entries_by_arrival ON audit_entries (tenant, ordinal);
CREATE INDEX audit_entries_by_request ON audit_entries (request);
ALTER TABLE audit_entries ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant ON audit_entries TO sluice_service USING (tenant = current_tenant());
GRANT SELECT ON audit_entries TO sluice_service;

CREATE TABLE usage_rollups (
    tenant      uuid        NOT NULL,
    granularity text        COLLATE "C" NOT NULL CHECK (granularity IN ('minute', 'hour', 'day')),
    start       timestamptz NOT NULL,
    project     text        COLLATE "C" NOT NULL,
    component   text        COLLATE "C" NOT NULL,
    key_id      uuid        NOT NULL,
    algorithm   text        COLLATE "C" NOT NULL,
    op          text        COLLATE "C" NOT NULL,
    reason      text        COLLATE "C" NOT NULL,
    policy      bigint      NOT NULL CHECK (policy >= 0),
    requests    bigint      NOT NULL CHECK (requests >= 0),
    charged     bigint      NOT NULL,
    bytes       bigint      NOT NULL,
    slot        bigint      NOT NULL,
    wait        bigint      NOT NULL,
    PRIMARY KEY (tenant, granularity, start, project, component, key_id, algorithm, op, reason, policy)
);
CREATE INDEX usage_rollups_by_age ON usage_rollups (granularity, start);
ALTER TABLE usage_rollups ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant ON usage_rollups TO sluice_service USING (tenant = current_tenant());
GRANT SELECT ON usage_rollups TO sluice_service;

-- Batches hold entries of many tenants, and of none.
-- +goose StatementBegin
CREATE FUNCTION store_audit_entries(of_node text, before bigint, sequences bigint[], tenants uuid[], times timestamptz[],
        requests uuid[], projects text[], components text[], ops text[], keys uuid[], credentials uuid[], outcomes text[],
        payloads bytea[])
    RETURNS void
    LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = sluice, pg_temp
    AS $$
    INSERT INTO audit_entries (ordinal, node, sequence, tenant, time, request, project, component, op, key_id, credential, outcome, payload)
    SELECT before + n, of_node, sequence, tenant, time, request, project, component, op, key_id, credential, outcome, payload
    FROM unnest(sequences, tenants, times, requests, projects, components, ops, keys, credentials, outcomes, payloads)
        WITH ORDINALITY AS e (sequence, tenant, time, request, project, component, op, key_id, credential, outcome, payload, n)
    $$;

CREATE FUNCTION add_usage(granularities text[], tenants uuid[], starts timestamptz[], projects text[], components text[],
        keys uuid[], algorithms text[], ops text[], reasons text[], policies bigint[],
        requests bigint[], charges bigint[], lengths bigint[], slots bigint[], waits bigint[])
    RETURNS void
    LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = sluice, pg_temp
    AS $$
    INSERT INTO usage_rollups AS u (granularity, tenant, start, project, component, key_id, algorithm, op, reason, policy,
        requests, charged, bytes, slot, wait)
    SELECT * FROM unnest(granularities, tenants, starts, projects, components, keys, algorithms, ops, reasons, policies,
        requests, charges, lengths, slots, waits)
    ON CONFLICT (tenant, granularity, start, project, component, key_id, algorithm, op, reason, policy) DO UPDATE SET
        requests = u.requests + excluded.requests, charged = u.charged + excluded.charged, bytes = u.bytes + excluded.bytes,
        slot = u.slot + excluded.slot, wait = u.wait + excluded.wait
    $$;

-- Operators read those of all tenants.
CREATE FUNCTION newest_audit_entries(since timestamptz, before timestamptz, at_ordinal bigint, most bigint)
    RETURNS SETOF audit_entries
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = sluice, pg_temp
    AS $$
    SELECT * FROM audit_entries WHERE time >= since AND (time, ordinal) < (before, at_ordinal)
    ORDER BY time DESC, ordinal DESC LIMIT most
    $$;

CREATE FUNCTION arrived_audit_entries(behind bigint, most bigint)
    RETURNS SETOF audit_entries
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = sluice, pg_temp
    AS $$ SELECT * FROM audit_entries WHERE ordinal > behind ORDER BY ordinal LIMIT most $$;

CREATE FUNCTION audit_entries_of_request(wanted uuid, most bigint)
    RETURNS SETOF audit_entries
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = sluice, pg_temp
    AS $$ SELECT * FROM audit_entries WHERE request = wanted ORDER BY time DESC, ordinal DESC LIMIT most $$;

CREATE FUNCTION ordinal_of_audit_entry(of_node text, number bigint) RETURNS bigint
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = sluice, pg_temp
    AS $$ SELECT ordinal FROM audit_entries WHERE node = of_node AND sequence = number $$;

CREATE FUNCTION usage_of_all(size text, since timestamptz, before timestamptz)
    RETURNS SETOF usage_rollups
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = sluice, pg_temp
    AS $$ SELECT * FROM usage_rollups WHERE granularity = size AND start >= since AND start < before $$;

-- Housekeeping.
CREATE FUNCTION delete_audit_entries(moment timestamptz, most bigint) RETURNS bigint
    LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = sluice, pg_temp
    AS $$
    WITH gone AS (DELETE FROM audit_entries WHERE ctid = ANY
        (ARRAY(SELECT ctid FROM audit_entries WHERE time < moment ORDER BY time, ordinal LIMIT most FOR UPDATE SKIP LOCKED))
        RETURNING 1)
    SELECT count(*) FROM gone
    $$;

CREATE FUNCTION delete_usage(size text, moment timestamptz, most bigint) RETURNS bigint
    LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = sluice, pg_temp
    AS $$
    WITH gone AS (DELETE FROM usage_rollups WHERE ctid = ANY
        (ARRAY(SELECT ctid FROM usage_rollups WHERE granularity = size AND start < moment ORDER BY start LIMIT most FOR UPDATE SKIP LOCKED))
        RETURNING 1)
    SELECT count(*) FROM gone
    $$;
-- +goose StatementEnd
REVOKE ALL ON FUNCTION store_audit_entries, add_usage, newest_audit_entries, arrived_audit_entries, audit_entries_of_request,
    ordinal_of_audit_entry, usage_of_all, delete_audit_entries, delete_usage FROM PUBLIC;
GRANT EXECUTE ON FUNCTION store_audit_entries, add_usage, newest_audit_entries, arrived_audit_entries, audit_entries_of_request,
    ordinal_of_audit_entry, usage_of_all, delete_audit_entries, delete_usage TO sluice_service;

-- +goose Down
DROP FUNCTION store_audit_entries, add_usage, newest_audit_entries, arrived_audit_entries, audit_entries_of_request,
    ordinal_of_audit_entry, usage_of_all, delete_audit_entries, delete_usage;
DROP TABLE usage_rollups;
DROP TABLE audit_entries;
DROP TABLE shipping;
DROP TABLE shipped;
