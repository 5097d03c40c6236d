-- The list of due keys is read from a position on, so that keys for which
-- nothing can be done do not hide those behind them.

-- +goose Up
DROP INDEX keys_by_due_date;
CREATE INDEX keys_by_due_date ON keys (due, tenant, id) WHERE due IS NOT NULL;

-- The keeper acts for all tenants. due_keys(timestamptz, bigint) stays for
-- nodes of the version before, which run while the others are replaced.
CREATE FUNCTION due_keys(moment timestamptz, after_due timestamptz, after_tenant uuid, after_id uuid, most bigint)
    RETURNS TABLE (due timestamptz, tenant uuid, id uuid)
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = sluice, pg_temp
    AS $$
    SELECT k.due, k.tenant, k.id FROM keys k
    WHERE k.due <= moment AND (k.due, k.tenant, k.id) > (after_due, after_tenant, after_id)
    ORDER BY k.due, k.tenant, k.id LIMIT most
    $$;
REVOKE ALL ON FUNCTION due_keys(timestamptz, timestamptz, uuid, uuid, bigint) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION due_keys(timestamptz, timestamptz, uuid, uuid, bigint) TO sluice_service;

-- +goose Down
DROP FUNCTION due_keys(timestamptz, timestamptz, uuid, uuid, bigint);
DROP INDEX keys_by_due_date;
CREATE INDEX keys_by_due_date ON keys (due) WHERE due IS NOT NULL;
