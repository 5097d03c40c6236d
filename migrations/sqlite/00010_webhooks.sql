-- Webhooks, and the queue of what is on its way to them.

-- +goose Up

-- What tells of failures and deliveries changes without the row's revision.
CREATE TABLE webhooks (
    tenant        BLOB    NOT NULL REFERENCES tenants (id),
    id            BLOB    NOT NULL CHECK (length(id) = 16),
    url           TEXT    NOT NULL CHECK (length(url) BETWEEN 1 AND 2048),
    types         TEXT    NOT NULL CHECK (json_type(types) = 'array'),
    secret        BLOB    NOT NULL CHECK (length(secret) > 0),
    state         TEXT    NOT NULL CHECK (state IN ('ACTIVE', 'DISABLED')),
    created       INTEGER NOT NULL,
    revision      INTEGER NOT NULL CHECK (revision >= 1),
    failing_since INTEGER,
    delivered     INTEGER,
    mac           BLOB    CHECK (length(mac) = 32),
    mac_version   INTEGER CHECK (mac_version >= 1),
    PRIMARY KEY (tenant, id)
) STRICT;

-- A delivery waits while it has a due date, which is in the future while an API
-- node sends it. One that has ended is kept for its "once" alone.
CREATE TABLE deliveries (
    tenant      BLOB    NOT NULL,
    webhook     BLOB    NOT NULL,
    event       BLOB    NOT NULL CHECK (length(event) = 16),
    once        TEXT    NOT NULL CHECK (length(once) BETWEEN 1 AND 128),
    type        TEXT    NOT NULL CHECK (type <> ''),
    body        BLOB    NOT NULL CHECK (length(body) BETWEEN 1 AND 4096),
    created     INTEGER NOT NULL,
    due         INTEGER CHECK ((due IS NULL) = (ended IS NOT NULL)),
    attempts    INTEGER NOT NULL CHECK (attempts >= 0),
    ended       INTEGER,
    mac         BLOB    CHECK (length(mac) = 32),
    mac_version INTEGER CHECK (mac_version >= 1),
    PRIMARY KEY (tenant, webhook, event),
    UNIQUE (tenant, webhook, once),
    FOREIGN KEY (tenant, webhook) REFERENCES webhooks (tenant, id) ON DELETE CASCADE
) STRICT;
CREATE INDEX deliveries_by_due ON deliveries (due) WHERE due IS NOT NULL;
CREATE INDEX deliveries_waiting ON deliveries (tenant, webhook, created, event) WHERE due IS NOT NULL;
CREATE INDEX deliveries_by_end ON deliveries (ended) WHERE ended IS NOT NULL;

-- +goose Down
DROP TABLE deliveries;
DROP TABLE webhooks;
