-- How PostgreSQL finds expired idempotency records; here there is nothing to do.

-- +goose Up
SELECT 1;

-- +goose Down
SELECT 1;
