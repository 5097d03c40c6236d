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
				e, cold, err := b.acquire(id, 1, func() (Handle, error) {
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
		if _, cold, _ := b.acquire(id, 1, b.load(id)); cold {
			t.Error("a loaded key is cold")
		}
	})
}

func TestHandleInUseIsNotDestroyed(t *testing.T) {
	b := newCacheBench(cacheShards) // one entry a shard
	inUse := uuid.New()
	e, _, err := b.acquire(inUse, 1, b.load(inUse))
	if err != nil {
		t.Fatal(err)
	}
	for range 1000 {
		id := uuid.New()
		other, _, err := b.acquire(id, 1, b.load(id))
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

func TestHandleOfAnOldEpochIsNeverUsed(t *testing.T) {
	b := newCacheBench(100)
	id := uuid.New()
	old, _, err := b.acquire(id, 1, b.load(id))
	if err != nil {
		t.Fatal(err)
	}
	b.release(old)
	fresh, cold, err := b.acquire(id, 2, b.load(id))
	if err != nil || !cold || fresh.handle == old.handle {
		t.Errorf("cold = %v, handle %d after %d, error = %v", cold, fresh.handle, old.handle, err)
	}
	if b.unloaded != 0 {
		t.Error("a handle of the old epoch was destroyed: its number may belong to another key now")
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
				_, _, err := b.acquire(id, 1, func() (Handle, error) {
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
		if _, _, err := b.acquire(id, 1, b.load(id)); err != nil {
			t.Errorf("error = %v after the token recovered", err)
		}
	})
}

func TestPanicInALoadFailsIt(t *testing.T) {
	b := newCacheBench(100)
	id := uuid.New()
	if _, _, err := b.acquire(id, 1, func() (Handle, error) { panic("x") }); err == nil {
		t.Error("no error")
	}
	if _, _, err := b.acquire(id, 1, b.load(id)); err != nil {
		t.Errorf("error = %v", err)
	}
}

func TestCacheKeepsItsBound(t *testing.T) {
	const max = 64
	b := newCacheBench(max)
	for range 10_000 {
		id := uuid.New()
		e, _, err := b.acquire(id, 1, b.load(id))
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

func TestUnusedKeysAreSweptAndUsedOnesStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newCacheBench(100)
		old, used := uuid.New(), uuid.New()
		for _, id := range []uuid.UUID{old, used} {
			e, _, err := b.acquire(id, 1, b.load(id))
			if err != nil {
				t.Fatal(err)
			}
			b.release(e)
		}
		time.Sleep(time.Minute)
		e, _, err := b.acquire(used, 1, b.load(used))
		if err != nil {
			t.Fatal(err)
		}
		b.release(e)
		b.sweep(time.Now().Add(-30 * time.Second))
		if _, cold, _ := b.acquire(used, 1, b.load(used)); cold {
			t.Error("the used key was swept")
		}
		if _, cold, _ := b.acquire(old, 1, b.load(old)); !cold {
			t.Error("the unused key is still there")
		}
	})
}

// Users, evictions, drops and new epochs at random: a handle that somebody
// holds is always live and always that of his key.
func TestCacheNeverMixesKeysUnderLoad(t *testing.T) {
	b := newCacheBench(32)
	ids := make([]uuid.UUID, 200)
	for i := range ids {
		ids[i] = uuid.New()
	}
	var epoch atomic.Uint64
	epoch.Store(1)
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(w), 1))
			for range 5000 {
				id := ids[r.IntN(len(ids))]
				e, _, err := b.acquire(id, epoch.Load(), b.load(id))
				if err != nil {
					t.Error(err)
					return
				}
				if !b.isLive(e.handle, id) {
					t.Errorf("handle %d is not that of its key", e.handle)
				}
				switch r.IntN(100) {
				case 0:
					b.drop(e)
				case 1:
					epoch.Add(1)
				}
				b.release(e)
			}
		})
	}
	wg.Wait()
}
