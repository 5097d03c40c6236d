package postgres

import (
	"context"

	"github.com/sluice-kms/sluice/keystore"
)

const (
	insertVersion = `INSERT INTO key_versions (tenant, key_id, id, number, state, created, destroy_at, public_key, blob, nonces,
			mac, mac_version, nonces_mac, nonces_mac_version)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, 0, $10, $11, $12, $13)`
	updateVersion = `UPDATE key_versions SET state = $4, destroy_at = $5, blob = $6, mac = $7, mac_version = $8
		WHERE tenant = $1 AND key_id = $2 AND number = $3`

	selectNonces = `SELECT id, state, nonces, nonces_mac, nonces_mac_version FROM key_versions
		WHERE tenant = $1 AND key_id = $2 AND number = $3`
	updateNonces = `UPDATE key_versions SET nonces = $5, nonces_mac = $6, nonces_mac_version = $7
		WHERE tenant = $1 AND key_id = $2 AND number = $3 AND nonces = $4 AND state <> 'DESTROYED'`
)

func execInsertVersion(ctx context.Context, tx transaction, k *keystore.KeyRecord, v *keystore.VersionRecord) error {
	_, err := tx.exec(ctx, insertVersion, id(k.Tenant), id(k.ID), id(v.ID), v.Number, v.State, moment(v.Created),
		maybeMoment(v.DestroyAt), v.PublicKey, v.Blob, v.Code.MAC, codeVersion(v.Code), v.NoncesCode.MAC, codeVersion(v.NoncesCode))
	return err
}

func execUpdateVersions(ctx context.Context, tx transaction, k *keystore.KeyRecord, versions []keystore.VersionRecord) error {
	for i := range versions {
		v := &versions[i]
		err := tx.execOne(ctx, keystore.ErrStale, updateVersion, id(k.Tenant), id(k.ID), v.Number, v.State,
			maybeMoment(v.DestroyAt), v.Blob, v.Code.MAC, codeVersion(v.Code))
		if err != nil {
			return err
		}
	}
	return nil
}

// Nonces implements keystore.VersionDriver.
func (db *DB) Nonces(ctx context.Context, p keystore.NoncesParams) (*keystore.NoncesRow, error) {
	var r keystore.NoncesRow
	targets := []any{idColumn{&r.Version}, &r.State, &r.Nonces, &r.Code.MAC, &r.Code.Version}
	return &r, db.row(ctx, p.Tenant, targets, selectNonces, id(p.Tenant), id(p.Key), p.Number)
}

// UpdateNonces implements keystore.VersionDriver.
func (db *DB) UpdateNonces(ctx context.Context, p keystore.UpdateNoncesParams) error {
	return db.write(ctx, p.Tenant, func(tx transaction) error {
		return tx.execOne(ctx, keystore.ErrStale, updateNonces, id(p.Tenant), id(p.Key), p.Number, p.Was, p.Nonces,
			p.Code.MAC, codeVersion(p.Code))
	})
}
