package postgres

import (
	"context"

	"github.com/sluice-kms/sluice/keystore"
)

const (
	selectRowAuthentication = `SELECT adopt, mac, mac_version FROM row_authentication WHERE id = 1`

	// A row that has a code keeps it.
	sealTenant  = `UPDATE tenants SET mac = $1, mac_version = $2 WHERE id = $3 AND mac IS NULL`
	sealProject = `UPDATE projects SET mac = $1, mac_version = $2 WHERE tenant = $3 AND name = $4 AND mac IS NULL`
	sealKey     = `UPDATE keys SET mac = $1, mac_version = $2 WHERE tenant = $3 AND id = $4 AND mac IS NULL`
	sealVersion = `UPDATE key_versions SET mac = $1, mac_version = $2
		WHERE tenant = $3 AND key_id = $4 AND number = $5 AND mac IS NULL`
	sealNonces = `UPDATE key_versions SET nonces_mac = $1, nonces_mac_version = $2
		WHERE tenant = $3 AND key_id = $4 AND number = $5 AND nonces_mac IS NULL`
	sealKeyName           = `UPDATE key_names SET mac = $1, mac_version = $2 WHERE tenant = $3 AND name = $4 AND mac IS NULL`
	sealCredential        = `UPDATE credentials SET mac = $1, mac_version = $2 WHERE tenant = $3 AND id = $4 AND mac IS NULL`
	sealRowAuthentication = `UPDATE row_authentication SET mac = $1, mac_version = $2 WHERE id = 1 AND mac IS NULL`
)

// RowAuthentication implements keystore.AuthenticationDriver.
func (db *DB) RowAuthentication(ctx context.Context) (*keystore.RowAuthenticationRow, error) {
	var r keystore.RowAuthenticationRow
	targets := []any{boolColumn{&r.Adopt}, &r.Code.MAC, &r.Code.Version}
	return &r, db.row(ctx, everybody, targets, selectRowAuthentication)
}

// SealRows implements keystore.AuthenticationDriver.
func (db *DB) SealRows(ctx context.Context, p keystore.SealRowsParams) error {
	return db.write(ctx, p.Tenant, func(tx transaction) error {
		for i := range p.Rows {
			if err := execSeal(ctx, tx, &p, &p.Rows[i]); err != nil {
				return err
			}
		}
		if p.Authentication == nil {
			return nil
		}
		_, err := tx.exec(ctx, sealRowAuthentication, p.Authentication.MAC, p.Authentication.Version)
		return err
	})
}

func execSeal(ctx context.Context, tx transaction, p *keystore.SealRowsParams, r *keystore.SealedRow) error {
	statement, where := sealTenant, []any{}
	switch r.Table {
	case keystore.SealTenant:
	case keystore.SealProject:
		statement, where = sealProject, []any{r.Name}
	case keystore.SealKey:
		statement, where = sealKey, []any{id(r.ID)}
	case keystore.SealVersion:
		statement, where = sealVersion, []any{id(r.ID), r.Number}
	case keystore.SealNonces:
		statement, where = sealNonces, []any{id(r.ID), r.Number}
	case keystore.SealKeyName:
		statement, where = sealKeyName, []any{r.Name}
	case keystore.SealCredential:
		statement, where = sealCredential, []any{id(r.ID)}
	}
	_, err := tx.exec(ctx, statement, append([]any{r.Code.MAC, r.Code.Version, id(p.Tenant)}, where...)...)
	return err
}
