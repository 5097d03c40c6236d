-- Expired idempotency records are removed by their places, an array of which is
-- read without the rest of the table. A list of unknown length was joined with
-- all of it, every minute.

-- +goose Up
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION delete_expired_claims(moment timestamptz, most bigint) RETURNS bigint
    LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = sluice, pg_temp
    AS $$
    WITH gone AS (DELETE FROM idempotency WHERE ctid = ANY
        (ARRAY(SELECT ctid FROM idempotency WHERE expires <= moment ORDER BY expires LIMIT most FOR UPDATE SKIP LOCKED))
        RETURNING 1)
    SELECT count(*) FROM gone
    $$;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION delete_expired_claims(moment timestamptz, most bigint) RETURNS bigint
    LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = sluice, pg_temp
    AS $$
    WITH gone AS (DELETE FROM idempotency WHERE ctid IN
        (SELECT ctid FROM idempotency WHERE expires <= moment ORDER BY expires LIMIT most FOR UPDATE SKIP LOCKED)
        RETURNING 1)
    SELECT count(*) FROM gone
    $$;
-- +goose StatementEnd
