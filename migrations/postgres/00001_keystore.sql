-- Tenants, projects, keys, credentials, the service's own secrets and the
-- idempotency records.
--
-- Everything is in the schema sluice and belongs to the role that migrates. The
-- service connects as another one, a member of sluice_service, which owns
-- nothing: for it the tables of tenants have row-level security, so that a
-- statement sees the rows of the tenant that its transaction has set
-- (app.tenant) and no others, whatever its condition.
--
-- Times are in UTC with microseconds. Names are compared byte by byte
-- (COLLATE "C"), which is also the order of listings. Every table that belongs
-- to tenants leads its keys with the tenant, so that no index can find a row
-- without it, with one exception, which is named below.
--
-- CHECK constraints cover what cannot change without a new step: lengths,
-- ranges and states. Names of tiers, specs and usages are only required not to
-- be blank; the code's tables decide, so that a program that is one version
-- behind can share the database and merely refuses the rows it does not know.

-- +goose Up
-- +goose StatementBegin
DO $$
BEGIN
    CREATE ROLE sluice_service NOLOGIN;
EXCEPTION WHEN duplicate_object OR unique_violation THEN
    NULL; -- roles are the cluster's: another database of it has made it
END
$$;
-- +goose StatementEnd

GRANT USAGE ON SCHEMA sluice TO sluice_service;

-- The tenant of the transaction, NULL when it has not set one.
CREATE FUNCTION current_tenant() RETURNS uuid LANGUAGE sql STABLE PARALLEL SAFE
    RETURN nullif(current_setting('app.tenant', true), '')::uuid;

CREATE TABLE tenants (
    id                 uuid        NOT NULL PRIMARY KEY,
    name               text        COLLATE "C" NOT NULL UNIQUE CHECK (octet_length(name) BETWEEN 1 AND 128),
    tier               text        NOT NULL CHECK (tier <> ''),
    state              text        NOT NULL CHECK (state IN ('ACTIVE', 'SUSPENDED')),
    allow_sealed       boolean     NOT NULL,
    sealing_id         uuid        NOT NULL,
    sealing_domain     uuid        NOT NULL,
    sealing_generation bigint      NOT NULL CHECK (sealing_generation >= 1),
    sealing_wrapped    bytea       NOT NULL CHECK (octet_length(sealing_wrapped) > 0),
    created            timestamptz NOT NULL,
    revision           bigint      NOT NULL CHECK (revision >= 1)
);
ALTER TABLE tenants ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant ON tenants TO sluice_service USING (id = current_tenant());
GRANT SELECT, INSERT, UPDATE ON tenants TO sluice_service;

CREATE TABLE projects (
    tenant  uuid        NOT NULL REFERENCES tenants (id),
    name    text        COLLATE "C" NOT NULL CHECK (octet_length(name) BETWEEN 1 AND 128),
    created timestamptz NOT NULL,
    PRIMARY KEY (tenant, name)
);
ALTER TABLE projects ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant ON projects TO sluice_service USING (tenant = current_tenant());
GRANT SELECT, INSERT ON projects TO sluice_service;

-- highest_version is the highest version number ever used: destroying the
-- newest version must not make its number available again, since ciphertexts
-- and signatures name it.
CREATE TABLE keys (
    tenant              uuid        NOT NULL,
    id                  uuid        NOT NULL,
    project             text        COLLATE "C" NOT NULL,
    name                text        COLLATE "C" NOT NULL CHECK (octet_length(name) BETWEEN 1 AND 128),
    spec                text        NOT NULL CHECK (spec <> ''),
    usage               text        NOT NULL CHECK (usage <> ''),
    protection          text        NOT NULL CHECK (protection <> ''),
    state               text        NOT NULL CONSTRAINT keys_state CHECK (state IN ('ENABLED', 'DISABLED', 'PENDING_DELETION')),
    description         text        NOT NULL,
    tags                text        NOT NULL CHECK (json_typeof(tags::json) = 'object'),
    created             timestamptz NOT NULL,
    deletion_date       timestamptz CHECK ((deletion_date IS NOT NULL) = (state = 'PENDING_DELETION')),
    deletion_protection boolean     NOT NULL,
    primary_version     bigint      NOT NULL CHECK (primary_version BETWEEN 1 AND highest_version),
    highest_version     bigint      NOT NULL CHECK (highest_version BETWEEN 1 AND 4294967295),
    revision            bigint      NOT NULL CHECK (revision >= 1),
    PRIMARY KEY (tenant, id),
    CONSTRAINT keys_name UNIQUE (tenant, name),
    FOREIGN KEY (tenant, project) REFERENCES projects (tenant, name)
);
CREATE INDEX keys_by_project ON keys (tenant, project, name);
ALTER TABLE keys ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant ON keys TO sluice_service USING (tenant = current_tenant());
GRANT SELECT, INSERT, UPDATE ON keys TO sluice_service;

-- key_id, not key: the column names an object of another table.
CREATE TABLE key_versions (
    tenant     uuid        NOT NULL,
    key_id     uuid        NOT NULL,
    number     bigint      NOT NULL CHECK (number BETWEEN 1 AND 4294967295),
    id         uuid        NOT NULL,
    state      text        NOT NULL CONSTRAINT key_versions_state CHECK (state IN ('ENABLED', 'DISABLED')),
    created    timestamptz NOT NULL,
    public_key bytea       CHECK (octet_length(public_key) > 0),
    blob       bytea       NOT NULL CHECK (octet_length(blob) > 0),
    PRIMARY KEY (tenant, key_id, number),
    FOREIGN KEY (tenant, key_id) REFERENCES keys (tenant, id)
);
ALTER TABLE key_versions ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant ON key_versions TO sluice_service USING (tenant = current_tenant());
GRANT SELECT, INSERT, UPDATE ON key_versions TO sluice_service;

CREATE TABLE credentials (
    tenant    uuid        NOT NULL,
    id        uuid        NOT NULL,
    project   text        COLLATE "C" NOT NULL,
    name      text        COLLATE "C" NOT NULL CHECK (octet_length(name) BETWEEN 1 AND 128),
    component text        NOT NULL CHECK (octet_length(component) <= 128),
    scopes    text        NOT NULL CHECK (json_typeof(scopes::json) = 'array'),
    networks  text        NOT NULL CHECK (json_typeof(networks::json) = 'array'),
    created   timestamptz NOT NULL,
    expires   timestamptz,
    revoked   timestamptz,
    revision  bigint      NOT NULL CHECK (revision >= 1),
    PRIMARY KEY (tenant, id),
    FOREIGN KEY (tenant, project) REFERENCES projects (tenant, name)
);
-- The exception: authentication finds out the tenant from the credential's id.
CREATE UNIQUE INDEX credentials_by_id ON credentials (id);
CREATE INDEX credentials_by_name ON credentials (tenant, name, id);
ALTER TABLE credentials ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant ON credentials TO sluice_service USING (tenant = current_tenant());
GRANT SELECT, INSERT, UPDATE ON credentials TO sluice_service;

CREATE TABLE credential_secrets (
    tenant         uuid        NOT NULL,
    credential     uuid        NOT NULL,
    position       bigint      NOT NULL CHECK (position >= 0),
    hash           bytea       NOT NULL CHECK (octet_length(hash) = 32),
    pepper_version bigint      NOT NULL CHECK (pepper_version BETWEEN 1 AND 4294967295),
    created        timestamptz NOT NULL,
    expires        timestamptz,
    PRIMARY KEY (tenant, credential, position),
    FOREIGN KEY (tenant, credential) REFERENCES credentials (tenant, id)
);
ALTER TABLE credential_secrets ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant ON credential_secrets TO sluice_service USING (tenant = current_tenant());
GRANT SELECT, INSERT, DELETE ON credential_secrets TO sluice_service;

-- The service's own secrets, sealed under the system tenant's sealing key.
CREATE TABLE system_secrets (
    name    text        COLLATE "C" NOT NULL CHECK (octet_length(name) BETWEEN 1 AND 128),
    version bigint      NOT NULL CHECK (version BETWEEN 1 AND 4294967295),
    blob    bytea       NOT NULL CHECK (octet_length(blob) > 0),
    created timestamptz NOT NULL,
    PRIMARY KEY (name, version)
);
GRANT SELECT, INSERT ON system_secrets TO sluice_service;

-- claim is the client's Idempotency-Key, which is bytes: a client may send
-- what is no text. The status is there once the answer is.
CREATE TABLE idempotency (
    tenant      uuid        NOT NULL REFERENCES tenants (id),
    credential  uuid        NOT NULL,
    claim       bytea       NOT NULL CHECK (octet_length(claim) BETWEEN 1 AND 255),
    fingerprint bytea       NOT NULL CHECK (octet_length(fingerprint) = 32),
    state       text        NOT NULL CHECK (state IN ('IN_FLIGHT', 'DONE')),
    status      bigint      CHECK ((status IS NOT NULL) = (state = 'DONE')),
    resource    text        NOT NULL,
    secret      boolean     NOT NULL,
    expires     timestamptz NOT NULL,
    PRIMARY KEY (tenant, credential, claim)
);
CREATE INDEX idempotency_by_expiry ON idempotency (expires);
ALTER TABLE idempotency ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant ON idempotency TO sluice_service USING (tenant = current_tenant());
GRANT SELECT, INSERT, UPDATE, DELETE ON idempotency TO sluice_service;

-- Undone, the role stays: other databases may use it.

-- +goose Down
DROP TABLE idempotency;
DROP TABLE system_secrets;
DROP TABLE credential_secrets;
DROP TABLE credentials;
DROP TABLE key_versions;
DROP TABLE keys;
DROP TABLE projects;
DROP TABLE tenants;
DROP FUNCTION current_tenant();
REVOKE USAGE ON SCHEMA sluice FROM sluice_service;
