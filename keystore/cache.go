package keystore

import (
	"context"
	"hash/maphash"
	"sync/atomic"
	"time"
	"uuid"
)

// AbsenceTTL is how long it is remembered that an object is missing or
// damaged. It is how late an object may appear here that another process
// created, so it is as short as the promised reach of a change (one second);
// objects created through the Store itself appear at once.
const AbsenceTTL = time.Second

const (
	// cacheShards spreads each cache's locks. With 256 a core that looks
	// something up while 15 others do meets one of them on its lock in 6 % of
	// the cases.
	cacheShards = 256

	// idleSweeps is the number of sweeps without a use after which an entry is
	// removed; sweeps are that part of the idle time apart. More would make the
	// time more exact than within a tenth, and take more locks.
	idleSweeps = 10

	// maxReloads is how often a look-up loads again what was dropped while it was
	// loaded. It takes a change during each of that many loads to exhaust it.
	maxReloads = 8
)

// limits bounds one cache. Each shard has an equal part of every number.
type limits struct {
	entries  int
	bytes    int // approximate
	absences int
}

// cache remembers what one kind of look-up answered. See the package comment
// for the rules that keep it right.
type cache[K, V comparable] struct {
	limits limits
	now    func() time.Time
	// load asks the database.
	load func(context.Context, K) (V, error)
	// hash chooses the shard; it is seeded, so that nobody can aim at one.
	hash func(maphash.Seed, K) uint64
	// size is the approximate number of bytes that key and value refer to.
	size func(K, V) int
	// own makes a key that shares no memory with a request; nil when keys
	// hold no references.
	own func(K) K
	// tenant, when set, is whose loads the gate counts.
	tenant func(K) uuid.UUID
	gate   *loadGate
	// fresh, when set, tells whether what is cached may be used at all.
	fresh func() bool

	seed   maphash.Seed
	shards [cacheShards]shard[K, V]
	loads  loadCounts
}

// loadCounts counts the loads of a cache by their outcome.
type loadCounts struct {
	found, missing, damaged, failed atomic.Uint64
	evicted                         atomic.Uint64 // to make room
	idle                            atomic.Uint64 // evicted because nobody used them
}

// flight is a load under way. Its result is kept only while it is registered
// in the shard; a change unregisters it.
type flight[V comparable] struct {
	done chan struct{}
	// Written before done is closed, read after.
	value     V
	err       error
	abandoned bool // ended for a reason of the leader's own; load again
	dropped   bool // what was loaded may be older or newer than what the cache has
}

// init makes the cache ready; the other fields are set already.
func (c *cache[K, V]) init() { c.seed = maphash.MakeSeed() }

// locate returns the shard of k and its tag there, from different bits of the
// hash.
func (c *cache[K, V]) locate(k K) (s *shard[K, V], tag uint32) {
	h := c.hash(c.seed, k)
	return &c.shards[h%cacheShards], uint32(h >> 32)
}

// get answers from the cache or loads. A hit allocates nothing.
func (c *cache[K, V]) get(ctx context.Context, k K) (V, error) {
	if c.fresh != nil && !c.fresh() {
		var none V
		return none, errStale
	}
	s, tag := c.locate(k)
	s.mu.RLock()
	if place := s.find(tag, k); place >= 0 {
		e := &s.entries[place]
		v := e.value
		e.touch()
		s.mu.RUnlock()
		return v, nil
	}
	a, absent := s.absences[k]
	s.mu.RUnlock()
	if absent && c.now().Before(a.until) {
		var none V
		return none, a.err
	}
	return c.fetch(ctx, s, tag, k)
}

// fetch joins the load under way or leads a new one. What was dropped meanwhile is
// loaded again rather than answered, since it may be what a change wrote that is
// not acknowledged yet, while the cache still has what was before: the next
// look-up would go back in time.
func (c *cache[K, V]) fetch(ctx context.Context, s *shard[K, V], tag uint32, k K) (V, error) {
	var none V
	for reloads := 0; ; {
		s.mu.Lock()
		if place := s.find(tag, k); place >= 0 {
			e := &s.entries[place]
			v := e.value
			e.touch()
			s.mu.Unlock()
			return v, nil
		}
		f := s.flights[k]
		leads := f == nil
		if leads {
			if c.own != nil {
				k = c.own(k)
			}
			f = &flight[V]{done: make(chan struct{})}
			if s.flights == nil {
				s.flights = make(map[K]*flight[V])
			}
			s.flights[k] = f
		}
		s.mu.Unlock()
		if leads {
			c.lead(ctx, s, tag, k, f)
		} else {
			select {
			case <-f.done:
			case <-ctx.Done():
				return none, translate(ctx.Err())
			}
			if f.abandoned {
				continue
			}
		}
		if !f.dropped || f.err != nil && !lasting(f.err) || reloads == maxReloads {
			return f.value, f.err
		}
		reloads++
	}
}

// lead runs a load and ends its flight, also when the load panics.
func (c *cache[K, V]) lead(ctx context.Context, s *shard[K, V], tag uint32, k K, f *flight[V]) {
	f.abandoned = true
	defer c.land(s, tag, k, f)
	f.value, f.err = c.loadGated(ctx, k)
	// What the leader's context ended says nothing to those who wait with it.
	f.abandoned = f.err != nil && ctx.Err() != nil && !lasting(f.err)
}

func (c *cache[K, V]) loadGated(ctx context.Context, k K) (V, error) {
	if c.tenant != nil {
		leave, err := c.gate.enter(ctx, c.tenant(k))
		if err != nil {
			var none V
			return none, translate(err)
		}
		defer leave()
	}
	return c.load(ctx, k)
}

func (c *cache[K, V]) land(s *shard[K, V], tag uint32, k K, f *flight[V]) {
	s.mu.Lock()
	f.dropped = s.flights[k] != f
	if !f.dropped {
		delete(s.flights, k)
		switch {
		case f.abandoned:
		case f.err == nil:
			c.insertLocked(s, tag, k, f.value)
		case lasting(f.err):
			c.rememberAbsenceLocked(s, k, f.err)
		}
	}
	s.mu.Unlock()
	c.loads.count(f.err)
	close(f.done)
}

// drop forgets what is known of k, and makes the load under way, if there is
// one, forget it too.
func (c *cache[K, V]) drop(k K) {
	s, tag := c.locate(k)
	s.mu.Lock()
	defer s.mu.Unlock()
	if place := s.find(tag, k); place >= 0 {
		s.removeLocked(place)
	}
	delete(s.absences, k)
	delete(s.flights, k)
}

// clear does what drop does for everything.
func (c *cache[K, V]) clear() {
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		s.clearLocked()
		s.mu.Unlock()
	}
}

// sweep removes what was not used for long; see shard.sweepLocked. It holds
// each shard's lock for as long as it takes to look at 4096 entries.
func (c *cache[K, V]) sweep() {
	now := c.now()
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		removed := s.sweepLocked(now)
		s.mu.Unlock()
		c.loads.idle.Add(uint64(removed))
	}
}

// swap replaces the value of k if it is still old. The new value must not be
// larger than the old one.
func (c *cache[K, V]) swap(k K, old, new V) {
	s, tag := c.locate(k)
	s.mu.Lock()
	defer s.mu.Unlock()
	if place := s.find(tag, k); place >= 0 && s.entries[place].value == old {
		s.entries[place].value = new
	}
}

// insertLocked adds what was loaded, and makes room for it.
func (c *cache[K, V]) insertLocked(s *shard[K, V], tag uint32, k K, v V) {
	delete(s.absences, k)
	size := c.size(k, v) + s.overhead()
	// An object that is larger than a shard's part is kept nevertheless, alone:
	// to load it on every use would be worse.
	for len(s.entries) > 0 &&
		(len(s.entries) >= c.limits.entries/cacheShards || s.bytes+size > c.limits.bytes/cacheShards) {
		s.evictLocked()
		c.loads.evicted.Add(1)
	}
	s.insertLocked(tag, k, v, size)
}

func (c *cache[K, V]) rememberAbsenceLocked(s *shard[K, V], k K, err error) {
	if len(s.absences) >= c.limits.absences/cacheShards {
		// Any one will do: all of them end within AbsenceTTL.
		for old := range s.absences {
			delete(s.absences, old)
			break
		}
	}
	if s.absences == nil {
		s.absences = make(map[K]absence)
	}
	s.absences[k] = absence{err: err, until: c.now().Add(AbsenceTTL)}
}

// usage returns the number of entries, their approximate bytes, and the
// number of absences.
func (c *cache[K, V]) usage() limits {
	var u limits
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.RLock()
		u.entries += len(s.entries)
		u.bytes += s.bytes
		u.absences += len(s.absences)
		s.mu.RUnlock()
	}
	return u
}

func (l *loadCounts) count(err error) {
	switch {
	case err == nil:
		l.found.Add(1)
	case !lasting(err):
		l.failed.Add(1)
	case isMissing(err):
		l.missing.Add(1)
	default:
		l.damaged.Add(1)
	}
}
