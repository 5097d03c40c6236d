-- Jobs of tenants: many operations that one call hands over.

-- +goose Up

-- When a job's items may be run next, and what that waits for, change without
-- the row's revision and decide nothing else.
CREATE TABLE jobs (
    tenant      BLOB    NOT NULL REFERENCES tenants (id),
    id          BLOB    NOT NULL CHECK (length(id) = 16),
    credential  BLOB    NOT NULL CHECK (length(credential) = 16),
    state       TEXT    NOT NULL CHECK (state IN ('RECEIVING', 'RUNNING', 'DONE', 'CANCELLED', 'STOPPED', 'EXPIRED')),
    expires     INTEGER NOT NULL,
    document    BLOB    NOT NULL CHECK (length(document) BETWEEN 1 AND 8192),
    revision    INTEGER NOT NULL CHECK (revision >= 1),
    mac         BLOB    CHECK (length(mac) = 32),
    mac_version INTEGER CHECK (mac_version >= 1),
    due         INTEGER NOT NULL,
    waits       TEXT    NOT NULL,
    PRIMARY KEY (tenant, id)
) STRICT;
CREATE INDEX jobs_unfinished ON jobs (tenant, id) WHERE state IN ('RECEIVING', 'RUNNING');
CREATE INDEX jobs_running ON jobs (tenant, id) WHERE state = 'RUNNING';
CREATE INDEX jobs_by_expiry ON jobs (expires);

-- What is sealed authenticates itself; the code is of the rest. Date and owner
-- say who takes a chunk when.
CREATE TABLE job_chunks (
    tenant      BLOB    NOT NULL,
    job         BLOB    NOT NULL,
    number      INTEGER NOT NULL CHECK (number BETWEEN 0 AND 999999),
    id          BLOB    NOT NULL CHECK (length(id) = 16),
    first       INTEGER NOT NULL CHECK (first BETWEEN 0 AND 999999),
    items       INTEGER NOT NULL CHECK (items BETWEEN 1 AND 500),
    state       TEXT    NOT NULL CHECK (state IN ('QUEUED', 'RUNNING', 'COMPUTED', 'DONE')),
    pass        INTEGER NOT NULL CHECK (pass BETWEEN 0 AND 4294967295),
    pending     INTEGER NOT NULL CHECK (pending BETWEEN 0 AND items),
    failed      INTEGER NOT NULL CHECK (failed BETWEEN 0 AND items),
    charged     INTEGER NOT NULL CHECK (charged >= 0),
    owner       TEXT    NOT NULL,
    position    INTEGER NOT NULL CHECK (position >= 0),
    due         INTEGER,
    revision    INTEGER NOT NULL CHECK (revision >= 1),
    mac         BLOB    CHECK (length(mac) = 32),
    mac_version INTEGER CHECK (mac_version >= 1),
    input       BLOB    CHECK (length(input) BETWEEN 1 AND 16777216),
    output      BLOB    CHECK (length(output) BETWEEN 1 AND 16777216),
    entries     BLOB    CHECK (length(entries) BETWEEN 1 AND 16777216),
    PRIMARY KEY (tenant, job, number),
    UNIQUE (tenant, job, first),
    FOREIGN KEY (tenant, job) REFERENCES jobs (tenant, id)
) STRICT;
CREATE INDEX job_chunks_by_due ON job_chunks (tenant, job, due, number) WHERE due IS NOT NULL;
CREATE INDEX job_chunks_unfinished ON job_chunks (tenant, job) WHERE state <> 'DONE';
CREATE INDEX job_chunks_taken ON job_chunks (owner, state);

-- +goose Down
DROP TABLE job_chunks;
DROP TABLE jobs;
