package storetest

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/keystore"
	"github.com/sluice-kms/sluice/kms"
)

func testLifecycle(t *testing.T, open func(*testing.T) keystore.Driver) {
	e := newEnv(t, open(t))
	tenant := e.tenant(t, "lifecycle")
	t.Run("VersionsChangeTheirState", func(t *testing.T) { testVersionStates(t, e, tenant) })
	t.Run("DestroyedVersionsAreTombstones", func(t *testing.T) { testDestroyVersion(t, e, tenant) })
	t.Run("DestroyedKeysAreMissingAndNeverComeBack", func(t *testing.T) { testDestroyKey(t, e, tenant) })
	t.Run("RotationDatesAreKept", func(t *testing.T) { testRotationDates(t, e, tenant) })
	t.Run("WhatIsDueIsFoundOnceItIs", func(t *testing.T) { testDueKeys(t, newEnv(t, open(t))) })
	t.Run("WhatStaysDueHidesNothing", func(t *testing.T) { testDuePages(t, newEnv(t, open(t))) })
}

// keyWithVersions makes a key with two versions, of which the second is the
// primary one. Its revision is 2.
func (e *env) keyWithVersions(t testing.TB, tenant *kms.Tenant, name string) *kms.Key {
	t.Helper()
	k := sampleKey(tenant, name)
	k.Spec, k.Usage = kms.SpecP256, kms.UsageSignVerify
	k.Versions[0].PublicKey = []byte("public half 1")
	if err := e.CreateKey(t.Context(), k); err != nil {
		t.Fatal(err)
	}
	second := sampleVersion(2)
	second.PublicKey = []byte("public half 2")
	k, err := e.AddVersion(t.Context(), tenant.ID, k.ID, 1, second)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func testVersionStates(t *testing.T, e *env, tenant *kms.Tenant) {
	ctx := t.Context()
	k := e.keyWithVersions(t, tenant, "version-states")
	date := start.Add(time.Hour + time.Nanosecond)
	revision := k.Revision
	for _, step := range []struct {
		change kms.VersionChange
		want   kms.VersionChange
	}{
		{kms.VersionChange{State: kms.VersionDisabled}, kms.VersionChange{State: kms.VersionDisabled}},
		{kms.VersionChange{State: kms.VersionEnabled}, kms.VersionChange{State: kms.VersionEnabled}},
		{kms.VersionChange{State: kms.VersionPendingDestruction, DestroyAt: date},
			kms.VersionChange{State: kms.VersionPendingDestruction, DestroyAt: start.Add(time.Hour)}},
		{kms.VersionChange{State: kms.VersionDisabled}, kms.VersionChange{State: kms.VersionDisabled}},
	} {
		got, err := e.UpdateVersion(ctx, tenant.ID, k.ID, revision, 1, step.change)
		if err != nil {
			t.Fatalf("%+v: %v", step.change, err)
		}
		revision++
		for _, got := range []*kms.Key{got, e.lookup(t, tenant.ID, k.Name)} {
			v := got.Version(1)
			if v.State != step.want.State || !v.DestroyAt.Equal(step.want.DestroyAt) || got.Revision != revision {
				t.Errorf("%+v made %+v at revision %d", step.change, v, got.Revision)
			}
			if got.Version(2).State != kms.VersionEnabled {
				t.Error("the other version changed")
			}
		}
	}
	for name, c := range map[string]struct {
		number uint32
		change kms.VersionChange
	}{
		"no such version":    {3, kms.VersionChange{State: kms.VersionDisabled}},
		"version zero":       {0, kms.VersionChange{State: kms.VersionDisabled}},
		"unknown state":      {1, kms.VersionChange{State: "LOST"}},
		"date without state": {1, kms.VersionChange{State: kms.VersionDisabled, DestroyAt: date}},
		"state without date": {1, kms.VersionChange{State: kms.VersionPendingDestruction}},
		"destroyed":          {1, kms.VersionChange{State: kms.VersionDestroyed}},
	} {
		_, err := e.UpdateVersion(ctx, tenant.ID, k.ID, revision, c.number, c.change)
		wantKind(t, name, err, kms.KindInvalidArgument)
	}
	_, err := e.UpdateVersion(ctx, tenant.ID, k.ID, revision-1, 1, kms.VersionChange{State: kms.VersionEnabled})
	wantKind(t, "old revision", err, kms.KindPreconditionFailed)
}

func testDestroyVersion(t *testing.T, e *env, tenant *kms.Tenant) {
	ctx := t.Context()
	k := e.keyWithVersions(t, tenant, "destroyed-version")
	e.lookup(t, tenant.ID, k.Name)
	_, err := e.DestroyVersion(ctx, tenant.ID, k.ID, 2, 2)
	wantKind(t, "the primary version", err, kms.KindInvalidArgument)
	_, err = e.DestroyVersion(ctx, tenant.ID, k.ID, 1, 1)
	wantKind(t, "old revision", err, kms.KindPreconditionFailed)
	if _, err = e.DestroyVersion(ctx, tenant.ID, k.ID, 2, 1); err != nil {
		t.Fatal(err)
	}
	want := *k.Version(1)
	want.State, want.Blob = kms.VersionDestroyed, nil
	got := e.lookup(t, tenant.ID, k.Name)
	if !reflect.DeepEqual(got.Version(1), &want) || got.Version(2).State != kms.VersionEnabled || got.Revision != 3 {
		t.Errorf("left %+v at revision %d, want %+v at 3", got.Version(1), got.Revision, &want)
	}
	_, err = e.DestroyVersion(ctx, tenant.ID, k.ID, 3, 1)
	wantKind(t, "a destroyed version", err, kms.KindInvalidArgument)
	_, err = e.UpdateVersion(ctx, tenant.ID, k.ID, 3, 1, kms.VersionChange{State: kms.VersionEnabled})
	wantKind(t, "enabling a destroyed version", err, kms.KindInvalidArgument)
	if _, err := e.LeaseNonces(ctx, tenant.ID, k.ID, 1, 1); err != kms.ErrNotFound {
		t.Errorf("nonces of a destroyed version: %v", err)
	}
	if got, err := e.AddVersion(ctx, tenant.ID, k.ID, 3, &kms.Version{ID: uuid.NewV7(), State: kms.VersionEnabled, Created: start,
		PublicKey: []byte{1}, Blob: []byte{1}}); err != nil || got.Primary != 3 {
		t.Errorf("AddVersion after a destruction = %+v, %v", got, err)
	}
}

func testDestroyKey(t *testing.T, e *env, tenant *kms.Tenant) {
	ctx := t.Context()
	k := e.keyWithVersions(t, tenant, "destroyed-key")
	if err := e.SetAlias(ctx, tenant.ID, k.ID, "destroyed-alias"); err != nil {
		t.Fatal(err)
	}
	refs := []string{k.Name, k.ID.String(), "destroyed-alias"}
	for _, ref := range refs {
		e.lookup(t, tenant.ID, ref)
	}
	wantKind(t, "old revision", e.DestroyKey(ctx, tenant.ID, k.ID, 1), kms.KindPreconditionFailed)
	if err := e.DestroyKey(ctx, tenant.ID, k.ID, 2); err != nil {
		t.Fatal(err)
	}
	state := kms.KeyEnabled
	for _, s := range []*env{e, newEnv(t, e.driver)} {
		for _, ref := range refs {
			if _, err := s.Lookup(ctx, tenant.ID, ref); err != kms.ErrNotFound {
				t.Errorf("Lookup(%q): %v", ref, err)
			}
		}
		_, err := s.UpdateKey(ctx, tenant.ID, k.ID, 3, kms.KeyChange{State: &state})
		errs := []error{err, s.DestroyKey(ctx, tenant.ID, k.ID, 3), s.SetAlias(ctx, tenant.ID, k.ID, "late")}
		if _, err := s.KeyAliases(ctx, tenant.ID, k.ID); err != kms.ErrNotFound {
			errs = append(errs, err)
		}
		for _, err := range errs {
			if err != kms.ErrNotFound {
				t.Errorf("a destroyed key: %v, want that it is missing", err)
			}
		}
	}
	list, _, err := e.ListKeys(ctx, tenant.ID, "", kms.Page{Size: kms.MaxPageSize})
	if err != nil || slices.ContainsFunc(list, func(other *kms.Key) bool { return other.ID == k.ID }) {
		t.Errorf("a destroyed key is listed, %v", err)
	}
	// The id is used for good; name and alias are free, whichever way round.
	again := sampleKey(tenant, "another-name")
	again.ID = k.ID
	wantKind(t, "the id of a destroyed key", e.CreateKey(ctx, again), kms.KindConflict)
	taken := e.key(t, tenant, "destroyed-alias")
	if err := e.SetAlias(ctx, tenant.ID, taken.ID, k.Name); err != nil {
		t.Errorf("the name of a destroyed key as an alias: %v", err)
	}
	for _, ref := range []string{"destroyed-alias", k.Name} {
		if got := e.lookup(t, tenant.ID, ref); got.ID != taken.ID {
			t.Errorf("Lookup(%q) = %+v", ref, got)
		}
	}
	row, err := e.driver.Key(ctx, keystore.KeyParams{Tenant: tenant.ID, ID: k.ID})
	if err != nil || len(row.Versions) != 2 {
		t.Fatalf("no tombstone: %+v, %v", row, err)
	}
	for _, v := range row.Versions {
		if v.State.String != string(kms.VersionDestroyed) || !v.Blob.Null || !strings.HasPrefix(string(v.PublicKey.Bytes), "public half") {
			t.Errorf("the tombstone of a version is %+v", v)
		}
	}
}

func testRotationDates(t *testing.T, e *env, tenant *kms.Tenant) {
	ctx := t.Context()
	k := e.key(t, tenant, "rotation-dates")
	period, next := 90*24*time.Hour+time.Microsecond, start.Add(time.Hour+time.Nanosecond)
	got, err := e.SetRotation(ctx, tenant.ID, k.ID, 1, period, next)
	if err != nil || got.RotationPeriod != period || !got.NextRotation.Equal(start.Add(time.Hour)) {
		t.Fatalf("SetRotation = %+v, %v", got, err)
	}
	if again := e.lookup(t, tenant.ID, k.Name); !reflect.DeepEqual(again, got) {
		t.Errorf("Lookup = %+v, want %+v", again, got)
	}
	for name, c := range map[string]struct {
		period time.Duration
		next   time.Time
	}{"period alone": {period, time.Time{}}, "date alone": {0, next}, "negative": {-period, next}, "nothing that is stored": {1, next}} {
		_, err := e.SetRotation(ctx, tenant.ID, k.ID, 2, c.period, c.next)
		wantKind(t, name, err, kms.KindInvalidArgument)
	}
	_, err = e.SetRotation(ctx, tenant.ID, k.ID, 1, period, next)
	wantKind(t, "old revision", err, kms.KindPreconditionFailed)
	if got, err := e.SetRotation(ctx, tenant.ID, k.ID, 2, 0, time.Time{}); err != nil || got.RotationPeriod != 0 || !got.NextRotation.IsZero() {
		t.Errorf("no rotation: %+v, %v", got, err)
	}
}

// testDueKeys expects each key on the list from its date on, not a microsecond
// before, and what cannot be acted on not at all.
func testDueKeys(t *testing.T, e *env) {
	ctx := t.Context()
	a, b := e.tenant(t, "due-a"), e.tenant(t, "due-b")
	at := func(hours int) time.Time { return start.Add(time.Duration(hours) * time.Hour) }
	must := func(_ *kms.Key, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	rotated := e.key(t, a, "rotated")
	must(e.SetRotation(ctx, a.ID, rotated.ID, 1, time.Hour, at(3)))
	deleted, pending, date := e.key(t, b, "deleted"), kms.KeyPendingDeletion, at(1)
	must(e.UpdateKey(ctx, b.ID, deleted.ID, 1, kms.KeyChange{State: &pending, DeletionDate: &date}))
	version := e.keyWithVersions(t, a, "version")
	must(e.UpdateVersion(ctx, a.ID, version.ID, 2, 1, kms.VersionChange{State: kms.VersionPendingDestruction, DestroyAt: at(2)}))
	must(e.SetRotation(ctx, a.ID, version.ID, 3, time.Hour, at(9)))
	disabled, off := e.key(t, b, "disabled"), kms.KeyDisabled
	must(e.SetRotation(ctx, b.ID, disabled.ID, 1, time.Hour, at(1)))
	must(e.UpdateKey(ctx, b.ID, disabled.ID, 2, kms.KeyChange{State: &off}))
	e.key(t, a, "never")

	want := func(now time.Time, limit int, keys ...*kms.Key) {
		t.Helper()
		got, err := e.DueKeys(ctx, now, kms.DueKey{}, limit)
		if err != nil {
			t.Fatal(err)
		}
		wantDue(t, got, keys...)
	}
	want(at(1).Add(-time.Microsecond), 10)
	want(at(1), 10, deleted)
	want(at(3), 10, deleted, version, rotated)
	want(at(100), 2, deleted, version)

	must(e.DestroyVersion(ctx, a.ID, version.ID, 4, 1))
	if err := e.DestroyKey(ctx, b.ID, deleted.ID, 2); err != nil {
		t.Fatal(err)
	}
	must(e.SetRotation(ctx, a.ID, rotated.ID, 2, time.Hour, at(20)))
	on := kms.KeyEnabled
	must(e.UpdateKey(ctx, b.ID, disabled.ID, 3, kms.KeyChange{State: &on}))
	want(at(9), 10, disabled, version)
	for name, limit := range map[string]int{"no limit": 0, "too high a limit": kms.MaxPageSize + 1} {
		_, err := e.DueKeys(ctx, start, kms.DueKey{}, limit)
		wantKind(t, name, err, kms.KindInvalidArgument)
	}
}

// wantDue expects a list of keys in its order.
func wantDue(t testing.TB, got []kms.DueKey, keys ...*kms.Key) {
	t.Helper()
	same := slices.EqualFunc(got, keys, func(d kms.DueKey, k *kms.Key) bool {
		return d.Tenant == k.Tenant.ID && d.Key == k.ID
	})
	if !same {
		t.Errorf("due are %v, want %d keys: %v", got, len(keys), keys)
	}
}

// testDuePages reads the list in pages of every size: each key is on one of
// them, in the order of date, tenant and id, whatever stays due before it; a
// row that is no key takes nobody's place.
func testDuePages(t *testing.T, e *env) {
	ctx := t.Context()
	tenants := []*kms.Tenant{e.tenant(t, "page-a"), e.tenant(t, "page-b")}
	var keys []*kms.Key
	for i := range 7 {
		k := e.key(t, tenants[i%2], fmt.Sprint("key-", i))
		// Three dates, the later the earlier the key was made.
		due := start.Add(-time.Duration(i/3) * time.Hour)
		k, err := e.SetRotation(ctx, k.Tenant.ID, k.ID, 1, time.Hour, due)
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b *kms.Key) int {
		return cmp.Or(a.NextRotation.Compare(b.NextRotation), a.Tenant.ID.Compare(b.Tenant.ID), a.ID.Compare(b.ID))
	})
	pages := func(size int) (all []kms.DueKey) {
		var after kms.DueKey
		for {
			due, err := e.DueKeys(ctx, start, after, size)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, due...)
			if len(due) < size {
				return all
			}
			if len(all) > len(keys) {
				t.Fatal("the list does not end")
			}
			after = due[size-1]
		}
	}
	for size := 1; size <= len(keys)+1; size++ {
		wantDue(t, pages(size), keys...)
	}
	damaged := e.driver.(Damager).Damage(t, Damage{Table: "keys", Column: "id", Value: []byte("no id"),
		Key: "id", KeyValue: keys[2].ID[:]})
	if damaged {
		keys = slices.Delete(keys, 2, 3)
	}
	for size := 1; size <= len(keys)+1; size++ {
		wantDue(t, pages(size), keys...)
	}
}
