package postgres

import (
	"bytes"
	"context"
	"uuid"

	"github.com/jackc/pgx/v5"

	"github.com/sluice-kms/sluice/keystore"
)

// A key comes with its versions from one statement, which sees one state of
// the database; joinVersions expects the key as k.
const (
	joinVersions = `SELECT k.id, k.project, k.name, k.spec, k.usage, k.protection, k.state, k.description, k.tags,
			k.created, k.deletion_date, k.deletion_protection, k.origin, k.rotation_period, k.next_rotation, k.due,
			k.primary_version, k.highest_version, k.revision, k.last_used, k.last_used_op, k.mac, k.mac_version,
			v.key_id, v.id, v.number, v.state, v.created, v.destroy_at, v.public_key, v.blob, v.mac, v.mac_version
		FROM keys k LEFT JOIN key_versions v ON v.tenant = k.tenant AND v.key_id = k.id `

	selectKey = joinVersions + `WHERE k.tenant = $1 AND k.id = $2 ORDER BY v.number`
	listKeys  = joinVersions + `WHERE k.tenant = $1 AND k.id IN (SELECT id FROM keys
			WHERE tenant = $1 AND name > $2 AND state <> 'DESTROYED' ORDER BY name LIMIT $3)
		ORDER BY k.name, v.number`
	listKeysOfProject = joinVersions + `WHERE k.tenant = $1 AND k.id IN (SELECT id FROM keys
			WHERE tenant = $1 AND project = $4 AND name > $2 AND state <> 'DESTROYED' ORDER BY name LIMIT $3)
		ORDER BY k.name, v.number`

	// The keeper acts for all tenants.
	selectDueKeys = `SELECT due, tenant, id FROM due_keys($1, $2, $3, $4, $5)`

	insertKey = `INSERT INTO keys (tenant, id, project, name, spec, usage, protection, state, description, tags, created,
			deletion_date, deletion_protection, origin, rotation_period, next_rotation, due, primary_version,
			highest_version, revision, mac, mac_version)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22)`
	updateKey = `UPDATE keys SET state = $4, description = $5, tags = $6, deletion_date = $7, deletion_protection = $8,
		rotation_period = $9, next_rotation = $10, due = $11, primary_version = $12, highest_version = $13, revision = $14,
		mac = $15, mac_version = $16
		WHERE tenant = $1 AND id = $2 AND revision = $3`
	touchKey = `UPDATE keys SET last_used = $3, last_used_op = $4
		WHERE tenant = $1 AND id = $2 AND (last_used IS NULL OR last_used < $3) AND state <> 'DESTROYED'`
)

// Key implements keystore.KeyDriver.
func (db *DB) Key(ctx context.Context, p keystore.KeyParams) (*keystore.KeyRow, error) {
	found, err := db.queryKeys(ctx, p.Tenant, selectKey, id(p.Tenant), id(p.ID))
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
		return db.queryKeys(ctx, p.Tenant, listKeys, id(p.Tenant), p.After, p.Limit)
	}
	return db.queryKeys(ctx, p.Tenant, listKeysOfProject, id(p.Tenant), p.After, p.Limit, p.Project)
}

// queryKeys reads the result of joinVersions: one row for each version, and
// one for a key without any.
func (db *DB) queryKeys(ctx context.Context, tenant uuid.UUID, statement string, args ...any) (all []*keystore.KeyRow, err error) {
	var last *keystore.KeyRow
	err = db.list(ctx, tenant, func(rows pgx.Rows) error {
		var k keystore.KeyRow
		var v keystore.VersionRow
		var versionOf keystore.Bytes
		err := rows.Scan(idColumn{&k.ID}, &k.Project, &k.Name, &k.Spec, &k.Usage, &k.Protection, &k.State, &k.Description,
			&k.Tags, timeColumn{&k.Created}, timeColumn{&k.DeletionDate}, boolColumn{&k.DeletionProtection}, &k.Origin,
			&k.RotationPeriod, timeColumn{&k.NextRotation}, timeColumn{&k.Due}, &k.PrimaryVersion, &k.HighestVersion,
			&k.Revision, timeColumn{&k.LastUsed}, &k.LastUsedOp, &k.Code.MAC, &k.Code.Version,
			idColumn{&versionOf}, idColumn{&v.ID}, &v.Number, &v.State, timeColumn{&v.Created}, timeColumn{&v.DestroyAt},
			&v.PublicKey, &v.Blob, &v.Code.MAC, &v.Code.Version)
		if err != nil {
			return err
		}
		if last == nil || !bytes.Equal(last.ID.Bytes, k.ID.Bytes) {
			last = &k
			all = append(all, last)
		}
		if !versionOf.Null {
			last.Versions = append(last.Versions, v)
		}
		return nil
	}, statement, args...)
	return all, err
}

// InsertKey implements keystore.KeyDriver.
func (db *DB) InsertKey(ctx context.Context, p keystore.InsertKeyParams) error {
	k := &p.Key
	return db.write(ctx, k.Tenant, func(tx transaction) error {
		_, err := tx.exec(ctx, insertKey, id(k.Tenant), id(k.ID), k.Project, k.Name, k.Spec, k.Usage, k.Protection, k.State,
			k.Description, k.Tags, moment(k.Created), maybeMoment(k.DeletionDate), k.DeletionProtection, k.Origin,
			k.RotationPeriod, maybeMoment(k.NextRotation), maybeMoment(k.Due), k.PrimaryVersion, k.HighestVersion,
			k.Revision, k.Code.MAC, codeVersion(k.Code))
		if err != nil {
			return err
		}
		if err := execInsertVersion(ctx, tx, k, &p.Version); err != nil {
			return err
		}
		n := &p.Name
		_, err = tx.exec(ctx, insertKeyName, id(n.Tenant), n.Name, n.Kind, id(n.Key), n.Code.MAC, codeVersion(n.Code))
		return err
	})
}

// UpdateKey implements keystore.KeyDriver.
func (db *DB) UpdateKey(ctx context.Context, p keystore.UpdateKeyParams) error {
	return db.write(ctx, p.Key.Tenant, func(tx transaction) error {
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
	return db.write(ctx, p.Key.Tenant, func(tx transaction) error {
		if err := execUpdateKey(ctx, tx, &p.Key); err != nil {
			return err
		}
		if err := execUpdateVersions(ctx, tx, &p.Key, p.Versions); err != nil {
			return err
		}
		_, err := tx.exec(ctx, deleteNamesOfKey, id(p.Key.Tenant), id(p.Key.ID))
		return err
	})
}

func execUpdateKey(ctx context.Context, tx transaction, k *keystore.KeyRecord) error {
	return tx.execOne(ctx, keystore.ErrStale, updateKey, id(k.Tenant), id(k.ID), k.Revision-1, k.State, k.Description, k.Tags,
		maybeMoment(k.DeletionDate), k.DeletionProtection, k.RotationPeriod, maybeMoment(k.NextRotation), maybeMoment(k.Due),
		k.PrimaryVersion, k.HighestVersion, k.Revision, k.Code.MAC, codeVersion(k.Code))
}

// DueKeys implements keystore.KeyDriver.
func (db *DB) DueKeys(ctx context.Context, p keystore.DueKeysParams) (due []*keystore.DueKeyRow, err error) {
	err = db.list(ctx, everybody, func(rows pgx.Rows) error {
		r := new(keystore.DueKeyRow)
		due = append(due, r)
		return rows.Scan(timeColumn{&r.Due}, idColumn{&r.Tenant}, idColumn{&r.ID})
	}, selectDueKeys, moment(p.Now), moment(p.After.Due), storedID(p.After.Tenant), storedID(p.After.ID), p.Limit)
	return due, err
}

// TouchKeys implements keystore.KeyDriver.
func (db *DB) TouchKeys(ctx context.Context, p keystore.TouchKeysParams) error {
	return db.write(ctx, everybody, func(tx transaction) error {
		var batch pgx.Batch
		var tenant uuid.UUID
		for i := range p.Uses {
			u := &p.Uses[i]
			if u.Tenant != tenant {
				tenant = u.Tenant
				batch.Queue(setTenant, tenantSetting(tenant))
			}
			batch.Queue(touchKey, id(u.Tenant), id(u.Key), moment(u.Time), u.Op)
		}
		return tx.tx.SendBatch(ctx, &batch).Close()
	})
}
