package hsm

import (
	"container/list"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"uuid"
)

// handleCache keeps the handles of loaded keys of one node. A handle is
// loaded once however many ask for it and is not destroyed while a call uses
// it. The cache ends with its node, so that no handle outlives its epoch.
//
// When it is full, the tenant with the most keys in it gives way: one who
// cycles through more keys than fit evicts his own, and who has no more than
// an equal share loses none to others.
//
// It is safe for concurrent use; the shards share no lock.
type handleCache struct {
	unload func(Handle) error
	clock  func() time.Time
	shards [cacheShards]cacheShard
}

const (
	// cacheShards spreads the cache's locks; with a call taking tens of
	// microseconds, 16 keep the chance of two slots meeting small.
	cacheShards = 16
	// maxHandles bounds a node's loaded keys. A session object of SoftHSM
	// costs 7 to 8 KiB, so this is some 128 MiB a node at most.
	maxHandles = 16384
)

type cacheShard struct {
	mu      sync.Mutex
	entries map[uuid.UUID]*cacheEntry
	// holdings are the entries by tenant: lists of *cacheEntry, the longest
	// unused in front.
	holdings map[uuid.UUID]*list.List
	max      int
	hits     uint64
	misses   uint64
}

// cacheEntry is one loaded or loading key. Fields below the line are guarded
// by its shard's mutex.
type cacheEntry struct {
	id      uuid.UUID
	tenant  uuid.UUID
	from    source
	holding *list.List    // of the tenant; holds lru
	loaded  chan struct{} // closed when handle or err is set
	busy    atomic.Int64  // ns of slot time since heat was asked for

	handle   Handle
	err      error
	refs     int
	dropped  bool // no longer in entries: the last user destroys it
	lru      *list.Element
	lastUsed time.Time
}

func newHandleCache(max int, unload func(Handle) error, clock func() time.Time) *handleCache {
	c := &handleCache{unload: unload, clock: clock}
	for i := range c.shards {
		c.shards[i] = cacheShard{entries: map[uuid.UUID]*cacheEntry{}, holdings: map[uuid.UUID]*list.List{},
			max: (max + cacheShards - 1) / cacheShards}
	}
	return c
}

func (c *handleCache) shard(id uuid.UUID) *cacheShard {
	// The last bytes of a UUIDv7 are random.
	return &c.shards[id[15]%cacheShards]
}

// acquire returns the entry of a tenant's key, loading it when it is not
// there; cold tells whether this call waited for a load. from is what load
// loads. The caller must release the entry.
func (c *handleCache) acquire(tenant, id uuid.UUID, from source, load func() (Handle, error)) (e *cacheEntry, cold bool, err error) {
	s := c.shard(id)
	s.mu.Lock()
	if e = s.entries[id]; e != nil {
		s.hits++
		e.refs++
		s.mu.Unlock()
		select {
		case <-e.loaded:
		default:
			cold = true
			<-e.loaded
		}
		if e.err != nil {
			c.release(e)
			return nil, cold, e.err
		}
		return e, cold, nil
	}
	s.misses++
	e = &cacheEntry{id: id, tenant: tenant, from: from, loaded: make(chan struct{}), refs: 1}
	s.entries[id] = e
	e.holding = s.holdings[tenant]
	if e.holding == nil {
		e.holding = list.New()
		s.holdings[tenant] = e.holding
	}
	e.lru = e.holding.PushBack(e)
	victims := s.trimLocked(tenant)
	s.mu.Unlock()
	c.destroy(victims)

	handle, err := loadSafely(load)

	s.mu.Lock()
	e.handle, e.err = handle, err
	if err != nil {
		s.dropLocked(e)
	}
	s.mu.Unlock()
	close(e.loaded)
	if err != nil {
		return nil, true, err
	}
	return e, true, nil
}

// loadSafely turns a panic in load into an error: others wait for the entry.
func loadSafely(load func() (Handle, error)) (h Handle, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &Error{Class: ClassAmbiguous, Call: "load", Err: panicked(p)}
		}
	}()
	return load()
}

// release ends a use of the entry.
func (c *handleCache) release(e *cacheEntry) {
	s := c.shard(e.id)
	s.mu.Lock()
	e.refs--
	e.lastUsed = c.clock()
	destroy := e.dropped && e.refs == 0 && e.err == nil
	if !e.dropped {
		e.holding.MoveToBack(e.lru)
	}
	s.mu.Unlock()
	if destroy {
		c.destroy([]*cacheEntry{e})
	}
}

// drop forgets an entry, for instance because its handle was stale; the last
// of its users destroys it.
func (c *handleCache) drop(e *cacheEntry) {
	s := c.shard(e.id)
	s.mu.Lock()
	s.dropLocked(e)
	s.mu.Unlock()
}

func (s *cacheShard) dropLocked(e *cacheEntry) {
	if e.dropped {
		return
	}
	e.dropped = true
	if s.entries[e.id] == e {
		delete(s.entries, e.id)
	}
	e.holding.Remove(e.lru)
	if e.holding.Len() == 0 {
		delete(s.holdings, e.tenant)
	}
}

// trimLocked takes entries out, for a tenant who has just got one, until the
// shard is within its bound. Entries in use are passed over: the bound gives
// way to correctness by at most the number of slots.
func (s *cacheShard) trimLocked(tenant uuid.UUID) []*cacheEntry {
	var victims []*cacheEntry
	for len(s.entries) > s.max {
		victim := s.unused(s.holdings[tenant])
		if victim == nil || s.holdings[tenant].Len()*len(s.holdings) < len(s.entries) {
			// He has less than an equal share, so somebody has more.
			victim = s.unusedOfLargest(victim)
		}
		if victim == nil {
			break
		}
		s.dropLocked(victim)
		victims = append(victims, victim)
	}
	return victims
}

// unused returns the longest unused entry of a holding that nobody uses now,
// nil when there is none.
func (s *cacheShard) unused(holding *list.List) *cacheEntry {
	for front := holding.Front(); front != nil; front = front.Next() {
		if e := front.Value.(*cacheEntry); e.refs == 0 {
			return e
		}
	}
	return nil
}

// unusedOfLargest returns the longest unused entry of the largest holding that
// has one, otherwise the given one. It looks at every tenant of the shard,
// which is little beside the load that made it necessary.
func (s *cacheShard) unusedOfLargest(otherwise *cacheEntry) *cacheEntry {
	victim, size := otherwise, 0
	for _, holding := range s.holdings {
		if holding.Len() > size {
			if e := s.unused(holding); e != nil {
				victim, size = e, holding.Len()
			}
		}
	}
	return victim
}

func (c *handleCache) destroy(entries []*cacheEntry) {
	for _, e := range entries {
		// A handle that cannot be destroyed is gone or dies with its token.
		_ = c.unload(e.handle)
	}
}

// sweep destroys what was not used since the given time.
func (c *handleCache) sweep(unusedSince time.Time) {
	for i := range c.shards {
		s := &c.shards[i]
		var victims []*cacheEntry
		s.mu.Lock()
		for _, holding := range s.holdings {
			for front := holding.Front(); front != nil; {
				e := front.Value.(*cacheEntry)
				front = front.Next()
				if e.refs > 0 {
					continue
				}
				if !e.lastUsed.Before(unusedSince) {
					break
				}
				s.dropLocked(e)
				victims = append(victims, e)
			}
		}
		s.mu.Unlock()
		c.destroy(victims)
	}
}

// sources returns what the loaded keys of tenants were loaded from, the last
// used first.
func (c *handleCache) sources() []source {
	type used struct {
		from source
		at   time.Time
	}
	var all []used
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		for _, e := range s.entries {
			if e.from.key != nil {
				all = append(all, used{e.from, e.lastUsed})
			}
		}
		s.mu.Unlock()
	}
	slices.SortFunc(all, func(a, b used) int { return b.at.Compare(a.at) })
	sources := make([]source, len(all))
	for i := range all {
		sources[i] = all[i].from
	}
	return sources
}

// heat returns the loaded keys of tenants with the slot time that they used
// since it was called last.
func (c *handleCache) heat() []hot {
	versions := make(map[uuid.UUID]int) // place in all, by key
	var all []hot
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		for _, e := range s.entries {
			busy := e.busy.Swap(0)
			if e.from.key == nil {
				continue
			}
			if at, known := versions[e.from.key.ID]; known {
				if all[at].busy += busy; e.from.version.Number > all[at].version.Number {
					all[at].source = e.from
				}
				continue
			}
			versions[e.from.key.ID] = len(all)
			all = append(all, hot{e.from, busy})
		}
		s.mu.Unlock()
	}
	return all
}

// stats returns the number of loaded keys, hits and misses.
func (c *handleCache) stats() (loaded int, hits, misses uint64) {
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		loaded += len(s.entries)
		hits += s.hits
		misses += s.misses
		s.mu.Unlock()
	}
	return loaded, hits, misses
}
