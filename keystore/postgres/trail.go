package postgres

import (
	"context"
	"time"
	"uuid"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/sluice-kms/sluice/keystore"
)

const (
	shippedColumns = `node, sequence, hash, until, ended`
	selectShipped  = `SELECT ` + shippedColumns + ` FROM shipped WHERE node = $1`
	listShipped    = `SELECT ` + shippedColumns + ` FROM shipped ORDER BY node`
	insertShipped  = `INSERT INTO shipped (node, sequence, hash, until, ended) VALUES ($1, 0, decode(repeat('00', 32), 'hex'), $2, false)
		ON CONFLICT DO NOTHING`
	advanceShipped = `UPDATE shipped SET sequence = $4, hash = $5, until = $6, ended = $7 WHERE node = $1 AND sequence = $2 AND hash = $3`
	takeOrdinals   = `UPDATE shipping SET last = last + $1 WHERE one RETURNING last - $1`
	selectLast     = `SELECT last FROM shipping WHERE one`

	storeAuditEntries = `SELECT store_audit_entries($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13,
		$14, $15, $16, $17)`
	addUsage = `SELECT add_usage($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)`

	auditColumns = `ordinal, entries, node, sequence, tenant, time, project, component, op, key_id, credential, request, outcome, payload`

	newestAuditEntries = `SELECT ` + auditColumns + ` FROM audit_entries
		WHERE tenant = $1 AND time >= $2 AND coalesce(since, time) <= $3 AND (time, ordinal) < ($4, $5) ORDER BY time DESC, ordinal DESC LIMIT $6`
	arrivedAuditEntries   = `SELECT ` + auditColumns + ` FROM audit_entries WHERE tenant = $1 AND ordinal > $2 ORDER BY ordinal LIMIT $3`
	auditEntriesOfRequest = `SELECT ` + auditColumns + ` FROM audit_entries WHERE tenant = $1 AND request = $2
		UNION ALL SELECT ` + auditColumns + ` FROM audit_entries
		WHERE tenant = $1 AND time >= $3 AND time <= $4::timestamptz + interval '10 seconds' AND since <= $4 AND request < $2 AND last_request >= $2
		ORDER BY time DESC, ordinal DESC LIMIT $5`
	auditEntriesAt = `SELECT ` + auditColumns + ` FROM audit_entries
		WHERE tenant = $1 AND node = $2 AND sequence > $3 AND sequence <= $4 AND coalesce(last_sequence, sequence) >= $4`

	// Operators read those of all tenants.
	newestAuditEntriesOfAll  = `SELECT ` + auditColumns + ` FROM newest_audit_entries($1, $2, $3, $4, $5)`
	arrivedAuditEntriesOfAll = `SELECT ` + auditColumns + ` FROM arrived_audit_entries($1, $2)`
	auditEntriesOfAnyRequest = `SELECT ` + auditColumns + ` FROM audit_entries_of_request($1, $2, $3, $4)`
	anyAuditEntriesAt        = `SELECT ` + auditColumns + ` FROM audit_entries_at($1, $2, $3)`
	arrivedOfOp              = `SELECT ` + auditColumns + ` FROM arrived_audit_entries($2, $3) WHERE op = $1`

	usageColumns = `SELECT start, CASE WHEN $1::boolean THEN tenant END, CASE WHEN $2::boolean THEN project END,
		CASE WHEN $3::boolean THEN component END, CASE WHEN $4::boolean THEN key_id END, CASE WHEN $5::boolean THEN algorithm END,
		CASE WHEN $6::boolean THEN op END, CASE WHEN $7::boolean THEN reason END, CASE WHEN $8::boolean THEN policy END,
		sum(requests)::bigint, sum(charged)::bigint, sum(bytes)::bigint, sum(slot)::bigint, sum(wait)::bigint`
	usageConditions = `($12::text IS NULL OR project = $12) AND ($13::text IS NULL OR component = $13)
		AND ($14::uuid IS NULL OR key_id = $14) AND ($15::text IS NULL OR algorithm = $15) AND ($16::text IS NULL OR op = $16)
		AND ($17::text IS NULL OR reason = $17)
		GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9 ORDER BY 1, 2, 3, 4, 5, 6, 7, 8, 9 LIMIT $18`
	selectUsage = usageColumns + ` FROM usage_rollups
		WHERE tenant = $19 AND granularity = $9 AND start >= $10 AND start < $11 AND ` + usageConditions
	selectUsageOfAll = usageColumns + ` FROM usage_of_all($9, $10, $11) WHERE ` + usageConditions

	// Housekeeping is for all tenants.
	deleteAuditEntries = `SELECT delete_audit_entries($1, $2)`
	deleteUsage        = `SELECT delete_usage($1, $2, $3)`
)

func shippedTargets(r *keystore.ShippedRow) []any {
	return []any{&r.Node, &r.Sequence, &r.Hash, timeColumn{&r.Until}, boolColumn{&r.Ended}}
}

// Shipped implements keystore.TrailDriver.
func (db *DB) Shipped(ctx context.Context, p keystore.ShippedParams) (*keystore.ShippedRow, error) {
	var r keystore.ShippedRow
	return &r, db.row(ctx, everybody, shippedTargets(&r), selectShipped, p.Node)
}

// ListShipped implements keystore.TrailDriver.
func (db *DB) ListShipped(ctx context.Context) (all []*keystore.ShippedRow, err error) {
	err = db.list(ctx, everybody, func(rows pgx.Rows) error {
		r := new(keystore.ShippedRow)
		all = append(all, r)
		return rows.Scan(shippedTargets(r)...)
	}, listShipped)
	return all, err
}

// Ship implements keystore.TrailDriver.
func (db *DB) Ship(ctx context.Context, p keystore.ShipParams) error {
	return db.write(ctx, everybody, func(tx transaction) error {
		if _, err := tx.exec(ctx, insertShipped, p.Node, moment(p.Until)); err != nil {
			return err
		}
		err := tx.execOne(ctx, keystore.ErrStale, advanceShipped, p.Node, int64(p.AfterSequence), p.AfterHash,
			int64(p.Sequence), p.Hash, moment(p.Until), p.Ended)
		if err != nil || len(p.Entries) == 0 {
			return err
		}
		// From here to the commit one batch after the other is written, of
		// whatever node, which also keeps two from locking each other's usage.
		var before int64
		if err := tx.tx.QueryRow(ctx, takeOrdinals, len(p.Entries)).Scan(&before); err != nil {
			return err
		}
		if _, err := tx.exec(ctx, storeAuditEntries, entryArguments(p.Node, before, p.Entries)...); err != nil {
			return err
		}
		_, err = tx.exec(ctx, addUsage, usageArguments(p.Usage)...)
		return err
	})
}

// column is the arguments of an array.
func column[T, R any](rows []R, of func(*R) T) []T {
	values := make([]T, len(rows))
	for i := range rows {
		values[i] = of(&rows[i])
	}
	return values
}

func entryArguments(node string, before int64, rows []keystore.AuditEntryRecord) []any {
	type row = keystore.AuditEntryRecord
	return []any{node, before,
		column(rows, func(r *row) int64 { return int64(r.Sequence) }),
		column(rows, func(r *row) pgtype.UUID { return id(r.Tenant) }),
		column(rows, func(r *row) time.Time { return moment(r.Time) }),
		column(rows, func(r *row) pgtype.UUID { return id(r.Request) }),
		column(rows, func(r *row) string { return r.Project }),
		column(rows, func(r *row) string { return r.Component }),
		column(rows, func(r *row) string { return r.Op }),
		column(rows, func(r *row) pgtype.UUID { return id(r.Key) }),
		column(rows, func(r *row) pgtype.UUID { return id(r.Credential) }),
		column(rows, func(r *row) string { return r.Outcome }),
		column(rows, func(r *row) []byte { return r.Payload }),
		column(rows, func(r *row) int64 { return int64(r.Entries) }),
		column(rows, func(r *row) time.Time { return moment(r.Since) }),
		column(rows, func(r *row) int64 { return int64(r.LastSequence) }),
		column(rows, func(r *row) pgtype.UUID { return id(r.LastRequest) }),
	}
}

func usageArguments(rows []keystore.UsageRecord) []any {
	type row = keystore.UsageRecord
	return []any{
		column(rows, func(r *row) string { return r.Granularity }),
		column(rows, func(r *row) pgtype.UUID { return id(r.Tenant) }),
		column(rows, func(r *row) time.Time { return moment(r.Start) }),
		column(rows, func(r *row) string { return r.Project }),
		column(rows, func(r *row) string { return r.Component }),
		column(rows, func(r *row) pgtype.UUID { return id(r.Key) }),
		column(rows, func(r *row) string { return r.Algorithm }),
		column(rows, func(r *row) string { return r.Op }),
		column(rows, func(r *row) string { return r.Reason }),
		column(rows, func(r *row) int64 { return int64(r.Policy) }),
		column(rows, func(r *row) int64 { return r.Requests }),
		column(rows, func(r *row) int64 { return r.Charged }),
		column(rows, func(r *row) int64 { return r.Bytes }),
		column(rows, func(r *row) int64 { return r.Slot }),
		column(rows, func(r *row) int64 { return r.Wait }),
	}
}

func (db *DB) listAuditEntries(ctx context.Context, tenant uuid.UUID, statement string, args ...any) (all []*keystore.AuditEntryRow, err error) {
	err = db.list(ctx, tenant, func(rows pgx.Rows) error {
		r := new(keystore.AuditEntryRow)
		all = append(all, r)
		return rows.Scan(&r.Ordinal, &r.Entries, &r.Node, &r.Sequence, idColumn{&r.Tenant}, timeColumn{&r.Time}, &r.Project, &r.Component,
			&r.Op, idColumn{&r.Key}, idColumn{&r.Credential}, idColumn{&r.Request}, &r.Outcome, &r.Payload)
	}, statement, args...)
	return all, err
}

// NewestAuditEntries implements keystore.TrailDriver.
func (db *DB) NewestAuditEntries(ctx context.Context, p keystore.NewestAuditEntriesParams) ([]*keystore.AuditEntryRow, error) {
	if p.Tenant == nil {
		return db.listAuditEntries(ctx, everybody, newestAuditEntriesOfAll, moment(p.From), moment(p.Until), moment(p.BeforeTime), p.BeforeOrdinal, p.Limit)
	}
	return db.listAuditEntries(ctx, *p.Tenant, newestAuditEntries, id(*p.Tenant), moment(p.From), moment(p.Until),
		moment(p.BeforeTime), p.BeforeOrdinal, p.Limit)
}

// ArrivedAuditEntries implements keystore.TrailDriver.
func (db *DB) ArrivedAuditEntries(ctx context.Context, p keystore.ArrivedAuditEntriesParams) ([]*keystore.AuditEntryRow, error) {
	if p.Tenant == nil {
		return db.listAuditEntries(ctx, everybody, arrivedAuditEntriesOfAll, p.AfterOrdinal, p.Limit)
	}
	return db.listAuditEntries(ctx, *p.Tenant, arrivedAuditEntries, id(*p.Tenant), p.AfterOrdinal, p.Limit)
}

// ArrivedOfOp implements keystore.TrailDriver.
func (db *DB) ArrivedOfOp(ctx context.Context, p keystore.ArrivedOfOpParams) ([]*keystore.AuditEntryRow, error) {
	return db.listAuditEntries(ctx, everybody, arrivedOfOp, p.Op, p.AfterOrdinal, p.Limit)
}

// AuditEntriesOfRequest implements keystore.TrailDriver.
func (db *DB) AuditEntriesOfRequest(ctx context.Context, p keystore.AuditEntriesOfRequestParams) ([]*keystore.AuditEntryRow, error) {
	if p.Tenant == nil {
		return db.listAuditEntries(ctx, everybody, auditEntriesOfAnyRequest, id(p.Request), moment(p.From), moment(p.Until), p.Limit)
	}
	return db.listAuditEntries(ctx, *p.Tenant, auditEntriesOfRequest, id(*p.Tenant), id(p.Request), moment(p.From), moment(p.Until), p.Limit)
}

// AuditEntriesAt implements keystore.TrailDriver.
func (db *DB) AuditEntriesAt(ctx context.Context, p keystore.AuditEntriesAtParams) ([]*keystore.AuditEntryRow, error) {
	if p.Tenant == nil {
		return db.listAuditEntries(ctx, everybody, anyAuditEntriesAt, p.Node, int64(p.After), int64(p.Sequence))
	}
	return db.listAuditEntries(ctx, *p.Tenant, auditEntriesAt, id(*p.Tenant), p.Node, int64(p.After), int64(p.Sequence))
}

// LastOrdinal implements keystore.TrailDriver.
func (db *DB) LastOrdinal(ctx context.Context) (ordinal keystore.Integer, err error) {
	err = db.row(ctx, everybody, []any{&ordinal}, selectLast)
	return ordinal, err
}

// Usage implements keystore.TrailDriver.
func (db *DB) Usage(ctx context.Context, p keystore.UsageParams) (all []*keystore.UsageRow, err error) {
	statement, tenant := selectUsageOfAll, everybody
	args := []any{p.By.Tenant, p.By.Project, p.By.Component, p.By.Key, p.By.Algorithm, p.By.Op, p.By.Reason, p.By.Policy,
		p.Granularity, moment(p.From), moment(p.To), p.Project, p.Component, maybeID(p.Key), p.Algorithm, p.Op, p.Reason, p.Limit}
	if p.Tenant != nil {
		statement, tenant = selectUsage, *p.Tenant
		args = append(args, id(tenant))
	}
	err = db.list(ctx, tenant, func(rows pgx.Rows) error {
		r := new(keystore.UsageRow)
		all = append(all, r)
		return rows.Scan(timeColumn{&r.Start}, idColumn{&r.Tenant}, &r.Project, &r.Component, idColumn{&r.Key}, &r.Algorithm, &r.Op,
			&r.Reason, &r.Policy, &r.Requests, &r.Charged, &r.Bytes, &r.Slot, &r.Wait)
	}, statement, args...)
	return all, err
}

// DeleteAuditEntries implements keystore.TrailDriver.
func (db *DB) DeleteAuditEntries(ctx context.Context, p keystore.DeleteAuditEntriesParams) (int, error) {
	return db.delete(ctx, deleteAuditEntries, moment(p.Before), p.Limit)
}

// DeleteUsage implements keystore.TrailDriver.
func (db *DB) DeleteUsage(ctx context.Context, p keystore.DeleteUsageParams) (int, error) {
	return db.delete(ctx, deleteUsage, p.Granularity, moment(p.Before), p.Limit)
}

// delete runs a statement of housekeeping, which returns how many are gone.
func (db *DB) delete(ctx context.Context, statement string, args ...any) (removed int, err error) {
	err = db.write(ctx, everybody, func(tx transaction) error {
		return tx.tx.QueryRow(ctx, statement, args...).Scan(&removed)
	})
	return removed, err
}
