-- What happens to a key between its creation and its end: rotation dates,
-- destruction, aliases, nonces, last uses; and approvals.
--
-- Names and aliases of keys share one table, so that its primary key keeps
-- them apart. Destroyed keys and versions stay as tombstones: their ids and
-- numbers are never used again, their names are free.
--
-- SQLite cannot change a CHECK constraint, so the two tables of keys are made
-- again around their rows.

-- +goose Up
CREATE TEMP TABLE moved_keys AS SELECT * FROM keys;
CREATE TEMP TABLE moved_versions AS SELECT * FROM key_versions;
DROP TABLE key_versions;
DROP TABLE keys;

-- due is the earliest date at which something is due; it follows from the
-- other columns and those of the versions. Periods are microseconds. last_used
-- is no part of the key's state and has no revision.
CREATE TABLE keys (
    tenant              BLOB    NOT NULL,
    id                  BLOB    NOT NULL CHECK (length(id) = 16),
    project             TEXT    NOT NULL,
    name                TEXT    NOT NULL CHECK (length(name) BETWEEN 1 AND 128),
    spec                TEXT    NOT NULL CHECK (spec <> ''),
    usage               TEXT    NOT NULL CHECK (usage <> ''),
    protection          TEXT    NOT NULL CHECK (protection <> ''),
    state               TEXT    NOT NULL CHECK (state IN ('ENABLED', 'DISABLED', 'PENDING_DELETION', 'DESTROYED')),
    description         TEXT    NOT NULL,
    tags                TEXT    NOT NULL CHECK (json_type(tags) = 'object'),
    created             INTEGER NOT NULL,
    deletion_date       INTEGER CHECK ((deletion_date IS NOT NULL) = (state = 'PENDING_DELETION')),
    deletion_protection INTEGER NOT NULL CHECK (deletion_protection IN (0, 1)),
    origin              TEXT    NOT NULL CHECK (origin <> ''),
    rotation_period     INTEGER NOT NULL CHECK (rotation_period >= 0),
    next_rotation       INTEGER CHECK ((next_rotation IS NOT NULL) = (rotation_period > 0)),
    due                 INTEGER,
    primary_version     INTEGER NOT NULL CHECK (primary_version BETWEEN 1 AND highest_version),
    highest_version     INTEGER NOT NULL CHECK (highest_version BETWEEN 1 AND 4294967295),
    revision            INTEGER NOT NULL CHECK (revision >= 1),
    last_used           INTEGER,
    last_used_op        TEXT    NOT NULL,
    PRIMARY KEY (tenant, id),
    FOREIGN KEY (tenant, project) REFERENCES projects (tenant, name)
) STRICT;

-- Lists read past tombstones. The keeper's list is the one of all tenants.
CREATE INDEX keys_by_name ON keys (tenant, name) WHERE state <> 'DESTROYED';
CREATE INDEX keys_by_project ON keys (tenant, project, name) WHERE state <> 'DESTROYED';
CREATE INDEX keys_by_due_date ON keys (due) WHERE due IS NOT NULL;

CREATE TABLE key_versions (
    tenant     BLOB    NOT NULL,
    key_id     BLOB    NOT NULL,
    number     INTEGER NOT NULL CHECK (number BETWEEN 1 AND 4294967295),
    id         BLOB    NOT NULL CHECK (length(id) = 16),
    state      TEXT    NOT NULL CHECK (state IN ('ENABLED', 'DISABLED', 'PENDING_DESTRUCTION', 'DESTROYED')),
    created    INTEGER NOT NULL,
    destroy_at INTEGER CHECK ((destroy_at IS NOT NULL) = (state = 'PENDING_DESTRUCTION')),
    public_key BLOB    CHECK (length(public_key) > 0),
    blob       BLOB    CHECK (length(blob) > 0) CHECK ((blob IS NULL) = (state = 'DESTROYED')),
    nonces     INTEGER NOT NULL CHECK (nonces >= 0),
    PRIMARY KEY (tenant, key_id, number),
    FOREIGN KEY (tenant, key_id) REFERENCES keys (tenant, id)
) STRICT;

CREATE TABLE key_names (
    tenant BLOB NOT NULL,
    name   TEXT NOT NULL CHECK (length(name) BETWEEN 1 AND 128),
    kind   TEXT NOT NULL CHECK (kind IN ('NAME', 'ALIAS')),
    key_id BLOB NOT NULL,
    PRIMARY KEY (tenant, name),
    FOREIGN KEY (tenant, key_id) REFERENCES keys (tenant, id)
) STRICT;

CREATE INDEX key_names_by_key ON key_names (tenant, key_id, name);
CREATE INDEX key_names_of_aliases ON key_names (tenant, name) WHERE kind = 'ALIAS';

INSERT INTO keys SELECT tenant, id, project, name, spec, usage, protection, state, description, tags, created,
    deletion_date, deletion_protection, 'GENERATED', 0, NULL, deletion_date, primary_version, highest_version,
    revision, NULL, '' FROM moved_keys;
INSERT INTO key_versions SELECT tenant, key_id, number, id, state, created, NULL, public_key, blob, 0
    FROM moved_versions;
INSERT INTO key_names SELECT tenant, name, 'NAME', id FROM moved_keys;
DROP TABLE moved_versions;
DROP TABLE moved_keys;

ALTER TABLE credentials ADD COLUMN last_used INTEGER;
ALTER TABLE credentials ADD COLUMN last_address TEXT NOT NULL DEFAULT '';

-- Approvals are the operators'; they belong to no other tenant.
CREATE TABLE approvals (
    id           BLOB    NOT NULL PRIMARY KEY CHECK (length(id) = 16),
    op           TEXT    NOT NULL CHECK (op <> ''),
    resource     TEXT    NOT NULL,
    fingerprint  BLOB    NOT NULL CHECK (length(fingerprint) = 32),
    requested_by BLOB    NOT NULL CHECK (length(requested_by) = 16),
    approved_by  BLOB    CHECK (length(approved_by) = 16) CHECK (approved_by <> requested_by),
    used         INTEGER NOT NULL CHECK (used IN (0, 1)) CHECK (used = 0 OR approved_by IS NOT NULL),
    created      INTEGER NOT NULL,
    expires      INTEGER NOT NULL,
    revision     INTEGER NOT NULL CHECK (revision >= 1)
) STRICT;

CREATE INDEX approvals_by_expiry ON approvals (expires);

-- Undone, destroyed keys and versions are gone for good, those that wait for
-- their destruction are disabled, and aliases, approvals and rotation dates
-- are lost.

-- +goose Down
DROP TABLE approvals;
ALTER TABLE credentials DROP COLUMN last_address;
ALTER TABLE credentials DROP COLUMN last_used;
CREATE TEMP TABLE moved_keys AS SELECT * FROM keys WHERE state <> 'DESTROYED';
CREATE TEMP TABLE moved_versions AS SELECT * FROM key_versions WHERE state <> 'DESTROYED';
DROP TABLE key_names;
DROP TABLE key_versions;
DROP TABLE keys;
CREATE TABLE keys (
    tenant              BLOB    NOT NULL,
    id                  BLOB    NOT NULL CHECK (length(id) = 16),
    project             TEXT    NOT NULL,
    name                TEXT    NOT NULL CHECK (length(name) BETWEEN 1 AND 128),
    spec                TEXT    NOT NULL CHECK (spec <> ''),
    usage               TEXT    NOT NULL CHECK (usage <> ''),
    protection          TEXT    NOT NULL CHECK (protection <> ''),
    state               TEXT    NOT NULL CHECK (state IN ('ENABLED', 'DISABLED', 'PENDING_DELETION')),
    description         TEXT    NOT NULL,
    tags                TEXT    NOT NULL CHECK (json_type(tags) = 'object'),
    created             INTEGER NOT NULL,
    deletion_date       INTEGER CHECK ((deletion_date IS NOT NULL) = (state = 'PENDING_DELETION')),
    deletion_protection INTEGER NOT NULL CHECK (deletion_protection IN (0, 1)),
    primary_version     INTEGER NOT NULL CHECK (primary_version BETWEEN 1 AND highest_version),
    highest_version     INTEGER NOT NULL CHECK (highest_version BETWEEN 1 AND 4294967295),
    revision            INTEGER NOT NULL CHECK (revision >= 1),
    PRIMARY KEY (tenant, id),
    UNIQUE (tenant, name),
    FOREIGN KEY (tenant, project) REFERENCES projects (tenant, name)
) STRICT;

CREATE INDEX keys_by_project ON keys (tenant, project, name);

CREATE TABLE key_versions (
    tenant     BLOB    NOT NULL,
    key_id     BLOB    NOT NULL,
    number     INTEGER NOT NULL CHECK (number BETWEEN 1 AND 4294967295),
    id         BLOB    NOT NULL CHECK (length(id) = 16),
    state      TEXT    NOT NULL CHECK (state IN ('ENABLED', 'DISABLED')),
    created    INTEGER NOT NULL,
    public_key BLOB    CHECK (length(public_key) > 0),
    blob       BLOB    NOT NULL CHECK (length(blob) > 0),
    PRIMARY KEY (tenant, key_id, number),
    FOREIGN KEY (tenant, key_id) REFERENCES keys (tenant, id)
) STRICT;

INSERT INTO keys SELECT tenant, id, project, name, spec, usage, protection, state, description, tags, created,
    deletion_date, deletion_protection, primary_version, highest_version, revision FROM moved_keys;
INSERT INTO key_versions SELECT tenant, key_id, number, id,
    CASE state WHEN 'PENDING_DESTRUCTION' THEN 'DISABLED' ELSE state END, created, public_key, blob
    FROM moved_versions;
DROP TABLE moved_versions;
DROP TABLE moved_keys;
