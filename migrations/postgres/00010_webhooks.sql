-- Webhooks, and the queue of what is on its way to them.

-- +goose Up

-- What tells of failures and deliveries changes without the row's revision.
CREATE TABLE webhooks (
    tenant        uuid        NOT NULL REFERENCES tenants (id),
    id            uuid        NOT NULL,
    url           text        NOT NULL CHECK (octet_length(url) BETWEEN 1 AND 2048),
    types         text        NOT NULL CHECK (json_typeof(types::json) = 'array'),
    secret        bytea       NOT NULL CHECK (octet_length(secret) > 0),
    state         text        NOT NULL CHECK (state IN ('ACTIVE', 'DISABLED')),
    created       timestamptz NOT NULL,
    revision      bigint      NOT NULL CHECK (revision >= 1),
    failing_since timestamptz,
    delivered     timestamptz,
    mac           bytea       CHECK (octet_length(mac) = 32),
    mac_version   bigint      CHECK (mac_version >= 1),
    PRIMARY KEY (tenant, id)
);
ALTER TABLE webhooks ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant ON webhooks TO sluice_service USING (tenant = current_tenant());
GRANT SELECT, INSERT, UPDATE, DELETE ON webhooks TO sluice_service;

-- A delivery waits while it has a due date, which is in the future while an API
-- node sends it. One that has ended is kept for its "once" alone.
CREATE TABLE deliveries (
    tenant      uuid        NOT NULL,
    webhook     uuid        NOT NULL,
    event       uuid        NOT NULL,
    once        text        COLLATE "C" NOT NULL CHECK (octet_length(once) BETWEEN 1 AND 128),
    type        text        NOT NULL CHECK (type <> ''),
    body        bytea       NOT NULL CHECK (octet_length(body) BETWEEN 1 AND 4096),
    created     timestamptz NOT NULL,
    due         timestamptz CHECK ((due IS NULL) = (ended IS NOT NULL)),
    attempts    bigint      NOT NULL CHECK (attempts >= 0),
    ended       timestamptz,
    mac         bytea       CHECK (octet_length(mac) = 32),
    mac_version bigint      CHECK (mac_version >= 1),
    PRIMARY KEY (tenant, webhook, event),
    CONSTRAINT deliveries_once UNIQUE (tenant, webhook, once),
    FOREIGN KEY (tenant, webhook) REFERENCES webhooks (tenant, id) ON DELETE CASCADE
);
CREATE INDEX deliveries_by_due ON deliveries (due) WHERE due IS NOT NULL;
CREATE INDEX deliveries_waiting ON deliveries (tenant, webhook, created, event) WHERE due IS NOT NULL;
CREATE INDEX deliveries_by_end ON deliveries (ended) WHERE ended IS NOT NULL;
ALTER TABLE deliveries ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant ON deliveries TO sluice_service USING (tenant = current_tenant());
GRANT SELECT, INSERT, UPDATE, DELETE ON deliveries TO sluice_service;

-- Senders act for all tenants: they take the first of each webhook that is due,
-- and of each tenant no more than a few. One sender chooses at a time.
-- +goose StatementBegin
CREATE FUNCTION claim_deliveries(moment timestamptz, until timestamptz, busy uuid[], each bigint, most bigint)
    RETURNS SETOF deliveries
    LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = sluice, pg_temp
    AS $$
    SELECT pg_advisory_xact_lock('deliveries'::regclass::oid::bigint);
    UPDATE deliveries d SET due = until, attempts = d.attempts + 1
    FROM (SELECT f.tenant, f.webhook, f.event FROM (
        SELECT w.*, row_number() OVER (PARTITION BY w.tenant ORDER BY w.due, w.event) AS of_tenant FROM (
            SELECT tenant, webhook, event, due,
                row_number() OVER (PARTITION BY tenant, webhook ORDER BY due, event) AS of_webhook
            FROM deliveries WHERE due <= moment AND tenant <> ALL (busy)) w
        WHERE w.of_webhook = 1) f
    WHERE f.of_tenant <= each ORDER BY f.due LIMIT most) c
    WHERE d.tenant = c.tenant AND d.webhook = c.webhook AND d.event = c.event AND d.due <= moment
    RETURNING d.*
    $$;
-- +goose StatementEnd

-- Housekeeping.
-- +goose StatementBegin
CREATE FUNCTION delete_ended_deliveries(moment timestamptz, most bigint) RETURNS bigint
    LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = sluice, pg_temp
    AS $$
    WITH gone AS (DELETE FROM deliveries WHERE ctid = ANY
        (ARRAY(SELECT ctid FROM deliveries WHERE ended <= moment ORDER BY ended LIMIT most FOR UPDATE SKIP LOCKED))
        RETURNING 1)
    SELECT count(*) FROM gone
    $$;
-- +goose StatementEnd
REVOKE ALL ON FUNCTION claim_deliveries(timestamptz, timestamptz, uuid[], bigint, bigint),
    delete_ended_deliveries(timestamptz, bigint) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION claim_deliveries(timestamptz, timestamptz, uuid[], bigint, bigint),
    delete_ended_deliveries(timestamptz, bigint) TO sluice_service;

-- +goose Down
DROP FUNCTION delete_ended_deliveries(timestamptz, bigint);
DROP FUNCTION claim_deliveries(timestamptz, timestamptz, uuid[], bigint, bigint);
DROP TABLE deliveries;
DROP TABLE webhooks;
