-- What requests that waited or were refused waited for, for minutes. Nothing is
-- decided by it.

-- +goose Up
CREATE TABLE request_records (
    tenant   BLOB    NOT NULL REFERENCES tenants (id),
    request  BLOB    NOT NULL CHECK (length(request) = 16),
    document BLOB    NOT NULL CHECK (length(document) BETWEEN 1 AND 8192),
    expires  INTEGER NOT NULL,
    PRIMARY KEY (tenant, request)
) STRICT;
-- An operator names no tenant.
CREATE INDEX request_records_by_request ON request_records (request);
CREATE INDEX request_records_by_expiry ON request_records (expires);

-- +goose Down
DROP TABLE request_records;
