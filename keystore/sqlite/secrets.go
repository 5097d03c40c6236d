package sqlite

import (
	"context"
	"database/sql"

	"github.com/sluice-kms/sluice/keystore"
)

// A secret comes with its values from one statement, which sees one state of the
// database.
const (
	selectProviderSecret = `SELECT s.id, s.path, s.state, s.document, s.due, s.revision, s.mac, s.mac_version,
			v.secret_id, v.number, v.data_key, v.value, v.mac, v.mac_version
		FROM secrets s LEFT JOIN secret_versions v ON v.tenant = s.tenant AND v.secret_id = s.id
		WHERE s.tenant = ? AND s.id = ? ORDER BY v.number`
	selectProviderSecretID = `SELECT id FROM secrets WHERE tenant = ? AND path = ? AND state <> 'DESTROYED'`
	listProviderSecrets    = `SELECT id, path, state, document, due, revision, mac, mac_version FROM secrets
		WHERE tenant = ?1 AND path >= ?2 AND path > ?3 AND path < ?4 AND state <> 'DESTROYED' ORDER BY path LIMIT ?5`

	// The keeper acts for all tenants.
	selectDueProviderSecrets = `SELECT due, tenant, id FROM secrets
		WHERE due <= ? AND (due, tenant, id) > (?, ?, ?) ORDER BY due, tenant, id LIMIT ?`

	insertProviderSecret = `INSERT INTO secrets (tenant, id, path, state, document, due, revision, mac, mac_version)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`
	updateProviderSecret = `UPDATE secrets SET state = ?, document = ?, due = ?, revision = ?, mac = ?, mac_version = ?
		WHERE tenant = ? AND id = ? AND revision = ?`
	insertProviderVersion = `INSERT INTO secret_versions (tenant, secret_id, number, data_key, value, mac, mac_version)
		VALUES (?, ?, ?, ?, ?, ?, ?)`
	deleteProviderVersion = `DELETE FROM secret_versions WHERE tenant = ? AND secret_id = ? AND number = ?`

	selectSecretRevision = `SELECT revision, mac, mac_version FROM secret_revisions WHERE tenant = ?`
	putSecretRevision    = `INSERT INTO secret_revisions (tenant, revision, mac, mac_version) VALUES (?, ?, ?, ?)
		ON CONFLICT (tenant) DO UPDATE SET revision = excluded.revision, mac = excluded.mac, mac_version = excluded.mac_version
		WHERE secret_revisions.tenant = excluded.tenant AND secret_revisions.revision = excluded.revision - 1`

	selectSecretChanges = `SELECT revision, path, kind, made, mac, mac_version FROM secret_changes
		WHERE tenant = ? AND revision > ? ORDER BY revision LIMIT ?`
	insertSecretChange = `INSERT INTO secret_changes (tenant, revision, path, kind, made, mac, mac_version)
		VALUES (?, ?, ?, ?, ?, ?, ?)`
	dropSecretChanges   = `DELETE FROM secret_changes WHERE tenant = ? AND revision < ?`
	deleteSecretChanges = `DELETE FROM secret_changes WHERE rowid IN
		(SELECT rowid FROM secret_changes WHERE made <= ? ORDER BY made LIMIT ?)`

	selectSecretOutcomes = `SELECT version, ok, credential, quota, rate_limit, transient FROM secret_outcomes
		WHERE tenant = ? AND secret_id = ? ORDER BY version`
	addSecretOutcome = `INSERT INTO secret_outcomes (tenant, secret_id, version, ok, credential, quota, rate_limit, transient)
		SELECT tenant, id, ?3, ?4, ?5, ?6, ?7, ?8 FROM secrets WHERE tenant = ?1 AND id = ?2 AND state <> 'DESTROYED'
		ON CONFLICT (tenant, secret_id, version) DO UPDATE SET ok = ok + excluded.ok, credential = credential + excluded.credential,
			quota = quota + excluded.quota, rate_limit = rate_limit + excluded.rate_limit, transient = transient + excluded.transient
		WHERE secret_outcomes.tenant = excluded.tenant`
	deleteSecretOutcomes = `DELETE FROM secret_outcomes WHERE tenant = ? AND secret_id = ?`
)

func providerSecretTargets(r *keystore.ProviderSecretRow) []any {
	return []any{&r.ID, &r.Path, &r.State, &r.Document, &r.Due, &r.Revision, &r.Code.MAC, &r.Code.Version}
}

// ProviderSecret implements keystore.ProviderSecretDriver.
func (db *DB) ProviderSecret(ctx context.Context, p keystore.ProviderSecretParams) (*keystore.ProviderSecretRow, error) {
	var found *keystore.ProviderSecretRow
	err := db.list(ctx, func(rows *sql.Rows) error {
		r := new(keystore.ProviderSecretRow)
		var v keystore.ProviderVersionRow
		var versionOf keystore.Bytes
		err := rows.Scan(append(providerSecretTargets(r), &versionOf, &v.Number, &v.DataKey, &v.Value, &v.Code.MAC, &v.Code.Version)...)
		if err != nil {
			return err
		}
		if found == nil {
			found = r
		}
		if !versionOf.Null {
			found.Versions = append(found.Versions, v)
		}
		return nil
	}, selectProviderSecret, p.Tenant[:], p.ID[:])
	if err == nil && found == nil {
		err = keystore.ErrMissing
	}
	return found, err
}

// ProviderSecretID implements keystore.ProviderSecretDriver.
func (db *DB) ProviderSecretID(ctx context.Context, p keystore.ProviderSecretPathParams) (id keystore.Bytes, err error) {
	err = db.row(ctx, selectProviderSecretID, p.Tenant[:], p.Path).Scan(&id)
	return id, db.translate(err)
}

// ListProviderSecrets implements keystore.ProviderSecretDriver.
func (db *DB) ListProviderSecrets(ctx context.Context, p keystore.ListProviderSecretsParams) (all []*keystore.ProviderSecretRow, err error) {
	err = db.list(ctx, func(rows *sql.Rows) error {
		r := new(keystore.ProviderSecretRow)
		all = append(all, r)
		return rows.Scan(providerSecretTargets(r)...)
	}, listProviderSecrets, p.Tenant[:], p.From, p.After, p.Before, p.Limit)
	return all, err
}

// InsertProviderSecret implements keystore.ProviderSecretDriver.
func (db *DB) InsertProviderSecret(ctx context.Context, p keystore.InsertProviderSecretParams) error {
	s := &p.Secret
	return db.write(ctx, func(tx transaction) error {
		if err := execSecretChange(ctx, tx, &p.SecretChangeParams); err != nil {
			return err
		}
		_, err := tx.exec(ctx, insertProviderSecret, s.Tenant[:], s.ID[:], s.Path, s.State, s.Document, s.Due, s.Revision,
			s.Code.MAC, codeVersion(s.Code))
		if err != nil {
			return err
		}
		return execInsertProviderVersions(ctx, tx, s, p.Versions)
	})
}

// UpdateProviderSecret implements keystore.ProviderSecretDriver.
func (db *DB) UpdateProviderSecret(ctx context.Context, p keystore.UpdateProviderSecretParams) error {
	s := &p.Secret
	return db.write(ctx, func(tx transaction) error {
		if err := execSecretChange(ctx, tx, &p.SecretChangeParams); err != nil {
			return err
		}
		err := tx.execOne(ctx, keystore.ErrStale, updateProviderSecret, s.State, s.Document, s.Due, s.Revision, s.Code.MAC,
			codeVersion(s.Code), s.Tenant[:], s.ID[:], p.Was)
		if err != nil {
			return err
		}
		for _, number := range p.Destroyed {
			if _, err := tx.exec(ctx, deleteProviderVersion, s.Tenant[:], s.ID[:], number); err != nil {
				return err
			}
		}
		if p.Uncount {
			if _, err := tx.exec(ctx, deleteSecretOutcomes, s.Tenant[:], s.ID[:]); err != nil {
				return err
			}
		}
		return execInsertProviderVersions(ctx, tx, s, p.Added)
	})
}

// execSecretChange takes the tenant's next revision and notes what changed.
func execSecretChange(ctx context.Context, tx transaction, p *keystore.SecretChangeParams) error {
	r, c := &p.Revision, &p.Change
	if err := tx.execOne(ctx, keystore.ErrOvertaken, putSecretRevision, r.Tenant[:], r.Revision, r.Code.MAC, codeVersion(r.Code)); err != nil {
		return err
	}
	if _, err := tx.exec(ctx, insertSecretChange, c.Tenant[:], c.Revision, c.Path, c.Kind, c.Made, c.Code.MAC, codeVersion(c.Code)); err != nil {
		return err
	}
	_, err := tx.exec(ctx, dropSecretChanges, c.Tenant[:], p.Oldest)
	return err
}

func execInsertProviderVersions(ctx context.Context, tx transaction, s *keystore.ProviderSecretRecord, versions []keystore.ProviderVersionRecord) error {
	for i := range versions {
		v := &versions[i]
		if _, err := tx.exec(ctx, insertProviderVersion, s.Tenant[:], s.ID[:], v.Number, v.DataKey, v.Value, v.Code.MAC, codeVersion(v.Code)); err != nil {
			return err
		}
	}
	return nil
}

// DueProviderSecrets implements keystore.ProviderSecretDriver.
func (db *DB) DueProviderSecrets(ctx context.Context, p keystore.DueKeysParams) (due []*keystore.DueKeyRow, err error) {
	err = db.list(ctx, func(rows *sql.Rows) error {
		r := new(keystore.DueKeyRow)
		due = append(due, r)
		return rows.Scan(&r.Due, &r.Tenant, &r.ID)
	}, selectDueProviderSecrets, p.Now, p.After.Due, p.After.Tenant, p.After.ID, p.Limit)
	return due, err
}

// SecretRevision implements keystore.ProviderSecretDriver.
func (db *DB) SecretRevision(ctx context.Context, p keystore.SecretRevisionParams) (*keystore.SecretRevisionRow, error) {
	var r keystore.SecretRevisionRow
	err := db.row(ctx, selectSecretRevision, p.Tenant[:]).Scan(&r.Revision, &r.Code.MAC, &r.Code.Version)
	return &r, db.translate(err)
}

// SecretChanges implements keystore.ProviderSecretDriver.
func (db *DB) SecretChanges(ctx context.Context, p keystore.SecretChangesParams) (all []*keystore.SecretChangeRow, err error) {
	err = db.list(ctx, func(rows *sql.Rows) error {
		r := new(keystore.SecretChangeRow)
		all = append(all, r)
		return rows.Scan(&r.Revision, &r.Path, &r.Kind, &r.Made, &r.Code.MAC, &r.Code.Version)
	}, selectSecretChanges, p.Tenant[:], p.After, p.Limit)
	return all, err
}

// DeleteSecretChanges implements keystore.ProviderSecretDriver.
func (db *DB) DeleteSecretChanges(ctx context.Context, p keystore.DeleteSecretChangesParams) (removed int, err error) {
	err = db.write(ctx, func(tx transaction) error {
		n, err := tx.exec(ctx, deleteSecretChanges, p.Before, p.Limit)
		removed = int(n)
		return err
	})
	return removed, err
}

// AddSecretOutcomes implements keystore.ProviderSecretDriver.
func (db *DB) AddSecretOutcomes(ctx context.Context, p keystore.AddSecretOutcomesParams) error {
	return db.write(ctx, func(tx transaction) error {
		for i := range p.Outcomes {
			o := &p.Outcomes[i]
			if _, err := tx.exec(ctx, addSecretOutcome, p.Tenant[:], o.Secret[:], o.Version, o.OK, o.Credential, o.Quota, o.RateLimit, o.Transient); err != nil {
				return err
			}
		}
		return nil
	})
}

// SecretOutcomes implements keystore.ProviderSecretDriver.
func (db *DB) SecretOutcomes(ctx context.Context, p keystore.SecretOutcomesParams) (all []*keystore.SecretOutcomeRow, err error) {
	err = db.list(ctx, func(rows *sql.Rows) error {
		r := new(keystore.SecretOutcomeRow)
		all = append(all, r)
		return rows.Scan(&r.Version, &r.OK, &r.Credential, &r.Quota, &r.RateLimit, &r.Transient)
	}, selectSecretOutcomes, p.Tenant[:], p.Secret[:])
	return all, err
}
