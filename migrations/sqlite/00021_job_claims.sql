-- An Idempotency-Key stands for one job as long as that is there.

-- +goose Up

-- claim is a digest of the credential and its key; NULL: the job has none, or its
-- items are still coming in. What it finds is only an answer if the job's
-- authenticated credential and digest are those of the request.
ALTER TABLE jobs ADD COLUMN claim BLOB CHECK (length(claim) = 32);
CREATE UNIQUE INDEX jobs_by_claim ON jobs (tenant, claim) WHERE claim IS NOT NULL;

-- +goose Down
DROP INDEX jobs_by_claim;
ALTER TABLE jobs DROP COLUMN claim;
