-- What is known against credentials, and what is usual of them.

-- +goose Up

-- A document in JSON: an open flag, when it was cleared, the key of one-time
-- codes. It is in the code of the row, but only where there is one: programs of
-- the release before refuse such credentials, as they could not act on a flag.
ALTER TABLE credentials ADD COLUMN guard BLOB CHECK (length(guard) BETWEEN 1 AND 16384);

CREATE TABLE credential_baselines (
    tenant      BLOB    NOT NULL,
    credential  BLOB    NOT NULL,
    document    BLOB    NOT NULL CHECK (length(document) BETWEEN 1 AND 2048),
    stored      INTEGER NOT NULL,
    mac         BLOB    CHECK (length(mac) = 32),
    mac_version INTEGER CHECK (mac_version >= 1),
    PRIMARY KEY (tenant, credential),
    FOREIGN KEY (tenant, credential) REFERENCES credentials (tenant, id)
) STRICT;

-- +goose Down
DROP TABLE credential_baselines;
ALTER TABLE credentials DROP COLUMN guard;
