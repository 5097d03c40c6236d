-- Jobs of tenants: many operations that one call hands over.

-- +goose Up

-- When a job's items may be run next, and what that waits for, change without
-- the row's revision and decide nothing else.
CREATE TABLE jobs (
    tenant      uuid        NOT NULL REFERENCES tenants (id),
    id          uuid        NOT NULL,
    credential  uuid        NOT NULL,
    state       text        NOT NULL CHECK (state IN ('RECEIVING', 'RUNNING', 'DONE', 'CANCELLED', 'STOPPED', 'EXPIRED')),
    expires     timestamptz NOT NULL,
    document    bytea       NOT NULL CHECK (octet_length(document) BETWEEN 1 AND 8192),
    revision    bigint      NOT NULL CHECK (revision >= 1),
    mac         bytea       CHECK (octet_length(mac) = 32),
    mac_version bigint      CHECK (mac_version >= 1),
    due         timestamptz NOT NULL,
    waits       text        NOT NULL,
    PRIMARY KEY (tenant, id)
);
CREATE INDEX jobs_unfinished ON jobs (tenant, id) WHERE state IN ('RECEIVING', 'RUNNING');
CREATE INDEX jobs_running ON jobs (tenant, id) WHERE state = 'RUNNING';
CREATE INDEX jobs_by_expiry ON jobs (expires);
ALTER TABLE jobs ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant ON jobs TO sluice_service USING (tenant = current_tenant());
GRANT SELECT, INSERT, UPDATE, DELETE ON jobs TO sluice_service;

-- What is sealed authenticates itself; the code is of the rest. Date and owner
-- say who takes a chunk when.
CREATE TABLE job_chunks (
    tenant      uuid   NOT NULL,
    job         uuid   NOT NULL,
    number      bigint NOT NULL CHECK (number BETWEEN 0 AND 999999),
    id          uuid   NOT NULL,
    first       bigint NOT NULL CHECK (first BETWEEN 0 AND 999999),
    items       bigint NOT NULL CHECK (items BETWEEN 1 AND 500),
    state       text   NOT NULL CHECK (state IN ('QUEUED', 'RUNNING', 'COMPUTED', 'DONE')),
    pass        bigint NOT NULL CHECK (pass BETWEEN 0 AND 4294967295),
    pending     bigint NOT NULL CHECK (pending BETWEEN 0 AND items),
    failed      bigint NOT NULL CHECK (failed BETWEEN 0 AND items),
    charged     bigint NOT NULL CHECK (charged >= 0),
    owner       text   COLLATE "C" NOT NULL,
    position    bigint NOT NULL CHECK (position >= 0),
    due         timestamptz,
    revision    bigint NOT NULL CHECK (revision >= 1),
    mac         bytea  CHECK (octet_length(mac) = 32),
    mac_version bigint CHECK (mac_version >= 1),
    input       bytea  CHECK (octet_length(input) BETWEEN 1 AND 16777216),
    output      bytea  CHECK (octet_length(output) BETWEEN 1 AND 16777216),
    entries     bytea  CHECK (octet_length(entries) BETWEEN 1 AND 16777216),
    PRIMARY KEY (tenant, job, number),
    CONSTRAINT job_chunks_by_item UNIQUE (tenant, job, first),
    FOREIGN KEY (tenant, job) REFERENCES jobs (tenant, id)
);
-- What is sealed cannot be compressed.
ALTER TABLE job_chunks ALTER COLUMN input SET STORAGE EXTERNAL, ALTER COLUMN output SET STORAGE EXTERNAL,
    ALTER COLUMN entries SET STORAGE EXTERNAL;
CREATE INDEX job_chunks_by_due ON job_chunks (tenant, job, due, number) WHERE due IS NOT NULL;
CREATE INDEX job_chunks_unfinished ON job_chunks (tenant, job) WHERE state <> 'DONE';
CREATE INDEX job_chunks_taken ON job_chunks (owner, state);
ALTER TABLE job_chunks ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant ON job_chunks TO sluice_service USING (tenant = current_tenant());
GRANT SELECT, INSERT, UPDATE, DELETE ON job_chunks TO sluice_service;

-- API nodes act for all tenants.
CREATE FUNCTION due_jobs(moment timestamptz, after_tenant uuid, busy uuid[], most bigint) RETURNS TABLE (tenant uuid, id uuid)
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = sluice, pg_temp
    AS $$
    SELECT DISTINCT ON (j.tenant) j.tenant, j.id FROM jobs j
    WHERE j.state = 'RUNNING' AND j.due <= moment AND j.tenant > after_tenant AND j.tenant <> ALL (busy)
        AND (EXISTS (SELECT 1 FROM job_chunks c WHERE c.tenant = j.tenant AND c.job = j.id AND c.due <= moment)
            OR NOT EXISTS (SELECT 1 FROM job_chunks c WHERE c.tenant = j.tenant AND c.job = j.id AND c.state <> 'DONE'))
    ORDER BY j.tenant, j.id LIMIT most
    $$;
CREATE FUNCTION expired_jobs(moment timestamptz, most bigint) RETURNS TABLE (tenant uuid, id uuid)
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = sluice, pg_temp
    AS $$
    SELECT j.tenant, j.id FROM jobs j WHERE j.expires <= moment ORDER BY j.expires LIMIT most
    $$;
CREATE FUNCTION computed_chunks(node text, most bigint) RETURNS TABLE (tenant uuid, job uuid, number bigint)
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = sluice, pg_temp
    AS $$
    SELECT c.tenant, c.job, c.number FROM job_chunks c WHERE c.owner = node AND c.state = 'COMPUTED' LIMIT most
    $$;
-- +goose StatementBegin
CREATE FUNCTION release_chunks(node text, moment timestamptz) RETURNS void
    LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = sluice, pg_temp
    AS $$
    UPDATE job_chunks SET due = moment WHERE owner = node AND state = 'RUNNING'
    $$;
-- +goose StatementEnd
REVOKE ALL ON FUNCTION due_jobs(timestamptz, uuid, uuid[], bigint), expired_jobs(timestamptz, bigint),
    computed_chunks(text, bigint), release_chunks(text, timestamptz) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION due_jobs(timestamptz, uuid, uuid[], bigint), expired_jobs(timestamptz, bigint),
    computed_chunks(text, bigint), release_chunks(text, timestamptz) TO sluice_service;

-- +goose Down
DROP FUNCTION release_chunks(text, timestamptz);
DROP FUNCTION computed_chunks(text, bigint);
DROP FUNCTION expired_jobs(timestamptz, bigint);
DROP FUNCTION due_jobs(timestamptz, uuid, uuid[], bigint);
DROP TABLE job_chunks;
DROP TABLE jobs;
