-- What operators want of the nodes of the HSM pool, for every process.

-- +goose Up
CREATE TABLE node_settings (
    node        TEXT    NOT NULL PRIMARY KEY CHECK (node <> ''),
    mode        TEXT    NOT NULL CHECK (mode IN ('active', 'standby', 'cold', 'drained')),
    changed     INTEGER NOT NULL,
    revision    INTEGER NOT NULL CHECK (revision >= 1),
    mac         BLOB    CHECK (length(mac) = 32),
    mac_version INTEGER CHECK (mac_version >= 1)
) STRICT;

-- Undone, nodes are what their configuration says.

-- +goose Down
DROP TABLE node_settings;
