-- Routes over providers, and what is known of their health.

-- +goose Up
CREATE TABLE routes (
    tenant      BLOB    NOT NULL REFERENCES tenants (id),
    name        TEXT    NOT NULL CHECK (length(name) BETWEEN 1 AND 64),
    document    BLOB    NOT NULL CHECK (length(document) BETWEEN 1 AND 65536),
    revision    INTEGER NOT NULL CHECK (revision >= 1),
    mac         BLOB    CHECK (length(mac) = 32),
    mac_version INTEGER CHECK (mac_version >= 1),
    PRIMARY KEY (tenant, name)
) STRICT;

-- It is apart from the route because every report writes it, and one of two
-- reports at the same time is applied to what the other one stored.
CREATE TABLE route_health (
    tenant      BLOB    NOT NULL,
    name        TEXT    NOT NULL,
    route       BLOB    NOT NULL CHECK (length(route) = 16),
    document    BLOB    NOT NULL CHECK (length(document) BETWEEN 1 AND 1048576),
    revision    INTEGER NOT NULL CHECK (revision >= 1),
    mac         BLOB    CHECK (length(mac) = 32),
    mac_version INTEGER CHECK (mac_version >= 1),
    PRIMARY KEY (tenant, name),
    FOREIGN KEY (tenant, name) REFERENCES routes (tenant, name)
) STRICT;

-- +goose Down
DROP TABLE route_health;
DROP TABLE routes;
