-- The list of due keys is read from a position on, so that keys for which
-- nothing can be done do not hide those behind them.

-- +goose Up
DROP INDEX keys_by_due_date;
CREATE INDEX keys_by_due_date ON keys (due, tenant, id) WHERE due IS NOT NULL;

-- +goose Down
DROP INDEX keys_by_due_date;
CREATE INDEX keys_by_due_date ON keys (due) WHERE due IS NOT NULL;
