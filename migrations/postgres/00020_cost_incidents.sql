-- Incidents of cost breakers, and when their stops were lifted.

-- +goose Up

-- Ids are in the order of time. The document says everything; ended is for
-- housekeeping.
CREATE TABLE cost_incidents (
    tenant      uuid        NOT NULL REFERENCES tenants (id),
    id          uuid        NOT NULL,
    ended       timestamptz NOT NULL,
    document    bytea       NOT NULL CHECK (octet_length(document) BETWEEN 1 AND 131072),
    mac         bytea       CHECK (octet_length(mac) = 32),
    mac_version bigint      CHECK (mac_version >= 1),
    PRIMARY KEY (tenant, id)
);
CREATE INDEX cost_incidents_by_end ON cost_incidents (ended);
ALTER TABLE cost_incidents ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant ON cost_incidents TO sluice_service USING (tenant = current_tenant());
GRANT SELECT, INSERT, DELETE ON cost_incidents TO sluice_service;

CREATE TABLE cost_lifts (
    tenant      uuid        NOT NULL PRIMARY KEY REFERENCES tenants (id),
    lifted      timestamptz NOT NULL,
    mac         bytea       CHECK (octet_length(mac) = 32),
    mac_version bigint      CHECK (mac_version >= 1)
);
ALTER TABLE cost_lifts ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant ON cost_lifts TO sluice_service USING (tenant = current_tenant());
GRANT SELECT, INSERT, UPDATE ON cost_lifts TO sluice_service;

-- Housekeeping.
-- +goose StatementBegin
CREATE FUNCTION delete_cost_incidents(moment timestamptz, most bigint) RETURNS bigint
    LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = sluice, pg_temp
    AS $$
    WITH gone AS (DELETE FROM cost_incidents WHERE ctid = ANY
        (ARRAY(SELECT ctid FROM cost_incidents WHERE ended <= moment ORDER BY ended LIMIT most FOR UPDATE SKIP LOCKED))
        RETURNING 1)
    SELECT count(*) FROM gone
    $$;
-- +goose StatementEnd
REVOKE ALL ON FUNCTION delete_cost_incidents(timestamptz, bigint) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION delete_cost_incidents(timestamptz, bigint) TO sluice_service;

-- +goose Down
DROP FUNCTION delete_cost_incidents(timestamptz, bigint);
DROP TABLE cost_lifts;
DROP TABLE cost_incidents;
