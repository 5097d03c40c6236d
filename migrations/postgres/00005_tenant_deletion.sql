-- The end of a tenant: its sealing key is erased, its row stays as the record of
-- its shredding, and its name stays taken.

-- +goose Up
ALTER TABLE tenants
    DROP CONSTRAINT tenants_state_check,
    ADD CONSTRAINT tenants_state_check CHECK (state IN ('ACTIVE', 'SUSPENDED', 'DELETING', 'DELETED', 'SHREDDED')),
    ALTER COLUMN sealing_wrapped DROP NOT NULL,
    ADD CONSTRAINT tenants_sealing_of_state
        CHECK ((sealing_wrapped IS NULL) = (state IN ('DELETING', 'DELETED', 'SHREDDED'))),
    ADD COLUMN deleted_at timestamptz CHECK ((deleted_at IS NOT NULL) = (state IN ('DELETING', 'DELETED', 'SHREDDED'))),
    ADD COLUMN void_at timestamptz CHECK ((void_at IS NOT NULL) = (deleted_at IS NOT NULL)),
    ADD COLUMN erased_at timestamptz CHECK ((erased_at IS NOT NULL) = (state IN ('DELETED', 'SHREDDED'))),
    ADD COLUMN shredded_at timestamptz CHECK ((shredded_at IS NOT NULL) = (state = 'SHREDDED'));

CREATE INDEX tenants_by_deletion ON tenants (id) WHERE state IN ('DELETING', 'DELETED');

-- The keeper acts for all tenants.
CREATE FUNCTION due_deletions(moment timestamptz, after uuid, most bigint) RETURNS SETOF uuid
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = sluice, pg_temp
    AS $$
    SELECT id FROM tenants
    WHERE state IN ('DELETING', 'DELETED') AND (state = 'DELETING' OR void_at <= moment) AND id > after
    ORDER BY id LIMIT most
    $$;
REVOKE ALL ON FUNCTION due_deletions(timestamptz, uuid, bigint) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION due_deletions(timestamptz, uuid, bigint) TO sluice_service;

-- Undone, deleted tenants are suspended ones with a sealing key that is none;
-- their codes are not those of their rows, so that nobody can resume them.

-- +goose Down
DROP FUNCTION due_deletions(timestamptz, uuid, bigint);
DROP INDEX tenants_by_deletion;
ALTER TABLE tenants
    DROP COLUMN deleted_at, DROP COLUMN void_at, DROP COLUMN erased_at, DROP COLUMN shredded_at,
    DROP CONSTRAINT tenants_sealing_of_state, DROP CONSTRAINT tenants_state_check;
UPDATE tenants SET state = 'SUSPENDED', sealing_wrapped = '\x00' WHERE sealing_wrapped IS NULL;
ALTER TABLE tenants
    ADD CONSTRAINT tenants_state_check CHECK (state IN ('ACTIVE', 'SUSPENDED')),
    ALTER COLUMN sealing_wrapped SET NOT NULL;
