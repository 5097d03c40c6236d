package storetest

import (
	"sync"
	"testing"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/keystore"
	"github.com/sluice-kms/sluice/kms"
)

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
