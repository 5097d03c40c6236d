package keystore

import (
	"sync"
	"sync/atomic"
	"time"
	"unsafe"
)

// shard is one part of a cache: its entries, what is missing, and the loads
// under way.
type shard[K, V comparable] struct {
	mu sync.RWMutex
	// The fields below are guarded by mu, except entry.used.

	// entries are all that is cached, in the order of the CLOCK hand. They lie
	// in one array, without a pointer to each, so that an entry costs little
	// and a hit touches few places in memory.
	entries  []entry[K, V]
	index    index
	hand     int
	bytes    int
	absences map[K]absence // nil: none
	flights  map[K]*flight[V]

	_ [16]byte // fills two cache lines: locks of two shards share none
}

// entry is an object in the cache. It moves when others are removed.
type entry[K, V comparable] struct {
	key   K
	value V
	tag   uint32 // of key, for the index
	size  uint32 // bytes, at most maxSize
	// used has the marks that a hit sets. They are set under the read lock,
	// atomically, and cleared under the lock.
	used uint32
	idle uint8 // sweeps since the last use
}

// The marks of entry.used: used since the CLOCK hand passed it, and since the
// last sweep.
const (
	usedSinceHand uint32 = 1 << iota
	usedSinceSweep
)

// maxSize is the largest size of an entry that is told from larger ones. No
// shard has room for so much.
const maxSize = 1<<32 - 1

// absence is what is remembered of an object that cannot be had.
type absence struct {
	err   error
	until time.Time
}

// growth is the part of themselves, one over it, by which entries grow. It is
// small, as entries outnumber everything else in memory, and a copy is little
// beside the load that an insertion follows.
const growth = 8

// overhead is what an entry of the shard costs beside what key and value
// refer to, in bytes: itself, and slots of the index, which are three quarters
// used at most and half of that at least, so that an entry has about two.
func (s *shard[K, V]) overhead() int {
	return int(unsafe.Sizeof(entry[K, V]{}))*(2*growth+1)/(2*growth) + 2*int(unsafe.Sizeof(slot{}))
}

// find returns the place of k, or -1. It is called with the read lock.
func (s *shard[K, V]) find(tag uint32, k K) int {
	for at := s.index.first(tag); ; at = s.index.after(at) {
		place, same := s.index.look(at, tag)
		switch {
		case place < 0:
			return -1
		case same && s.entries[place].key == k:
			return place
		}
	}
}

// touch marks an entry as used. It is called with the read lock.
func (e *entry[K, V]) touch() {
	const both = usedSinceHand | usedSinceSweep
	// Reading first keeps the line shared between cores.
	if atomic.LoadUint32(&e.used) != both {
		atomic.StoreUint32(&e.used, both)
	}
}

// insertLocked adds an entry that is not there. What has just been loaded was
// asked for, but only what is asked for again is spared by the hand.
func (s *shard[K, V]) insertLocked(tag uint32, k K, v V, size int) {
	size = min(size, maxSize)
	s.index.add(tag, len(s.entries), s.tagAt)
	if n := len(s.entries); n == cap(s.entries) {
		s.resizeLocked(n + n/growth + minSlots/2)
	}
	s.entries = append(s.entries, entry[K, V]{key: k, value: v, tag: tag, size: uint32(size), used: usedSinceSweep})
	s.bytes += size
}

// removeLocked removes the entry in a place, into which the last one moves.
func (s *shard[K, V]) removeLocked(place int) {
	last := len(s.entries) - 1
	s.bytes -= int(s.entries[place].size)
	s.index.remove(s.entries[place].tag, place)
	if place != last {
		s.index.move(s.entries[last].tag, last, place)
		s.entries[place] = s.entries[last]
	}
	s.entries[last] = entry[K, V]{}
	s.entries = s.entries[:last]
}

// evictLocked removes the first entry under the hand that was not used since
// the hand passed it last. The hand goes on over what moves there, the newest,
// which so has a whole turn to be used again.
func (s *shard[K, V]) evictLocked() {
	for {
		if s.hand >= len(s.entries) {
			s.hand = 0
		}
		e := &s.entries[s.hand]
		if e.used&usedSinceHand == 0 {
			s.removeLocked(s.hand)
			s.hand++
			return
		}
		e.used &^= usedSinceHand
		s.hand++
	}
}

// sweepLocked removes what was not used in the last idleSweeps sweeps, and
// absences that have ended, and gives memory back that is no longer needed. It
// returns the number of entries removed.
func (s *shard[K, V]) sweepLocked(now time.Time) (removed int) {
	// From the end, so that what moves was looked at.
	for place := len(s.entries) - 1; place >= 0; place-- {
		e := &s.entries[place]
		if e.used&usedSinceSweep != 0 {
			e.used &^= usedSinceSweep
			e.idle = 0
			continue
		}
		if e.idle++; e.idle >= idleSweeps {
			s.removeLocked(place)
			removed++
		}
	}
	for k, a := range s.absences {
		if !now.Before(a.until) {
			delete(s.absences, k)
		}
	}
	s.shrinkLocked()
	return removed
}

// shrinkLocked gives back the memory of arrays of which less than half is used,
// and of empty maps, which keep the size that they had.
func (s *shard[K, V]) shrinkLocked() {
	switch n := len(s.entries); {
	case n == 0:
		s.entries, s.index = nil, index{}
	case n < cap(s.entries)/2:
		s.resizeLocked(n + n/growth)
		s.index.rebuild(n, s.tagAt)
	}
	if len(s.absences) == 0 {
		s.absences = nil
	}
	if len(s.flights) == 0 {
		s.flights = nil
	}
}

// resizeLocked moves the entries to an array with room for n.
func (s *shard[K, V]) resizeLocked(n int) {
	s.entries = append(make([]entry[K, V], 0, n), s.entries...)
}

// tagAt returns the tag of the entry in a place.
func (s *shard[K, V]) tagAt(place int) uint32 { return s.entries[place].tag }

// clearLocked forgets everything and gives the memory back.
func (s *shard[K, V]) clearLocked() {
	s.entries, s.index, s.hand, s.bytes = nil, index{}, 0, 0
	s.absences, s.flights = nil, nil
}
