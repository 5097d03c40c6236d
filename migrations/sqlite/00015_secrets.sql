-- Provider secrets of tenants, and what changes about them.

-- +goose Up

-- A secret is read and written as a whole: what is said of it and its versions
-- is one document, under one code. The values are apart, so that a change of a
-- state does not write them again.
CREATE TABLE secrets (
    tenant      BLOB    NOT NULL REFERENCES tenants (id),
    id          BLOB    NOT NULL CHECK (length(id) = 16),
    path        TEXT    NOT NULL CHECK (length(path) BETWEEN 1 AND 240),
    state       TEXT    NOT NULL CHECK (state IN ('ACTIVE', 'PENDING_DELETION', 'DESTROYED')),
    document    BLOB    NOT NULL CHECK (length(document) BETWEEN 1 AND 2097152),
    due         INTEGER,
    revision    INTEGER NOT NULL CHECK (revision >= 1),
    mac         BLOB    CHECK (length(mac) = 32),
    mac_version INTEGER CHECK (mac_version >= 1),
    PRIMARY KEY (tenant, id)
) STRICT;
-- Tombstones keep their id, and leave their path to others.
CREATE UNIQUE INDEX secrets_by_path ON secrets (tenant, path) WHERE state <> 'DESTROYED';
CREATE INDEX secrets_by_due ON secrets (due, tenant, id) WHERE due IS NOT NULL;

-- A destroyed version has no row.
CREATE TABLE secret_versions (
    tenant      BLOB    NOT NULL,
    secret_id   BLOB    NOT NULL,
    number      INTEGER NOT NULL CHECK (number BETWEEN 1 AND 4294967295),
    data_key    BLOB    NOT NULL CHECK (length(data_key) > 0),
    value       BLOB    NOT NULL CHECK (length(value) > 0),
    mac         BLOB    CHECK (length(mac) = 32),
    mac_version INTEGER CHECK (mac_version >= 1),
    PRIMARY KEY (tenant, secret_id, number),
    FOREIGN KEY (tenant, secret_id) REFERENCES secrets (tenant, id)
) STRICT;

-- The tenant's revision, which grows by one with every change of a secret.
CREATE TABLE secret_revisions (
    tenant      BLOB    NOT NULL PRIMARY KEY REFERENCES tenants (id),
    revision    INTEGER NOT NULL CHECK (revision >= 1),
    mac         BLOB    CHECK (length(mac) = 32),
    mac_version INTEGER CHECK (mac_version >= 1)
) STRICT;

-- The last changes, one for each revision.
CREATE TABLE secret_changes (
    tenant      BLOB    NOT NULL REFERENCES tenants (id),
    revision    INTEGER NOT NULL CHECK (revision >= 1),
    path        TEXT    NOT NULL,
    kind        TEXT    NOT NULL CHECK (kind IN ('changed', 'revoked')),
    made        INTEGER NOT NULL,
    mac         BLOB    CHECK (length(mac) = 32),
    mac_version INTEGER CHECK (mac_version >= 1),
    PRIMARY KEY (tenant, revision)
) STRICT;
CREATE INDEX secret_changes_by_age ON secret_changes (made);

-- What calls came to since a rollout's step began.
CREATE TABLE secret_outcomes (
    tenant     BLOB    NOT NULL,
    secret_id  BLOB    NOT NULL,
    version    INTEGER NOT NULL CHECK (version BETWEEN 1 AND 4294967295),
    ok         INTEGER NOT NULL CHECK (ok >= 0),
    credential INTEGER NOT NULL CHECK (credential >= 0),
    quota      INTEGER NOT NULL CHECK (quota >= 0),
    rate_limit INTEGER NOT NULL CHECK (rate_limit >= 0),
    transient  INTEGER NOT NULL CHECK (transient >= 0),
    PRIMARY KEY (tenant, secret_id, version),
    FOREIGN KEY (tenant, secret_id) REFERENCES secrets (tenant, id)
) STRICT;

-- +goose Down
DROP TABLE secret_outcomes;
DROP TABLE secret_changes;
DROP TABLE secret_revisions;
DROP TABLE secret_versions;
DROP TABLE secrets;
