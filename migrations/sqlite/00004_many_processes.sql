-- What a database needs that several processes share. One process writes this
-- one, so there is nothing to do.

-- +goose Up
SELECT 1;

-- +goose Down
SELECT 1;
