package sqlite

import (
	"bytes"
	"context"
	"database/sql"

	"github.com/sluice-kms/sluice/keystore"
)

// A key comes with its versions from one statement, which sees one state of
// the database; joinVersions expects the key as k.
const (
	keyColumns = `id, project, name, spec, usage, protection, state, description, tags, created, deletion_date,
		deletion_protection, origin, rotation_period, next_rotation, due, primary_version, highest_version, revision,
		last_used, last_used_op, mac, mac_version`

	joinVersions = `SELECT k.id, k.project, k.name, k.spec, k.usage, k.protection, k.state, k.description, k.tags,
			k.created, k.deletion_date, k.deletion_protection, k.origin, k.rotation_period, k.next_rotation, k.due,
			k.primary_version, k.highest_version, k.revision, k.last_used, k.last_used_op, k.mac,
			k.mac_version, v.key_id, v.id, v.number, v.state, v.created, v.destroy_at, v.public_key, v.blob, v.mac,
			v.mac_version
		FROM keys k LEFT JOIN key_versions v ON v.tenant = k.tenant AND v.key_id = k.id `

	selectKey = joinVersions + `WHERE k.tenant = ? AND k.id = ? ORDER BY v.number`

	// The page is cut by row number, not by id, so that a damaged id counts
	// as a row as well.
	listKeys = joinVersions + `WHERE k.tenant = ?1 AND k.rowid IN (SELECT rowid FROM keys
			WHERE tenant = ?1 AND name > ?2 AND state <> 'DESTROYED' AND typeof(name) = 'text' ORDER BY name LIMIT ?3)
		ORDER BY k.name, v.number`
	listKeysOfProject = joinVersions + `WHERE k.tenant = ?1 AND k.rowid IN (SELECT rowid FROM keys
			WHERE tenant = ?1 AND project = ?4 AND name > ?2 AND state <> 'DESTROYED' AND typeof(name) = 'text'
			ORDER BY name LIMIT ?3)
		ORDER BY k.name, v.number`

	// The keeper acts for all tenants.
	selectDueKeys = `SELECT due, tenant, id FROM keys
		WHERE due <= ? AND (due, tenant, id) > (?, ?, ?) ORDER BY due, tenant, id LIMIT ?`

	insertKey = `INSERT INTO keys (tenant, ` + keyColumns + `)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, NULL, '', ?, ?)`
	updateKey = `UPDATE keys SET state = ?, description = ?, tags = ?, deletion_date = ?, deletion_protection = ?,
		rotation_period = ?, next_rotation = ?, due = ?, primary_version = ?, highest_version = ?, revision = ?, mac = ?,
		mac_version = ?
		WHERE tenant = ? AND id = ? AND revision = ?`
	touchKey = `UPDATE keys SET last_used = ?3, last_used_op = ?4
		WHERE tenant = ?1 AND id = ?2 AND (last_used IS NULL OR last_used < ?3) AND state <> 'DESTROYED'`
)

// Key implements keystore.KeyDriver.
func (db *DB) Key(ctx context.Context, p keystore.KeyParams) (*keystore.KeyRow, error) {
	found, err := db.queryKeys(ctx, selectKey, p.Tenant[:], p.ID[:])
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, keystore.ErrMissing
	}
	return found[0], nil
}

// ListKeys implements keystore.KeyDriver.
func (db *DB) ListKeys(ctx context.Context, p keystore.ListKeysParams) ([]*keystore.KeyRow, error) {
	if p.Project == "" {
		return db.queryKeys(ctx, listKeys, p.Tenant[:], p.After, p.Limit)
	}
	return db.queryKeys(ctx, listKeysOfProject, p.Tenant[:], p.After, p.Limit, p.Project)
}

// queryKeys reads the result of joinVersions: one row for each version, and
// one for a key without any.
func (db *DB) queryKeys(ctx context.Context, query string, args ...any) (all []*keystore.KeyRow, err error) {
	var last *keystore.KeyRow
	err = db.list(ctx, func(rows *sql.Rows) error {
		var k keystore.KeyRow
		var v keystore.VersionRow
		var versionOf keystore.Bytes
		err := rows.Scan(&k.ID, &k.Project, &k.Name, &k.Spec, &k.Usage, &k.Protection, &k.State, &k.Description,
			&k.Tags, &k.Created, &k.DeletionDate, &k.DeletionProtection, &k.Origin, &k.RotationPeriod, &k.NextRotation,
			&k.Due, &k.PrimaryVersion, &k.HighestVersion, &k.Revision, &k.LastUsed, &k.LastUsedOp,
			&k.Code.MAC, &k.Code.Version, &versionOf, &v.ID, &v.Number, &v.State, &v.Created, &v.DestroyAt, &v.PublicKey,
			&v.Blob, &v.Code.MAC, &v.Code.Version)
		if err != nil {
			return err
		}
		if last == nil || last.Name != k.Name || !bytes.Equal(last.ID.Bytes, k.ID.Bytes) {
			last = &k
			all = append(all, last)
		}
		if !versionOf.Null {
			last.Versions = append(last.Versions, v)
		}
		return nil
	}, query, args...)
	return all, err
}

// InsertKey implements keystore.KeyDriver.
func (db *DB) InsertKey(ctx context.Context, p keystore.InsertKeyParams) error {
	return db.write(ctx, func(tx transaction) error { return execInsertKey(ctx, tx, &p) })
}

func execInsertKey(ctx context.Context, tx transaction, p *keystore.InsertKeyParams) error {
	k := &p.Key
	_, err := tx.exec(ctx, insertKey, k.Tenant[:], k.ID[:], k.Project, k.Name, k.Spec, k.Usage,
		k.Protection, k.State, k.Description, k.Tags, k.Created, k.DeletionDate, k.DeletionProtection,
		k.Origin, k.RotationPeriod, k.NextRotation, k.Due, k.PrimaryVersion, k.HighestVersion, k.Revision,
		k.Code.MAC, codeVersion(k.Code))
	if err != nil {
		return err
	}
	if err := execInsertVersion(ctx, tx, k, &p.Version); err != nil {
		return err
	}
	n := &p.Name
	_, err = tx.exec(ctx, insertKeyName, n.Tenant[:], n.Name, n.Kind, n.Key[:], n.Code.MAC, codeVersion(n.Code))
	return err
}

// UpdateKey implements keystore.KeyDriver.
func (db *DB) UpdateKey(ctx context.Context, p keystore.UpdateKeyParams) error {
	return db.write(ctx, func(tx transaction) error {
		if err := execUpdateKey(ctx, tx, &p.Key); err != nil {
			return err
		}
		if err := execUpdateVersions(ctx, tx, &p.Key, p.Changed); err != nil || p.Added == nil {
			return err
		}
		return execInsertVersion(ctx, tx, &p.Key, p.Added)
	})
}

// DestroyKey implements keystore.KeyDriver.
func (db *DB) DestroyKey(ctx context.Context, p keystore.DestroyKeyParams) error {
	return db.write(ctx, func(tx transaction) error {
		if err := execUpdateKey(ctx, tx, &p.Key); err != nil {
			return err
		}
		if err := execUpdateVersions(ctx, tx, &p.Key, p.Versions); err != nil {
			return err
		}
		_, err := tx.exec(ctx, deleteNamesOfKey, p.Key.Tenant[:], p.Key.ID[:])
		return err
	})
}

func execUpdateKey(ctx context.Context, tx transaction, k *keystore.KeyRecord) error {
	return tx.execOne(ctx, keystore.ErrStale, updateKey, k.State, k.Description, k.Tags, k.DeletionDate,
		k.DeletionProtection, k.RotationPeriod, k.NextRotation, k.Due, k.PrimaryVersion, k.HighestVersion, k.Revision,
		k.Code.MAC, codeVersion(k.Code), k.Tenant[:], k.ID[:], k.Revision-1)
}

// DueKeys implements keystore.KeyDriver.
func (db *DB) DueKeys(ctx context.Context, p keystore.DueKeysParams) (due []*keystore.DueKeyRow, err error) {
	err = db.list(ctx, func(rows *sql.Rows) error {
		r := new(keystore.DueKeyRow)
		due = append(due, r)
		return rows.Scan(&r.Due, &r.Tenant, &r.ID)
	}, selectDueKeys, p.Now, p.After.Due, p.After.Tenant, p.After.ID, p.Limit)
	return due, err
}

// TouchKeys implements keystore.KeyDriver.
func (db *DB) TouchKeys(ctx context.Context, p keystore.TouchKeysParams) error {
	return db.write(ctx, func(tx transaction) error {
		for i := range p.Uses {
			u := &p.Uses[i]
			if _, err := tx.exec(ctx, touchKey, u.Tenant[:], u.Key[:], u.Time, u.Op); err != nil {
				return err
			}
		}
		return nil
	})
}
