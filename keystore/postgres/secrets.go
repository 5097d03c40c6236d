package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/sluice-kms/sluice/keystore"
)

// A secret comes with its values from one statement, which sees one state of the
// database.
const (
	selectProviderSecret = `SELECT s.id, s.path, s.state, s.document, s.due, s.revision, s.mac, s.mac_version,
			v.secret_id, v.number, v.data_key, v.value, v.mac, v.mac_version
		FROM secrets s LEFT JOIN secret_versions v ON v.tenant = s.tenant AND v.secret_id = s.id
		WHERE s.tenant = $1 AND s.id = $2 ORDER BY v.number`
	selectProviderSecretID = `SELECT id FROM secrets WHERE tenant = $1 AND path = $2 AND state <> 'DESTROYED'`
	listProviderSecrets    = `SELECT id, path, state, document, due, revision, mac, mac_version FROM secrets
		WHERE tenant = $1 AND path >= $2 AND path > $3 AND path < $4 AND state <> 'DESTROYED' ORDER BY path LIMIT $5`

	// The keeper acts for all tenants.
	selectDueProviderSecrets = `SELECT due, tenant, id FROM due_secrets($1, $2, $3, $4, $5)`

	insertProviderSecret = `INSERT INTO secrets (tenant, id, path, state, document, due, revision, mac, mac_version)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`
	updateProviderSecret = `UPDATE secrets SET state = $4, document = $5, due = $6, revision = $7, mac = $8, mac_version = $9
		WHERE tenant = $1 AND id = $2 AND revision = $3`
	insertProviderVersion = `INSERT INTO secret_versions (tenant, secret_id, number, data_key, value, mac, mac_version)
		VALUES ($1, $2, $3, $4, $5, $6, $7)`
	deleteProviderVersion = `DELETE FROM secret_versions WHERE tenant = $1 AND secret_id = $2 AND number = $3`

	selectSecretRevision = `SELECT revision, mac, mac_version FROM secret_revisions WHERE tenant = $1`
	putSecretRevision    = `INSERT INTO secret_revisions (tenant, revision, mac, mac_version) VALUES ($1, $2, $3, $4)
		ON CONFLICT (tenant) DO UPDATE SET revision = excluded.revision, mac = excluded.mac, mac_version = excluded.mac_version
		WHERE secret_revisions.tenant = excluded.tenant AND secret_revisions.revision = excluded.revision - 1`

	selectSecretChanges = `SELECT revision, path, kind, made, mac, mac_version FROM secret_changes
		WHERE tenant = $1 AND revision > $2 ORDER BY revision LIMIT $3`
	insertSecretChange = `INSERT INTO secret_changes (tenant, revision, path, kind, made, mac, mac_version)
		VALUES ($1, $2, $3, $4, $5, $6, $7)`
	dropSecretChanges = `DELETE FROM secret_changes WHERE tenant = $1 AND revision < $2`
	// Housekeeping is for all tenants.
	deleteSecretChanges = `SELECT delete_secret_changes($1, $2)`

	selectSecretOutcomes = `SELECT version, ok, credential, quota, rate_limit, transient FROM secret_outcomes
		WHERE tenant = $1 AND secret_id = $2 ORDER BY version`
	addSecretOutcome = `INSERT INTO secret_outcomes AS o (tenant, secret_id, version, ok, credential, quota, rate_limit, transient)
		SELECT tenant, id, $3, $4, $5, $6, $7, $8 FROM secrets WHERE tenant = $1 AND id = $2 AND state <> 'DESTROYED'
		ON CONFLICT (tenant, secret_id, version) DO UPDATE SET ok = o.ok + excluded.ok, credential = o.credential + excluded.credential,
			quota = o.quota + excluded.quota, rate_limit = o.rate_limit + excluded.rate_limit, transient = o.transient + excluded.transient
		WHERE o.tenant = excluded.tenant`
	deleteSecretOutcomes = `DELETE FROM secret_outcomes WHERE tenant = $1 AND secret_id = $2`
)

func providerSecretTargets(r *keystore.ProviderSecretRow) []any {
	return []any{idColumn{&r.ID}, &r.Path, &r.State, &r.Document, timeColumn{&r.Due}, &r.Revision, &r.Code.MAC, &r.Code.Version}
}

// ProviderSecret implements keystore.ProviderSecretDriver.
func (db *DB) ProviderSecret(ctx context.Context, p keystore.ProviderSecretParams) (*keystore.ProviderSecretRow, error) {
	var found *keystore.ProviderSecretRow
	err := db.list(ctx, p.Tenant, func(rows pgx.Rows) error {
		r := new(keystore.ProviderSecretRow)
		var v keystore.ProviderVersionRow
		var versionOf keystore.Bytes
		err := rows.Scan(append(providerSecretTargets(r), idColumn{&versionOf}, &v.Number, &v.DataKey, &v.Value, &v.Code.MAC, &v.Code.Version)...)
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
	}, selectProviderSecret, id(p.Tenant), id(p.ID))
	if err == nil && found == nil {
		err = keystore.ErrMissing
	}
	return found, err
}

// ProviderSecretID implements keystore.ProviderSecretDriver.
func (db *DB) ProviderSecretID(ctx context.Context, p keystore.ProviderSecretPathParams) (found keystore.Bytes, err error) {
	err = db.row(ctx, p.Tenant, []any{idColumn{&found}}, selectProviderSecretID, id(p.Tenant), p.Path)
	return found, err
}

// ListProviderSecrets implements keystore.ProviderSecretDriver.
func (db *DB) ListProviderSecrets(ctx context.Context, p keystore.ListProviderSecretsParams) (all []*keystore.ProviderSecretRow, err error) {
	err = db.list(ctx, p.Tenant, func(rows pgx.Rows) error {
		r := new(keystore.ProviderSecretRow)
		all = append(all, r)
		return rows.Scan(providerSecretTargets(r)...)
	}, listProviderSecrets, id(p.Tenant), p.From, p.After, p.Before, p.Limit)
	return all, err
}

// InsertProviderSecret implements keystore.ProviderSecretDriver.
func (db *DB) InsertProviderSecret(ctx context.Context, p keystore.InsertProviderSecretParams) error {
	s := &p.Secret
	return db.write(ctx, s.Tenant, func(tx transaction) error {
		if err := execSecretChange(ctx, tx, &p.SecretChangeParams); err != nil {
			return err
		}
		_, err := tx.exec(ctx, insertProviderSecret, id(s.Tenant), id(s.ID), s.Path, s.State, s.Document, maybeMoment(s.Due), s.Revision,
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
	return db.write(ctx, s.Tenant, func(tx transaction) error {
		if err := execSecretChange(ctx, tx, &p.SecretChangeParams); err != nil {
			return err
		}
		err := tx.execOne(ctx, keystore.ErrStale, updateProviderSecret, id(s.Tenant), id(s.ID), p.Was, s.State, s.Document,
			maybeMoment(s.Due), s.Revision, s.Code.MAC, codeVersion(s.Code))
		if err != nil {
			return err
		}
		for _, number := range p.Destroyed {
			if _, err := tx.exec(ctx, deleteProviderVersion, id(s.Tenant), id(s.ID), number); err != nil {
				return err
			}
		}
		if p.Uncount {
			if _, err := tx.exec(ctx, deleteSecretOutcomes, id(s.Tenant), id(s.ID)); err != nil {
				return err
			}
		}
		return execInsertProviderVersions(ctx, tx, s, p.Added)
	})
}

// execSecretChange takes the tenant's next revision and notes what changed.
func execSecretChange(ctx context.Context, tx transaction, p *keystore.SecretChangeParams) error {
	r, c := &p.Revision, &p.Change
	if err := tx.execOne(ctx, keystore.ErrOvertaken, putSecretRevision, id(r.Tenant), r.Revision, r.Code.MAC, codeVersion(r.Code)); err != nil {
		return err
	}
	if _, err := tx.exec(ctx, insertSecretChange, id(c.Tenant), c.Revision, c.Path, c.Kind, moment(c.Made), c.Code.MAC, codeVersion(c.Code)); err != nil {
		return err
	}
	_, err := tx.exec(ctx, dropSecretChanges, id(c.Tenant), p.Oldest)
	return err
}

func execInsertProviderVersions(ctx context.Context, tx transaction, s *keystore.ProviderSecretRecord, versions []keystore.ProviderVersionRecord) error {
	for i := range versions {
		v := &versions[i]
		if _, err := tx.exec(ctx, insertProviderVersion, id(s.Tenant), id(s.ID), v.Number, v.DataKey, v.Value, v.Code.MAC, codeVersion(v.Code)); err != nil {
			return err
		}
	}
	return nil
}

// DueProviderSecrets implements keystore.ProviderSecretDriver.
func (db *DB) DueProviderSecrets(ctx context.Context, p keystore.DueKeysParams) (due []*keystore.DueKeyRow, err error) {
	err = db.list(ctx, everybody, func(rows pgx.Rows) error {
		r := new(keystore.DueKeyRow)
		due = append(due, r)
		return rows.Scan(timeColumn{&r.Due}, idColumn{&r.Tenant}, idColumn{&r.ID})
	}, selectDueProviderSecrets, moment(p.Now), moment(p.After.Due), storedID(p.After.Tenant), storedID(p.After.ID), p.Limit)
	return due, err
}

// SecretRevision implements keystore.ProviderSecretDriver.
func (db *DB) SecretRevision(ctx context.Context, p keystore.SecretRevisionParams) (*keystore.SecretRevisionRow, error) {
	var r keystore.SecretRevisionRow
	err := db.row(ctx, p.Tenant, []any{&r.Revision, &r.Code.MAC, &r.Code.Version}, selectSecretRevision, id(p.Tenant))
	return &r, err
}

// SecretChanges implements keystore.ProviderSecretDriver.
func (db *DB) SecretChanges(ctx context.Context, p keystore.SecretChangesParams) (all []*keystore.SecretChangeRow, err error) {
	err = db.list(ctx, p.Tenant, func(rows pgx.Rows) error {
		r := new(keystore.SecretChangeRow)
		all = append(all, r)
		return rows.Scan(&r.Revision, &r.Path, &r.Kind, timeColumn{&r.Made}, &r.Code.MAC, &r.Code.Version)
	}, selectSecretChanges, id(p.Tenant), p.After, p.Limit)
	return all, err
}

// DeleteSecretChanges implements keystore.ProviderSecretDriver.
func (db *DB) DeleteSecretChanges(ctx context.Context, p keystore.DeleteSecretChangesParams) (removed int, err error) {
	err = db.write(ctx, everybody, func(tx transaction) error {
		return tx.tx.QueryRow(ctx, deleteSecretChanges, moment(p.Before), p.Limit).Scan(&removed)
	})
	return removed, err
}

// AddSecretOutcomes implements keystore.ProviderSecretDriver.
func (db *DB) AddSecretOutcomes(ctx context.Context, p keystore.AddSecretOutcomesParams) error {
	return db.write(ctx, p.Tenant, func(tx transaction) error {
		for i := range p.Outcomes {
			o := &p.Outcomes[i]
			if _, err := tx.exec(ctx, addSecretOutcome, id(p.Tenant), id(o.Secret), o.Version, o.OK, o.Credential, o.Quota, o.RateLimit, o.Transient); err != nil {
				return err
			}
		}
		return nil
	})
}

// SecretOutcomes implements keystore.ProviderSecretDriver.
func (db *DB) SecretOutcomes(ctx context.Context, p keystore.SecretOutcomesParams) (all []*keystore.SecretOutcomeRow, err error) {
	err = db.list(ctx, p.Tenant, func(rows pgx.Rows) error {
		r := new(keystore.SecretOutcomeRow)
		all = append(all, r)
		return rows.Scan(&r.Version, &r.OK, &r.Credential, &r.Quota, &r.RateLimit, &r.Transient)
	}, selectSecretOutcomes, id(p.Tenant), id(p.Secret))
	return all, err
}
