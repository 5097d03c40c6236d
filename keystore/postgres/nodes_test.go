package postgres

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/keystore"
	"github.com/sluice-kms/sluice/keystore/postgres/pgtest"
	"github.com/sluice-kms/sluice/keystore/storetest"
	"github.com/sluice-kms/sluice/kms"
)

// reach is how long a change may take to take effect everywhere.
const reach = time.Second

// patience is how long a test waits for what should have happened long ago.
const patience = 30 * time.Second

// openStore opens a store as one more process on a database would.
func openStore(t testing.TB, driver keystore.Driver, staleness time.Duration) *keystore.Store {
	t.Helper()
	store := keystore.New(driver, keystore.Options{Staleness: staleness})
	t.Cleanup(func() { store.Close() })
	if err := storetest.Bootstrap(t.Context(), store, nil); err != nil {
		t.Fatal(err)
	}
	return store
}

func openDriver(t testing.TB, url string) *DB {
	t.Helper()
	db, err := Open(t.Context(), Config{URL: url}) // its store closes it
	if err != nil {
		t.Fatal(err)
	}
	return db
}

// eventually asks until the answer is yes, and returns how long it took.
func eventually(t testing.TB, what string, answer func() bool) time.Duration {
	t.Helper()
	began := time.Now()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !answer() {
		if time.Since(began) > patience {
			t.Fatalf("%s: not after %s", what, patience)
		}
		<-tick.C
	}
	return time.Since(began)
}

// deaf is a database whose announcements do not come through.
type deaf struct{ *DB }

func (deaf) Announcements(ctx context.Context, _ func()) error {
	<-ctx.Done()
	return ctx.Err()
}

func TestChangesTakeEffectOnOtherProcessesInASecond(t *testing.T) {
	urls := newDatabase(t)
	here := openStore(t, openDriver(t, urls.Service), 0)
	t.Run("announced", func(t *testing.T) {
		testReach(t, here, openStore(t, openDriver(t, urls.Service), 0), 20, reach)
	})
	// Only what is announced is promised within a second; polling takes as
	// long as its interval and what two polls cost.
	t.Run("polled", func(t *testing.T) {
		testReach(t, here, openStore(t, deaf{openDriver(t, urls.Service)}, 0), 1, reach+reach/2)
	})
}

func testReach(t *testing.T, here, there *keystore.Store, rounds int, bound time.Duration) {
	ctx := t.Context()
	var slowest time.Duration
	for round := range rounds {
		tenant := storetest.Fill(t, here, fmt.Sprintf("reach-%d-%d", rounds, round))
		keys, _, err := here.ListKeys(ctx, tenant, "", kms.Page{Size: 10})
		if err != nil {
			t.Fatal(err)
		}
		credentials, _, err := here.ListCredentials(ctx, tenant, kms.Page{Size: 10})
		if err != nil {
			t.Fatal(err)
		}
		first, second, credential := keys[0], keys[1], credentials[0]
		alias := first.Name + "-moving"
		if err := here.SetAlias(ctx, tenant, first.ID, alias); err != nil {
			t.Fatal(err)
		}
		lookup := func(ref string) *kms.Key {
			k, err := there.Lookup(ctx, tenant, ref)
			if err != nil && kms.KindOf(err) != kms.KindNotFound {
				t.Fatal(err)
			}
			return k
		}
		seen := func(what string, change func() error, effect func() bool) {
			t.Helper()
			if effect() {
				t.Fatalf("%s: it is so before", what)
			}
			if err := change(); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			slowest = max(slowest, eventually(t, what, effect))
		}
		state, suspended, now := kms.KeyDisabled, kms.TenantSuspended, time.Now()
		seen("a key is disabled", func() error {
			_, err := here.UpdateKey(ctx, tenant, first.ID, first.Revision, kms.KeyChange{State: &state})
			return err
		}, func() bool { return lookup(first.Name).State == state })
		seen("an alias is moved", func() error { return here.SetAlias(ctx, tenant, second.ID, alias) },
			func() bool { return lookup(alias).ID == second.ID })
		seen("a credential is revoked", func() error {
			_, err := here.UpdateCredential(ctx, tenant, credential.ID, credential.Revision, kms.CredentialChange{Revoked: &now})
			return err
		}, func() bool {
			c, err := there.CredentialForAuthentication(ctx, credential.ID)
			return err == nil && !c.Revoked.IsZero()
		})
		seen("a key is destroyed", func() error { return here.DestroyKey(ctx, tenant, second.ID, second.Revision) },
			func() bool { return lookup(second.ID.String()) == nil && lookup(alias) == nil })
		seen("its name is another's", func() error { return here.SetAlias(ctx, tenant, first.ID, second.Name) },
			func() bool { k := lookup(second.Name); return k != nil && k.ID == first.ID })
		seen("the tenant is suspended", func() error {
			_, err := here.UpdateTenant(ctx, tenant, 1, kms.TenantChange{State: &suspended})
			return err
		}, func() bool { return lookup(first.Name).Tenant.State == suspended })
		seen("the tenant is deleted", func() error {
			_, err := here.DeleteTenant(ctx, tenant, 2, now, now)
			return err
		}, func() bool {
			found, err := there.Tenant(ctx, tenant)
			return err == nil && found.Deleted() && found.Sealing.Wrapped == nil
		})
	}
	t.Logf("the slowest of %d changes took %s", 7*rounds, slowest.Round(time.Microsecond))
	if slowest > bound {
		t.Errorf("a change took %s, want at most %s", slowest, bound)
	}
}

// TestOverlappingTransactionsHideNoChange commits a change after a later one
// was read.
func TestOverlappingTransactionsHideNoChange(t *testing.T) {
	ctx := t.Context()
	db := openTest(t, newDatabase(t).Service)
	tenants := fill(t, db)
	read := func(since string) (string, []keystore.ChangeRow) {
		t.Helper()
		r, err := db.Changes(ctx, keystore.ChangesParams{Since: since, Limit: 100})
		if err != nil {
			t.Fatal(err)
		}
		return r.Position, r.Changes
	}
	touch := `UPDATE tenants SET revision = revision + 1 WHERE id = $1`
	position, changes := read("")
	if len(changes) != 0 {
		t.Errorf("%d changes since nothing", len(changes))
	}
	early, err := db.pool.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer early.Rollback(ctx)
	if err := (transaction{early}).setTenant(ctx, tenants[0]); err != nil {
		t.Fatal(err)
	}
	if _, err := early.Exec(ctx, touch, id(tenants[0])); err != nil {
		t.Fatal(err)
	}
	err = db.write(ctx, tenants[1], func(tx transaction) error { _, err := tx.exec(ctx, touch, id(tenants[1])); return err })
	if err != nil {
		t.Fatal(err)
	}
	expect := func(want ...uuid.UUID) {
		t.Helper()
		position, changes = read(position)
		if len(changes) != len(want) {
			t.Fatalf("%d changes, want %d", len(changes), len(want))
		}
		for i, w := range want {
			if uuid.UUID(changes[i].ID.Bytes) != w {
				t.Errorf("change %d is of another object", i)
			}
		}
	}
	expect(tenants[1])
	expect()
	if err := early.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	expect(tenants[0])
	expect()
}

func TestCutChannelFailsClosedAndRecovers(t *testing.T) {
	const staleness = 2 * time.Second
	ctx := t.Context()
	server, urls := pgtest.Require(t), newDatabase(t)
	here := openStore(t, openDriver(t, urls.Service), 0)
	p, through := newProxy(t, server, urls.Service)
	there := openStore(t, openDriver(t, through), staleness)
	tenant := storetest.Fill(t, here, "cut")
	keys, _, err := here.ListKeys(ctx, tenant, "", kms.Page{Size: 1})
	if err != nil {
		t.Fatal(err)
	}
	k := keys[0]
	lookup := func() (*kms.Key, error) { return there.Lookup(ctx, tenant, k.Name) }
	if _, err := lookup(); err != nil {
		t.Fatal(err)
	}

	p.set(true)
	began := time.Now()
	state := kms.KeyDisabled
	if _, err := here.UpdateKey(ctx, tenant, k.ID, k.Revision, kms.KeyChange{State: &state}); err != nil {
		t.Fatal(err)
	}
	if got, err := lookup(); err != nil || got.State == state {
		t.Fatalf("while it may be stale: %+v, %v", got, err)
	}
	eventually(t, "the stale key is refused", func() bool {
		got, err := lookup()
		if err == nil && time.Since(began) > staleness+time.Second {
			t.Fatalf("still served after %s: %+v", time.Since(began), got)
		}
		return err != nil && kms.KindOf(err) == kms.KindStoreUnavailable
	})
	closed := time.Since(began)

	p.set(false)
	recovered := eventually(t, "the change is seen", func() bool {
		got, err := lookup()
		if err == nil && got.State != state {
			t.Fatal("the old state is served again")
		}
		return err == nil
	})
	t.Logf("cut: refused after %s of a bound of %s; restored: serving after %s", closed.Round(time.Millisecond), staleness, recovered.Round(time.Millisecond))
	if closed > staleness {
		t.Errorf("refused after %s, want at most %s", closed, staleness)
	}
}

// The load of the test below.
const (
	loadWorkers = 4
	outages     = 3
	// between is how many acknowledged changes come between two outages.
	between = 50
)

func TestServerStoppedUnderLoadLosesNothingAcknowledged(t *testing.T) {
	ctx := t.Context()
	server, urls := pgtest.Require(t), newDatabase(t)
	store := openStore(t, openDriver(t, urls.Service), 0)
	tenant := storetest.Fill(t, store, "load")
	owner, err := store.Tenant(ctx, tenant)
	if err != nil {
		t.Fatal(err)
	}
	var acknowledged, failed atomic.Int64
	var mu sync.Mutex
	created := map[uuid.UUID]bool{}
	done := make(chan struct{})
	var group sync.WaitGroup
	for range loadWorkers {
		group.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				k := storetest.SampleKey(owner, "key-"+uuid.NewV7().String())
				switch err := store.CreateKey(ctx, k); {
				case err == nil:
					mu.Lock()
					created[k.ID] = true
					mu.Unlock()
					acknowledged.Add(1)
				case kms.KindOf(err) == kms.KindStoreUnavailable:
					failed.Add(1)
				default:
					t.Errorf("CreateKey: %v", err)
					return
				}
			}
		})
	}
	more := func() {
		want := acknowledged.Load() + between
		eventually(t, "changes go on", func() bool { return acknowledged.Load() >= want })
	}
	for range outages {
		more()
		if err := server.Stop(); err != nil {
			t.Fatal(err)
		}
		before := failed.Load()
		eventually(t, "changes are refused", func() bool { return failed.Load() > before })
		if err := server.Start(); err != nil {
			t.Fatal(err)
		}
	}
	more()
	close(done)
	group.Wait()
	again := openStore(t, openDriver(t, urls.Service), 0)
	for id := range created {
		if _, err := again.Lookup(ctx, tenant, id.String()); err != nil {
			t.Errorf("an acknowledged key: %v", err)
		}
	}
	t.Logf("%d outages, %d creates acknowledged, none lost, %d refused", outages, acknowledged.Load(), failed.Load())
}

// BenchmarkWarmLookupWhileFollowing measures what it costs a warm look-up that
// other processes may change the key.
func BenchmarkWarmLookupWhileFollowing(b *testing.B) {
	ctx := b.Context()
	store := openStore(b, openDriver(b, newDatabase(b).Service), 0)
	system, err := store.TenantByRef(ctx, kms.SystemTenantName)
	if err != nil {
		b.Fatal(err)
	}
	k := storetest.SampleKey(system, "warm")
	if err := store.CreateKey(ctx, k); err != nil {
		b.Fatal(err)
	}
	ref := k.ID.String()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := store.Lookup(ctx, system.ID, ref); err != nil {
				b.Error(err)
				return
			}
		}
	})
}
