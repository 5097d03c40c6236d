package keystore

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"uuid"

	"go.uber.org/goleak"

	"github.com/sluice-kms/sluice/kms"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newTestCache makes a cache of sizes by name, all in one shard, whose part of
// the limits is the given one.
func newTestCache(perShard limits, load func(context.Context, string) (int, error)) *cache[string, int] {
	c := &cache[string, int]{
		limits: limits{perShard.entries * cacheShards, perShard.bytes * cacheShards, perShard.absences * cacheShards},
		now:    time.Now,
		load:   load,
		hash:   func(maphash.Seed, string) uint64 { return 0 },
		size:   func(_ string, size int) int { return size },
	}
	c.init()
	return c
}

func mustGet(t *testing.T, c *cache[string, int], k string) int {
	t.Helper()
	v, err := c.get(t.Context(), k)
	if err != nil {
		t.Fatalf("get(%q): %v", k, err)
	}
	return v
}

func TestCacheStaysWithinItsBounds(t *testing.T) {
	load := func(_ context.Context, k string) (int, error) {
		if len(k)%3 == 0 {
			return 0, kms.ErrNotFound
		}
		return len(k) % 500, nil
	}
	bounds := limits{entries: 20, bytes: 5000, absences: 7}
	c := newTestCache(bounds, load)
	most := limits{}
	for i := range 5000 {
		k := fmt.Sprintf("%0*d", 4+i%700, i)
		if _, err := c.get(t.Context(), k); err != nil && err != kms.ErrNotFound {
			t.Fatal(err)
		}
		if i%3 == 0 {
			c.drop(fmt.Sprintf("%0*d", 4+(i-2)%700, i-2))
		}
		u := c.usage()
		if u.entries > bounds.entries || u.bytes > bounds.bytes || u.absences > bounds.absences {
			t.Fatalf("after %d look-ups: %+v, want at most %+v", i, u, bounds)
		}
		most = limits{max(most.entries, u.entries), max(most.bytes, u.bytes), max(most.absences, u.absences)}
	}
	if most.entries < 10 || most.bytes < 4000 || most.absences != bounds.absences {
		t.Errorf("the cache was never full: %+v", most)
	}
	for s := &c.shards[0]; len(s.entries) > 0; {
		c.drop(s.entries[0].key)
	}
	if u := c.usage(); u.entries != 0 || u.bytes != 0 {
		t.Errorf("dropping everything leaves %+v", u)
	}
}

// TestBytesOfTheCacheAreThoseOfTheHeap keeps the approximation honest: a bound
// in bytes that is wrong by a factor bounds nothing.
func TestBytesOfTheCacheAreThoseOfTheHeap(t *testing.T) {
	const objects = 20_000
	tenant := uuid.NewV7()
	s := New(fakeDriver{}, Options{})
	defer s.Close()
	next := uuid.NewV7
	text := func(n int) string { return string(make([]byte, n)) }
	s.tenants.load = func(_ context.Context, id uuid.UUID) (*kms.Tenant, error) {
		return &kms.Tenant{ID: id, Name: text(12), Tier: kms.TierGold, State: kms.TenantActive,
			Sealing: kms.SealingKey{Wrapped: make([]byte, 40)}}, nil
	}
	s.keys.load = func(_ context.Context, k keyID) (*boundKey, error) {
		b := &boundKey{key: kms.Key{ID: k.key, Project: text(7), Name: text(20), Spec: kms.SpecAES256,
			Usage: kms.UsageEncryptDecrypt, Protection: kms.ProtectionHSM, State: kms.KeyEnabled,
			Versions: []*kms.Version{{ID: next(), Number: 1, State: kms.VersionEnabled, Blob: make([]byte, 150)}}}}
		if k.key[15]%2 == 0 {
			b.key.Tags = map[string]string{text(8): text(8), text(9): text(12)}
			b.key.Versions[0].PublicKey = make([]byte, 294)
		}
		return b, nil
	}
	s.keyNames.load = func(context.Context, keyName) (uuid.UUID, error) { return next(), nil }
	s.credentials.load = func(_ context.Context, id uuid.UUID) (*kms.Credential, error) {
		return &kms.Credential{ID: id, Project: text(7), Name: text(10), Component: text(8),
			Scopes: []string{text(5), text(12)}, Secrets: []kms.CredentialSecret{{}}}, nil
	}
	for name, test := range map[string]struct {
		fill  func() error
		usage func() limits
	}{
		"tenants":     {func() error { _, err := s.tenants.get(t.Context(), next()); return err }, s.tenants.usage},
		"keys":        {func() error { _, err := s.keys.get(t.Context(), keyID{tenant, next()}); return err }, s.keys.usage},
		"key names":   {func() error { _, err := s.keyNames.get(t.Context(), keyName{tenant, next().String()}); return err }, s.keyNames.usage},
		"credentials": {func() error { _, err := s.credentials.get(t.Context(), next()); return err }, s.credentials.usage},
	} {
		before := heapBytes()
		for range objects {
			if err := test.fill(); err != nil {
				t.Fatal(err)
			}
		}
		real, counted := int(heapBytes()-before), test.usage().bytes
		t.Logf("%s: %d bytes each, counted as %d", name, real/objects, counted/objects)
		if counted < real*3/4 || counted > real*3/2 {
			t.Errorf("%s: %d bytes are counted as %d", name, real, counted)
		}
	}
}

func heapBytes() uint64 {
	runtime.GC()
	runtime.GC() // a second one frees what the first one finalised
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func TestObjectLargerThanItsShareIsKeptAlone(t *testing.T) {
	loads := 0
	c := newTestCache(limits{entries: 10, bytes: 1000, absences: 1}, func(_ context.Context, k string) (int, error) {
		loads++
		if k == "large" {
			return 100_000, nil
		}
		return 1, nil
	})
	mustGet(t, c, "small")
	for range 10 {
		mustGet(t, c, "large")
	}
	if u := c.usage(); loads != 2 || u.entries != 1 {
		t.Errorf("%d loads and %d entries, want 2 and 1", loads, u.entries)
	}
	mustGet(t, c, "small")
	if u := c.usage(); u.entries != 1 || u.bytes > 1000 {
		t.Errorf("the large object was not evicted: %+v", u)
	}
}

func TestScanDoesNotPushOutWhatIsUsed(t *testing.T) {
	loads := make(map[string]int)
	c := newTestCache(limits{entries: 10, bytes: 1 << 20, absences: 1}, func(_ context.Context, k string) (int, error) {
		loads[k]++
		return 1, nil
	})
	used := []string{"a", "b", "c", "d", "e"}
	for i := range 1000 {
		for _, k := range used {
			mustGet(t, c, k)
		}
		mustGet(t, c, fmt.Sprint("scanned-", i))
	}
	for _, k := range used {
		if loads[k] != 1 {
			t.Errorf("%q was loaded %d times, want once", k, loads[k])
		}
	}
}

// TestWhatIsUsedNowDisplacesWhatWasUsedOnce is the opposite case: a hand that
// stays where it evicted meets only what came last, which never gets the time to
// be used again.
func TestWhatIsUsedNowDisplacesWhatWasUsedOnce(t *testing.T) {
	loads := make(map[string]int)
	c := newTestCache(limits{entries: 10, bytes: 1 << 20, absences: 1}, func(_ context.Context, k string) (int, error) {
		loads[k]++
		return 1, nil
	})
	for i := range 10 {
		mustGet(t, c, fmt.Sprint("old-", i))
	}
	for range 100 {
		for i := range 5 {
			mustGet(t, c, fmt.Sprint("new-", i))
		}
	}
	for i := range 5 {
		if n := loads[fmt.Sprint("new-", i)]; n != 1 {
			t.Errorf("new-%d was loaded %d times, want once", i, n)
		}
	}
}

func TestConcurrentLookUpsShareOneLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var loads atomic.Int32
		gate := make(chan struct{})
		c := newTestCache(limits{10, 1000, 1}, func(context.Context, string) (int, error) {
			loads.Add(1)
			<-gate
			return 7, nil
		})
		var group sync.WaitGroup
		for range 50 {
			group.Go(func() {
				if v := mustGet(t, c, "k"); v != 7 {
					t.Errorf("got %d", v)
				}
			})
		}
		synctest.Wait()
		close(gate)
		group.Wait()
		if n := loads.Load(); n != 1 {
			t.Errorf("%d loads, want 1", n)
		}
	})
}

// A change that is stored but not acknowledged yet is seen by those who load now
// and not by those who find what was cached before. A load that was dropped is
// both: it may read the change after the cache was filled with what was before.
func TestALoadThatWasDroppedIsNotSeenBeforeAnOlderOne(t *testing.T) {
	for name, waits := range map[string]bool{"who loads": false, "who waits": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var stored, loads atomic.Int32
				gate := make(chan struct{})
				c := newTestCache(limits{10, 1000, 1}, func(context.Context, string) (int, error) {
					if loads.Add(1) == 1 {
						<-gate
					}
					return int(stored.Load()), nil
				})
				stored.Store(2)
				seen := make(chan int, 2)
				look := func() { seen <- mustGet(t, c, "k") }
				go look()
				if waits {
					synctest.Wait()
					go look()
				}
				synctest.Wait()
				c.drop("k")
				if v := mustGet(t, c, "k"); v != 2 {
					t.Fatalf("got %d", v)
				}
				stored.Store(3)
				close(gate)
				synctest.Wait()
				for n := len(seen); n > 0; n-- {
					if first, next := <-seen, mustGet(t, c, "k"); next < first {
						t.Errorf("read %d after %d", next, first)
					}
				}
				c.drop("k") // and now it is acknowledged
				if v := mustGet(t, c, "k"); v != 3 {
					t.Errorf("got %d after the change", v)
				}
			})
		})
	}
}

// Changes without an end do not keep a look-up for ever.
func TestChangesDuringEveryLoadDoNotHoldALookUp(t *testing.T) {
	var c *cache[string, int]
	loads := 0
	c = newTestCache(limits{10, 1000, 1}, func(context.Context, string) (int, error) {
		loads++
		c.drop("k")
		return loads, nil
	})
	if v := mustGet(t, c, "k"); v != maxReloads+1 {
		t.Errorf("got the value of load %d, want %d", v, maxReloads+1)
	}
}

func TestEndOfTheFirstIsNotTheEndOfTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var loads atomic.Int32
		c := newTestCache(limits{10, 1000, 1}, func(ctx context.Context, _ string) (int, error) {
			if loads.Add(1) == 1 {
				<-ctx.Done()
				return 0, translate(ctx.Err())
			}
			return 7, nil
		})
		ctx, end := context.WithCancel(t.Context())
		first := make(chan error, 1)
		go func() {
			_, err := c.get(ctx, "k")
			first <- err
		}()
		synctest.Wait()
		var group sync.WaitGroup
		for range 10 {
			group.Go(func() { mustGet(t, c, "k") })
		}
		synctest.Wait()
		end()
		group.Wait()
		if err := <-first; !errors.Is(err, context.Canceled) {
			t.Errorf("the first one got %v", err)
		}
		if n := loads.Load(); n != 2 {
			t.Errorf("%d loads, want 2", n)
		}
	})
}

func TestWaitingEndsWithTheOwnContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		c := newTestCache(limits{10, 1000, 1}, func(context.Context, string) (int, error) {
			<-gate
			return 7, nil
		})
		go c.get(t.Context(), "k")
		synctest.Wait()
		ctx, end := context.WithTimeout(t.Context(), time.Second)
		defer end()
		if _, err := c.get(ctx, "k"); !errors.Is(err, context.DeadlineExceeded) || kms.KindOf(err) != kms.KindStoreUnavailable {
			t.Errorf("got %v", err)
		}
		close(gate)
		synctest.Wait()
		if v := mustGet(t, c, "k"); v != 7 {
			t.Errorf("got %d", v)
		}
	})
}

func TestPanicOfALoadFreesThoseWhoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var loads atomic.Int32
		gate := make(chan struct{})
		c := newTestCache(limits{10, 1000, 1}, func(context.Context, string) (int, error) {
			if loads.Add(1) == 1 {
				<-gate
				panic("the driver is broken")
			}
			return 7, nil
		})
		go func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic was swallowed")
				}
			}()
			c.get(t.Context(), "k")
		}()
		synctest.Wait()
		second := make(chan int)
		go func() { second <- mustGet(t, c, "k") }()
		synctest.Wait()
		close(gate)
		if v := <-second; v != 7 {
			t.Errorf("got %d", v)
		}
	})
}

func TestOnlyLastingErrorsAreRemembered(t *testing.T) {
	damaged := translate(&RowError{Object: ObjectKey, Column: "state", Reason: reasonUnknown})
	for name, test := range map[string]struct {
		err   error
		loads int
	}{
		"missing":     {kms.ErrNotFound, 1},
		"damaged":     {damaged, 1},
		"unavailable": {translate(errors.New("down")), 3},
		"cancelled":   {translate(context.Canceled), 3},
	} {
		t.Run(name, func(t *testing.T) {
			loads := 0
			c := newTestCache(limits{10, 1000, 10}, func(context.Context, string) (int, error) {
				loads++
				return 0, test.err
			})
			for range 3 {
				if _, err := c.get(t.Context(), "k"); err != test.err {
					t.Errorf("got %v, want %v", err, test.err)
				}
			}
			if loads != test.loads {
				t.Errorf("%d loads, want %d", loads, test.loads)
			}
		})
	}
}

func TestSwapReplacesOnlyWhatItSaw(t *testing.T) {
	c := newTestCache(limits{10, 1000, 10}, func(context.Context, string) (int, error) { return 1, nil })
	c.swap("k", 1, 2) // nothing there
	mustGet(t, c, "k")
	c.swap("k", 5, 6)
	if v := mustGet(t, c, "k"); v != 1 {
		t.Errorf("got %d, want 1", v)
	}
	c.swap("k", 1, 2)
	if v := mustGet(t, c, "k"); v != 2 {
		t.Errorf("got %d, want 2", v)
	}
}

// TestNoReadIsOlderThanTheLastAcknowledgedWrite runs writers and readers over
// a cache so small that entries are evicted all the time, which is where a
// comparison of revisions on insertion would fail.
func TestNoReadIsOlderThanTheLastAcknowledgedWrite(t *testing.T) {
	const (
		objects = 6
		writes  = 3000 // of each object
	)
	names := make([]string, objects)
	index := make(map[string]int)
	for i := range names {
		names[i] = fmt.Sprint("object-", i)
		index[names[i]] = i
	}
	var stored, acknowledged [objects]atomic.Int64
	c := newTestCache(limits{entries: 2, bytes: 1 << 30, absences: 2}, func(_ context.Context, k string) (int, error) {
		revision := stored[index[k]].Load()
		if revision%7 == 0 {
			return 0, kms.ErrNotFound // sometimes it is not there
		}
		return int(revision), nil
	})
	c.size = func(string, int) int { return 1 }
	var writers, readers sync.WaitGroup
	done := make(chan struct{})
	for i, name := range names {
		writers.Go(func() {
			for revision := int64(1); revision <= writes; revision++ {
				stored[i].Store(revision)
				c.drop(name)
				acknowledged[i].Store(revision)
			}
		})
		readers.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				oldest := acknowledged[i].Load()
				got, err := c.get(context.Background(), name)
				newest := stored[i].Load()
				if err == nil && (int64(got) < oldest || int64(got) > newest) || err != nil && newest-oldest < 7 && !spansMultiple(oldest, newest) {
					t.Errorf("read revision %d, %v; want %d to %d", got, err, oldest, newest)
				}
			}
		})
	}
	writers.Wait()
	close(done)
	readers.Wait()
}

// spansMultiple tells whether low to high holds a multiple of seven.
func spansMultiple(low, high int64) bool { return high/7*7 >= low }

func TestOneTenantsLoadsLeaveRoomForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		greedy, modest := uuid.NewV7(), uuid.NewV7()
		g := newLoadGate()
		finish := make(chan struct{})
		var loading atomic.Int32
		var group sync.WaitGroup
		for range 10 * maxTenantLoads {
			group.Go(func() {
				leave, err := g.enter(t.Context(), greedy)
				if err != nil {
					t.Error(err)
					return
				}
				loading.Add(1)
				<-finish
				loading.Add(-1)
				leave()
			})
		}
		synctest.Wait()
		if n := loading.Load(); n != maxTenantLoads {
			t.Errorf("%d loads of one tenant at a time, want %d", n, maxTenantLoads)
		}
		leave, err := g.enter(t.Context(), modest)
		if err != nil {
			t.Fatal(err)
		}
		leave()
		ctx, end := context.WithTimeout(t.Context(), time.Second)
		defer end()
		if _, err := g.enter(ctx, greedy); err != context.DeadlineExceeded {
			t.Errorf("waiting for a place ended with %v", err)
		}
		close(finish)
		group.Wait()
		if len(g.tenants) != 0 {
			t.Errorf("%d tenants are remembered by the gate", len(g.tenants))
		}
	})
}
