package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"uuid"

	"github.com/sluice-kms/sluice/keystore"
)

const (
	joinSecrets = `SELECT c.tenant, c.id, c.project, c.name, c.component, c.scopes, c.networks, c.created, c.expires,
			c.revoked, c.revision, c.last_used, c.last_address, c.guard, c.mac,
			c.mac_version, s.credential, s.hash, s.pepper_version, s.created, s.expires
		FROM credentials c LEFT JOIN credential_secrets s ON s.tenant = c.tenant AND s.credential = c.id `

	// The one statement that finds a tenant's row without the tenant, which
	// is what it is to find out.
	selectCredentialForAuthentication = joinSecrets + `WHERE c.id = ? ORDER BY s.position`

	selectCredential = joinSecrets + `WHERE c.tenant = ? AND c.id = ? ORDER BY s.position`
	listCredentials  = joinSecrets + `WHERE c.tenant = ?1 AND c.rowid IN (SELECT rowid FROM credentials
			WHERE tenant = ?1 AND (name, id) > (?2, ?3) AND typeof(name) = 'text' ORDER BY name, id LIMIT ?4)
		ORDER BY c.name, c.id, s.position`

	insertCredential = `INSERT INTO credentials (tenant, id, project, name, component, scopes, networks, created,
			expires, revoked, revision, mac, mac_version)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`
	updateCredential = `UPDATE credentials SET scopes = ?, revoked = ?, revision = ?, mac = ?, mac_version = ?, guard = ?
		WHERE tenant = ? AND id = ? AND revision = ?`
	touchCredential = `UPDATE credentials SET last_used = ?3, last_address = ?4
		WHERE tenant = ?1 AND id = ?2 AND (last_used IS NULL OR last_used < ?3)`
	deleteSecrets = `DELETE FROM credential_secrets WHERE tenant = ? AND credential = ?`
	insertSecret  = `INSERT INTO credential_secrets (tenant, credential, position, hash, pepper_version, created, expires)
		VALUES (?, ?, ?, ?, ?, ?, ?)`
)

// CredentialForAuthentication implements keystore.CredentialDriver.
func (db *DB) CredentialForAuthentication(ctx context.Context, p keystore.CredentialForAuthenticationParams) (*keystore.CredentialRow, error) {
	return db.queryCredential(ctx, selectCredentialForAuthentication, p.ID[:])
}

// Credential implements keystore.CredentialDriver.
func (db *DB) Credential(ctx context.Context, p keystore.CredentialParams) (*keystore.CredentialRow, error) {
	return db.queryCredential(ctx, selectCredential, p.Tenant[:], p.ID[:])
}

// ListCredentials implements keystore.CredentialDriver.
func (db *DB) ListCredentials(ctx context.Context, p keystore.ListCredentialsParams) ([]*keystore.CredentialRow, error) {
	after := p.AfterID
	if after == nil {
		after = []byte{} // nil is NULL, which nothing comes after
	}
	return db.queryCredentials(ctx, listCredentials, p.Tenant[:], p.AfterName, after, p.Limit)
}

func (db *DB) queryCredential(ctx context.Context, query string, args ...any) (*keystore.CredentialRow, error) {
	found, err := db.queryCredentials(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, keystore.ErrMissing
	}
	return found[0], nil
}

// queryCredentials reads the result of joinSecrets: one row for each secret,
// and one for a credential without any.
func (db *DB) queryCredentials(ctx context.Context, query string, args ...any) (all []*keystore.CredentialRow, err error) {
	var last *keystore.CredentialRow
	err = db.list(ctx, func(rows *sql.Rows) error {
		var c keystore.CredentialRow
		var s keystore.SecretRow
		var secretOf keystore.Bytes
		err := rows.Scan(&c.Tenant, &c.ID, &c.Project, &c.Name, &c.Component, &c.Scopes, &c.Networks, &c.Created,
			&c.Expires, &c.Revoked, &c.Revision, &c.LastUsed, &c.LastAddress, &c.Guard, &c.Code.MAC, &c.Code.Version,
			&secretOf, &s.Hash, &s.PepperVersion, &s.Created, &s.Expires)
		if err != nil {
			return err
		}
		if last == nil || last.Name != c.Name || !bytes.Equal(last.ID.Bytes, c.ID.Bytes) {
			last = &c
			all = append(all, last)
		}
		if !secretOf.Null {
			last.Secrets = append(last.Secrets, s)
		}
		return nil
	}, query, args...)
	return all, err
}

// InsertCredential implements keystore.CredentialDriver.
func (db *DB) InsertCredential(ctx context.Context, p keystore.InsertCredentialParams) error {
	c := &p.Credential
	return db.write(ctx, func(tx transaction) error {
		_, err := tx.exec(ctx, insertCredential, c.Tenant[:], c.ID[:], c.Project, c.Name, c.Component,
			c.Scopes, c.Networks, c.Created, c.Expires, c.Revoked, c.Revision, c.Code.MAC, codeVersion(c.Code))
		if err != nil {
			return err
		}
		return execInsertSecrets(ctx, tx, c.Tenant, c.ID, c.Secrets)
	})
}

// UpdateCredential implements keystore.CredentialDriver.
func (db *DB) UpdateCredential(ctx context.Context, p keystore.UpdateCredentialParams) error {
	c := &p.Credential
	return db.write(ctx, func(tx transaction) error {
		err := tx.execOne(ctx, keystore.ErrStale, updateCredential, c.Scopes, c.Revoked, c.Revision, c.Code.MAC,
			codeVersion(c.Code), c.Guard, c.Tenant[:], c.ID[:],
			c.Revision-1)
		if err != nil {
			return err
		}
		if _, err := tx.exec(ctx, deleteSecrets, c.Tenant[:], c.ID[:]); err != nil {
			return err
		}
		return execInsertSecrets(ctx, tx, c.Tenant, c.ID, c.Secrets)
	})
}

func execInsertSecrets(ctx context.Context, tx transaction, tenant, credential uuid.UUID, secrets []keystore.SecretRecord) error {
	for i := range secrets {
		s := &secrets[i]
		_, err := tx.exec(ctx, insertSecret, tenant[:], credential[:], i, s.Hash, s.PepperVersion, s.Created,
			s.Expires)
		if err != nil {
			return err
		}
	}
	return nil
}

// TouchCredentials implements keystore.CredentialDriver.
func (db *DB) TouchCredentials(ctx context.Context, p keystore.TouchCredentialsParams) error {
	return db.write(ctx, func(tx transaction) error {
		for i := range p.Uses {
			u := &p.Uses[i]
			if _, err := tx.exec(ctx, touchCredential, u.Tenant[:], u.Credential[:], u.Time, u.Address); err != nil {
				return err
			}
		}
		return nil
	})
}
