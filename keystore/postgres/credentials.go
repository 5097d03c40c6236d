package postgres

import (
	"bytes"
	"context"
	"uuid"

	"github.com/jackc/pgx/v5"

	"github.com/sluice-kms/sluice/keystore"
)

const (
	joinSecrets = `SELECT c.tenant, c.id, c.project, c.name, c.component, c.scopes, c.networks, c.created, c.expires,
			c.revoked, c.revision, c.last_used, c.last_address, c.guard, c.mac, c.mac_version,
			s.credential, s.hash, s.pepper_version, s.created, s.expires
		FROM credentials c LEFT JOIN credential_secrets s ON s.tenant = c.tenant AND s.credential = c.id `

	// Authentication finds out the tenant, and reads as that tenant.
	setTenantOfCredential = `SELECT set_config('app.tenant', coalesce(tenant_of_credential($1)::text, ''), true)`

	selectCredentialForAuthentication = joinSecrets + `WHERE c.tenant = current_tenant() AND c.id = $1 ORDER BY s.position`

	selectCredential = joinSecrets + `WHERE c.tenant = $1 AND c.id = $2 ORDER BY s.position`
	listCredentials  = joinSecrets + `WHERE c.tenant = $1 AND c.id IN (SELECT id FROM credentials
			WHERE tenant = $1 AND (name, id) > ($2, $3) ORDER BY name, id LIMIT $4)
		ORDER BY c.name, c.id, s.position`

	insertCredential = `INSERT INTO credentials (tenant, id, project, name, component, scopes, networks, created,
			expires, revoked, revision, mac, mac_version)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)`
	updateCredential = `UPDATE credentials SET revoked = $4, revision = $5, mac = $6, mac_version = $7, scopes = $8, guard = $9
		WHERE tenant = $1 AND id = $2 AND revision = $3`
	touchCredential = `UPDATE credentials SET last_used = $3, last_address = $4
		WHERE tenant = $1 AND id = $2 AND (last_used IS NULL OR last_used < $3)`
	deleteSecrets = `DELETE FROM credential_secrets WHERE tenant = $1 AND credential = $2`
	insertSecret  = `INSERT INTO credential_secrets (tenant, credential, position, hash, pepper_version, created, expires)
		VALUES ($1, $2, $3, $4, $5, $6, $7)`
)

// CredentialForAuthentication implements keystore.CredentialDriver.
func (db *DB) CredentialForAuthentication(ctx context.Context, p keystore.CredentialForAuthenticationParams) (*keystore.CredentialRow, error) {
	var found credentialRows
	err := db.listAs(ctx, setTenantOfCredential, []any{id(p.ID)}, found.scan, selectCredentialForAuthentication, id(p.ID))
	return found.one(err)
}

// Credential implements keystore.CredentialDriver.
func (db *DB) Credential(ctx context.Context, p keystore.CredentialParams) (*keystore.CredentialRow, error) {
	var found credentialRows
	err := db.list(ctx, p.Tenant, found.scan, selectCredential, id(p.Tenant), id(p.ID))
	return found.one(err)
}

// ListCredentials implements keystore.CredentialDriver.
func (db *DB) ListCredentials(ctx context.Context, p keystore.ListCredentialsParams) ([]*keystore.CredentialRow, error) {
	var after uuid.UUID // the lowest, for the first page
	copy(after[:], p.AfterID)
	var found credentialRows
	err := db.list(ctx, p.Tenant, found.scan, listCredentials, id(p.Tenant), p.AfterName, id(after), p.Limit)
	return found.all, err
}

// credentialRows reads the result of joinSecrets: one row for each secret, and
// one for a credential without any.
type credentialRows struct{ all []*keystore.CredentialRow }

func (r *credentialRows) scan(rows pgx.Rows) error {
	var c keystore.CredentialRow
	var s keystore.SecretRow
	var secretOf keystore.Bytes
	err := rows.Scan(idColumn{&c.Tenant}, idColumn{&c.ID}, &c.Project, &c.Name, &c.Component, &c.Scopes, &c.Networks,
		timeColumn{&c.Created}, timeColumn{&c.Expires}, timeColumn{&c.Revoked}, &c.Revision, timeColumn{&c.LastUsed},
		&c.LastAddress, &c.Guard, &c.Code.MAC, &c.Code.Version,
		idColumn{&secretOf}, &s.Hash, &s.PepperVersion, timeColumn{&s.Created}, timeColumn{&s.Expires})
	if err != nil {
		return err
	}
	if n := len(r.all); n == 0 || !bytes.Equal(r.all[n-1].ID.Bytes, c.ID.Bytes) {
		r.all = append(r.all, &c)
	}
	if !secretOf.Null {
		last := r.all[len(r.all)-1]
		last.Secrets = append(last.Secrets, s)
	}
	return nil
}

func (r *credentialRows) one(err error) (*keystore.CredentialRow, error) {
	if err != nil {
		return nil, err
	}
	if len(r.all) == 0 {
		return nil, keystore.ErrMissing
	}
	return r.all[0], nil
}

// InsertCredential implements keystore.CredentialDriver.
func (db *DB) InsertCredential(ctx context.Context, p keystore.InsertCredentialParams) error {
	c := &p.Credential
	return db.write(ctx, c.Tenant, func(tx transaction) error {
		_, err := tx.exec(ctx, insertCredential, id(c.Tenant), id(c.ID), c.Project, c.Name, c.Component, c.Scopes, c.Networks,
			moment(c.Created), maybeMoment(c.Expires), maybeMoment(c.Revoked), c.Revision, c.Code.MAC, codeVersion(c.Code))
		if err != nil {
			return err
		}
		return execInsertSecrets(ctx, tx, c)
	})
}

// UpdateCredential implements keystore.CredentialDriver.
func (db *DB) UpdateCredential(ctx context.Context, p keystore.UpdateCredentialParams) error {
	c := &p.Credential
	return db.write(ctx, c.Tenant, func(tx transaction) error {
		err := tx.execOne(ctx, keystore.ErrStale, updateCredential, id(c.Tenant), id(c.ID), c.Revision-1,
			maybeMoment(c.Revoked), c.Revision, c.Code.MAC, codeVersion(c.Code), c.Scopes, c.Guard)
		if err != nil {
			return err
		}
		if _, err := tx.exec(ctx, deleteSecrets, id(c.Tenant), id(c.ID)); err != nil {
			return err
		}
		return execInsertSecrets(ctx, tx, c)
	})
}

func execInsertSecrets(ctx context.Context, tx transaction, c *keystore.CredentialRecord) error {
	for i := range c.Secrets {
		s := &c.Secrets[i]
		_, err := tx.exec(ctx, insertSecret, id(c.Tenant), id(c.ID), i, s.Hash, s.PepperVersion, moment(s.Created),
			maybeMoment(s.Expires))
		if err != nil {
			return err
		}
	}
	return nil
}

// TouchCredentials implements keystore.CredentialDriver.
func (db *DB) TouchCredentials(ctx context.Context, p keystore.TouchCredentialsParams) error {
	return db.write(ctx, everybody, func(tx transaction) error {
		var batch pgx.Batch
		var tenant uuid.UUID
		for i := range p.Uses {
			u := &p.Uses[i]
			if u.Tenant != tenant {
				tenant = u.Tenant
				batch.Queue(setTenant, tenantSetting(tenant))
			}
			batch.Queue(touchCredential, id(u.Tenant), id(u.Credential), moment(u.Time), u.Address)
		}
		return tx.tx.SendBatch(ctx, &batch).Close()
	})
}
