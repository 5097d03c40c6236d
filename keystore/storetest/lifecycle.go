package storetest

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
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
		got, err := e.DueKeys(ctx, now, limit)
		if err != nil {
			t.Fatal(err)
		}
		var all []kms.DueKey
		for _, k := range keys {
			all = append(all, kms.DueKey{Tenant: k.Tenant.ID, Key: k.ID})
		}
		if len(got) != len(all) || len(all) > 0 && !slices.Equal(got, all) {
			t.Errorf("at %s: due are %v, want %v", now, got, all)
		}
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
	_, err := e.DueKeys(ctx, start, 0)
	wantKind(t, "no limit", err, kms.KindInvalidArgument)
}

// The numbers of the test of nonces: leases that meet.
const (
	lessees = 8
	leases  = 20 // of each
)

func testNonces(t *testing.T, open func(*testing.T) keystore.Driver) {
	e := newEnv(t, open(t))
	ctx := t.Context()
	tenant := e.tenant(t, "nonces")
	k := e.key(t, tenant, "nonces")

	t.Run("NoTwoLeasesOverlap", func(t *testing.T) {
		other := newEnv(t, e.driver) // another process's store
		var mu sync.Mutex
		totals := map[uint64]bool{}
		var group sync.WaitGroup
		for i := range lessees {
			store := []*env{e, other}[i%2]
			group.Go(func() {
				for range leases {
					total, err := store.LeaseNonces(ctx, tenant.ID, k.ID, 1, 1<<10)
					mu.Lock()
					if err != nil || totals[total] || total%(1<<10) != 0 {
						t.Errorf("LeaseNonces = %d, %v; had it already: %v", total, err, totals[total])
					}
					totals[total] = true
					mu.Unlock()
				}
			})
		}
		group.Wait()
		if want := uint64(lessees * leases << 10); !totals[want] || len(totals) != lessees*leases {
			t.Errorf("%d leases, of which none ends at %d", len(totals), want)
		}
	})
	t.Run("VersionsAreCountedApart", func(t *testing.T) {
		if _, err := e.AddVersion(ctx, tenant.ID, k.ID, 1, sampleVersion(2)); err != nil {
			t.Fatal(err)
		}
		if total, err := e.LeaseNonces(ctx, tenant.ID, k.ID, 2, 5); err != nil || total != 5 {
			t.Errorf("LeaseNonces = %d, %v; want 5", total, err)
		}
		if got := e.lookup(t, tenant.ID, k.Name); got.Revision != 2 {
			t.Errorf("leases changed the revision to %d", got.Revision)
		}
	})
	t.Run("WhatIsNotThereHasNone", func(t *testing.T) {
		if _, err := e.LeaseNonces(ctx, tenant.ID, k.ID, 3, 1); err != kms.ErrNotFound {
			t.Errorf("no such version: %v", err)
		}
		if _, err := e.LeaseNonces(ctx, tenant.ID, uuid.NewV7(), 1, 1); err != kms.ErrNotFound {
			t.Errorf("no such key: %v", err)
		}
		_, err := e.LeaseNonces(ctx, tenant.ID, k.ID, 1, 1<<63)
		wantKind(t, "more than can be counted", err, kms.KindInvalidArgument)
	})
}

// touches is more than one transaction stores.
const touches = 1200

func testLastUses(t *testing.T, open func(*testing.T) keystore.Driver) {
	e := newEnv(t, open(t))
	ctx := t.Context()
	tenant, other := e.tenant(t, "uses"), e.tenant(t, "other-uses")
	k, c := e.key(t, tenant, "used"), e.credential(t, tenant.ID, "used")
	warm := e.lookup(t, tenant.ID, k.Name)
	key := func(at time.Time, op kms.Op) kms.KeyUse {
		return kms.KeyUse{Tenant: tenant.ID, Key: k.ID, Time: at, Op: op}
	}
	credential := func(at time.Time, address string) kms.CredentialUse {
		return kms.CredentialUse{Tenant: tenant.ID, Credential: c.ID, Time: at, Address: address}
	}
	stored := func(t *testing.T, at time.Time, op kms.Op, address string) {
		t.Helper()
		again := newEnv(t, e.driver)
		if got := again.lookup(t, tenant.ID, k.Name); !got.LastUsed.Equal(at) || got.LastUsedOp != op || got.Revision != 1 {
			t.Errorf("the key was last used at %s for %q, revision %d; want %s for %q, revision 1", got.LastUsed, got.LastUsedOp, got.Revision, at, op)
		}
		if got, err := again.Credential(ctx, tenant.ID, c.ID); err != nil || !got.LastUsed.Equal(at) || got.LastAddress != address || got.Revision != 1 {
			t.Errorf("the credential is %+v, %v", got, err)
		}
	}
	touch := func(t *testing.T, keys []kms.KeyUse, credentials []kms.CredentialUse) {
		t.Helper()
		if err := e.TouchKeys(ctx, keys); err != nil {
			t.Fatal(err)
		}
		if err := e.TouchCredentials(ctx, credentials); err != nil {
			t.Fatal(err)
		}
	}
	later := start.Add(time.Minute)

	t.Run("TheLatestStays", func(t *testing.T) {
		stored(t, time.Time{}, "", "")
		touch(t, []kms.KeyUse{key(later, kms.OpDecrypt), key(start, kms.OpEncrypt)},
			[]kms.CredentialUse{credential(later, "192.0.2.1"), credential(start, "192.0.2.2")})
		stored(t, later, kms.OpDecrypt, "192.0.2.1")
		touch(t, []kms.KeyUse{key(later, kms.OpEncrypt)}, []kms.CredentialUse{credential(start, "192.0.2.3")})
		stored(t, later, kms.OpDecrypt, "192.0.2.1")
	})
	t.Run("CachesStay", func(t *testing.T) {
		if got := e.lookup(t, tenant.ID, k.Name); got != warm {
			t.Error("a use dropped the key from the cache")
		}
	})
	t.Run("UsesOfAnotherTenantsObjectsChangeNothing", func(t *testing.T) {
		touch(t, []kms.KeyUse{{Tenant: other.ID, Key: k.ID, Time: later.Add(time.Hour), Op: kms.OpMAC}, {Tenant: tenant.ID, Key: uuid.NewV7(), Time: later}},
			[]kms.CredentialUse{{Tenant: other.ID, Credential: c.ID, Time: later.Add(time.Hour), Address: "192.0.2.9"}})
		stored(t, later, kms.OpDecrypt, "192.0.2.1")
	})
	t.Run("ManyAtOnceFromTwoProcesses", func(t *testing.T) {
		second := e.key(t, other, "used")
		var group sync.WaitGroup
		for _, store := range []*env{e, newEnv(t, e.driver)} {
			var uses []kms.KeyUse
			for i := range touches {
				at := later.Add(time.Duration(i) * time.Second)
				uses = append(uses, key(at, kms.OpEncrypt), kms.KeyUse{Tenant: other.ID, Key: second.ID, Time: at, Op: kms.OpEncrypt})
			}
			group.Go(func() {
				if err := store.TouchKeys(ctx, uses); err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
		want := later.Add((touches - 1) * time.Second)
		if got := newEnv(t, e.driver).lookup(t, other.ID, "used"); !got.LastUsed.Equal(want) {
			t.Errorf("last used at %s, want %s", got.LastUsed, want)
		}
	})
	t.Run("DestroyedKeysStayAsTheyAre", func(t *testing.T) {
		gone := e.key(t, tenant, "gone")
		if err := e.DestroyKey(ctx, tenant.ID, gone.ID, 1); err != nil {
			t.Fatal(err)
		}
		touch(t, []kms.KeyUse{{Tenant: tenant.ID, Key: gone.ID, Time: later, Op: kms.OpMAC}}, nil)
		row, err := e.driver.Key(ctx, keystore.KeyParams{Tenant: tenant.ID, ID: gone.ID})
		if err != nil || !row.LastUsed.Null {
			t.Errorf("the tombstone is %+v, %v", row, err)
		}
	})
	t.Run("AddressIsText", func(t *testing.T) {
		wantKind(t, "address", e.TouchCredentials(ctx, []kms.CredentialUse{credential(later, "\x00")}), kms.KindInvalidArgument)
	})
}

func testAliases(t *testing.T, open func(*testing.T) keystore.Driver) {
	e := newEnv(t, open(t))
	ctx := t.Context()
	tenant, other := e.tenant(t, "aliases"), e.tenant(t, "other-aliases")
	a, b := e.key(t, tenant, "key-a"), e.key(t, tenant, "key-b")
	set := func(t *testing.T, k *kms.Key, alias string) {
		t.Helper()
		if err := e.SetAlias(ctx, tenant.ID, k.ID, alias); err != nil {
			t.Fatalf("SetAlias(%s, %s): %v", k.Name, alias, err)
		}
	}
	wantAliases := func(t *testing.T, k *kms.Key, want ...string) {
		t.Helper()
		if got, err := e.KeyAliases(ctx, tenant.ID, k.ID); err != nil || !slices.Equal(got, want) {
			t.Errorf("KeyAliases(%s) = %q, %v; want %q", k.Name, got, err, want)
		}
	}
	t.Run("AliasFindsItsKeyAndMoves", func(t *testing.T) {
		if _, err := e.Lookup(ctx, tenant.ID, "current"); err != kms.ErrNotFound {
			t.Errorf("before: %v", err)
		}
		for _, k := range []*kms.Key{a, b, b, a} {
			set(t, k, "current")
			if got := e.lookup(t, tenant.ID, "current"); got.ID != k.ID || got != e.lookup(t, tenant.ID, k.Name) {
				t.Errorf("the alias leads to %s, want %s", got.Name, k.Name)
			}
		}
		wantAliases(t, a, "current")
		wantAliases(t, b)
		if err := e.DeleteAlias(ctx, tenant.ID, "current"); err != nil {
			t.Fatal(err)
		}
		if _, err := e.Lookup(ctx, tenant.ID, "current"); err != kms.ErrNotFound {
			t.Errorf("afterwards: %v", err)
		}
		if err := e.DeleteAlias(ctx, tenant.ID, "current"); err != kms.ErrNotFound {
			t.Errorf("deleting it again: %v", err)
		}
		e.lookup(t, tenant.ID, "key-a")
	})
	t.Run("NamesAndAliasesNeverTakeEachOthersPlace", func(t *testing.T) {
		set(t, a, "taken")
		wantKind(t, "a key named like an alias", e.CreateKey(ctx, sampleKey(tenant, "taken")), kms.KindConflict)
		wantKind(t, "an alias named like a key", e.SetAlias(ctx, tenant.ID, a.ID, "key-b"), kms.KindConflict)
		wantKind(t, "an alias named like its key", e.SetAlias(ctx, tenant.ID, a.ID, "key-a"), kms.KindConflict)
		if err := e.DeleteAlias(ctx, tenant.ID, "key-b"); err != kms.ErrNotFound {
			t.Errorf("deleting a name as an alias: %v", err)
		}
		if e.lookup(t, tenant.ID, "taken").ID != a.ID || e.lookup(t, tenant.ID, "key-b").ID != b.ID {
			t.Error("a name leads elsewhere")
		}
	})
	t.Run("OneOfAKeyAndAnAliasGetsTheName", func(t *testing.T) { testNameRace(t, e, tenant, a) })
	t.Run("TenantsHaveTheirOwn", func(t *testing.T) {
		theirs := e.key(t, other, "theirs")
		set(t, a, "shared-alias")
		if err := e.SetAlias(ctx, other.ID, theirs.ID, "shared-alias"); err != nil {
			t.Fatal(err)
		}
		if e.lookup(t, tenant.ID, "shared-alias").ID != a.ID || e.lookup(t, other.ID, "shared-alias").ID != theirs.ID {
			t.Error("aliases of two tenants meet")
		}
	})
	t.Run("ListsAreInByteOrder", func(t *testing.T) {
		lists := e.tenant(t, "alias-lists")
		k := e.key(t, lists, "named")
		for _, name := range trickyNames {
			if err := e.SetAlias(ctx, lists.ID, k.ID, name); err != nil {
				t.Fatal(err)
			}
		}
		want := slices.Sorted(slices.Values(trickyNames))
		if got, err := e.KeyAliases(ctx, lists.ID, k.ID); err != nil || !slices.Equal(got, want) {
			t.Errorf("KeyAliases = %q, %v; want %q", got, err, want)
		}
		checkPages(t, 4, want, func(p kms.Page) ([]string, string, error) {
			list, next, err := e.ListAliases(ctx, lists.ID, p)
			return namesOf(list, func(a kms.Alias) string { return a.Name }), next, err
		})
	})
	t.Run("UnusableAliasesAreRefused", func(t *testing.T) {
		for _, bad := range []string{"", "a b", uuid.NewV7().String(), strings.Repeat("x", kms.MaxNameLength+1)} {
			wantKind(t, "SetAlias", e.SetAlias(ctx, tenant.ID, a.ID, bad), kms.KindInvalidArgument)
			if err := e.DeleteAlias(ctx, tenant.ID, bad); err != kms.ErrNotFound {
				t.Errorf("DeleteAlias: %v", err)
			}
		}
		many := e.key(t, tenant, "many-aliases")
		for i := range keystore.MaxAliases {
			set(t, many, fmt.Sprintf("alias-%03d", i))
		}
		wantKind(t, "one too many", e.SetAlias(ctx, tenant.ID, many.ID, "alias-last"), kms.KindConflict)
	})
}

// testNameRace lets keys and aliases be created under one name at once.
func testNameRace(t *testing.T, e *env, tenant *kms.Tenant, k *kms.Key) {
	for round := range 10 {
		name := fmt.Sprint("raced-name-", round)
		results := make(chan error, 4)
		for i := range cap(results) {
			go func() {
				if i%2 == 0 {
					results <- e.CreateKey(t.Context(), sampleKey(tenant, name))
				} else {
					results <- e.SetAlias(t.Context(), tenant.ID, k.ID, name)
				}
			}()
		}
		created := 0
		for range cap(results) {
			switch err := <-results; {
			case err == nil:
				created++
			case kms.KindOf(err) != kms.KindConflict:
				t.Errorf("got %v", err)
			}
		}
		// An alias is set twice if the keys come too late.
		got := e.lookup(t, tenant.ID, name)
		if isKey := got.Name == name; isKey && created != 1 || !isKey && created != 2 {
			t.Errorf("%d calls succeeded; the name is that of %s", created, got.Name)
		}
	}
}
