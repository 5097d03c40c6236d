-- Codes by which the service knows its own rows: HMAC-SHA-256 over the columns
-- that matter, and the version of the key. The database is not trusted; see
-- package keystore.
--
-- A row without a code is refused. The one row of row_authentication says
-- whether there were rows before there were codes (adopt), which get theirs at
-- the next start, once: then this row has a code too.

-- +goose Up
ALTER TABLE tenants
    ADD COLUMN mac bytea CHECK (octet_length(mac) = 32), ADD COLUMN mac_version bigint CHECK (mac_version >= 1);
ALTER TABLE projects
    ADD COLUMN mac bytea CHECK (octet_length(mac) = 32), ADD COLUMN mac_version bigint CHECK (mac_version >= 1);
ALTER TABLE keys
    ADD COLUMN mac bytea CHECK (octet_length(mac) = 32), ADD COLUMN mac_version bigint CHECK (mac_version >= 1);
ALTER TABLE key_versions
    ADD COLUMN mac bytea CHECK (octet_length(mac) = 32), ADD COLUMN mac_version bigint CHECK (mac_version >= 1),
    ADD COLUMN nonces_mac bytea CHECK (octet_length(nonces_mac) = 32),
    ADD COLUMN nonces_mac_version bigint CHECK (nonces_mac_version >= 1);
ALTER TABLE key_names
    ADD COLUMN mac bytea CHECK (octet_length(mac) = 32), ADD COLUMN mac_version bigint CHECK (mac_version >= 1);
ALTER TABLE credentials
    ADD COLUMN mac bytea CHECK (octet_length(mac) = 32), ADD COLUMN mac_version bigint CHECK (mac_version >= 1);
ALTER TABLE approvals
    ADD COLUMN mac bytea CHECK (octet_length(mac) = 32), ADD COLUMN mac_version bigint CHECK (mac_version >= 1);

-- A row of a project is written once; only its code may follow.
GRANT UPDATE (mac, mac_version) ON projects TO sluice_service;

CREATE TABLE row_authentication (
    id          bigint  NOT NULL PRIMARY KEY CHECK (id = 1),
    adopt       boolean NOT NULL,
    mac         bytea   CHECK (octet_length(mac) = 32),
    mac_version bigint  CHECK (mac_version >= 1)
);
INSERT INTO row_authentication (id, adopt) SELECT 1, EXISTS (SELECT FROM tenants);
GRANT SELECT, UPDATE (mac, mac_version) ON row_authentication TO sluice_service;

-- +goose Down
DROP TABLE row_authentication;
REVOKE UPDATE (mac, mac_version) ON projects FROM sluice_service;
ALTER TABLE approvals DROP COLUMN mac, DROP COLUMN mac_version;
ALTER TABLE credentials DROP COLUMN mac, DROP COLUMN mac_version;
ALTER TABLE key_names DROP COLUMN mac, DROP COLUMN mac_version;
ALTER TABLE key_versions
    DROP COLUMN mac, DROP COLUMN mac_version, DROP COLUMN nonces_mac, DROP COLUMN nonces_mac_version;
ALTER TABLE keys DROP COLUMN mac, DROP COLUMN mac_version;
ALTER TABLE projects DROP COLUMN mac, DROP COLUMN mac_version;
ALTER TABLE tenants DROP COLUMN mac, DROP COLUMN mac_version;
