package storetest

import (
	"bytes"
	"net/netip"
	"reflect"
	"testing"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/keystore"
	"github.com/sluice-kms/sluice/kms"
)

func testCredentials(t *testing.T, open func(*testing.T) keystore.Driver) {
	e := newEnv(t, open(t))
	ctx := t.Context()
	tenant := e.tenant(t, "credentials")

	t.Run("WhatWasStoredComesBack", func(t *testing.T) {
		plain := sampleCredential(tenant.ID, "plain")
		full := sampleCredential(tenant.ID, "full")
		full.Component = "checkout"
		full.Scopes = []string{"key:sign:orders-*", "usage:read"}
		full.Networks = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8::/32")}
		full.Expires = start.Add(time.Hour)
		full.Secrets = []kms.CredentialSecret{
			{Hash: [32]byte{2}, PepperVersion: 2, Created: start.Add(time.Second)},
			{Hash: [32]byte{1}, PepperVersion: 1, Created: start, Expires: start.Add(time.Minute)},
		}
		for _, want := range []*kms.Credential{plain, full} {
			if err := e.CreateCredential(ctx, want); err != nil {
				t.Fatal(err)
			}
			got, err := e.Credential(ctx, tenant.ID, want.ID)
			if err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("Credential = %+v, %v; want %+v", got, err, want)
			}
			got, err = e.CredentialForAuthentication(ctx, want.ID)
			if err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("CredentialForAuthentication = %+v, %v; want %+v", got, err, want)
			}
		}
	})

	t.Run("TakenIDIsAConflictEvenInAnotherTenant", func(t *testing.T) {
		first := e.credential(t, tenant.ID, "first")
		again := sampleCredential(tenant.ID, "again")
		again.ID = first.ID
		wantKind(t, "same id", e.CreateCredential(ctx, again), kms.KindConflict)
		again.Tenant = e.tenant(t, "credentials-too").ID
		wantKind(t, "same id elsewhere", e.CreateCredential(ctx, again), kms.KindConflict)
		if got, err := e.CredentialForAuthentication(ctx, first.ID); err != nil || got.Tenant != tenant.ID {
			t.Errorf("the first credential changed: %+v, %v", got, err)
		}
	})

	t.Run("NamesMayRepeat", func(t *testing.T) {
		e.credential(t, tenant.ID, "same")
		e.credential(t, tenant.ID, "same")
	})

	t.Run("ChangesReachAuthenticationAtOnce", func(t *testing.T) {
		c := e.credential(t, tenant.ID, "rotated")
		if _, err := e.CredentialForAuthentication(ctx, c.ID); err != nil {
			t.Fatal(err)
		}
		secrets := []kms.CredentialSecret{
			{Hash: [32]byte{9}, PepperVersion: 1, Created: start},
			{Hash: [32]byte{1, 2, 3}, PepperVersion: 1, Created: start, Expires: start.Add(time.Hour)},
		}
		want := *c
		want.Secrets, want.Revision = secrets, 2
		got, err := e.UpdateCredential(ctx, tenant.ID, c.ID, 1, kms.CredentialChange{Secrets: secrets})
		if err != nil || !reflect.DeepEqual(got, &want) {
			t.Fatalf("UpdateCredential = %+v, %v; want %+v", got, err, &want)
		}
		got, err = e.CredentialForAuthentication(ctx, c.ID)
		if err != nil || !reflect.DeepEqual(got, &want) {
			t.Errorf("CredentialForAuthentication = %+v, %v; want %+v", got, err, &want)
		}
		want.Scopes, want.Revision = []string{"key:*", "secret:read:llm/openai"}, 3
		if _, err = e.UpdateCredential(ctx, tenant.ID, c.ID, 2, kms.CredentialChange{Scopes: want.Scopes}); err != nil {
			t.Fatal(err)
		}
		for _, of := range []*env{e, newEnv(t, e.driver)} {
			if got, err = of.CredentialForAuthentication(ctx, c.ID); err != nil || !reflect.DeepEqual(got, &want) {
				t.Errorf("with other scopes: %+v, %v; want %+v", got, err, &want)
			}
		}
		_, err = e.UpdateCredential(ctx, tenant.ID, c.ID, 3, kms.CredentialChange{Scopes: []string{}})
		wantKind(t, "no scopes", err, kms.KindInvalidArgument)
		_, err = e.UpdateCredential(ctx, tenant.ID, c.ID, 1, kms.CredentialChange{Secrets: nil})
		wantKind(t, "old revision", err, kms.KindPreconditionFailed)
	})

	t.Run("RevocationIsForGood", func(t *testing.T) {
		c := e.credential(t, tenant.ID, "revoked")
		if _, err := e.CredentialForAuthentication(ctx, c.ID); err != nil {
			t.Fatal(err)
		}
		first, later, never := start.Add(time.Second), start.Add(time.Hour), time.Time{}
		if _, err := e.UpdateCredential(ctx, tenant.ID, c.ID, 1, kms.CredentialChange{Revoked: &first}); err != nil {
			t.Fatal(err)
		}
		_, err := e.UpdateCredential(ctx, tenant.ID, c.ID, 2, kms.CredentialChange{Revoked: &never})
		wantKind(t, "taking a revocation back", err, kms.KindInvalidArgument)
		if _, err := e.UpdateCredential(ctx, tenant.ID, c.ID, 2, kms.CredentialChange{Revoked: &later}); err != nil {
			t.Fatal(err)
		}
		got, err := e.CredentialForAuthentication(ctx, c.ID)
		if err != nil || !got.Revoked.Equal(first) || got.Revision != 3 {
			t.Errorf("got %+v, %v; want the first revocation", got, err)
		}
	})

	t.Run("UnusableCredentialsAreRefused", func(t *testing.T) {
		for name, spoil := range map[string]func(*kms.Credential){
			"no name":       func(c *kms.Credential) { c.Name = "" },
			"name not UTF":  func(c *kms.Credential) { c.Name = "\xff" },
			"project":       func(c *kms.Credential) { c.Project = "" },
			"component":     func(c *kms.Credential) { c.Component = "\x00" },
			"no scopes":     func(c *kms.Credential) { c.Scopes = nil },
			"scope not UTF": func(c *kms.Credential) { c.Scopes = []string{"\xff"} },
			"network":       func(c *kms.Credential) { c.Networks = []netip.Prefix{{}} },
			"no pepper":     func(c *kms.Credential) { c.Secrets[0].PepperVersion = 0 },
			"revision":      func(c *kms.Credential) { c.Revision = 7 },
		} {
			c := sampleCredential(tenant.ID, "unusable")
			spoil(c)
			wantKind(t, name, e.CreateCredential(ctx, c), kms.KindInvalidArgument)
		}
	})

	t.Run("UnknownCredentialIsNotFound", func(t *testing.T) {
		if _, err := e.CredentialForAuthentication(ctx, uuid.NewV7()); err != kms.ErrNotFound {
			t.Errorf("got %v", err)
		}
	})
}

func testSystemSecrets(t *testing.T, open func(*testing.T) keystore.Driver) {
	e := newEnv(t, open(t))
	ctx := t.Context()
	if got, err := e.SystemSecrets(ctx, "pepper"); err != nil || len(got) != 0 {
		t.Errorf("SystemSecrets of no secret = %v, %v", got, err)
	}
	var want []kms.SystemSecret
	for version := uint32(1); version <= 11; version++ {
		want = append(want, kms.SystemSecret{Name: "pepper", Version: version,
			Blob: bytes.Repeat([]byte{byte(version)}, 64), Created: start})
	}
	for i := len(want) - 1; i >= 0; i-- {
		if err := e.PutSystemSecret(ctx, want[i]); err != nil {
			t.Fatal(err)
		}
	}
	other := want[0]
	other.Name = "another"
	if err := e.PutSystemSecret(ctx, other); err != nil {
		t.Fatal(err)
	}
	wantKind(t, "version that exists", e.PutSystemSecret(ctx, kms.SystemSecret{
		Name: "pepper", Version: 3, Blob: []byte("other"), Created: start}), kms.KindConflict)
	if got, err := e.SystemSecrets(ctx, "pepper"); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("SystemSecrets = %v, %v; want %v", got, err, want)
	}
	for name, bad := range map[string]kms.SystemSecret{
		"name":    {Version: 1, Blob: []byte{1}},
		"version": {Name: "pepper", Blob: []byte{1}},
		"blob":    {Name: "pepper", Version: 12},
	} {
		wantKind(t, name, e.PutSystemSecret(ctx, bad), kms.KindInvalidArgument)
	}
}
