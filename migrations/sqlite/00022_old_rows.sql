-- Revisions of aliases and routes that only grow, so that an old row that is put
-- back is noticed.

-- +goose Up

-- What an alias stands for since when. It is apart from the name, which programs from before there was one write as
-- they did. A row stays when its alias is taken away (key_id is NULL), so that the
-- revision goes on from there when the alias is set again. An alias without a row
-- was not changed since there are rows.
CREATE TABLE alias_revisions (
    tenant      BLOB    NOT NULL REFERENCES tenants (id),
    name        TEXT    NOT NULL CHECK (length(name) BETWEEN 1 AND 128),
    key_id      BLOB    CHECK (length(key_id) = 16),
    revision    INTEGER NOT NULL CHECK (revision >= 1),
    mac         BLOB    CHECK (length(mac) = 32),
    mac_version INTEGER CHECK (mac_version >= 1),
    PRIMARY KEY (tenant, name)
) STRICT;

-- The last end of a route, from which its revision goes on when it is made anew.
CREATE TABLE route_ends (
    tenant      BLOB    NOT NULL REFERENCES tenants (id),
    name        TEXT    NOT NULL CHECK (length(name) BETWEEN 1 AND 64),
    revision    INTEGER NOT NULL CHECK (revision >= 1),
    mac         BLOB    CHECK (length(mac) = 32),
    mac_version INTEGER CHECK (mac_version >= 1),
    PRIMARY KEY (tenant, name)
) STRICT;

-- +goose Down
DROP TABLE route_ends;
DROP TABLE alias_revisions;
