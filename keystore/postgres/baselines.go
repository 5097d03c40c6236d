package postgres

import (
	"context"
	"uuid"

	"github.com/jackc/pgx/v5"

	"github.com/sluice-kms/sluice/keystore"
)

const (
	selectBaseline = `SELECT document, stored, mac, mac_version FROM credential_baselines WHERE tenant = $1 AND credential = $2`
	putBaseline    = `INSERT INTO credential_baselines (tenant, credential, document, stored, mac, mac_version)
		SELECT tenant, id, $3, $4, $5, $6 FROM credentials WHERE tenant = $1 AND id = $2
		ON CONFLICT (tenant, credential) DO UPDATE SET document = excluded.document, stored = excluded.stored,
			mac = excluded.mac, mac_version = excluded.mac_version`
)

// Baseline implements keystore.BaselineDriver.
func (db *DB) Baseline(ctx context.Context, p keystore.BaselineParams) (*keystore.BaselineRow, error) {
	var r keystore.BaselineRow
	return &r, db.row(ctx, p.Tenant, []any{&r.Document, timeColumn{&r.Stored}, &r.Code.MAC, &r.Code.Version},
		selectBaseline, id(p.Tenant), id(p.Credential))
}

// PutBaselines implements keystore.BaselineDriver.
func (db *DB) PutBaselines(ctx context.Context, p keystore.PutBaselinesParams) error {
	return db.write(ctx, everybody, func(tx transaction) error {
		var batch pgx.Batch
		var tenant uuid.UUID
		for i := range p.Baselines {
			b := &p.Baselines[i]
			if b.Tenant != tenant {
				tenant = b.Tenant
				batch.Queue(setTenant, tenantSetting(tenant))
			}
			batch.Queue(putBaseline, id(b.Tenant), id(b.Credential), b.Document, moment(b.Stored), b.Code.MAC, codeVersion(b.Code))
		}
		return tx.tx.SendBatch(ctx, &batch).Close()
	})
}
