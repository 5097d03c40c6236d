package sqlite

import (
	"context"

	"github.com/sluice-kms/sluice/keystore"
)

const (
	selectRowAuthentication = `SELECT adopt, mac, mac_version FROM row_authentication WHERE id = 1`

	// A row that has a code keeps it.
	sealTenant  = `UPDATE tenants SET mac = ?, mac_version = ? WHERE id = ? AND mac IS NULL`
	sealProject = `UPDATE projects SET mac = ?, mac_version = ? WHERE tenant = ? AND name = ? AND mac IS NULL`
	sealKey     = `UPDATE keys SET mac = ?, mac_version = ? WHERE tenant = ? AND id = ? AND mac IS NULL`
	sealVersion = `UPDATE key_versions SET mac = ?, mac_version = ?
		WHERE tenant = ? AND key_id = ? AND number = ? AND mac IS NULL`
	sealNonces = `UPDATE key_versions SET nonces_mac = ?, nonces_mac_version = ?
		WHERE tenant = ? AND key_id = ? AND number = ? AND nonces_mac IS NULL`
	sealKeyName           = `UPDATE key_names SET mac = ?, mac_version = ? WHERE tenant = ? AND name = ? AND mac IS NULL`
	sealCredential        = `UPDATE credentials SET mac = ?, mac_version = ? WHERE tenant = ? AND id = ? AND mac IS NULL`
	sealRowAuthentication = `UPDATE row_authentication SET mac = ?, mac_version = ? WHERE id = 1 AND mac IS NULL`
)

// codeVersion is the version of a code as an argument, NULL for no code.
func codeVersion(c keystore.Code) any {
	if c.MAC == nil {
		return nil
	}
	return c.Version
}

// RowAuthentication implements keystore.AuthenticationDriver.
func (db *DB) RowAuthentication(ctx context.Context) (*keystore.RowAuthenticationRow, error) {
	var r keystore.RowAuthenticationRow
	err := db.row(ctx, selectRowAuthentication).Scan(&r.Adopt, &r.Code.MAC, &r.Code.Version)
	return &r, db.translate(err)
}

// SealRows implements keystore.AuthenticationDriver.
func (db *DB) SealRows(ctx context.Context, p keystore.SealRowsParams) error {
	return db.write(ctx, func(tx transaction) error {
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
		statement, where = sealKey, []any{r.ID[:]}
	case keystore.SealVersion:
		statement, where = sealVersion, []any{r.ID[:], r.Number}
	case keystore.SealNonces:
		statement, where = sealNonces, []any{r.ID[:], r.Number}
	case keystore.SealKeyName:
		statement, where = sealKeyName, []any{r.Name}
	case keystore.SealCredential:
		statement, where = sealCredential, []any{r.ID[:]}
	}
	_, err := tx.exec(ctx, statement, append([]any{r.Code.MAC, r.Code.Version, p.Tenant[:]}, where...)...)
	return err
}
