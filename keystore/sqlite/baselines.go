package sqlite

import (
	"context"

	"github.com/sluice-kms/sluice/keystore"
)

const (
	selectBaseline = `SELECT document, stored, mac, mac_version FROM credential_baselines WHERE tenant = ? AND credential = ?`
	putBaseline    = `INSERT INTO credential_baselines (tenant, credential, document, stored, mac, mac_version)
		SELECT tenant, id, ?3, ?4, ?5, ?6 FROM credentials WHERE tenant = ?1 AND id = ?2
		ON CONFLICT (tenant, credential) DO UPDATE SET document = excluded.document, stored = excluded.stored,
			mac = excluded.mac, mac_version = excluded.mac_version`
)

// Baseline implements keystore.BaselineDriver.
func (db *DB) Baseline(ctx context.Context, p keystore.BaselineParams) (*keystore.BaselineRow, error) {
	var r keystore.BaselineRow
	err := db.row(ctx, selectBaseline, p.Tenant[:], p.Credential[:]).Scan(&r.Document, &r.Stored, &r.Code.MAC, &r.Code.Version)
	return &r, db.translate(err)
}

// PutBaselines implements keystore.BaselineDriver.
func (db *DB) PutBaselines(ctx context.Context, p keystore.PutBaselinesParams) error {
	return db.write(ctx, func(tx transaction) error {
		for i := range p.Baselines {
			b := &p.Baselines[i]
			if _, err := tx.exec(ctx, putBaseline, b.Tenant[:], b.Credential[:], b.Document, b.Stored, b.Code.MAC, codeVersion(b.Code)); err != nil {
				return err
			}
		}
		return nil
	})
}
