-- Tenants, projects, keys, credentials, the service's own secrets and the
-- idempotency records.
--
-- Times are UTC microseconds since 1970. Ids are the 16 bytes of a UUID.
-- Names are compared byte by byte (collation BINARY), which is also the order
-- of listings. Every table that belongs to tenants leads its keys with the
-- tenant, so that no index can find a row without it, with one exception,
-- which is named below.
--
-- CHECK constraints cover what cannot change without a new step: lengths,
-- ranges and states. Names of tiers, specs and usages are only required not to
-- be blank; the code's tables decide, so that a program that is one version
-- behind can share the database and merely refuses the rows it does not know.

-- +goose Up
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

CREATE TABLE projects (
    tenant  BLOB    NOT NULL REFERENCES tenants (id),
    name    TEXT    NOT NULL CHECK (length(name) BETWEEN 1 AND 128),
    created INTEGER NOT NULL,
    PRIMARY KEY (tenant, name)
) STRICT;

-- highest_version is the highest version number ever used: destroying the
-- newest version must not make its number available again, since ciphertexts
-- and signatures name it.
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

-- key_id, not key: the column names an object of another table.
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

CREATE TABLE credentials (
    tenant    BLOB    NOT NULL,
    id        BLOB    NOT NULL CHECK (length(id) = 16),
    project   TEXT    NOT NULL,
    name      TEXT    NOT NULL CHECK (length(name) BETWEEN 1 AND 128),
    component TEXT    NOT NULL CHECK (length(component) <= 128),
    scopes    TEXT    NOT NULL CHECK (json_type(scopes) = 'array'),
    networks  TEXT    NOT NULL CHECK (json_type(networks) = 'array'),
    created   INTEGER NOT NULL,
    expires   INTEGER,
    revoked   INTEGER,
    revision  INTEGER NOT NULL CHECK (revision >= 1),
    PRIMARY KEY (tenant, id),
    FOREIGN KEY (tenant, project) REFERENCES projects (tenant, name)
) STRICT;

-- The exception: authentication finds out the tenant from the credential's id.
CREATE UNIQUE INDEX credentials_by_id ON credentials (id);
CREATE INDEX credentials_by_name ON credentials (tenant, name, id);

CREATE TABLE credential_secrets (
    tenant         BLOB    NOT NULL,
    credential     BLOB    NOT NULL,
    position       INTEGER NOT NULL CHECK (position >= 0),
    hash           BLOB    NOT NULL CHECK (length(hash) = 32),
    pepper_version INTEGER NOT NULL CHECK (pepper_version BETWEEN 1 AND 4294967295),
    created        INTEGER NOT NULL,
    expires        INTEGER,
    PRIMARY KEY (tenant, credential, position),
    FOREIGN KEY (tenant, credential) REFERENCES credentials (tenant, id)
) STRICT;

-- The service's own secrets, sealed under the system tenant's sealing key.
CREATE TABLE system_secrets (
    name    TEXT    NOT NULL CHECK (length(name) BETWEEN 1 AND 128),
    version INTEGER NOT NULL CHECK (version BETWEEN 1 AND 4294967295),
    blob    BLOB    NOT NULL CHECK (length(blob) > 0),
    created INTEGER NOT NULL,
    PRIMARY KEY (name, version)
) STRICT;

-- claim is the client's Idempotency-Key, which is bytes: a client may send
-- what is no text. The status is there once the answer is.
CREATE TABLE idempotency (
    tenant      BLOB    NOT NULL REFERENCES tenants (id),
    credential  BLOB    NOT NULL CHECK (length(credential) = 16),
    claim       BLOB    NOT NULL CHECK (length(claim) BETWEEN 1 AND 255),
    fingerprint BLOB    NOT NULL CHECK (length(fingerprint) = 32),
    state       TEXT    NOT NULL CHECK (state IN ('IN_FLIGHT', 'DONE')),
    status      INTEGER CHECK ((status IS NOT NULL) = (state = 'DONE')),
    resource    TEXT    NOT NULL,
    secret      INTEGER NOT NULL CHECK (secret IN (0, 1)),
    expires     INTEGER NOT NULL,
    PRIMARY KEY (tenant, credential, claim)
) STRICT;

CREATE INDEX idempotency_by_expiry ON idempotency (expires);

-- +goose Down
DROP TABLE idempotency;
DROP TABLE system_secrets;
DROP TABLE credential_secrets;
DROP TABLE credentials;
DROP TABLE key_versions;
DROP TABLE keys;
DROP TABLE projects;
DROP TABLE tenants;
