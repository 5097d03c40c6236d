package sqlite

import (
	"context"
	"database/sql"

	"github.com/sluice-kms/sluice/keystore"
)

// The service's own secrets belong to no tenant's data.
const (
	selectSystemSecrets = `SELECT version, blob, created FROM system_secrets WHERE name = ? ORDER BY version`
	insertSystemSecret  = `INSERT INTO system_secrets (name, version, blob, created) VALUES (?, ?, ?, ?)`
)

// SystemSecrets implements keystore.SystemSecretDriver.
func (db *DB) SystemSecrets(ctx context.Context, p keystore.SystemSecretsParams) (all []*keystore.SystemSecretRow, err error) {
	err = db.list(ctx, func(rows *sql.Rows) error {
		r := new(keystore.SystemSecretRow)
		all = append(all, r)
		return rows.Scan(&r.Version, &r.Blob, &r.Created)
	}, selectSystemSecrets, p.Name)
	return all, err
}

// InsertSystemSecret implements keystore.SystemSecretDriver.
func (db *DB) InsertSystemSecret(ctx context.Context, p keystore.InsertSystemSecretParams) error {
	return db.write(ctx, func(tx transaction) error {
		_, err := tx.exec(ctx, insertSystemSecret, p.Name, p.Version, p.Blob, p.Created)
		return err
	})
}
