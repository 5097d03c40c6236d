package postgres

import (
	"context"
	"uuid"

	"github.com/jackc/pgx/v5"

	"github.com/sluice-kms/sluice/keystore"
)

const (
	// A tenant that is missing has no row to refer to: nothing is inserted.
	insertRequestRecord = `INSERT INTO request_records (tenant, request, document, expires)
		SELECT id, $2, $3, $4 FROM tenants WHERE id = $1 ON CONFLICT DO NOTHING`
	selectRequestRecord = `SELECT tenant, document FROM request_records WHERE tenant = $1 AND request = $2 AND expires > $3`

	// An operator names no tenant: it is found out, and read as that tenant.
	setTenantOfRequest     = `SELECT set_config('app.tenant', coalesce(tenant_of_request($1)::text, ''), true)`
	selectAnyRequestRecord = `SELECT tenant, document FROM request_records WHERE tenant = current_tenant() AND request = $1 AND expires > $2`

	// Housekeeping is for all tenants.
	deleteExpiredRecords = `SELECT delete_expired_records($1, $2)`
)

// InsertRequestRecords implements keystore.RecordDriver.
func (db *DB) InsertRequestRecords(ctx context.Context, p keystore.InsertRequestRecordsParams) error {
	return db.write(ctx, everybody, func(tx transaction) error {
		var batch pgx.Batch
		var tenant uuid.UUID
		for i := range p.Records {
			r := &p.Records[i]
			if r.Tenant != tenant {
				tenant = r.Tenant
				batch.Queue(setTenant, tenantSetting(tenant))
			}
			batch.Queue(insertRequestRecord, id(r.Tenant), id(r.Request), r.Document, moment(r.Expires))
		}
		return tx.tx.SendBatch(ctx, &batch).Close()
	})
}

// RequestRecord implements keystore.RecordDriver.
func (db *DB) RequestRecord(ctx context.Context, p keystore.RequestRecordParams) (*keystore.RequestRecordRow, error) {
	var r keystore.RequestRecordRow
	return &r, db.row(ctx, p.Tenant, []any{idColumn{&r.Tenant}, &r.Document}, selectRequestRecord, id(p.Tenant), id(p.Request), moment(p.Now))
}

// AnyRequestRecord implements keystore.RecordDriver.
func (db *DB) AnyRequestRecord(ctx context.Context, p keystore.AnyRequestRecordParams) (*keystore.RequestRecordRow, error) {
	var found *keystore.RequestRecordRow
	err := db.listAs(ctx, setTenantOfRequest, []any{id(p.Request)}, func(rows pgx.Rows) error {
		found = new(keystore.RequestRecordRow)
		return rows.Scan(idColumn{&found.Tenant}, &found.Document)
	}, selectAnyRequestRecord, id(p.Request), moment(p.Now))
	if err == nil && found == nil {
		err = keystore.ErrMissing
	}
	return found, err
}

// DeleteExpiredRecords implements keystore.RecordDriver.
func (db *DB) DeleteExpiredRecords(ctx context.Context, p keystore.DeleteExpiredRecordsParams) (removed int, err error) {
	err = db.write(ctx, everybody, func(tx transaction) error {
		return tx.tx.QueryRow(ctx, deleteExpiredRecords, moment(p.Now), p.Limit).Scan(&removed)
	})
	return removed, err
}
