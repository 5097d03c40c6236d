package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/sluice-kms/sluice/keystore"
)

// The service's own secrets belong to no tenant's data.
const (
	selectSystemSecrets = `SELECT version, blob, created FROM system_secrets WHERE name = $1 ORDER BY version`
	insertSystemSecret  = `INSERT INTO system_secrets (name, version, blob, created) VALUES ($1, $2, $3, $4)`
)

// SystemSecrets implements keystore.SystemSecretDriver.
func (db *DB) SystemSecrets(ctx context.Context, p keystore.SystemSecretsParams) (all []*keystore.SystemSecretRow, err error) {
	err = db.list(ctx, everybody, func(rows pgx.Rows) error {
		r := new(keystore.SystemSecretRow)
		all = append(all, r)
		return rows.Scan(&r.Version, &r.Blob, timeColumn{&r.Created})
	}, selectSystemSecrets, p.Name)
	return all, err
}

// InsertSystemSecret implements keystore.SystemSecretDriver.
func (db *DB) InsertSystemSecret(ctx context.Context, p keystore.InsertSystemSecretParams) error {
	return db.write(ctx, everybody, func(tx transaction) error {
		_, err := tx.exec(ctx, insertSystemSecret, p.Name, p.Version, p.Blob, moment(p.Created))
		return err
	})
}
