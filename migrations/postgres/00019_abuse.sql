-- What is known against credentials, and what is usual of them.

-- +goose Up

-- A document in JSON: an open flag, when it was cleared, the key of one-time
-- codes. It is in the code of the row, but only where there is one: programs of
-- the release before refuse such credentials, as they could not act on a flag.
ALTER TABLE credentials ADD COLUMN guard bytea CHECK (octet_length(guard) BETWEEN 1 AND 16384);

CREATE TABLE credential_baselines (
    tenant      uuid        NOT NULL,
    credential  uuid        NOT NULL,
    document    bytea       NOT NULL CHECK (octet_length(document) BETWEEN 1 AND 2048),
    stored      timestamptz NOT NULL,
    mac         bytea       CHECK (octet_length(mac) = 32),
    mac_version bigint      CHECK (mac_version >= 1),
    PRIMARY KEY (tenant, credential),
    FOREIGN KEY (tenant, credential) REFERENCES credentials (tenant, id)
);
ALTER TABLE credential_baselines ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant ON credential_baselines TO sluice_service USING (tenant = current_tenant());
GRANT SELECT, INSERT, UPDATE ON credential_baselines TO sluice_service;

-- +goose Down
DROP TABLE credential_baselines;
ALTER TABLE credentials DROP COLUMN guard;
