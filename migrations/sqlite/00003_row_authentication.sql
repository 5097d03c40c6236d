-- Codes by which the service knows its own rows: HMAC-SHA-256 over the columns
-- that matter, and the version of the key. The database is not trusted; see
-- package keystore.
--
-- A row without a code is refused. The one row of row_authentication says
-- whether there were rows before there were codes (adopt), which get theirs at
-- the next start, once: then this row has a code too.

-- +goose Up
ALTER TABLE tenants ADD COLUMN mac BLOB CHECK (length(mac) = 32);
ALTER TABLE tenants ADD COLUMN mac_version INTEGER CHECK (mac_version >= 1);
ALTER TABLE projects ADD COLUMN mac BLOB CHECK (length(mac) = 32);
ALTER TABLE projects ADD COLUMN mac_version INTEGER CHECK (mac_version >= 1);
ALTER TABLE keys ADD COLUMN mac BLOB CHECK (length(mac) = 32);
ALTER TABLE keys ADD COLUMN mac_version INTEGER CHECK (mac_version >= 1);
ALTER TABLE key_versions ADD COLUMN mac BLOB CHECK (length(mac) = 32);
ALTER TABLE key_versions ADD COLUMN mac_version INTEGER CHECK (mac_version >= 1);
ALTER TABLE key_versions ADD COLUMN nonces_mac BLOB CHECK (length(nonces_mac) = 32);
ALTER TABLE key_versions ADD COLUMN nonces_mac_version INTEGER CHECK (nonces_mac_version >= 1);
ALTER TABLE key_names ADD COLUMN mac BLOB CHECK (length(mac) = 32);
ALTER TABLE key_names ADD COLUMN mac_version INTEGER CHECK (mac_version >= 1);
ALTER TABLE credentials ADD COLUMN mac BLOB CHECK (length(mac) = 32);
ALTER TABLE credentials ADD COLUMN mac_version INTEGER CHECK (mac_version >= 1);
ALTER TABLE approvals ADD COLUMN mac BLOB CHECK (length(mac) = 32);
ALTER TABLE approvals ADD COLUMN mac_version INTEGER CHECK (mac_version >= 1);

CREATE TABLE row_authentication (
    id          INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
    adopt       INTEGER NOT NULL CHECK (adopt IN (0, 1)),
    mac         BLOB    CHECK (length(mac) = 32),
    mac_version INTEGER CHECK (mac_version >= 1)
) STRICT;

INSERT INTO row_authentication (id, adopt) SELECT 1, EXISTS (SELECT 1 FROM tenants);

-- +goose Down
DROP TABLE row_authentication;
ALTER TABLE approvals DROP COLUMN mac_version;
ALTER TABLE approvals DROP COLUMN mac;
ALTER TABLE credentials DROP COLUMN mac_version;
ALTER TABLE credentials DROP COLUMN mac;
ALTER TABLE key_names DROP COLUMN mac_version;
ALTER TABLE key_names DROP COLUMN mac;
ALTER TABLE key_versions DROP COLUMN nonces_mac_version;
ALTER TABLE key_versions DROP COLUMN nonces_mac;
ALTER TABLE key_versions DROP COLUMN mac_version;
ALTER TABLE key_versions DROP COLUMN mac;
ALTER TABLE keys DROP COLUMN mac_version;
ALTER TABLE keys DROP COLUMN mac;
ALTER TABLE projects DROP COLUMN mac_version;
ALTER TABLE projects DROP COLUMN mac;
ALTER TABLE tenants DROP COLUMN mac_version;
ALTER TABLE tenants DROP COLUMN mac;
