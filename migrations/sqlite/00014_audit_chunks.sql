-- Uses of keys that come together are stored together: a row of the trail can
-- hold several entries, and names the first and the last of them. In rows from
-- before, which hold one, the new columns are NULL.

-- +goose Up
ALTER TABLE audit_entries ADD COLUMN entries INTEGER CHECK (entries >= 1);
ALTER TABLE audit_entries ADD COLUMN since INTEGER;
ALTER TABLE audit_entries ADD COLUMN last_sequence INTEGER;
ALTER TABLE audit_entries ADD COLUMN last_request BLOB CHECK (length(last_request) = 16);

-- With all that rows are chosen by, so that what is not wanted is not read.
DROP INDEX audit_entries_by_time;
CREATE INDEX audit_entries_by_time ON audit_entries (time, ordinal, since, request, last_request);
DROP INDEX audit_entries_of_tenant;
CREATE INDEX audit_entries_of_tenant ON audit_entries (tenant, time, ordinal, since, request, last_request);

-- Undone, what was stored together is in the journals only.

-- +goose Down
DELETE FROM audit_entries WHERE entries > 1;
DROP INDEX audit_entries_by_time;
CREATE INDEX audit_entries_by_time ON audit_entries (time, ordinal);
DROP INDEX audit_entries_of_tenant;
CREATE INDEX audit_entries_of_tenant ON audit_entries (tenant, time, ordinal);
ALTER TABLE audit_entries DROP COLUMN entries;
ALTER TABLE audit_entries DROP COLUMN since;
ALTER TABLE audit_entries DROP COLUMN last_sequence;
ALTER TABLE audit_entries DROP COLUMN last_request;
