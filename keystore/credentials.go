package keystore

import (
	"context"
	"slices"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// CredentialForAuthentication implements kms.Credentials.
func (s *Store) CredentialForAuthentication(ctx context.Context, id uuid.UUID) (*kms.Credential, error) {
	return s.credentials.get(ctx, id)
}

func (s *Store) loadCredential(ctx context.Context, id uuid.UUID) (*kms.Credential, error) {
	c, err := s.coder()
	if err != nil {
		return nil, err
	}
	row, err := s.driver.CredentialForAuthentication(ctx, CredentialForAuthenticationParams{ID: id})
	return s.credential(c, row, err, nil, id)
}

// Credential implements kms.Credentials. It asks the database with the tenant
// instead of the cache, so that another tenant's credential takes as long as
// a missing one.
func (s *Store) Credential(ctx context.Context, tenant, id uuid.UUID) (*kms.Credential, error) {
	c, err := s.coder()
	if err != nil {
		return nil, err
	}
	row, err := s.driver.Credential(ctx, CredentialParams{Tenant: tenant, ID: id})
	return s.credential(c, row, err, &tenant, id)
}

func (s *Store) credential(c *rowCoder, row *CredentialRow, err error, tenant *uuid.UUID, id uuid.UUID) (*kms.Credential, error) {
	if err != nil {
		return nil, translate(err)
	}
	credential, err := decodeCredential(c, row, tenant, &id)
	if err != nil {
		return nil, s.decoded(err)
	}
	return credential, nil
}

// CreateCredential implements kms.Credentials. The credential has the revision
// 1. KindConflict when the id is taken, ErrNotFound when the tenant has no
// such project. Names are not unique.
func (s *Store) CreateCredential(ctx context.Context, c *kms.Credential) error {
	err := argument(func(fail failFunc) {
		if c.Revision != 1 {
			fail("revision", "must be 1")
		}
		checkCredential(c, fail)
	})
	if err != nil {
		return err
	}
	coder, err := s.coder()
	if err != nil {
		return err
	}
	record, err := coder.credential(c)
	if err != nil {
		return err
	}
	defer s.credentials.drop(c.ID)
	return translate(s.driver.InsertCredential(ctx, InsertCredentialParams{Credential: record}))
}

// UpdateCredential implements kms.Credentials. The first revocation of a
// credential stands: a later one changes nothing of it, and none can be taken
// back (KindInvalidArgument).
func (s *Store) UpdateCredential(ctx context.Context, tenant, id uuid.UUID, revision uint64, change kms.CredentialChange) (*kms.Credential, error) {
	c, err := s.Credential(ctx, tenant, id)
	if err != nil {
		return nil, err
	}
	if c.Revision != revision {
		return nil, errRevision()
	}
	// c was just read: nobody shares it.
	if change.Scopes != nil {
		c.Scopes = slices.Clone(change.Scopes)
	}
	if change.Secrets != nil {
		c.Secrets = slices.Clone(change.Secrets)
		for i := range c.Secrets {
			secret := &c.Secrets[i]
			secret.Created, secret.Expires = storedTime(secret.Created), storedTime(secret.Expires)
		}
	}
	if change.Revoked != nil {
		if change.Revoked.IsZero() {
			return nil, errArgument("revoked", "cannot be taken back")
		}
		if c.Revoked.IsZero() {
			c.Revoked = storedTime(*change.Revoked)
		}
	}
	if change.Guard != nil {
		c.Guard = storedGuard(change.Guard)
	}
	c.Revision++
	if err := argument(func(fail failFunc) { checkCredential(c, fail) }); err != nil {
		return nil, err
	}
	coder, err := s.coder()
	if err != nil {
		return nil, err
	}
	record, err := coder.credential(c)
	if err != nil {
		return nil, err
	}
	defer s.credentials.drop(id)
	if err := s.driver.UpdateCredential(ctx, UpdateCredentialParams{Credential: record}); err != nil {
		return nil, translate(err)
	}
	s.known.raise(rowOf(ObjectCredential, tenant, id), c.Revision)
	return c, nil
}

// ListCredentials implements kms.Credentials, ordered by name and then id.
// ErrNotFound when there is no such tenant. Damaged credentials are reported
// to the log and left out.
func (s *Store) ListCredentials(ctx context.Context, tenant uuid.UUID, page kms.Page) ([]*kms.Credential, string, error) {
	c, err := s.coder()
	if err != nil {
		return nil, "", err
	}
	if _, err := s.tenants.get(ctx, tenant); err != nil {
		return nil, "", err
	}
	l := listing[*CredentialRow, *kms.Credential]{
		scope: scope{kind: 'c', tenant: tenant},
		rows: func(ctx context.Context, after position, limit int) ([]*CredentialRow, error) {
			return s.driver.ListCredentials(ctx, ListCredentialsParams{
				Tenant: tenant, AfterName: after.name, AfterID: []byte(after.id), Limit: limit})
		},
		rowPosition: func(r *CredentialRow) position {
			return position{name: r.Name.String, id: string(r.ID.Bytes)}
		},
		decode:  func(r *CredentialRow) (*kms.Credential, error) { return decodeCredential(c, r, &tenant, nil) },
		damaged: s.damaged,
	}
	return l.page(ctx, page)
}
