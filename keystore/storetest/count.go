package storetest

import (
	"testing"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/keystore"
	"github.com/sluice-kms/sluice/kms"
)

// testCounts counts what a tenant can use or get back, and nothing of another.
func testCounts(t *testing.T, open func(*testing.T) keystore.Driver) {
	e := newEnv(t, open(t))
	ctx := t.Context()
	tenant, other := e.tenant(t, "acme"), e.tenant(t, "other")
	e.key(t, other, "theirs")
	e.credential(t, other.ID, "theirs")
	want := func(when string, keys, credentials int64) {
		t.Helper()
		n, err := e.CountObjects(ctx, tenant.ID)
		if err != nil || n != (keystore.ObjectCounts{Keys: keys, Credentials: credentials}) {
			t.Errorf("%s: %+v, %v; want %d keys and %d credentials", when, n, err, keys, credentials)
		}
	}
	want("in the beginning", 0, 0)
	first, second := e.key(t, tenant, "first"), e.key(t, tenant, "second")
	e.credential(t, tenant.ID, "stays")
	gone := e.credential(t, tenant.ID, "goes")
	short := sampleCredential(tenant.ID, "short")
	short.Expires = start.Add(time.Minute)
	if err := e.CreateCredential(ctx, short); err != nil {
		t.Fatal(err)
	}
	want("made", 2, 3)

	pending, at := kms.KeyPendingDeletion, start.AddDate(0, 0, kms.MinDeletionDays)
	if _, err := e.UpdateKey(ctx, tenant.ID, first.ID, 1, kms.KeyChange{State: &pending, DeletionDate: &at}); err != nil {
		t.Fatal(err)
	}
	want("a key that can be had back", 2, 3)
	if err := e.DestroyKey(ctx, tenant.ID, first.ID, 2); err != nil {
		t.Fatal(err)
	}
	disabled := kms.KeyDisabled
	if _, err := e.UpdateKey(ctx, tenant.ID, second.ID, 1, kms.KeyChange{State: &disabled}); err != nil {
		t.Fatal(err)
	}
	now := start
	if _, err := e.UpdateCredential(ctx, tenant.ID, gone.ID, 1, kms.CredentialChange{Revoked: &now}); err != nil {
		t.Fatal(err)
	}
	want("destroyed, disabled, revoked", 1, 2)
	e.advance(time.Minute)
	want("expired", 1, 1)

	e.secret(t, other.ID, "theirs")
	secret := e.secret(t, tenant.ID, "goes")
	e.secret(t, tenant.ID, "stays")
	wantSecrets := func(when string, secrets int64) {
		t.Helper()
		if n, err := e.CountObjects(ctx, tenant.ID); err != nil || n.Secrets != secrets {
			t.Errorf("%s: %+v, %v; want %d secrets", when, n, err, secrets)
		}
	}
	wantSecrets("made", 2)
	e.change(t, secret, kms.SecretRevoked, func(s *kms.ProviderSecret) {
		s.State = kms.SecretGone
		s.Versions[0] = &kms.SecretVersion{Number: 1, State: kms.SecretDestroyed, Created: start, DestroyAt: start}
	})
	wantSecrets("one destroyed", 1)

	_, err := e.CountObjects(ctx, uuid.NewV7())
	wantKind(t, "a missing tenant", err, kms.KindNotFound)
}
