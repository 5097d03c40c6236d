-- The versions of the policy document. None is ever changed or removed.

-- +goose Up
CREATE TABLE policies (
    version     INTEGER NOT NULL PRIMARY KEY CHECK (version >= 1),
    document    BLOB    NOT NULL CHECK (length(document) BETWEEN 1 AND 1048576),
    digest      BLOB    NOT NULL CHECK (length(digest) = 32),
    comment     TEXT    NOT NULL,
    created     INTEGER NOT NULL,
    created_by  BLOB    NOT NULL CHECK (length(created_by) = 16),
    mac         BLOB    CHECK (length(mac) = 32),
    mac_version INTEGER CHECK (mac_version >= 1)
) STRICT;

-- Undone, the policy that Sluice comes with is in force.

-- +goose Down
DROP TABLE policies;
