-- What a database needs that several processes share and whose tables hide
-- other tenants' rows: the few look-ups that are not for one tenant, and the
-- record of changes by which processes renew what they have cached.

-- +goose Up

-- The ways around row-level security. Each runs as the owner, is one statement,
-- and gives away as little as its caller needs; the alternative, a second role
-- that bypasses all policies, would open everything to any statement that is
-- sent over the wrong connection.

-- Authentication finds out the tenant of a credential.
CREATE FUNCTION tenant_of_credential(credential uuid) RETURNS uuid
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = sluice, pg_temp
    AS $$ SELECT tenant FROM credentials WHERE id = credential $$;

-- Operators find tenants by name and list them.
CREATE FUNCTION tenant_of_name(tenant_name text) RETURNS uuid
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = sluice, pg_temp
    AS $$ SELECT id FROM tenants WHERE name = tenant_name $$;
CREATE FUNCTION tenants_after(tenant_name text, most bigint) RETURNS SETOF tenants
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = sluice, pg_temp
    AS $$ SELECT * FROM tenants WHERE name > tenant_name ORDER BY name LIMIT most $$;

-- The keeper acts for all tenants.
CREATE FUNCTION due_keys(moment timestamptz, most bigint) RETURNS TABLE (tenant uuid, id uuid)
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = sluice, pg_temp
    AS $$ SELECT k.tenant, k.id FROM keys k WHERE k.due <= moment ORDER BY k.due LIMIT most $$;

-- Housekeeping.
CREATE FUNCTION delete_expired_claims(moment timestamptz, most bigint) RETURNS bigint
    LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = sluice, pg_temp
    AS $$
    WITH gone AS (DELETE FROM idempotency WHERE ctid IN
        (SELECT ctid FROM idempotency WHERE expires <= moment ORDER BY expires LIMIT most FOR UPDATE SKIP LOCKED)
        RETURNING 1)
    SELECT count(*) FROM gone
    $$;

REVOKE ALL ON FUNCTION tenant_of_credential(uuid), tenant_of_name(text), tenants_after(text, bigint),
    due_keys(timestamptz, bigint), delete_expired_claims(timestamptz, bigint) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION tenant_of_credential(uuid), tenant_of_name(text), tenants_after(text, bigint),
    due_keys(timestamptz, bigint), delete_expired_claims(timestamptz, bigint) TO sluice_service;

-- Changes are recorded in their own transaction, by triggers, so that no
-- statement can forget it. xid is that transaction: a reader asks for those
-- that were not yet visible in its last snapshot, so none is missed, however
-- transactions overlap. A change that only notes a use is none.
CREATE TABLE changes (
    xid      xid8        NOT NULL DEFAULT pg_current_xact_id(),
    object   text        NOT NULL,
    tenant   uuid        NOT NULL,
    id       uuid,
    name     text,
    revision bigint,
    made     timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX changes_by_transaction ON changes (xid);
CREATE INDEX changes_by_time ON changes (made);
GRANT SELECT, DELETE ON changes TO sluice_service;

-- +goose StatementBegin
CREATE FUNCTION record_change() RETURNS trigger
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
REVOKE ALL ON FUNCTION record_change() FROM PUBLIC;

CREATE TRIGGER record_change AFTER UPDATE OF revision ON tenants FOR EACH ROW EXECUTE FUNCTION record_change();
CREATE TRIGGER record_change AFTER UPDATE OF revision ON keys FOR EACH ROW EXECUTE FUNCTION record_change();
CREATE TRIGGER record_change AFTER UPDATE OF revision ON credentials FOR EACH ROW EXECUTE FUNCTION record_change();
CREATE TRIGGER record_change AFTER INSERT OR UPDATE OR DELETE ON key_names
    FOR EACH ROW EXECUTE FUNCTION record_change();

-- A service that does not migrate sees whether the schema is the one it needs.
GRANT SELECT ON goose_db_version TO sluice_service;

-- +goose Down
REVOKE SELECT ON goose_db_version FROM sluice_service;
DROP TRIGGER record_change ON key_names;
DROP TRIGGER record_change ON credentials;
DROP TRIGGER record_change ON keys;
DROP TRIGGER record_change ON tenants;
DROP FUNCTION record_change();
DROP TABLE changes;
DROP FUNCTION delete_expired_claims(timestamptz, bigint);
DROP FUNCTION due_keys(timestamptz, bigint);
DROP FUNCTION tenants_after(text, bigint);
DROP FUNCTION tenant_of_name(text);
DROP FUNCTION tenant_of_credential(uuid);
