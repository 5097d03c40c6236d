-- Incidents of cost breakers, and when their stops were lifted.

-- +goose Up

-- Ids are in the order of time. The document says everything; ended is for
-- housekeeping.
CREATE TABLE cost_incidents (
    tenant      BLOB    NOT NULL REFERENCES tenants (id),
    id          BLOB    NOT NULL CHECK (length(id) = 16),
    ended       INTEGER NOT NULL,
    document    BLOB    NOT NULL CHECK (length(document) BETWEEN 1 AND 131072),
    mac         BLOB    CHECK (length(mac) = 32),
    mac_version INTEGER CHECK (mac_version >= 1),
    PRIMARY KEY (tenant, id)
) STRICT;
CREATE INDEX cost_incidents_by_end ON cost_incidents (ended);

CREATE TABLE cost_lifts (
    tenant      BLOB    NOT NULL PRIMARY KEY REFERENCES tenants (id),
    lifted      INTEGER NOT NULL,
    mac         BLOB    CHECK (length(mac) = 32),
    mac_version INTEGER CHECK (mac_version >= 1)
) STRICT;

-- +goose Down
DROP TABLE cost_lifts;
DROP TABLE cost_incidents;
