-- Revisions of aliases and routes that only grow, so that an old row that is put
-- back is noticed.

-- +goose Up

-- What an alias stands for since when. It is apart from the name, which programs from before there was one write as
-- they did. A row stays when its alias is taken away (key_id is NULL), so that the
-- revision goes on from there when the alias is set again. An alias without a row
-- was not changed since there are rows.
CREATE TABLE alias_revisions (
    tenant      uuid   NOT NULL REFERENCES tenants (id),
    name        text   COLLATE "C" NOT NULL CHECK (octet_length(name) BETWEEN 1 AND 128),
    key_id      uuid,
    revision    bigint NOT NULL CHECK (revision >= 1),
    mac         bytea  CHECK (octet_length(mac) = 32),
    mac_version bigint CHECK (mac_version >= 1),
    PRIMARY KEY (tenant, name)
);
ALTER TABLE alias_revisions ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant ON alias_revisions TO sluice_service USING (tenant = current_tenant());
GRANT SELECT, INSERT, UPDATE ON alias_revisions TO sluice_service;

-- The last end of a route, from which its revision goes on when it is made anew.
CREATE TABLE route_ends (
    tenant      uuid   NOT NULL REFERENCES tenants (id),
    name        text   COLLATE "C" NOT NULL CHECK (octet_length(name) BETWEEN 1 AND 64),
    revision    bigint NOT NULL CHECK (revision >= 1),
    mac         bytea  CHECK (octet_length(mac) = 32),
    mac_version bigint CHECK (mac_version >= 1),
    PRIMARY KEY (tenant, name)
);
ALTER TABLE route_ends ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant ON route_ends TO sluice_service USING (tenant = current_tenant());
GRANT SELECT, INSERT, UPDATE ON route_ends TO sluice_service;

-- +goose Down
DROP TABLE route_ends;
DROP TABLE alias_revisions;
