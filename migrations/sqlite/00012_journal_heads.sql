-- The newest signed head of each node's journal by the hour. The signature,
-- by an HSM key, is what makes a row true; none is ever removed.

-- +goose Up
CREATE TABLE journal_heads (
    node        TEXT    NOT NULL CHECK (node <> ''),
    hour        INTEGER NOT NULL CHECK (hour >= 0),
    sequence    INTEGER NOT NULL CHECK (sequence >= 1),
    hash        BLOB    NOT NULL CHECK (length(hash) = 32),
    signed      INTEGER NOT NULL,
    algorithm   TEXT    NOT NULL CHECK (algorithm <> ''),
    key_version INTEGER NOT NULL CHECK (key_version >= 1),
    signature   BLOB    NOT NULL CHECK (length(signature) BETWEEN 1 AND 512),
    PRIMARY KEY (node, hour)
) STRICT;

-- Undone, heads are beside the journal only.

-- +goose Down
DROP TABLE journal_heads;
