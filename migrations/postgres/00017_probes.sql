-- Endpoints of providers that routes in use lead to, and whether they answer.

-- +goose Up

-- One row for all tenants: it holds an address and nothing of whose it is. A
-- probe takes the row by moving due on.
CREATE TABLE endpoint_probes (
    url    text        COLLATE "C" NOT NULL PRIMARY KEY CHECK (octet_length(url) BETWEEN 1 AND 512),
    misses bigint      NOT NULL CHECK (misses >= 0),
    due    timestamptz NOT NULL,
    wanted timestamptz NOT NULL
);
CREATE INDEX endpoint_probes_by_due ON endpoint_probes (due);
CREATE INDEX endpoint_probes_by_wanted ON endpoint_probes (wanted);
GRANT SELECT, INSERT, UPDATE, DELETE ON endpoint_probes TO sluice_service;

-- +goose Down
DROP TABLE endpoint_probes;
