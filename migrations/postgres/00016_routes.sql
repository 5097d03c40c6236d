-- Routes over providers, and what is known of their health.

-- +goose Up
CREATE TABLE routes (
    tenant      uuid   NOT NULL REFERENCES tenants (id),
    name        text   COLLATE "C" NOT NULL CHECK (octet_length(name) BETWEEN 1 AND 64),
    document    bytea  NOT NULL CHECK (octet_length(document) BETWEEN 1 AND 65536),
    revision    bigint NOT NULL CHECK (revision >= 1),
    mac         bytea  CHECK (octet_length(mac) = 32),
    mac_version bigint CHECK (mac_version >= 1),
    PRIMARY KEY (tenant, name)
);
ALTER TABLE routes ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant ON routes TO sluice_service USING (tenant = current_tenant());
GRANT SELECT, INSERT, UPDATE, DELETE ON routes TO sluice_service;

-- It is apart from the route because every report writes it, and one of two
-- reports at the same time is applied to what the other one stored.
CREATE TABLE route_health (
    tenant      uuid   NOT NULL,
    name        text   COLLATE "C" NOT NULL,
    route       uuid   NOT NULL,
    document    bytea  NOT NULL CHECK (octet_length(document) BETWEEN 1 AND 1048576),
    revision    bigint NOT NULL CHECK (revision >= 1),
    mac         bytea  CHECK (octet_length(mac) = 32),
    mac_version bigint CHECK (mac_version >= 1),
    PRIMARY KEY (tenant, name),
    FOREIGN KEY (tenant, name) REFERENCES routes (tenant, name)
);
ALTER TABLE route_health ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant ON route_health TO sluice_service USING (tenant = current_tenant());
GRANT SELECT, INSERT, UPDATE, DELETE ON route_health TO sluice_service;

-- +goose Down
DROP TABLE route_health;
DROP TABLE routes;
