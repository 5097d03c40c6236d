package storetest

import (
	"maps"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/keystore"
	"github.com/sluice-kms/sluice/kms"
)

func testKeys(t *testing.T, open func(*testing.T) keystore.Driver) {
	e := newEnv(t, open(t))
	ctx := t.Context()
	tenant := e.tenant(t, "keys")

	t.Run("WhatWasStoredComesBack", func(t *testing.T) { testKeyRoundTrip(t, e, tenant) })
	t.Run("ChangesApplyAndCount", func(t *testing.T) { testKeyChanges(t, e, tenant) })
	t.Run("UnusableKeysAreRefused", func(t *testing.T) { testUnusableKeys(t, e, tenant) })
	t.Run("VersionNumbersAreNeverUsedAgain", func(t *testing.T) {
		blind := newEnvWith(t, open(t), blindRows{})
		testVersionNumbers(t, blind, blind.tenant(t, "numbers"))
	})

	t.Run("TakenNameOrIDIsAConflictAndChangesNothing", func(t *testing.T) {
		first := e.key(t, tenant, "taken")
		sameName := sampleKey(tenant, "taken")
		wantKind(t, "same name", e.CreateKey(ctx, sameName), kms.KindConflict)
		if _, err := e.Lookup(ctx, tenant.ID, sameName.ID.String()); err != kms.ErrNotFound {
			t.Errorf("the refused key exists: %v", err)
		}
		sameID := sampleKey(tenant, "not-taken")
		sameID.ID = first.ID
		wantKind(t, "same id", e.CreateKey(ctx, sameID), kms.KindConflict)
		if got := e.lookup(t, tenant.ID, "taken"); got.ID != first.ID {
			t.Error("the first key changed")
		}
	})

	t.Run("SameNameInAnotherTenantIsAnotherKey", func(t *testing.T) {
		other := e.tenant(t, "keys-too")
		a, b := e.key(t, tenant, "shared-name"), e.key(t, other, "shared-name")
		if got := e.lookup(t, tenant.ID, "shared-name"); got.ID != a.ID {
			t.Error("the first tenant got the second one's key")
		}
		if got := e.lookup(t, other.ID, "shared-name"); got.ID != b.ID {
			t.Error("the second tenant got the first one's key")
		}
	})

	t.Run("KeyInAnUnknownProjectIsNotFound", func(t *testing.T) {
		k := sampleKey(tenant, "astray")
		k.Project = "no-such-project"
		if err := e.CreateKey(ctx, k); err != kms.ErrNotFound {
			t.Errorf("got %v", err)
		}
	})
}

func testKeyRoundTrip(t *testing.T, e *env, tenant *kms.Tenant) {
	symmetric := sampleKey(tenant, "orders/card.pan-1")
	asymmetric := sampleKey(tenant, "signer")
	asymmetric.Spec, asymmetric.Usage, asymmetric.Protection = kms.SpecP256, kms.UsageSignVerify, kms.ProtectionSealed
	asymmetric.Versions[0].PublicKey = []byte{0x30, 0x00, 0xff}
	asymmetric.Versions[0].State = kms.VersionDisabled
	asymmetric.Description = "line one\nline two \"quoted\" ☂"
	asymmetric.Tags = map[string]string{"team": "payments", "": "empty key", "nul": "\x00", "☂": ""}
	asymmetric.DeletionProtection = true
	asymmetric.Origin = kms.OriginImportedProcess
	asymmetric.RotationPeriod, asymmetric.NextRotation = 90*24*time.Hour, start.Add(90*24*time.Hour)
	pending := sampleKey(tenant, "pending")
	pending.State, pending.DeletionDate = kms.KeyPendingDeletion, start.Add(30*24*time.Hour)

	for _, want := range []*kms.Key{symmetric, asymmetric, pending} {
		if err := e.CreateKey(t.Context(), want); err != nil {
			t.Fatalf("%s: %v", want.Name, err)
		}
		for _, ref := range []string{want.Name, want.ID.String(), "urn:uuid:" + want.ID.String(),
			strings.ReplaceAll(want.ID.String(), "-", "")} {
			got := e.lookup(t, tenant.ID, ref)
			if !reflect.DeepEqual(got, want) {
				t.Errorf("Lookup(%q) = %+v, want %+v", ref, got, want)
			}
		}
	}
}

func testKeyChanges(t *testing.T, e *env, tenant *kms.Tenant) {
	ctx := t.Context()
	stored := e.key(t, tenant, "changing")
	want := *stored
	update := func(what string, change kms.KeyChange, edit func(*kms.Key)) {
		t.Helper()
		got, err := e.UpdateKey(ctx, tenant.ID, stored.ID, want.Revision, change)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		edit(&want)
		want.Revision++
		if !reflect.DeepEqual(got, &want) {
			t.Errorf("%s: UpdateKey = %+v, want %+v", what, got, &want)
		}
		if got := e.lookup(t, tenant.ID, "changing"); !reflect.DeepEqual(got, &want) {
			t.Errorf("%s: Lookup = %+v, want %+v", what, got, &want)
		}
	}
	text, yes := "described", true
	update("description", kms.KeyChange{Description: &text}, func(k *kms.Key) { k.Description = text })
	tags := map[string]string{"a": "b"}
	update("tags", kms.KeyChange{Tags: tags}, func(k *kms.Key) { k.Tags = maps.Clone(tags) })
	tags["a"] = "changed by the caller afterwards"
	update("no tags", kms.KeyChange{Tags: map[string]string{}}, func(k *kms.Key) { k.Tags = nil })
	update("protection", kms.KeyChange{DeletionProtection: &yes}, func(k *kms.Key) { k.DeletionProtection = true })
	update("nothing", kms.KeyChange{}, func(*kms.Key) {})
	pending, date := kms.KeyPendingDeletion, start.Add(time.Hour+time.Nanosecond)
	update("deletion", kms.KeyChange{State: &pending, DeletionDate: &date}, func(k *kms.Key) {
		k.State, k.DeletionDate = pending, start.Add(time.Hour)
	})
	disabled, never := kms.KeyDisabled, time.Time{}
	_, err := e.UpdateKey(ctx, tenant.ID, stored.ID, want.Revision, kms.KeyChange{State: &disabled})
	wantKind(t, "state without the date that goes with it", err, kms.KindInvalidArgument)
	update("no deletion", kms.KeyChange{State: &disabled, DeletionDate: &never}, func(k *kms.Key) {
		k.State, k.DeletionDate = disabled, never
	})

	v := sampleVersion(2)
	got, err := e.AddVersion(ctx, tenant.ID, stored.ID, want.Revision, v)
	if err != nil {
		t.Fatal(err)
	}
	want.Versions, want.Primary, want.Revision = append(want.Versions, v), 2, want.Revision+1
	if !reflect.DeepEqual(got, &want) || !reflect.DeepEqual(e.lookup(t, tenant.ID, "changing"), &want) {
		t.Errorf("AddVersion = %+v, want %+v", got, &want)
	}

	for _, revision := range []uint64{0, 1, want.Revision - 1, want.Revision + 1, math.MaxUint64} {
		_, err := e.UpdateKey(ctx, tenant.ID, stored.ID, revision, kms.KeyChange{Description: &text})
		wantKind(t, "update of another revision", err, kms.KindPreconditionFailed)
		_, err = e.AddVersion(ctx, tenant.ID, stored.ID, revision, sampleVersion(3))
		wantKind(t, "version for another revision", err, kms.KindPreconditionFailed)
	}
	if got := e.lookup(t, tenant.ID, "changing"); !reflect.DeepEqual(got, &want) {
		t.Errorf("refused changes left %+v, want %+v", got, &want)
	}
}

func testUnusableKeys(t *testing.T, e *env, tenant *kms.Tenant) {
	for name, spoil := range map[string]func(*kms.Key){
		"no tenant":           func(k *kms.Key) { k.Tenant = nil },
		"name":                func(k *kms.Key) { k.Name = "a b" },
		"name like an id":     func(k *kms.Key) { k.Name = uuid.NewV7().String() },
		"project":             func(k *kms.Key) { k.Project = "" },
		"spec":                func(k *kms.Key) { k.Spec = "DES" },
		"usage":               func(k *kms.Key) { k.Usage = kms.UsageSignVerify },
		"protection":          func(k *kms.Key) { k.Protection = "" },
		"state":               func(k *kms.Key) { k.State = "LOST" },
		"date without state":  func(k *kms.Key) { k.DeletionDate = start },
		"state without date":  func(k *kms.Key) { k.State = kms.KeyPendingDeletion },
		"description":         func(k *kms.Key) { k.Description = "\x00" },
		"description not UTF": func(k *kms.Key) { k.Description = "\xff" },
		"tags not UTF":        func(k *kms.Key) { k.Tags = map[string]string{"a": "\xff"} },
		"no version":          func(k *kms.Key) { k.Versions = nil },
		"two versions":        func(k *kms.Key) { k.Versions = append(k.Versions, sampleVersion(2)) },
		"version number":      func(k *kms.Key) { k.Versions[0].Number, k.Primary = 2, 2 },
		"primary":             func(k *kms.Key) { k.Primary = 2 },
		"no blob":             func(k *kms.Key) { k.Versions[0].Blob = nil },
		"public key":          func(k *kms.Key) { k.Versions[0].PublicKey = []byte{1} },
		"no public key":       func(k *kms.Key) { k.Spec, k.Usage = kms.SpecP256, kms.UsageSignVerify },
		"version state":       func(k *kms.Key) { k.Versions[0].State = "" },
		"origin":              func(k *kms.Key) { k.Origin = "" },
		"date without period": func(k *kms.Key) { k.NextRotation = start },
		"period without date": func(k *kms.Key) { k.RotationPeriod = time.Hour },
		"destroyed":           func(k *kms.Key) { k.State = "DESTROYED" },
		"destroyed version":   func(k *kms.Key) { k.Versions[0].State, k.Versions[0].Blob = kms.VersionDestroyed, nil },
		"destruction date":    func(k *kms.Key) { k.Versions[0].DestroyAt = start },
		"revision":            func(k *kms.Key) { k.Revision = 2 },
	} {
		k := sampleKey(tenant, "unusable")
		spoil(k)
		wantKind(t, name, e.CreateKey(t.Context(), k), kms.KindInvalidArgument)
	}
	if _, err := e.Lookup(t.Context(), tenant.ID, "unusable"); err != kms.ErrNotFound {
		t.Errorf("an unusable key was stored: %v", err)
	}
}

func testVersionNumbers(t *testing.T, e *env, tenant *kms.Tenant) {
	ctx := t.Context()
	k := e.key(t, tenant, "numbers")
	for number := uint32(2); number <= 3; number++ {
		if _, err := e.AddVersion(ctx, tenant.ID, k.ID, uint64(number-1), sampleVersion(0)); err != nil {
			t.Fatal(err)
		}
	}
	// Version 3 becomes another key's, as if its row had never been there.
	elsewhere := uuid.NewV7()
	e.driver.(Damager).Damage(t, Damage{Table: "key_versions", Column: "key_id", Value: elsewhere[:],
		Key: "id", KeyValue: versionID(e.lookup(t, tenant.ID, "numbers"), 3)})
	e.driver.(Damager).Damage(t, Damage{Table: "keys", Column: "primary_version", Value: int64(2), Key: "id", KeyValue: k.ID[:]})
	e.Invalidate(keystore.ObjectKey, tenant.ID, k.ID)
	if got := e.lookup(t, tenant.ID, "numbers"); len(got.Versions) != 2 || got.Primary != 2 {
		t.Fatalf("version 3 is not gone: %+v", got)
	}
	_, err := e.AddVersion(ctx, tenant.ID, k.ID, 3, sampleVersion(3))
	wantKind(t, "version with a number that was used", err, kms.KindPreconditionFailed)
	got, err := e.AddVersion(ctx, tenant.ID, k.ID, 3, sampleVersion(0))
	if err != nil || got.Primary != 4 || got.Version(4) == nil || got.Version(3) != nil {
		t.Errorf("AddVersion = %+v, %v; want version 4", got, err)
	}
	if got := e.lookup(t, tenant.ID, "numbers"); got.Primary != 4 || got.Version(3) != nil {
		t.Errorf("Lookup = %+v, want version 4", got)
	}
}

func versionID(k *kms.Key, number uint32) []byte {
	id := k.Version(number).ID
	return id[:]
}
