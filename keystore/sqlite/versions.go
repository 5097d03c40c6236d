package sqlite

import (
	"context"

	"github.com/sluice-kms/sluice/keystore"
)

const (
	insertVersion = `INSERT INTO key_versions (tenant, key_id, id, number, state, created, destroy_at, public_key, blob, nonces,
			mac, mac_version, nonces_mac, nonces_mac_version)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 0, ?, ?, ?, ?)`
	updateVersion = `UPDATE key_versions SET state = ?, destroy_at = ?, blob = ?, mac = ?, mac_version = ?
		WHERE tenant = ? AND key_id = ? AND number = ?`

	selectNonces = `SELECT id, state, nonces, nonces_mac, nonces_mac_version FROM key_versions
		WHERE tenant = ? AND key_id = ? AND number = ?`
	updateNonces = `UPDATE key_versions SET nonces = ?, nonces_mac = ?, nonces_mac_version = ?
		WHERE tenant = ? AND key_id = ? AND number = ? AND nonces = ? AND state <> 'DESTROYED'`
)

func execInsertVersion(ctx context.Context, tx transaction, k *keystore.KeyRecord, v *keystore.VersionRecord) error {
	_, err := tx.exec(ctx, insertVersion, k.Tenant[:], k.ID[:], v.ID[:], v.Number, v.State, v.Created, v.DestroyAt,
		v.PublicKey, v.Blob, v.Code.MAC, codeVersion(v.Code), v.NoncesCode.MAC, codeVersion(v.NoncesCode))
	return err
}

func execUpdateVersions(ctx context.Context, tx transaction, k *keystore.KeyRecord, versions []keystore.VersionRecord) error {
	for i := range versions {
		v := &versions[i]
		err := tx.execOne(ctx, keystore.ErrStale, updateVersion, v.State, v.DestroyAt, v.Blob,
			v.Code.MAC, codeVersion(v.Code), k.Tenant[:], k.ID[:], v.Number)
		if err != nil {
			return err
		}
	}
	return nil
}

// Nonces implements keystore.VersionDriver.
func (db *DB) Nonces(ctx context.Context, p keystore.NoncesParams) (*keystore.NoncesRow, error) {
	var r keystore.NoncesRow
	err := db.row(ctx, selectNonces, p.Tenant[:], p.Key[:], p.Number).
		Scan(&r.Version, &r.State, &r.Nonces, &r.Code.MAC, &r.Code.Version)
	return &r, db.translate(err)
}

// UpdateNonces implements keystore.VersionDriver.
func (db *DB) UpdateNonces(ctx context.Context, p keystore.UpdateNoncesParams) error {
	return db.write(ctx, func(tx transaction) error {
		return tx.execOne(ctx, keystore.ErrStale, updateNonces, p.Nonces, p.Code.MAC,
			codeVersion(p.Code), p.Tenant[:], p.Key[:], p.Number, p.Was)
	})
}
