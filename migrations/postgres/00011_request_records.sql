-- What requests that waited or were refused waited for, for minutes: any API
-- node can be asked. Nothing is decided by it.

-- +goose Up
CREATE TABLE request_records (
    tenant   uuid        NOT NULL REFERENCES tenants (id),
    request  uuid        NOT NULL,
    document bytea       NOT NULL CHECK (octet_length(document) BETWEEN 1 AND 8192),
    expires  timestamptz NOT NULL,
    PRIMARY KEY (tenant, request)
);
-- An operator names no tenant.
CREATE INDEX request_records_by_request ON request_records (request);
CREATE INDEX request_records_by_expiry ON request_records (expires);
ALTER TABLE request_records ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant ON request_records TO sluice_service USING (tenant = current_tenant());
GRANT SELECT, INSERT ON request_records TO sluice_service;

CREATE FUNCTION tenant_of_request(wanted uuid) RETURNS uuid
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = sluice, pg_temp
    AS $$ SELECT tenant FROM request_records WHERE request = wanted LIMIT 1 $$;

-- Housekeeping.
-- +goose StatementBegin
CREATE FUNCTION delete_expired_records(moment timestamptz, most bigint) RETURNS bigint
    LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = sluice, pg_temp
    AS $$
    WITH gone AS (DELETE FROM request_records WHERE ctid = ANY
        (ARRAY(SELECT ctid FROM request_records WHERE expires <= moment ORDER BY expires LIMIT most FOR UPDATE SKIP LOCKED))
        RETURNING 1)
    SELECT count(*) FROM gone
    $$;
-- +goose StatementEnd
REVOKE ALL ON FUNCTION tenant_of_request(uuid), delete_expired_records(timestamptz, bigint) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION tenant_of_request(uuid), delete_expired_records(timestamptz, bigint) TO sluice_service;

-- +goose Down
DROP FUNCTION delete_expired_records(timestamptz, bigint);
DROP FUNCTION tenant_of_request(uuid);
DROP TABLE request_records;
