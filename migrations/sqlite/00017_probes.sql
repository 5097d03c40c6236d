-- Endpoints of providers that routes in use lead to, and whether they answer.

-- +goose Up

-- One row for all tenants: it holds an address and nothing of whose it is. A
-- probe takes the row by moving due on.
CREATE TABLE endpoint_probes (
    url    TEXT    NOT NULL PRIMARY KEY CHECK (length(url) BETWEEN 1 AND 512),
    misses INTEGER NOT NULL CHECK (misses >= 0),
    due    INTEGER NOT NULL,
    wanted INTEGER NOT NULL
) STRICT;
CREATE INDEX endpoint_probes_by_due ON endpoint_probes (due);
CREATE INDEX endpoint_probes_by_wanted ON endpoint_probes (wanted);

-- +goose Down
DROP TABLE endpoint_probes;
