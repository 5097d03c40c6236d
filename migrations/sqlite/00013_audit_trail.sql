-- The journals of all API nodes, to be searched, and the usage that follows
-- from them. What counts is the journal.

-- +goose Up
-- How far each node's journal is in the trail.
CREATE TABLE shipped (
    node     TEXT    NOT NULL PRIMARY KEY CHECK (length(node) BETWEEN 1 AND 64),
    sequence INTEGER NOT NULL CHECK (sequence >= 0),
    hash     BLOB    NOT NULL CHECK (length(hash) = 32),
    until    INTEGER NOT NULL,
    ended    INTEGER NOT NULL CHECK (ended IN (0, 1))
) STRICT;

-- ordinal is the order of arrival; numbers are not given twice. Batches are
-- written one after the other.
CREATE TABLE audit_entries (
    ordinal    INTEGER PRIMARY KEY AUTOINCREMENT,
    node       TEXT    NOT NULL,
    sequence   INTEGER NOT NULL CHECK (sequence >= 1),
    tenant     BLOB    NOT NULL CHECK (length(tenant) = 16),
    time       INTEGER NOT NULL,
    request    BLOB    NOT NULL CHECK (length(request) = 16),
    project    TEXT    NOT NULL,
    component  TEXT    NOT NULL,
    op         TEXT    NOT NULL,
    key_id     BLOB    NOT NULL CHECK (length(key_id) = 16),
    credential BLOB    NOT NULL CHECK (length(credential) = 16),
    outcome    TEXT    NOT NULL,
    payload    BLOB    NOT NULL CHECK (length(payload) BETWEEN 1 AND 65536),
    CONSTRAINT audit_entries_position UNIQUE (node, sequence)
) STRICT;
CREATE INDEX audit_entries_by_time ON audit_entries (time, ordinal);
CREATE INDEX audit_entries_of_tenant ON audit_entries (tenant, time, ordinal);
CREATE INDEX audit_entries_by_arrival ON audit_entries (tenant, ordinal);
CREATE INDEX audit_entries_by_request ON audit_entries (request);

CREATE TABLE usage_rollups (
    tenant      BLOB    NOT NULL CHECK (length(tenant) = 16),
    granularity TEXT    NOT NULL CHECK (granularity IN ('minute', 'hour', 'day')),
    start       INTEGER NOT NULL,
    project     TEXT    NOT NULL,
    component   TEXT    NOT NULL,
    key_id      BLOB    NOT NULL CHECK (length(key_id) = 16),
    algorithm   TEXT    NOT NULL,
    op          TEXT    NOT NULL,
    reason      TEXT    NOT NULL,
    policy      INTEGER NOT NULL CHECK (policy >= 0),
    requests    INTEGER NOT NULL CHECK (requests >= 0),
    charged     INTEGER NOT NULL,
    bytes       INTEGER NOT NULL,
    slot        INTEGER NOT NULL,
    wait        INTEGER NOT NULL,
    PRIMARY KEY (tenant, granularity, start, project, component, key_id, algorithm, op, reason, policy)
) STRICT, WITHOUT ROWID;
CREATE INDEX usage_rollups_by_age ON usage_rollups (granularity, start);

-- +goose Down
DROP TABLE usage_rollups;
DROP TABLE audit_entries;
DROP TABLE shipped;
