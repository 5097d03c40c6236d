package postgres

import (
	"context"
	"uuid"

	"github.com/jackc/pgx/v5"
)

// setTenant makes the transaction that it is in one of a tenant, and no longer.
const setTenant = `SELECT set_config('app.tenant', $1, true)`

// everybody is the tenant of what is for no tenant.
var everybody uuid.UUID

// list runs a reading statement in a transaction of the tenant; scan is called
// for each row.
func (db *DB) list(ctx context.Context, tenant uuid.UUID, scan func(pgx.Rows) error, statement string, args ...any) error {
	return db.listAs(ctx, setTenant, []any{tenantSetting(tenant)}, scan, statement, args...)
}

// listAs is list with the statement that finds the tenant.
func (db *DB) listAs(ctx context.Context, find string, findArgs []any, scan func(pgx.Rows) error, statement string, args ...any) (err error) {
	// What is sent in one batch is one transaction and one round trip.
	var batch pgx.Batch
	batch.Queue(find, findArgs...)
	batch.Queue(statement, args...)
	results := db.pool.SendBatch(ctx, &batch)
	defer func() {
		if closed := results.Close(); err == nil {
			err = translate(closed)
		}
	}()
	if _, err := results.Exec(); err != nil {
		return translate(err)
	}
	rows, err := results.Query()
	if err != nil {
		return translate(err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return translate(err)
		}
	}
	return translate(rows.Err())
}

// row is list for one row; keystore.ErrMissing when there is none.
func (db *DB) row(ctx context.Context, tenant uuid.UUID, targets []any, statement string, args ...any) error {
	found := false
	err := db.list(ctx, tenant, func(rows pgx.Rows) error {
		found = true
		return rows.Scan(targets...)
	}, statement, args...)
	if err == nil && !found {
		return translate(pgx.ErrNoRows)
	}
	return err
}

func tenantSetting(tenant uuid.UUID) string {
	if tenant == everybody {
		return ""
	}
	return tenant.String()
}

// transaction runs writing statements.
type transaction struct{ tx pgx.Tx }

// write runs f in a transaction of the tenant. When it returns nil the
// transaction is on the server's disk.
func (db *DB) write(ctx context.Context, tenant uuid.UUID, f func(transaction) error) error {
	return translate(pgx.BeginFunc(ctx, db.pool, func(tx pgx.Tx) error {
		t := transaction{tx}
		if err := t.setTenant(ctx, tenant); err != nil {
			return err
		}
		return f(t)
	}))
}

// setTenant makes the transaction one of another tenant.
func (t transaction) setTenant(ctx context.Context, tenant uuid.UUID) error {
	_, err := t.tx.Exec(ctx, setTenant, tenantSetting(tenant))
	return err
}

// exec returns the number of rows that the statement met.
func (t transaction) exec(ctx context.Context, statement string, args ...any) (int64, error) {
	tag, err := t.tx.Exec(ctx, statement, args...)
	return tag.RowsAffected(), err
}

// execOne runs a statement that must meet a row; otherwise it returns none.
func (t transaction) execOne(ctx context.Context, none error, statement string, args ...any) error {
	n, err := t.exec(ctx, statement, args...)
	if err == nil && n == 0 {
		return none
	}
	return err
}
