package storetest

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"uuid"

	"github.com/sluice-kms/sluice/keystore"
	"github.com/sluice-kms/sluice/kms"
)

func testTenants(t *testing.T, open func(*testing.T) keystore.Driver) {
	e := newEnv(t, open(t))
	ctx := t.Context()

	t.Run("WhatWasStoredComesBack", func(t *testing.T) {
		want := sampleTenant("acme/emea")
		want.Tier, want.AllowSealed = kms.TierGold, true
		if err := e.CreateTenant(ctx, want); err != nil {
			t.Fatal(err)
		}
		for _, ref := range []string{want.Name, want.ID.String(), strings.ToUpper(want.ID.String())} {
			got, err := e.TenantByRef(ctx, ref)
			if err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("TenantByRef(%q) = %+v, %v; want %+v", ref, got, err, want)
			}
		}
		// Again, not from the cache.
		got, err := newEnv(t, e.driver).Tenant(ctx, want.ID)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("Tenant = %+v, %v; want %+v", got, err, want)
		}
		if _, err := e.Project(ctx, want.ID, kms.DefaultProject); err != nil {
			t.Errorf("a new tenant has no default project: %v", err)
		}
	})

	t.Run("TakenNameOrIDIsAConflictAndChangesNothing", func(t *testing.T) {
		first := e.tenant(t, "taken")
		sameName := sampleTenant("taken")
		wantKind(t, "same name", e.CreateTenant(ctx, sameName), kms.KindConflict)
		if _, err := e.Tenant(ctx, sameName.ID); err != kms.ErrNotFound {
			t.Errorf("the refused tenant exists: %v", err)
		}
		sameID := sampleTenant("not-taken")
		sameID.ID, sameID.Sealing.Tenant = first.ID, first.ID
		wantKind(t, "same id", e.CreateTenant(ctx, sameID), kms.KindConflict)
		if got, err := e.TenantByRef(ctx, "taken"); err != nil || got.ID != first.ID {
			t.Errorf("the first tenant changed: %v, %v", got, err)
		}
	})

	t.Run("ChangeOfAnOldRevisionIsRefused", func(t *testing.T) {
		tenant := e.tenant(t, "revised")
		tier, state, sealed := kms.TierPlatinum, kms.TenantSuspended, true
		got, err := e.UpdateTenant(ctx, tenant.ID, 1, kms.TenantChange{Tier: &tier, State: &state, AllowSealed: &sealed})
		if err != nil {
			t.Fatal(err)
		}
		want := *tenant
		want.Tier, want.State, want.AllowSealed, want.Revision = tier, state, sealed, 2
		if !reflect.DeepEqual(got, &want) {
			t.Errorf("UpdateTenant = %+v, want %+v", got, &want)
		}
		_, err = e.UpdateTenant(ctx, tenant.ID, 1, kms.TenantChange{Tier: &tier})
		wantKind(t, "old revision", err, kms.KindPreconditionFailed)
		_, err = e.UpdateTenant(ctx, tenant.ID, 3, kms.TenantChange{Tier: &tier})
		wantKind(t, "revision that is not there yet", err, kms.KindPreconditionFailed)
		if got, err := e.Tenant(ctx, tenant.ID); err != nil || !reflect.DeepEqual(got, &want) {
			t.Errorf("Tenant = %+v, %v; want %+v", got, err, &want)
		}
	})

	t.Run("UnusableTenantsAreRefused", func(t *testing.T) {
		for name, spoil := range map[string]func(*kms.Tenant){
			"name":              func(t *kms.Tenant) { t.Name = "-" },
			"name like an id":   func(t *kms.Tenant) { t.Name = uuid.NewV7().String() },
			"tier":              func(t *kms.Tenant) { t.Tier = "tin" },
			"state":             func(t *kms.Tenant) { t.State = "" },
			"no sealing key":    func(t *kms.Tenant) { t.Sealing.Wrapped = nil },
			"other sealing key": func(t *kms.Tenant) { t.Sealing.Tenant = uuid.NewV7() },
			"no generation":     func(t *kms.Tenant) { t.Sealing.RootGeneration = 0 },
			"revision":          func(t *kms.Tenant) { t.Revision = 0 },
		} {
			tenant := sampleTenant("unusable")
			spoil(tenant)
			wantKind(t, name, e.CreateTenant(ctx, tenant), kms.KindInvalidArgument)
		}
		tenant := e.tenant(t, "usable")
		tier := kms.Tier("tin")
		_, err := e.UpdateTenant(ctx, tenant.ID, 1, kms.TenantChange{Tier: &tier})
		wantKind(t, "change to an unknown tier", err, kms.KindInvalidArgument)
	})

	t.Run("Projects", func(t *testing.T) {
		tenant := e.tenant(t, "with-projects")
		want := &kms.Project{Tenant: tenant.ID, Name: "billing/eu", Created: start}
		if err := e.CreateProject(ctx, want); err != nil {
			t.Fatal(err)
		}
		if got, err := e.Project(ctx, tenant.ID, want.Name); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("Project = %+v, %v; want %+v", got, err, want)
		}
		wantKind(t, "same name", e.CreateProject(ctx, want), kms.KindConflict)
		wantKind(t, "bad name", e.CreateProject(ctx, &kms.Project{Tenant: tenant.ID, Name: "a//b"}), kms.KindInvalidArgument)
	})

	t.Run("CountsHoldTheTenantsThatBoughtSomething", func(t *testing.T) {
		count := func() map[kms.Tier]int64 {
			t.Helper()
			counts, err := e.CountTenants(ctx)
			if err != nil {
				t.Fatal(err)
			}
			return counts
		}
		before := count()
		one := e.tenant(t, "counted")
		e.deleted(t, "not-counted")
		suspended, free := kms.TenantSuspended, kms.TierFree
		if _, err := e.UpdateTenant(ctx, one.ID, 1, kms.TenantChange{State: &suspended}); err != nil {
			t.Fatal(err)
		}
		if got := count(); got[one.Tier] != before[one.Tier]+1 {
			t.Errorf("%v after one tenant more, which is suspended, and a deleted one; %v before", got, before)
		}
		if _, err := e.UpdateTenant(ctx, one.ID, 2, kms.TenantChange{Tier: &free}); err != nil {
			t.Fatal(err)
		}
		if got := count(); got[one.Tier] != before[one.Tier] || got[kms.TierFree] != before[kms.TierFree]+1 {
			t.Errorf("%v after a change to free, %v before", got, before)
		}
		system, err := e.TenantByRef(ctx, kms.SystemTenantName)
		if err != nil {
			t.Fatal(err)
		}
		var all int64
		for _, n := range count() {
			all += n
		}
		listed, _, err := e.ListTenants(ctx, kms.Page{Size: kms.MaxPageSize})
		if err != nil {
			t.Fatal(err)
		}
		listed = slices.DeleteFunc(listed, func(l *kms.Tenant) bool { return l.Deleted() || l.ID == system.ID })
		if all != int64(len(listed)) {
			t.Errorf("%d are counted, %d are listed", all, len(listed))
		}
		// A row that nobody should have written is counted as what it gets.
		if e.driver.(Damager).Damage(t, Damage{Table: "tenants", Column: "tier", Value: "tin", Key: "name", KeyValue: "counted"}) {
			if got := count(); got[kms.TierFree] != before[kms.TierFree]+1 {
				t.Errorf("%v with an unknown tier", got)
			}
		}
	})

	t.Run("UnknownTenantIsNotFound", func(t *testing.T) {
		for _, ref := range []string{"unknown", uuid.NewV7().String(), "", "!", strings.Repeat("x", 4096)} {
			if _, err := e.TenantByRef(ctx, ref); err != kms.ErrNotFound {
				t.Errorf("TenantByRef(%.20q): %v", ref, err)
			}
		}
	})
}
