package hsm

import (
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"uuid"
)

// bench is a cache with a token that counts.
type cacheBench struct {
	*handleCache
	mu       sync.Mutex
	live     map[Handle]uuid.UUID
	next     Handle
	unloaded int
}

// tenant has the keys of tests in which it does not matter whose they are.
var tenant = uuid.New()

func newCacheBench(max int) *cacheBench {
	b := &cacheBench{live: map[Handle]uuid.UUID{}}
	b.handleCache = newHandleCache(max, func(h Handle) error {
		b.mu.Lock()
		defer b.mu.Unlock()
		if _, ok := b.live[h]; !ok {
			return errors.New("no such handle")
		}
		delete(b.live, h)
		b.unloaded++
		return nil
	}, time.Now)
	return b
}

// acquire is handleCache.acquire of a key that nobody will load elsewhere.
func (b *cacheBench) acquire(tenant, id uuid.UUID, load func() (Handle, error)) (*cacheEntry, bool, error) {
	return b.handleCache.acquire(tenant, id, source{}, load)
}

func (b *cacheBench) load(id uuid.UUID) func() (Handle, error) {
	return func() (Handle, error) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.next++
		b.live[b.next] = id
		return b.next, nil
	}
}

func (b *cacheBench) isLive(h Handle, id uuid.UUID) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.live[h] == id
}

func TestKeyIsLoadedOnceHoweverManyAsk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newCacheBench(100)
		id := uuid.New()
		var loads atomic.Int32
		var handles sync.Map
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				e, cold, err := b.acquire(tenant, id, func() (Handle, error) {
					loads.Add(1)
					time.Sleep(time.Second) // virtual: all others are waiting by now
					return b.load(id)()
				})
				if err != nil || !cold {
					t.Errorf("cold = %v, error = %v", cold, err)
					return
				}
				handles.Store(e.handle, true)
				b.release(e)
			})
		}
		wg.Wait()
		if loads.Load() != 1 {
			t.Errorf("%d loads", loads.Load())
		}
		if _, cold, _ := b.acquire(tenant, id, b.load(id)); cold {
			t.Error("a loaded key is cold")
		}
	})
}

func TestHandleInUseIsNotDestroyed(t *testing.T) {
	b := newCacheBench(cacheShards) // one entry a shard
	inUse := uuid.New()
	e, _, err := b.acquire(tenant, inUse, b.load(inUse))
	if err != nil {
		t.Fatal(err)
	}
	for range 1000 {
		id := uuid.New()
		other, _, err := b.acquire(tenant, id, b.load(id))
		if err != nil {
			t.Fatal(err)
		}
		b.release(other)
	}
	if !b.isLive(e.handle, inUse) {
		t.Error("the handle was destroyed under its user")
	}
	b.drop(e)
	if !b.isLive(e.handle, inUse) {
		t.Error("dropping destroyed the handle under its user")
	}
	b.release(e)
	if b.isLive(e.handle, inUse) {
		t.Error("the last user did not destroy the dropped handle")
	}
}

func TestFailedLoadIsToldToAllAndTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newCacheBench(100)
		id := uuid.New()
		broken := errors.New("token says no")
		var failures atomic.Int32
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				_, _, err := b.acquire(tenant, id, func() (Handle, error) {
					time.Sleep(time.Second)
					return 0, broken
				})
				if errors.Is(err, broken) {
					failures.Add(1)
				}
			})
		}
		wg.Wait()
		if failures.Load() != 10 {
			t.Errorf("%d of 10 were told", failures.Load())
		}
		if _, _, err := b.acquire(tenant, id, b.load(id)); err != nil {
			t.Errorf("error = %v after the token recovered", err)
		}
	})
}

func TestPanicInALoadFailsIt(t *testing.T) {
	b := newCacheBench(100)
	id := uuid.New()
	if _, _, err := b.acquire(tenant, id, func() (Handle, error) { panic("x") }); err == nil {
		t.Error("no error")
	}
	if _, _, err := b.acquire(tenant, id, b.load(id)); err != nil {
		t.Errorf("error = %v", err)
	}
}

func TestCacheKeepsItsBound(t *testing.T) {
	const max = 64
	b := newCacheBench(max)
	for range 10_000 {
		id := uuid.New()
		e, _, err := b.acquire(tenant, id, b.load(id))
		if err != nil {
			t.Fatal(err)
		}
		b.release(e)
	}
	// A shard is trimmed when its next key comes, so each may hold one more.
	if n, _, _ := b.stats(); n > max+cacheShards {
		t.Errorf("%d keys in a cache of %d", n, max)
	}
	if n, _, _ := b.stats(); n != len(b.live) {
		t.Errorf("%d in the cache, %d live in the token", n, len(b.live))
	}
}

// A tenant who cycles through more keys than fit costs the others nothing.
func TestATenantWhoCyclesKeysEvictsOnlyHisOwn(t *testing.T) {
	const max, others, keysEach = 64 * cacheShards, 20, 20
	b := newCacheBench(max)
	use := func(tenant, id uuid.UUID) (cold bool) {
		e, cold, err := b.acquire(tenant, id, b.load(id))
		if err != nil {
			t.Fatal(err)
		}
		b.release(e)
		return cold
	}
	keys := map[uuid.UUID][]uuid.UUID{}
	for range others {
		tenant := uuid.New()
		for range keysEach {
			id := uuid.New()
			use(tenant, id)
			keys[tenant] = append(keys[tenant], id)
		}
	}
	greedy := make([]uuid.UUID, 10_000)
	for i := range greedy {
		greedy[i] = uuid.New()
	}
	for range 2 {
		for _, id := range greedy {
			use(tenant, id)
		}
	}
	for tenant, ids := range keys {
		for _, id := range ids {
			if use(tenant, id) {
				t.Fatal("another tenant's key was evicted")
			}
		}
	}
	// And who comes late gets his share, here a key a shard, from whoever has
	// most.
	late := uuid.New()
	ids := make([]uuid.UUID, cacheShards)
	for i := range ids {
		ids[i] = uuid.New()
		ids[i][15] = byte(i)
		use(late, ids[i])
	}
	for _, id := range ids {
		if use(late, id) {
			t.Error("a key of the tenant who came late was evicted")
		}
	}
}

func TestUnusedKeysAreSweptAndUsedOnesStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newCacheBench(100)
		old, used := uuid.New(), uuid.New()
		for _, id := range []uuid.UUID{old, used} {
			e, _, err := b.acquire(tenant, id, b.load(id))
			if err != nil {
				t.Fatal(err)
			}
			b.release(e)
		}
		time.Sleep(time.Minute)
		e, _, err := b.acquire(tenant, used, b.load(used))
		if err != nil {
			t.Fatal(err)
		}
		b.release(e)
		b.sweep(time.Now().Add(-30 * time.Second))
		if _, cold, _ := b.acquire(tenant, used, b.load(used)); cold {
			t.Error("the used key was swept")
		}
		if _, cold, _ := b.acquire(tenant, old, b.load(old)); !cold {
			t.Error("the unused key is still there")
		}
	})
}

// Users, evictions and drops at random: a handle that somebody
// holds is always live and always that of his key.
func TestCacheNeverMixesKeysUnderLoad(t *testing.T) {
	b := newCacheBench(32)
	ids := make([]uuid.UUID, 200)
	for i := range ids {
		ids[i] = uuid.New()
	}
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(w), 1))
			for range 5000 {
				id := ids[r.IntN(len(ids))]
				e, _, err := b.acquire(tenant, id, b.load(id))
				if err != nil {
					t.Error(err)
					return
				}
				if !b.isLive(e.handle, id) {
					t.Errorf("handle %d is not that of its key", e.handle)
				}
				if r.IntN(100) == 0 {
					b.drop(e)
				}
				b.release(e)
			}
		})
	}
	wg.Wait()
}
