-- The versions of the policy document. None is ever changed or removed: the
-- service has no right to.

-- +goose Up
CREATE TABLE policies (
    version     bigint      NOT NULL PRIMARY KEY CHECK (version >= 1),
    document    bytea       NOT NULL CHECK (octet_length(document) BETWEEN 1 AND 1048576),
    digest      bytea       NOT NULL CHECK (octet_length(digest) = 32),
    comment     text        NOT NULL,
    created     timestamptz NOT NULL,
    created_by  uuid        NOT NULL,
    mac         bytea       CHECK (octet_length(mac) = 32),
    mac_version bigint      CHECK (mac_version >= 1)
);
GRANT SELECT, INSERT ON policies TO sluice_service;

-- Undone, the policy that Sluice comes with is in force.

-- +goose Down
DROP TABLE policies;
