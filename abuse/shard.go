package abuse

import (
	"encoding/binary"
	"iter"
	"slices"
	"sync"
	"uuid"
)

// shard keeps the profiles of a part of the credentials. What a call needs to
// find its profile lies in a few small slices, so that of a credential that has
// not called for long little has to come from memory: a word of index, a word of
// last, and the profile. A list in the order of the last calls would cost the
// lines of two other profiles.
type shard struct {
	mu sync.Mutex // guards the rest and the profiles

	// index finds places: a hash table with linear probing, at most half full.
	index []entry
	// chunks have the profiles by place, and last has the ns of their last calls.
	chunks []*[chunk]profile
	last   []int64
}

// chunk is how many profiles are allocated together: with 16, what has to be
// read to find one of them stays in the processor's cache.
const chunk = 16

// at returns the profile of a place.
func (s *shard) at(place int) *profile {
	return &s.chunks[uint(place)/chunk][uint(place)%chunk]
}

// all goes through the profiles with their places.
func (s *shard) all() iter.Seq2[int, *profile] {
	return func(yield func(int, *profile) bool) {
		for i := range s.last {
			if !yield(i, s.at(i)) {
				return
			}
		}
	}
}

// entry is one of an index.
type entry struct {
	hash  uint32
	place uint32 // from 1; 0: free
}

// leastIndex is the length of the first index.
const leastIndex = 8

// hashOf is of all of an id, whatever makes it.
func hashOf(id uuid.UUID) uint32 {
	return uint32(mix(binary.BigEndian.Uint64(id[:8])^mix(binary.BigEndian.Uint64(id[8:]))) >> 32)
}

// place returns the place of a credential's profile, -1 for none.
func (s *shard) place(id uuid.UUID) int {
	if len(s.index) == 0 {
		return -1
	}
	hash, mask := hashOf(id), uint32(len(s.index)-1)
	for i := hash & mask; s.index[i].place != 0; i = (i + 1) & mask {
		if e := s.index[i]; e.hash == hash && s.at(int(e.place-1)).credential == id {
			return int(e.place - 1)
		}
	}
	return -1
}

// find returns a credential's profile, nil for none.
func (s *shard) find(id uuid.UUID) *profile {
	if i := s.place(id); i >= 0 {
		return s.at(i)
	}
	return nil
}

// admit makes a profile and returns its place: a new one, or that of the one that
// has not called for longest.
func (s *shard) admit(tenant, credential uuid.UUID, more bool) int {
	if !more {
		i := slices.Index(s.last, slices.Min(s.last))
		p := s.at(i)
		s.drop(hashOf(p.credential), uint32(i+1))
		*p = profile{tenant: tenant, credential: credential}
		s.last[i] = 0
		s.enter(entry{hashOf(credential), uint32(i + 1)})
		return i
	}
	i := len(s.last)
	if i%chunk == 0 {
		s.chunks = append(s.chunks, new([chunk]profile))
	}
	*s.at(i) = profile{tenant: tenant, credential: credential}
	s.last = append(s.last, 0)
	if 2*len(s.last) > len(s.index) {
		s.grow()
	}
	s.enter(entry{hashOf(credential), uint32(i + 1)})
	return i
}

// grow doubles the index.
func (s *shard) grow() {
	old := s.index
	s.index = make([]entry, max(2*len(old), leastIndex))
	for _, e := range old {
		if e.place != 0 {
			s.enter(e)
		}
	}
}

// enter puts an entry that is not there into the index.
func (s *shard) enter(e entry) {
	mask := uint32(len(s.index) - 1)
	i := e.hash & mask
	for s.index[i].place != 0 {
		i = (i + 1) & mask
	}
	s.index[i] = e
}

// drop takes an entry out of the index. Those after it move up, so that each is
// found from where its hash begins.
func (s *shard) drop(hash, place uint32) {
	mask := uint32(len(s.index) - 1)
	free := hash & mask
	for s.index[free].place != place {
		free = (free + 1) & mask
	}
	for i := (free + 1) & mask; s.index[i].place != 0; i = (i + 1) & mask {
		if begin := s.index[i].hash & mask; (i-begin)&mask >= (i-free)&mask {
			s.index[free] = s.index[i]
			free = i
		}
	}
	s.index[free] = entry{}
}
