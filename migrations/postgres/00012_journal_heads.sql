-- The newest signed head of each node's journal by the hour. The signature,
-- by an HSM key, is what makes a row true; none is ever removed, and the
-- service has no right to.

-- +goose Up
CREATE TABLE journal_heads (
    node        text        NOT NULL CHECK (node <> ''),
    hour        bigint      NOT NULL CHECK (hour >= 0),
    sequence    bigint      NOT NULL CHECK (sequence >= 1),
    hash        bytea       NOT NULL CHECK (octet_length(hash) = 32),
    signed      timestamptz NOT NULL,
    algorithm   text        NOT NULL CHECK (algorithm <> ''),
    key_version bigint      NOT NULL CHECK (key_version >= 1),
    signature   bytea       NOT NULL CHECK (octet_length(signature) BETWEEN 1 AND 512),
    PRIMARY KEY (node, hour)
);
GRANT SELECT, INSERT, UPDATE ON journal_heads TO sluice_service;

-- Undone, heads are beside the journal only.

-- +goose Down
DROP TABLE journal_heads;
