package sqlite

import (
	"context"
	"database/sql"

	"github.com/sluice-kms/sluice/keystore"
)

const (
	shippedColumns  = `node, sequence, hash, until, ended`
	selectShipped   = `SELECT ` + shippedColumns + ` FROM shipped WHERE node = ?`
	listShipped     = `SELECT ` + shippedColumns + ` FROM shipped ORDER BY node`
	insertShipped   = `INSERT INTO shipped (node, sequence, hash, until, ended) VALUES (?, 0, zeroblob(32), ?, 0) ON CONFLICT DO NOTHING`
	advanceShipped  = `UPDATE shipped SET sequence = ?, hash = ?, until = ?, ended = ? WHERE node = ? AND sequence = ? AND hash = ?`
	selectLastOrder = `SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'audit_entries'), 0)`

	insertAuditEntry = `INSERT INTO audit_entries
		(node, sequence, tenant, time, request, project, component, op, key_id, credential, outcome, payload,
			entries, since, last_sequence, last_request)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`

	auditColumns = `ordinal, entries, node, sequence, tenant, time, project, component, op, key_id, credential, request, outcome, payload`

	newestAuditEntries = `SELECT ` + auditColumns + ` FROM audit_entries INDEXED BY audit_entries_of_tenant
		WHERE tenant = ? AND time >= ? AND coalesce(since, time) <= ? AND (time, ordinal) < (?, ?) ORDER BY time DESC, ordinal DESC LIMIT ?`
	newestAuditEntriesOfAll = `SELECT ` + auditColumns + ` FROM audit_entries INDEXED BY audit_entries_by_time
		WHERE time >= ? AND coalesce(since, time) <= ? AND (time, ordinal) < (?, ?) ORDER BY time DESC, ordinal DESC LIMIT ?`
	arrivedAuditEntries      = `SELECT ` + auditColumns + ` FROM audit_entries WHERE tenant = ? AND ordinal > ? ORDER BY ordinal LIMIT ?`
	arrivedAuditEntriesOfAll = `SELECT ` + auditColumns + ` FROM audit_entries WHERE ordinal > ? ORDER BY ordinal LIMIT ?`
	arrivedOfOp              = `SELECT ` + auditColumns + ` FROM audit_entries WHERE op = ?1 AND ordinal > ?2 AND ordinal <= ?2 + ?3 ORDER BY ordinal`
	auditEntriesOfRequest    = `SELECT ` + auditColumns + ` FROM audit_entries INDEXED BY audit_entries_by_request
		WHERE request = ?1 AND tenant = ?2
		UNION ALL SELECT ` + auditColumns + ` FROM audit_entries INDEXED BY audit_entries_of_tenant
		WHERE tenant = ?2 AND time >= ?3 AND time <= ?4 + 10000000 AND since <= ?4 AND request < ?1 AND last_request >= ?1
		ORDER BY time DESC, ordinal DESC LIMIT ?5`
	auditEntriesOfAnyRequest = `SELECT ` + auditColumns + ` FROM audit_entries INDEXED BY audit_entries_by_request
		WHERE request = ?1
		UNION ALL SELECT ` + auditColumns + ` FROM audit_entries INDEXED BY audit_entries_by_time
		WHERE time >= ?2 AND time <= ?3 + 10000000 AND since <= ?3 AND request < ?1 AND last_request >= ?1
		ORDER BY time DESC, ordinal DESC LIMIT ?4`
	auditEntriesAt = `SELECT ` + auditColumns + ` FROM audit_entries INDEXED BY sqlite_autoindex_audit_entries_1
		WHERE node = ? AND sequence > ? AND sequence <= ? AND coalesce(last_sequence, sequence) >= ? AND tenant = ?`
	anyAuditEntriesAt = `SELECT ` + auditColumns + ` FROM audit_entries INDEXED BY sqlite_autoindex_audit_entries_1
		WHERE node = ? AND sequence > ? AND sequence <= ? AND coalesce(last_sequence, sequence) >= ?`

	addUsage = `INSERT INTO usage_rollups (granularity, tenant, start, project, component, key_id, algorithm, op, reason, policy,
			requests, charged, bytes, slot, wait)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (tenant, granularity, start, project, component, key_id, algorithm, op, reason, policy) DO UPDATE SET
			requests = requests + excluded.requests, charged = charged + excluded.charged, bytes = bytes + excluded.bytes,
			slot = slot + excluded.slot, wait = wait + excluded.wait`

	usageColumns = `start, CASE WHEN ?1 THEN tenant END, CASE WHEN ?2 THEN project END, CASE WHEN ?3 THEN component END,
		CASE WHEN ?4 THEN key_id END, CASE WHEN ?5 THEN algorithm END, CASE WHEN ?6 THEN op END, CASE WHEN ?7 THEN reason END,
		CASE WHEN ?8 THEN policy END, sum(requests), sum(charged), sum(bytes), sum(slot), sum(wait)`
	usageConditions = ` AND (?12 IS NULL OR project = ?12) AND (?13 IS NULL OR component = ?13) AND (?14 IS NULL OR key_id = ?14)
		AND (?15 IS NULL OR algorithm = ?15) AND (?16 IS NULL OR op = ?16) AND (?17 IS NULL OR reason = ?17)
		GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9 ORDER BY 1, 2, 3, 4, 5, 6, 7, 8, 9 LIMIT ?18`
	selectUsage = `SELECT ` + usageColumns + ` FROM usage_rollups
		WHERE granularity = ?9 AND start >= ?10 AND start < ?11 AND tenant = ?19` + usageConditions
	selectUsageOfAll = `SELECT ` + usageColumns + ` FROM usage_rollups
		WHERE granularity = ?9 AND start >= ?10 AND start < ?11` + usageConditions

	// Housekeeping is for all tenants.
	deleteAuditEntries = `DELETE FROM audit_entries WHERE ordinal IN
		(SELECT ordinal FROM audit_entries WHERE time < ? ORDER BY time, ordinal LIMIT ?)`
	deleteUsage = `DELETE FROM usage_rollups WHERE (tenant, granularity, start, project, component, key_id, algorithm, op, reason, policy) IN
		(SELECT tenant, granularity, start, project, component, key_id, algorithm, op, reason, policy FROM usage_rollups
			WHERE granularity = ? AND start < ? ORDER BY start LIMIT ?)`
)

func shippedTargets(r *keystore.ShippedRow) []any {
	return []any{&r.Node, &r.Sequence, &r.Hash, &r.Until, &r.Ended}
}

// Shipped implements keystore.TrailDriver.
func (db *DB) Shipped(ctx context.Context, p keystore.ShippedParams) (*keystore.ShippedRow, error) {
	var r keystore.ShippedRow
	err := db.row(ctx, selectShipped, p.Node).Scan(shippedTargets(&r)...)
	return &r, db.translate(err)
}

// ListShipped implements keystore.TrailDriver.
func (db *DB) ListShipped(ctx context.Context) (all []*keystore.ShippedRow, err error) {
	err = db.list(ctx, func(rows *sql.Rows) error {
		r := new(keystore.ShippedRow)
		all = append(all, r)
		return rows.Scan(shippedTargets(r)...)
	}, listShipped)
	return all, err
}

// Ship implements keystore.TrailDriver.
func (db *DB) Ship(ctx context.Context, p keystore.ShipParams) error {
	return db.write(ctx, func(tx transaction) error {
		if _, err := tx.exec(ctx, insertShipped, p.Node, p.Until); err != nil {
			return err
		}
		err := tx.execOne(ctx, keystore.ErrStale, advanceShipped, int64(p.Sequence), p.Hash, p.Until, p.Ended,
			p.Node, int64(p.AfterSequence), p.AfterHash)
		if err != nil {
			return err
		}
		insert := tx.statement(ctx, insertAuditEntry)
		for i := range p.Entries {
			e := &p.Entries[i]
			if _, err := insert.ExecContext(ctx, p.Node, int64(e.Sequence), e.Tenant[:], e.Time, e.Request[:], e.Project, e.Component,
				e.Op, e.Key[:], e.Credential[:], e.Outcome, e.Payload, e.Entries, e.Since, int64(e.LastSequence), e.LastRequest[:]); err != nil {
				return err
			}
		}
		add := tx.statement(ctx, addUsage)
		for i := range p.Usage {
			u := &p.Usage[i]
			if _, err := add.ExecContext(ctx, u.Granularity, u.Tenant[:], u.Start, u.Project, u.Component, u.Key[:], u.Algorithm, u.Op,
				u.Reason, int64(u.Policy), u.Requests, u.Charged, u.Bytes, u.Slot, u.Wait); err != nil {
				return err
			}
		}
		return nil
	})
}

func (db *DB) listAuditEntries(ctx context.Context, statement string, args ...any) (all []*keystore.AuditEntryRow, err error) {
	err = db.list(ctx, func(rows *sql.Rows) error {
		r := new(keystore.AuditEntryRow)
		all = append(all, r)
		return rows.Scan(&r.Ordinal, &r.Entries, &r.Node, &r.Sequence, &r.Tenant, &r.Time, &r.Project, &r.Component, &r.Op, &r.Key,
			&r.Credential, &r.Request, &r.Outcome, &r.Payload)
	}, statement, args...)
	return all, err
}

// NewestAuditEntries implements keystore.TrailDriver.
func (db *DB) NewestAuditEntries(ctx context.Context, p keystore.NewestAuditEntriesParams) ([]*keystore.AuditEntryRow, error) {
	if p.Tenant == nil {
		return db.listAuditEntries(ctx, newestAuditEntriesOfAll, p.From, p.Until, p.BeforeTime, p.BeforeOrdinal, p.Limit)
	}
	return db.listAuditEntries(ctx, newestAuditEntries, p.Tenant[:], p.From, p.Until, p.BeforeTime, p.BeforeOrdinal, p.Limit)
}

// ArrivedAuditEntries implements keystore.TrailDriver.
func (db *DB) ArrivedAuditEntries(ctx context.Context, p keystore.ArrivedAuditEntriesParams) ([]*keystore.AuditEntryRow, error) {
	if p.Tenant == nil {
		return db.listAuditEntries(ctx, arrivedAuditEntriesOfAll, p.AfterOrdinal, p.Limit)
	}
	return db.listAuditEntries(ctx, arrivedAuditEntries, p.Tenant[:], p.AfterOrdinal, p.Limit)
}

// ArrivedOfOp implements keystore.TrailDriver.
func (db *DB) ArrivedOfOp(ctx context.Context, p keystore.ArrivedOfOpParams) ([]*keystore.AuditEntryRow, error) {
	return db.listAuditEntries(ctx, arrivedOfOp, p.Op, p.AfterOrdinal, p.Limit)
}

// AuditEntriesOfRequest implements keystore.TrailDriver.
func (db *DB) AuditEntriesOfRequest(ctx context.Context, p keystore.AuditEntriesOfRequestParams) ([]*keystore.AuditEntryRow, error) {
	if p.Tenant == nil {
		return db.listAuditEntries(ctx, auditEntriesOfAnyRequest, p.Request[:], p.From, p.Until, p.Limit)
	}
	return db.listAuditEntries(ctx, auditEntriesOfRequest, p.Request[:], p.Tenant[:], p.From, p.Until, p.Limit)
}

// AuditEntriesAt implements keystore.TrailDriver.
func (db *DB) AuditEntriesAt(ctx context.Context, p keystore.AuditEntriesAtParams) ([]*keystore.AuditEntryRow, error) {
	args := []any{p.Node, int64(p.After), int64(p.Sequence), int64(p.Sequence)}
	if p.Tenant == nil {
		return db.listAuditEntries(ctx, anyAuditEntriesAt, args...)
	}
	return db.listAuditEntries(ctx, auditEntriesAt, append(args, p.Tenant[:])...)
}

// LastOrdinal implements keystore.TrailDriver.
func (db *DB) LastOrdinal(ctx context.Context) (ordinal keystore.Integer, err error) {
	err = db.row(ctx, selectLastOrder).Scan(&ordinal)
	return ordinal, db.translate(err)
}

// Usage implements keystore.TrailDriver.
func (db *DB) Usage(ctx context.Context, p keystore.UsageParams) (all []*keystore.UsageRow, err error) {
	var key []byte
	if p.Key != nil {
		key = p.Key[:]
	}
	statement := selectUsageOfAll
	args := []any{p.By.Tenant, p.By.Project, p.By.Component, p.By.Key, p.By.Algorithm, p.By.Op, p.By.Reason, p.By.Policy,
		p.Granularity, p.From, p.To, p.Project, p.Component, key, p.Algorithm, p.Op, p.Reason, p.Limit}
	if p.Tenant != nil {
		statement, args = selectUsage, append(args, p.Tenant[:])
	}
	err = db.list(ctx, func(rows *sql.Rows) error {
		r := new(keystore.UsageRow)
		all = append(all, r)
		return rows.Scan(&r.Start, &r.Tenant, &r.Project, &r.Component, &r.Key, &r.Algorithm, &r.Op, &r.Reason, &r.Policy,
			&r.Requests, &r.Charged, &r.Bytes, &r.Slot, &r.Wait)
	}, statement, args...)
	return all, err
}

// DeleteAuditEntries implements keystore.TrailDriver.
func (db *DB) DeleteAuditEntries(ctx context.Context, p keystore.DeleteAuditEntriesParams) (int, error) {
	return db.delete(ctx, deleteAuditEntries, p.Before, p.Limit)
}

// DeleteUsage implements keystore.TrailDriver.
func (db *DB) DeleteUsage(ctx context.Context, p keystore.DeleteUsageParams) (int, error) {
	return db.delete(ctx, deleteUsage, p.Granularity, p.Before, p.Limit)
}

// delete runs a statement of housekeeping.
func (db *DB) delete(ctx context.Context, statement string, args ...any) (removed int, err error) {
	err = db.write(ctx, func(tx transaction) error {
		n, err := tx.exec(ctx, statement, args...)
		removed = int(n)
		return err
	})
	return removed, err
}
