-- The end of a tenant: its sealing key is erased, its row stays as the record of
-- its shredding, and its name stays taken.
--
-- SQLite cannot change a CHECK constraint, so the table is made again around its
-- rows. The rows that refer to them find them again before the step ends, which
-- is when they are asked.

-- +goose Up
PRAGMA defer_foreign_keys = ON;
CREATE TEMP TABLE moved_tenants AS SELECT * FROM tenants;
DROP TABLE tenants;

CREATE TABLE tenants (
    id                 BLOB    NOT NULL PRIMARY KEY CHECK (length(id) = 16),
    name               TEXT    NOT NULL UNIQUE CHECK (length(name) BETWEEN 1 AND 128),
    tier               TEXT    NOT NULL CHECK (tier <> ''),
    state              TEXT    NOT NULL CHECK (state IN ('ACTIVE', 'SUSPENDED', 'DELETING', 'DELETED', 'SHREDDED')),
    allow_sealed       INTEGER NOT NULL CHECK (allow_sealed IN (0, 1)),
    sealing_id         BLOB    NOT NULL CHECK (length(sealing_id) = 16),
    sealing_domain     BLOB    NOT NULL CHECK (length(sealing_domain) = 16),
    sealing_generation INTEGER NOT NULL CHECK (sealing_generation >= 1),
    sealing_wrapped    BLOB    CHECK (length(sealing_wrapped) > 0)
                               CHECK ((sealing_wrapped IS NULL) = (state IN ('DELETING', 'DELETED', 'SHREDDED'))),
    created            INTEGER NOT NULL,
    revision           INTEGER NOT NULL CHECK (revision >= 1),
    mac                BLOB    CHECK (length(mac) = 32),
    mac_version        INTEGER CHECK (mac_version >= 1),
    deleted_at         INTEGER CHECK ((deleted_at IS NOT NULL) = (state IN ('DELETING', 'DELETED', 'SHREDDED'))),
    void_at            INTEGER CHECK ((void_at IS NOT NULL) = (deleted_at IS NOT NULL)),
    erased_at          INTEGER CHECK ((erased_at IS NOT NULL) = (state IN ('DELETED', 'SHREDDED'))),
    shredded_at        INTEGER CHECK ((shredded_at IS NOT NULL) = (state = 'SHREDDED'))
) STRICT;

INSERT INTO tenants SELECT id, name, tier, state, allow_sealed, sealing_id, sealing_domain, sealing_generation,
    sealing_wrapped, created, revision, mac, mac_version, NULL, NULL, NULL, NULL FROM moved_tenants;
DROP TABLE moved_tenants;

-- The keeper's list is the one of all tenants.
CREATE INDEX tenants_by_deletion ON tenants (id) WHERE state IN ('DELETING', 'DELETED');

-- Undone, deleted tenants are suspended ones with a sealing key that is none;
-- their codes are not those of their rows, so that nobody can resume them.

-- +goose Down
PRAGMA defer_foreign_keys = ON;
CREATE TEMP TABLE moved_tenants AS SELECT * FROM tenants;
DROP TABLE tenants;

CREATE TABLE tenants (
    id                 BLOB    NOT NULL PRIMARY KEY CHECK (length(id) = 16),
    name               TEXT    NOT NULL UNIQUE CHECK (length(name) BETWEEN 1 AND 128),
    tier               TEXT    NOT NULL CHECK (tier <> ''),
    state              TEXT    NOT NULL CHECK (state IN ('ACTIVE', 'SUSPENDED')),
    allow_sealed       INTEGER NOT NULL CHECK (allow_sealed IN (0, 1)),
    sealing_id         BLOB    NOT NULL CHECK (length(sealing_id) = 16),
    sealing_domain     BLOB    NOT NULL CHECK (length(sealing_domain) = 16),
    sealing_generation INTEGER NOT NULL CHECK (sealing_generation >= 1),
    sealing_wrapped    BLOB    NOT NULL CHECK (length(sealing_wrapped) > 0),
    created            INTEGER NOT NULL,
    revision           INTEGER NOT NULL CHECK (revision >= 1)
) STRICT;
ALTER TABLE tenants ADD COLUMN mac BLOB CHECK (length(mac) = 32);
ALTER TABLE tenants ADD COLUMN mac_version INTEGER CHECK (mac_version >= 1);

INSERT INTO tenants SELECT id, name, tier, CASE WHEN deleted_at IS NULL THEN state ELSE 'SUSPENDED' END, allow_sealed,
    sealing_id, sealing_domain, sealing_generation, coalesce(sealing_wrapped, x'00'), created, revision, mac, mac_version
    FROM moved_tenants;
DROP TABLE moved_tenants;
