-- What happens to a key between its creation and its end: rotation dates,
-- destruction, aliases, nonces, last uses; and approvals.
--
-- Names and aliases of keys share one table, so that its primary key keeps
-- them apart. Destroyed keys and versions stay as tombstones: their ids and
-- numbers are never used again, their names are free.

-- +goose Up
-- due is the earliest date at which something is due; it follows from the
-- other columns and those of the versions. Periods are microseconds. last_used
-- is no part of the key's state and has no revision.
ALTER TABLE keys
    DROP CONSTRAINT keys_name,
    DROP CONSTRAINT keys_state,
    ADD CONSTRAINT keys_state CHECK (state IN ('ENABLED', 'DISABLED', 'PENDING_DELETION', 'DESTROYED')),
    ADD COLUMN origin text NOT NULL DEFAULT 'GENERATED' CHECK (origin <> ''),
    ADD COLUMN rotation_period bigint NOT NULL DEFAULT 0 CHECK (rotation_period >= 0),
    ADD COLUMN next_rotation timestamptz CHECK ((next_rotation IS NOT NULL) = (rotation_period > 0)),
    ADD COLUMN due timestamptz,
    ADD COLUMN last_used timestamptz,
    ADD COLUMN last_used_op text NOT NULL DEFAULT '';
UPDATE keys SET due = deletion_date;
ALTER TABLE keys ALTER COLUMN origin DROP DEFAULT, ALTER COLUMN rotation_period DROP DEFAULT;

-- Lists read past tombstones. The keeper's list is the one of all tenants.
DROP INDEX keys_by_project;
CREATE INDEX keys_by_name ON keys (tenant, name) WHERE state <> 'DESTROYED';
CREATE INDEX keys_by_project ON keys (tenant, project, name) WHERE state <> 'DESTROYED';
CREATE INDEX keys_by_due_date ON keys (due) WHERE due IS NOT NULL;

ALTER TABLE key_versions
    DROP CONSTRAINT key_versions_state,
    ADD CONSTRAINT key_versions_state CHECK (state IN ('ENABLED', 'DISABLED', 'PENDING_DESTRUCTION', 'DESTROYED')),
    ADD COLUMN destroy_at timestamptz CHECK ((destroy_at IS NOT NULL) = (state = 'PENDING_DESTRUCTION')),
    ALTER COLUMN blob DROP NOT NULL,
    ADD CONSTRAINT key_versions_blob CHECK ((blob IS NULL) = (state = 'DESTROYED')),
    ADD COLUMN nonces bigint NOT NULL DEFAULT 0 CHECK (nonces >= 0);
ALTER TABLE key_versions ALTER COLUMN nonces DROP DEFAULT;

CREATE TABLE key_names (
    tenant uuid NOT NULL,
    name   text COLLATE "C" NOT NULL CHECK (octet_length(name) BETWEEN 1 AND 128),
    kind   text NOT NULL CHECK (kind IN ('NAME', 'ALIAS')),
    key_id uuid NOT NULL,
    PRIMARY KEY (tenant, name),
    FOREIGN KEY (tenant, key_id) REFERENCES keys (tenant, id)
);
CREATE INDEX key_names_by_key ON key_names (tenant, key_id, name);
CREATE INDEX key_names_of_aliases ON key_names (tenant, name) WHERE kind = 'ALIAS';
INSERT INTO key_names SELECT tenant, name, 'NAME', id FROM keys;
ALTER TABLE key_names ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant ON key_names TO sluice_service USING (tenant = current_tenant());
GRANT SELECT, INSERT, UPDATE, DELETE ON key_names TO sluice_service;

ALTER TABLE credentials
    ADD COLUMN last_used timestamptz,
    ADD COLUMN last_address text NOT NULL DEFAULT '';

-- Approvals are the operators'; they belong to no other tenant.
CREATE TABLE approvals (
    id           uuid        NOT NULL PRIMARY KEY,
    op           text        NOT NULL CHECK (op <> ''),
    resource     text        NOT NULL,
    fingerprint  bytea       NOT NULL CHECK (octet_length(fingerprint) = 32),
    requested_by uuid        NOT NULL,
    approved_by  uuid        CHECK (approved_by <> requested_by),
    used         boolean     NOT NULL CHECK (NOT used OR approved_by IS NOT NULL),
    created      timestamptz NOT NULL,
    expires      timestamptz NOT NULL,
    revision     bigint      NOT NULL CHECK (revision >= 1)
);
CREATE INDEX approvals_by_expiry ON approvals (expires);
GRANT SELECT, INSERT, UPDATE, DELETE ON approvals TO sluice_service;

-- Undone, destroyed keys and versions are gone for good, those that wait for
-- their destruction are disabled, and aliases, approvals and rotation dates
-- are lost.

-- +goose Down
DROP TABLE approvals;
ALTER TABLE credentials DROP COLUMN last_used, DROP COLUMN last_address;
DROP TABLE key_names;
DELETE FROM key_versions WHERE state = 'DESTROYED';
DELETE FROM keys WHERE state = 'DESTROYED';
ALTER TABLE key_versions
    DROP COLUMN destroy_at,
    DROP COLUMN nonces,
    DROP CONSTRAINT key_versions_blob,
    DROP CONSTRAINT key_versions_state,
    ALTER COLUMN blob SET NOT NULL;
UPDATE key_versions SET state = 'DISABLED' WHERE state = 'PENDING_DESTRUCTION';
ALTER TABLE key_versions ADD CONSTRAINT key_versions_state CHECK (state IN ('ENABLED', 'DISABLED'));
DROP INDEX keys_by_due_date;
DROP INDEX keys_by_project;
DROP INDEX keys_by_name;
ALTER TABLE keys
    DROP COLUMN origin,
    DROP COLUMN rotation_period,
    DROP COLUMN next_rotation,
    DROP COLUMN due,
    DROP COLUMN last_used,
    DROP COLUMN last_used_op,
    DROP CONSTRAINT keys_state,
    ADD CONSTRAINT keys_state CHECK (state IN ('ENABLED', 'DISABLED', 'PENDING_DELETION')),
    ADD CONSTRAINT keys_name UNIQUE (tenant, name);
CREATE INDEX keys_by_project ON keys (tenant, project, name);
