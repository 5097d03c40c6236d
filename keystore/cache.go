package keystore

import (
	"context"
	"hash/maphash"
	"sync"
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

	// entryOverhead is what an entry costs beside its value, in bytes: the
	// entry, its place in the ring and its slot in a map that is half full.
	entryOverhead = 160
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
	// size is the approximate number of bytes that key and value hold.
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
	evicted                         atomic.Uint64
}

type shard[K, V comparable] struct {
	mu sync.RWMutex
	// The fields below are guarded by mu, except entry.used.
	entries  map[K]*entry[K, V]
	ring     []*entry[K, V] // all entries, in the order of the CLOCK hand
	hand     int
	bytes    int
	absences map[K]absence
	flights  map[K]*flight[V]

	_ [40]byte // fills two cache lines: locks of two shards share none
}

type entry[K, V comparable] struct {
	// What a hit touches comes first, in one cache line.
	value V
	used  atomic.Bool
	key   K
	size  int
	slot  int // in the ring
}

type absence struct {
	err   error
	until time.Time
}

// flight is a load under way. Its result is kept only while it is registered
// in the shard; a change unregisters it.
type flight[V comparable] struct {
	done chan struct{}
	// Written before done is closed, read after.
	value     V
	err       error
	abandoned bool // ended for a reason of the leader's own; load again
}

// init makes the shards ready; the other fields are set already.
func (c *cache[K, V]) init() {
	c.seed = maphash.MakeSeed()
	for i := range c.shards {
		s := &c.shards[i]
		s.entries = make(map[K]*entry[K, V])
		s.absences = make(map[K]absence)
		s.flights = make(map[K]*flight[V])
	}
}

func (c *cache[K, V]) shard(k K) *shard[K, V] {
	return &c.shards[c.hash(c.seed, k)%cacheShards]
}

// get answers from the cache or loads. A hit allocates nothing.
func (c *cache[K, V]) get(ctx context.Context, k K) (V, error) {
	if c.fresh != nil && !c.fresh() {
		var none V
		return none, errStale
	}
	s := c.shard(k)
	s.mu.RLock()
	if e := s.entries[k]; e != nil {
		v := e.value
		// Reading first keeps the line shared between cores.
		if !e.used.Load() {
			e.used.Store(true)
		}
		s.mu.RUnlock()
		return v, nil
	}
	a, absent := s.absences[k]
	s.mu.RUnlock()
	if absent && c.now().Before(a.until) {
		var none V
		return none, a.err
	}
	return c.fetch(ctx, s, k)
}

// fetch joins the load under way or leads a new one.
func (c *cache[K, V]) fetch(ctx context.Context, s *shard[K, V], k K) (V, error) {
	var none V
	for {
		s.mu.Lock()
		if e := s.entries[k]; e != nil {
			v := e.value
			s.mu.Unlock()
			return v, nil
		}
		f := s.flights[k]
		if f == nil {
			if c.own != nil {
				k = c.own(k)
			}
			f = &flight[V]{done: make(chan struct{})}
			s.flights[k] = f
			s.mu.Unlock()
			return c.lead(ctx, s, k, f)
		}
		s.mu.Unlock()
		select {
		case <-f.done:
		case <-ctx.Done():
			return none, translate(ctx.Err())
		}
		if !f.abandoned {
			return f.value, f.err
		}
	}
}

// lead runs a load and ends its flight, also when the load panics.
func (c *cache[K, V]) lead(ctx context.Context, s *shard[K, V], k K, f *flight[V]) (V, error) {
	f.abandoned = true
	defer c.land(s, k, f)
	f.value, f.err = c.loadGated(ctx, k)
	// What the leader's context ended says nothing to those who wait with it.
	f.abandoned = f.err != nil && ctx.Err() != nil && !lasting(f.err)
	return f.value, f.err
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

func (c *cache[K, V]) land(s *shard[K, V], k K, f *flight[V]) {
	s.mu.Lock()
	if s.flights[k] == f {
		delete(s.flights, k)
		switch {
		case f.abandoned:
		case f.err == nil:
			c.insertLocked(s, k, f.value)
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
	s := c.shard(k)
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.entries[k]; e != nil {
		s.removeLocked(e)
	}
	delete(s.absences, k)
	delete(s.flights, k)
}

// clear does what drop does for everything.
func (c *cache[K, V]) clear() {
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		clear(s.entries)
		clear(s.ring)
		s.ring, s.hand, s.bytes = s.ring[:0], 0, 0
		clear(s.absences)
		clear(s.flights)
		s.mu.Unlock()
	}
}

// swap replaces the value of k if it is still old. The new value must not be
// larger than the old one.
func (c *cache[K, V]) swap(k K, old, new V) {
	s := c.shard(k)
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.entries[k]; e != nil && e.value == old {
		e.value = new
	}
}

func (c *cache[K, V]) insertLocked(s *shard[K, V], k K, v V) {
	delete(s.absences, k)
	e := &entry[K, V]{key: k, value: v, size: c.size(k, v) + entryOverhead}
	// An object that is larger than a shard's part is kept nevertheless, alone:
	// to load it on every use would be worse.
	for len(s.ring) > 0 &&
		(len(s.ring) >= c.limits.entries/cacheShards || s.bytes+e.size > c.limits.bytes/cacheShards) {
		s.evictLocked()
		c.loads.evicted.Add(1)
	}
	e.slot = len(s.ring)
	s.ring = append(s.ring, e)
	s.entries[k] = e
	s.bytes += e.size
}

// evictLocked removes the first entry under the hand that was not used since
// the hand passed it last.
func (s *shard[K, V]) evictLocked() {
	for {
		if s.hand >= len(s.ring) {
			s.hand = 0
		}
		e := s.ring[s.hand]
		if !e.used.Swap(false) {
			s.removeLocked(e)
			return
		}
		s.hand++
	}
}

func (s *shard[K, V]) removeLocked(e *entry[K, V]) {
	last := len(s.ring) - 1
	moved := s.ring[last]
	s.ring[e.slot], moved.slot = moved, e.slot
	s.ring[last] = nil
	s.ring = s.ring[:last]
	delete(s.entries, e.key)
	s.bytes -= e.size
}

func (c *cache[K, V]) rememberAbsenceLocked(s *shard[K, V], k K, err error) {
	if len(s.absences) >= c.limits.absences/cacheShards {
		// Any one will do: all of them end within AbsenceTTL.
		for old := range s.absences {
			delete(s.absences, old)
			break
		}
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
		u.entries += len(s.ring)
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
