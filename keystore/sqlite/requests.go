package sqlite

import (
	"context"

	"github.com/sluice-kms/sluice/keystore"
)

const (
	// A tenant that is missing has no row to refer to: nothing is inserted.
	insertRequestRecord = `INSERT INTO request_records (tenant, request, document, expires)
		SELECT id, ?, ?, ? FROM tenants WHERE id = ? ON CONFLICT DO NOTHING`
	selectRequestRecord    = `SELECT tenant, document FROM request_records WHERE tenant = ? AND request = ? AND expires > ?`
	selectAnyRequestRecord = `SELECT tenant, document FROM request_records WHERE request = ? AND expires > ?`
	// Housekeeping is for all tenants.
	deleteExpiredRecords = `DELETE FROM request_records WHERE rowid IN
		(SELECT rowid FROM request_records WHERE expires <= ? ORDER BY expires LIMIT ?)`
)

// InsertRequestRecords implements keystore.RecordDriver.
func (db *DB) InsertRequestRecords(ctx context.Context, p keystore.InsertRequestRecordsParams) error {
	return db.write(ctx, func(tx transaction) error {
		for i := range p.Records {
			r := &p.Records[i]
			if _, err := tx.exec(ctx, insertRequestRecord, r.Request[:], r.Document, r.Expires, r.Tenant[:]); err != nil {
				return err
			}
		}
		return nil
	})
}

// RequestRecord implements keystore.RecordDriver.
func (db *DB) RequestRecord(ctx context.Context, p keystore.RequestRecordParams) (*keystore.RequestRecordRow, error) {
	var r keystore.RequestRecordRow
	err := db.row(ctx, selectRequestRecord, p.Tenant[:], p.Request[:], p.Now).Scan(&r.Tenant, &r.Document)
	return &r, db.translate(err)
}

// AnyRequestRecord implements keystore.RecordDriver.
func (db *DB) AnyRequestRecord(ctx context.Context, p keystore.AnyRequestRecordParams) (*keystore.RequestRecordRow, error) {
	var r keystore.RequestRecordRow
	err := db.row(ctx, selectAnyRequestRecord, p.Request[:], p.Now).Scan(&r.Tenant, &r.Document)
	return &r, db.translate(err)
}

// DeleteExpiredRecords implements keystore.RecordDriver.
func (db *DB) DeleteExpiredRecords(ctx context.Context, p keystore.DeleteExpiredRecordsParams) (removed int, err error) {
	err = db.write(ctx, func(tx transaction) error {
		n, err := tx.exec(ctx, deleteExpiredRecords, p.Now, p.Limit)
		removed = int(n)
		return err
	})
	return removed, err
}
