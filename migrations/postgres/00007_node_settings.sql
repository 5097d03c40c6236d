-- What operators want of the nodes of the HSM pool, for every process.

-- +goose Up
CREATE TABLE node_settings (
    node        text        NOT NULL PRIMARY KEY CHECK (node <> ''),
    mode        text        NOT NULL CHECK (mode IN ('active', 'standby', 'cold', 'drained')),
    changed     timestamptz NOT NULL,
    revision    bigint      NOT NULL CHECK (revision >= 1),
    mac         bytea       CHECK (octet_length(mac) = 32),
    mac_version bigint      CHECK (mac_version >= 1)
);
GRANT SELECT, INSERT, UPDATE ON node_settings TO sluice_service;

-- Undone, nodes are what their configuration says.

-- +goose Down
DROP TABLE node_settings;
