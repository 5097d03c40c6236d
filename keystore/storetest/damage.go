package storetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"uuid"

	"github.com/sluice-kms/sluice/keystore"
	"github.com/sluice-kms/sluice/kms"
)

// Values that a column may turn out to hold. The bytes stand for a value of a
// wrong type in columns of text and numbers.
var (
	null    any = nil
	blank   any = ""
	unknown any = "WHATEVER"
	zero    any = int64(0)
	huge    any = int64(1) << 62
	wrong   any = []byte("\x00\xffwrong")
)

// damages lists what is done to one object of each kind: by table and column,
// with the values that must make the object unusable.
var damages = []struct {
	object  keystore.Object
	table   string
	columns map[string][]any
}{
	{keystore.ObjectTenant, "tenants", map[string][]any{
		"name": {null, blank, wrong}, "tier": {null, blank, unknown, wrong}, "state": {null, blank, unknown, wrong},
		"allow_sealed": {null, int64(2), wrong}, "sealing_id": {null, []byte{}, wrong}, "sealing_domain": {null, []byte{1}},
		"sealing_generation": {null, zero, huge, wrong}, "sealing_wrapped": {null, []byte{}, unknown},
		"created": {null, unknown, wrong}, "revision": {null, zero, wrong},
		"deleted_at": {int64(1), unknown, wrong}, "void_at": {int64(1), unknown, wrong},
		"erased_at": {int64(1), unknown, wrong}, "shredded_at": {int64(1), unknown, wrong},
	}},
	{keystore.ObjectKey, "keys", map[string][]any{
		"project": {null, blank, wrong}, "name": {null, blank, "a b", wrong}, "spec": {null, blank, unknown, wrong},
		"usage": {null, blank, unknown, string(kms.UsageSignVerify)}, "protection": {null, blank, unknown},
		"state":       {null, blank, unknown, string(kms.KeyPendingDeletion)},
		"description": {null, wrong}, "tags": {null, blank, "null", "[]", `{"a":1}`, `{"a":"b"`, wrong},
		"created": {null, unknown}, "last_used": {unknown, huge},
		"deletion_date": {int64(1), unknown, wrong}, "deletion_protection": {null, int64(2)},
		"primary_version": {null, zero, int64(2), huge, wrong}, "highest_version": {null, zero, wrong},
		"revision": {null, zero, wrong},
	}},
	{keystore.ObjectKey, "key_versions", map[string][]any{
		"number": {null, zero, int64(2), huge, wrong}, "id": {null, []byte{}, wrong},
		"state":      {null, blank, unknown, wrong, string(kms.VersionDestroyed), string(kms.VersionPendingDestruction)},
		"created":    {null, unknown, wrong},
		"public_key": {[]byte{1}, unknown}, "blob": {null, []byte{}, unknown}, "destroy_at": {int64(1), unknown},
	}},
	{keystore.ObjectCredential, "credentials", map[string][]any{
		"project": {null, blank, wrong}, "name": {null, blank, wrong, "\x00"}, "component": {null, wrong},
		"scopes":   {null, blank, "null", "[]", `{}`, `[1]`, wrong},
		"networks": {null, blank, "null", `["10.0.0.0"]`, `[""]`, wrong},
		"created":  {null, unknown}, "expires": {unknown, blank, wrong}, "revoked": {unknown, blank, wrong},
		"revision": {null, zero}, "last_used": {unknown, huge}, "last_address": {null, wrong},
		"guard": {wrong, []byte(`{"action":"other","flagged":1}`), []byte(`{"flagged":1}`), []byte(`[]`)},
	}},
	{keystore.ObjectCredential, "credential_secrets", map[string][]any{
		"hash": {null, []byte{}, wrong, unknown}, "pepper_version": {null, zero, huge}, "created": {null, wrong},
		"expires": {unknown, wrong},
	}},
}

// testDamage proves that a row which nobody should have written disables its
// own object, as an error that can be told from others, and nothing else:
// neither the object beside it, nor the list, nor the next start.
func testDamage(t *testing.T, open func(*testing.T) keystore.Driver) {
	driver := open(t)
	e := newEnvWith(t, driver, blindRows{})
	sequence := 0
	for _, group := range damages {
		for column, values := range group.columns {
			for i, value := range values {
				t.Run(fmt.Sprintf("%s.%s/%d", group.table, column, i), func(t *testing.T) {
					sequence++
					testDamagedObject(t, e, fmt.Sprintf("damage-%d", sequence), group.object,
						Damage{Table: group.table, Column: column, Value: value})
				})
			}
		}
	}
	t.Run("SystemSecret", func(t *testing.T) { testDamagedSystemSecret(t, e) })
	t.Run("IdempotencyRecord", func(t *testing.T) { testDamagedClaim(t, e) })

	t.Run("StartsAndWorks", func(t *testing.T) {
		again := newEnvWith(t, driver.(Damager).Reopen(t), blindRows{})
		tenant := again.tenant(t, "after-damage")
		again.key(t, tenant, "works")
		if got := again.lookup(t, tenant.ID, "works"); got.Tenant.Name != tenant.Name {
			t.Errorf("got %+v", got)
		}
		if _, _, err := again.ListTenants(t.Context(), kms.Page{Size: kms.MaxPageSize}); err != nil {
			t.Errorf("ListTenants: %v", err)
		}
	})
}

// testDamagedObject makes a tenant with two keys and two credentials, damages
// one object and looks at all of them.
func testDamagedObject(t *testing.T, e *env, name string, object keystore.Object, d Damage) {
	ctx := t.Context()
	tenant, sibling := e.tenant(t, name), e.tenant(t, name+"-sibling")
	victim, good := e.key(t, tenant, "b-victim"), e.key(t, tenant, "c-good")
	lost, fine := e.credential(t, tenant.ID, "b-lost"), e.credential(t, tenant.ID, "c-fine")
	damager := e.driver.(Damager)

	switch d.Table {
	case "tenants":
		d.Key, d.KeyValue = "id", tenant.ID[:]
	case "keys":
		d.Key, d.KeyValue = "id", victim.ID[:]
	case "key_versions":
		d.Key, d.KeyValue = "key_id", victim.ID[:]
	case "credentials":
		d.Key, d.KeyValue = "id", lost.ID[:]
	case "credential_secrets":
		d.Key, d.KeyValue = "credential", lost.ID[:]
	}
	if !damager.Damage(t, d) {
		return // this database cannot be damaged so
	}

	switch object {
	case keystore.ObjectTenant:
		_, err := e.Tenant(ctx, tenant.ID)
		wantDamage(t, "Tenant", err, object)
		_, err = e.UpdateTenant(ctx, tenant.ID, 1, kms.TenantChange{})
		wantDamage(t, "UpdateTenant", err, object)
		if _, err := e.Tenant(ctx, sibling.ID); err != nil {
			t.Errorf("the tenant beside it: %v", err)
		}
		return
	case keystore.ObjectKey:
		_, err := e.Lookup(ctx, tenant.ID, victim.ID.String())
		wantDamage(t, "Lookup", err, object)
		_, err = e.UpdateKey(ctx, tenant.ID, victim.ID, 1, kms.KeyChange{})
		wantDamage(t, "UpdateKey", err, object)
		_, err = e.AddVersion(ctx, tenant.ID, victim.ID, 1, sampleVersion(2))
		wantDamage(t, "AddVersion", err, object)
	case keystore.ObjectCredential:
		_, err := e.CredentialForAuthentication(ctx, lost.ID)
		wantDamage(t, "CredentialForAuthentication", err, object)
		_, err = e.Credential(ctx, tenant.ID, lost.ID)
		wantDamage(t, "Credential", err, object)
		_, err = e.UpdateCredential(ctx, tenant.ID, lost.ID, 1, kms.CredentialChange{})
		wantDamage(t, "UpdateCredential", err, object)
	}
	if got := e.lookup(t, tenant.ID, "c-good"); got.ID != good.ID {
		t.Error("the key beside it changed")
	}
	if _, err := e.CredentialForAuthentication(ctx, fine.ID); err != nil {
		t.Errorf("the credential beside it: %v", err)
	}
	checkDamagedLists(t, e, tenant.ID, object)
}

// checkDamagedLists reads the lists with pages of one, where a damaged row is
// at the edge of every page.
func checkDamagedLists(t *testing.T, e *env, tenant uuid.UUID, object keystore.Object) {
	ctx := t.Context()
	keys, credentials := []string{"b-victim", "c-good"}, []string{"b-lost", "c-fine"}
	if object == keystore.ObjectKey {
		keys = keys[1:]
	} else {
		credentials = credentials[1:]
	}
	for _, size := range []int{1, 100} {
		checkPages(t, size, keys, func(p kms.Page) ([]string, string, error) {
			list, next, err := e.ListKeys(ctx, tenant, "", p)
			return namesOf(list, func(k *kms.Key) string { return k.Name }), next, err
		})
		checkPages(t, size, credentials, func(p kms.Page) ([]string, string, error) {
			list, next, err := e.ListCredentials(ctx, tenant, p)
			return namesOf(list, func(c *kms.Credential) string { return c.Name }), next, err
		})
	}
}

func testDamagedSystemSecret(t *testing.T, e *env) {
	ctx := t.Context()
	for version := uint32(1); version <= 2; version++ {
		if err := e.PutSystemSecret(ctx, kms.SystemSecret{Name: "pepper", Version: version, Blob: []byte{1}, Created: start}); err != nil {
			t.Fatal(err)
		}
	}
	damage := func(version int64) {
		e.driver.(Damager).Damage(t, Damage{Table: "system_secrets", Column: "blob", Value: null, Key: "version", KeyValue: version})
	}
	damage(2)
	if got, err := e.SystemSecrets(ctx, "pepper"); err != nil || len(got) != 1 || got[0].Version != 1 {
		t.Errorf("SystemSecrets = %v, %v; want the version that is whole", got, err)
	}
	damage(1)
	_, err := e.SystemSecrets(ctx, "pepper")
	wantDamage(t, "SystemSecrets without a whole version", err, keystore.ObjectSystemSecret)
}

func testDamagedClaim(t *testing.T, e *env) {
	ctx := context.WithoutCancel(t.Context())
	tenant := e.tenant(t, "damaged-claims")
	for i, d := range []Damage{
		{Column: "state", Value: unknown}, {Column: "state", Value: null}, {Column: "fingerprint", Value: wrong},
		{Column: "status", Value: null}, {Column: "status", Value: int64(7)}, {Column: "resource", Value: null},
		{Column: "secret", Value: int64(2)},
	} {
		k := kms.IdempotencyKey{Tenant: tenant.ID, Credential: uuid.NewV7(), Key: fmt.Sprint("claim", i)}
		if _, err := e.Begin(ctx, k, [32]byte{}); err != nil {
			t.Fatal(err)
		}
		if err := e.Finish(ctx, k, kms.IdempotencyRecord{Status: 200}); err != nil {
			t.Fatal(err)
		}
		d.Table, d.Key, d.KeyValue = "idempotency", "credential", k.Credential[:]
		if !e.driver.(Damager).Damage(t, d) {
			continue
		}
		_, err := e.Begin(ctx, k, [32]byte{})
		wantDamage(t, d.Column, err, keystore.ObjectClaim)
	}
}

// wantDamage expects a RowError for the object inside an error of
// KindInternal that tells a client nothing.
func wantDamage(t *testing.T, what string, err error, object keystore.Object) {
	t.Helper()
	row, ok := errors.AsType[*keystore.RowError](err)
	if !ok || row.Object != object || row.Column == "" || kms.KindOf(err) != kms.KindInternal {
		t.Errorf("%s: got %v, want a RowError of a %s", what, err, object)
		return
	}
	outer, _ := errors.AsType[*kms.Error](err)
	if strings.Contains(outer.Detail, row.Column) || strings.Contains(err.Error(), "WHATEVER") {
		t.Errorf("%s: the error gives away too much: %v", what, err)
	}
}
