-- Provider secrets of tenants, and what changes about them.

-- +goose Up

-- A secret is read and written as a whole: what is said of it and its versions
-- is one document, under one code. The values are apart, so that a change of a
-- state does not write them again.
CREATE TABLE secrets (
    tenant      uuid        NOT NULL REFERENCES tenants (id),
    id          uuid        NOT NULL,
    path        text        COLLATE "C" NOT NULL CHECK (octet_length(path) BETWEEN 1 AND 240),
    state       text        NOT NULL CHECK (state IN ('ACTIVE', 'PENDING_DELETION', 'DESTROYED')),
    document    bytea       NOT NULL CHECK (octet_length(document) BETWEEN 1 AND 2097152),
    due         timestamptz,
    revision    bigint      NOT NULL CHECK (revision >= 1),
    mac         bytea       CHECK (octet_length(mac) = 32),
    mac_version bigint      CHECK (mac_version >= 1),
    PRIMARY KEY (tenant, id)
);
-- Tombstones keep their id, and leave their path to others.
CREATE UNIQUE INDEX secrets_by_path ON secrets (tenant, path) WHERE state <> 'DESTROYED';
CREATE INDEX secrets_by_due ON secrets (due, tenant, id) WHERE due IS NOT NULL;
ALTER TABLE secrets ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant ON secrets TO sluice_service USING (tenant = current_tenant());
GRANT SELECT, INSERT, UPDATE ON secrets TO sluice_service;

-- A destroyed version has no row.
CREATE TABLE secret_versions (
    tenant      uuid        NOT NULL,
    secret_id   uuid        NOT NULL,
    number      bigint      NOT NULL CHECK (number BETWEEN 1 AND 4294967295),
    data_key    bytea       NOT NULL CHECK (octet_length(data_key) > 0),
    value       bytea       NOT NULL CHECK (octet_length(value) > 0),
    mac         bytea       CHECK (octet_length(mac) = 32),
    mac_version bigint      CHECK (mac_version >= 1),
    PRIMARY KEY (tenant, secret_id, number),
    FOREIGN KEY (tenant, secret_id) REFERENCES secrets (tenant, id)
);
ALTER TABLE secret_versions ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant ON secret_versions TO sluice_service USING (tenant = current_tenant());
GRANT SELECT, INSERT, DELETE ON secret_versions TO sluice_service;

-- The tenant's revision, which grows by one with every change of a secret. A
-- change holds the row until it is made, so that revisions become visible in
-- their order.
CREATE TABLE secret_revisions (
    tenant      uuid        NOT NULL PRIMARY KEY REFERENCES tenants (id),
    revision    bigint      NOT NULL CHECK (revision >= 1),
    mac         bytea       CHECK (octet_length(mac) = 32),
    mac_version bigint      CHECK (mac_version >= 1)
);
ALTER TABLE secret_revisions ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant ON secret_revisions TO sluice_service USING (tenant = current_tenant());
GRANT SELECT, INSERT, UPDATE ON secret_revisions TO sluice_service;

-- The last changes, one for each revision.
CREATE TABLE secret_changes (
    tenant      uuid        NOT NULL REFERENCES tenants (id),
    revision    bigint      NOT NULL CHECK (revision >= 1),
    path        text        COLLATE "C" NOT NULL,
    kind        text        NOT NULL CHECK (kind IN ('changed', 'revoked')),
    made        timestamptz NOT NULL,
    mac         bytea       CHECK (octet_length(mac) = 32),
    mac_version bigint      CHECK (mac_version >= 1),
    PRIMARY KEY (tenant, revision)
);
CREATE INDEX secret_changes_by_age ON secret_changes (made);
ALTER TABLE secret_changes ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant ON secret_changes TO sluice_service USING (tenant = current_tenant());
GRANT SELECT, INSERT, DELETE ON secret_changes TO sluice_service;

-- What calls came to since a rollout's step began.
CREATE TABLE secret_outcomes (
    tenant     uuid   NOT NULL,
    secret_id  uuid   NOT NULL,
    version    bigint NOT NULL CHECK (version BETWEEN 1 AND 4294967295),
    ok         bigint NOT NULL CHECK (ok >= 0),
    credential bigint NOT NULL CHECK (credential >= 0),
    quota      bigint NOT NULL CHECK (quota >= 0),
    rate_limit bigint NOT NULL CHECK (rate_limit >= 0),
    transient  bigint NOT NULL CHECK (transient >= 0),
    PRIMARY KEY (tenant, secret_id, version),
    FOREIGN KEY (tenant, secret_id) REFERENCES secrets (tenant, id)
);
ALTER TABLE secret_outcomes ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant ON secret_outcomes TO sluice_service USING (tenant = current_tenant());
GRANT SELECT, INSERT, UPDATE, DELETE ON secret_outcomes TO sluice_service;

-- The keeper acts for all tenants.
CREATE FUNCTION due_secrets(moment timestamptz, after_due timestamptz, after_tenant uuid, after_id uuid, most bigint)
    RETURNS TABLE (due timestamptz, tenant uuid, id uuid)
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = sluice, pg_temp
    AS $$
    SELECT s.due, s.tenant, s.id FROM secrets s
    WHERE s.due <= moment AND (s.due, s.tenant, s.id) > (after_due, after_tenant, after_id)
    ORDER BY s.due, s.tenant, s.id LIMIT most
    $$;

-- Housekeeping.
-- +goose StatementBegin
CREATE FUNCTION delete_secret_changes(moment timestamptz, most bigint) RETURNS bigint
    LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = sluice, pg_temp
    AS $$
    WITH gone AS (DELETE FROM secret_changes WHERE ctid = ANY
        (ARRAY(SELECT ctid FROM secret_changes WHERE made <= moment ORDER BY made LIMIT most FOR UPDATE SKIP LOCKED))
        RETURNING 1)
    SELECT count(*) FROM gone
    $$;
-- +goose StatementEnd
REVOKE ALL ON FUNCTION due_secrets(timestamptz, timestamptz, uuid, uuid, bigint), delete_secret_changes(timestamptz, bigint) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION due_secrets(timestamptz, timestamptz, uuid, uuid, bigint), delete_secret_changes(timestamptz, bigint) TO sluice_service;

-- Other processes learn of changes, and from the revision up to where.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION record_change() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = sluice, pg_temp
    AS $$
BEGIN
    IF TG_TABLE_NAME = 'tenants' THEN
        INSERT INTO changes (object, tenant, id, revision) VALUES ('tenant', NEW.id, NEW.id, NEW.revision);
    ELSIF TG_TABLE_NAME = 'key_names' THEN
        IF TG_OP = 'DELETE' THEN
            INSERT INTO changes (object, tenant, name) VALUES ('key name', OLD.tenant, OLD.name);
        ELSE
            INSERT INTO changes (object, tenant, name) VALUES ('key name', NEW.tenant, NEW.name);
        END IF;
    ELSIF TG_TABLE_NAME = 'keys' THEN
        INSERT INTO changes (object, tenant, id, revision) VALUES ('key', NEW.tenant, NEW.id, NEW.revision);
    ELSIF TG_TABLE_NAME = 'secrets' THEN
        INSERT INTO changes (object, tenant, id, name, revision) VALUES ('provider secret', NEW.tenant, NEW.id, NEW.path, NEW.revision);
    ELSE
        INSERT INTO changes (object, tenant, id, revision) VALUES ('credential', NEW.tenant, NEW.id, NEW.revision);
    END IF;
    NOTIFY sluice_changes;
    RETURN NULL;
END
$$;
-- +goose StatementEnd
CREATE TRIGGER record_change AFTER INSERT OR UPDATE OF revision ON secrets FOR EACH ROW EXECUTE FUNCTION record_change();

-- +goose Down
DROP TRIGGER record_change ON secrets;
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION record_change() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = sluice, pg_temp
    AS $$
BEGIN
    IF TG_TABLE_NAME = 'tenants' THEN
        INSERT INTO changes (object, tenant, id, revision) VALUES ('tenant', NEW.id, NEW.id, NEW.revision);
    ELSIF TG_TABLE_NAME = 'key_names' THEN
        IF TG_OP = 'DELETE' THEN
            INSERT INTO changes (object, tenant, name) VALUES ('key name', OLD.tenant, OLD.name);
        ELSE
            INSERT INTO changes (object, tenant, name) VALUES ('key name', NEW.tenant, NEW.name);
        END IF;
    ELSIF TG_TABLE_NAME = 'keys' THEN
        INSERT INTO changes (object, tenant, id, revision) VALUES ('key', NEW.tenant, NEW.id, NEW.revision);
    ELSE
        INSERT INTO changes (object, tenant, id, revision) VALUES ('credential', NEW.tenant, NEW.id, NEW.revision);
    END IF;
    NOTIFY sluice_changes;
    RETURN NULL;
END
$$;
-- +goose StatementEnd
DROP FUNCTION delete_secret_changes(timestamptz, bigint);
DROP FUNCTION due_secrets(timestamptz, timestamptz, uuid, uuid, bigint);
DROP TABLE secret_outcomes;
DROP TABLE secret_changes;
DROP TABLE secret_revisions;
DROP TABLE secret_versions;
DROP TABLE secrets;
