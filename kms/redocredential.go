package kms

import (
	"context"
	"slices"
	"time"
)

// credentialOf returns the credential that a change is of.
func (s *Service) credentialOf(ctx context.Context, e *Entry) (*Credential, error) {
	id, ok := parseRef(e.Resource)
	if !ok {
		return nil, ErrNotFound
	}
	return s.credentials.Credential(ctx, e.target(), id)
}

// changeAgain makes a change of a credential again.
func (s *Service) changeAgain(ctx context.Context, e *Entry, c *Credential, change CredentialChange) (bool, error) {
	return s.again(ctx, e, c.Revision, func(ctx context.Context) error {
		_, err := s.credentials.UpdateCredential(ctx, c.Tenant, c.ID, c.Revision, change)
		return err
	})
}

func (s *Service) redoRevoke(ctx context.Context, e *Entry) (bool, error) {
	c, err := s.credentialOf(ctx, e)
	if err != nil || !c.Revoked.IsZero() {
		return false, err
	}
	return s.changeAgain(ctx, e, c, CredentialChange{Revoked: &e.Time})
}

// redoRotate ends the values that a rotation took the place of. The one it made
// is lost with the database, so the credential has to be rotated once more. An
// operator's goes on, as nobody could rotate it. A rotation that the database has
// already is told by the credential's revision, or, where there is none (a
// trail), by the time as of which the database is.
func (s *Service) redoRotate(ctx context.Context, since time.Time, e *Entry) (bool, error) {
	c, err := s.credentialOf(ctx, e)
	if err != nil || !c.live(s.clock()) || c.Revision > e.Revision && e.Revision > 0 || e.Revision == 0 && e.Time.Before(since) {
		return false, err
	}
	tenant, err := s.tenants.Tenant(ctx, c.Tenant)
	if err != nil || tenant.Name == SystemTenantName {
		return false, err
	}
	secrets, ends := slices.Clone(c.Secrets), false
	for i := range secrets {
		if v := &secrets[i]; v.Expires.IsZero() || v.Expires.After(e.Time) {
			v.Expires, ends = e.Time, true
		}
	}
	if !ends {
		return false, nil
	}
	return s.changeAgain(ctx, e, c, CredentialChange{Secrets: secrets})
}

// redoFlag flags a credential again, with what the policy lets follow now. What
// was unusual stays in the entry of the time.
func (s *Service) redoFlag(ctx context.Context, e *Entry) (bool, error) {
	c, err := s.credentialOf(ctx, e)
	if err != nil || e.Op == OpClearCredential || !c.live(s.clock()) || c.Guard.Open(s.clock()) {
		return false, err
	}
	tenant, err := s.tenants.Tenant(ctx, c.Tenant)
	if err != nil {
		return false, err
	}
	guard := new(Guard)
	if c.Guard != nil {
		*guard = *c.Guard
	}
	guard.flag(s.rulesOfFlag(tenant, true), s.clock(), nil)
	return s.changeAgain(ctx, e, c, CredentialChange{Guard: guard})
}

// redoTake takes the scope of a secret's path from a credential again.
func (s *Service) redoTake(ctx context.Context, e *Entry) (bool, error) {
	c, err := s.credentialOf(ctx, e)
	if err != nil || e.Op == OpGiveSecretGrant {
		return false, err
	}
	secret, err := s.secrets.Secret(ctx, c.Tenant, e.Items[0].Secret)
	if err != nil {
		return false, err
	}
	grant := grantOf(secret.Path)
	if !slices.Contains(c.Scopes, grant) {
		return false, nil
	}
	return s.changeAgain(ctx, e, c, CredentialChange{Scopes: without(c.Scopes, grant)})
}
