package keystore

import (
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-kms/sluice/kms"
)

// shardModel is a shard beside a map that must hold the same.
type shardModel struct {
	shard[int, int]
	tags int // few: many keys share one
	want map[int]int
}

func (m *shardModel) tag(k int) uint32 { return uint32(k%m.tags) * 2654435761 }

func (m *shardModel) put(k, v int) {
	if m.find(m.tag(k), k) < 0 {
		m.insertLocked(m.tag(k), k, v, v)
		m.want[k] = v
	}
}

func (m *shardModel) remove(k int) {
	if place := m.find(m.tag(k), k); place >= 0 {
		m.removeLocked(place)
	}
	delete(m.want, k)
}

// forget takes out of the map what the shard no longer has.
func (m *shardModel) forget() {
	maps.DeleteFunc(m.want, func(k, _ int) bool {
		return !slices.ContainsFunc(m.entries, func(e entry[int, int]) bool { return e.key == k })
	})
}

func (m *shardModel) check(t *rapid.T) {
	bytes := 0
	for k, v := range m.want {
		bytes += v
		if place := m.find(m.tag(k), k); place < 0 || m.entries[place].value != v {
			t.Fatalf("%d is not found at its place", k)
		}
	}
	if len(m.entries) != len(m.want) || m.index.used != len(m.want) || m.bytes != bytes {
		t.Fatalf("%d entries, %d indexed, %d bytes; want %d, %d, %d",
			len(m.entries), m.index.used, m.bytes, len(m.want), len(m.want), bytes)
	}
	if 4*m.index.used > 3*len(m.index.slots) {
		t.Fatalf("%d of %d slots are used", m.index.used, len(m.index.slots))
	}
}

func TestShardHoldsWhatAMapHolds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &shardModel{tags: rapid.IntRange(1, 100).Draw(t, "tags"), want: make(map[int]int)}
		key := rapid.IntRange(0, 100)
		t.Repeat(map[string]func(*rapid.T){
			"":       m.check,
			"put":    func(t *rapid.T) { m.put(key.Draw(t, "key"), rapid.IntRange(0, 1000).Draw(t, "size")) },
			"remove": func(t *rapid.T) { m.remove(key.Draw(t, "key")) },
			"touch": func(t *rapid.T) {
				if k := key.Draw(t, "key"); m.find(m.tag(k), k) >= 0 {
					m.entries[m.find(m.tag(k), k)].touch()
				}
			},
			"evict": func(t *rapid.T) {
				if before := len(m.entries); before > 0 {
					if m.evictLocked(); len(m.entries) != before-1 {
						t.Fatalf("%d entries after one of %d was evicted", len(m.entries), before)
					}
					m.forget()
				}
			},
			"sweep": func(t *rapid.T) {
				for range rapid.IntRange(1, idleSweeps).Draw(t, "sweeps") {
					m.sweepLocked(time.Time{})
				}
				m.forget()
			},
		})
	})
}

// TestSweepsGiveMemoryBack looks at the arrays themselves, whose sizes follow
// the number of entries.
func TestSweepsGiveMemoryBack(t *testing.T) {
	m := &shardModel{tags: 1 << 20, want: make(map[int]int)}
	const most, rest = 4000, 100
	for k := range most {
		m.put(k, 1)
	}
	if n := cap(m.entries); n > most*9/8+minSlots {
		t.Errorf("room for %d entries, of which there are %d", n, most)
	}
	m.absences = map[int]absence{-1: {err: kms.ErrNotFound, until: time.Unix(10, 0)}}
	for range idleSweeps {
		for k := range rest {
			m.entries[m.find(m.tag(k), k)].touch()
		}
		m.sweepLocked(time.Unix(9, 0))
		if m.absences == nil {
			t.Fatal("an absence ended too early")
		}
	}
	m.sweepLocked(time.Unix(10, 0))
	if len(m.entries) != rest || cap(m.entries) > 2*rest || len(m.index.slots) > 4*rest || m.absences != nil {
		t.Errorf("%d entries in room for %d, %d slots, %d absences", len(m.entries), cap(m.entries), len(m.index.slots), len(m.absences))
	}
	for range idleSweeps {
		m.sweepLocked(time.Unix(11, 0))
	}
	if m.entries != nil || m.index.slots != nil || m.bytes != 0 {
		t.Errorf("nothing is used, and %d bytes are held, with room for %d entries", m.bytes, cap(m.entries))
	}
}

// TestHandAndSweepsKeepTheirOwnMarks: a sweep must not make what is used look
// unused to the hand, nor the hand make it look idle.
func TestHandAndSweepsKeepTheirOwnMarks(t *testing.T) {
	filled := func() (m *shardModel, used func() *entry[int, int]) {
		m = &shardModel{tags: 1 << 20, want: make(map[int]int)}
		for k := range 3 {
			m.put(k, 1)
		}
		used = func() *entry[int, int] {
			place := m.find(m.tag(0), 0)
			if place < 0 {
				t.Fatal("what is used was evicted")
			}
			return &m.entries[place]
		}
		m.sweepLocked(time.Time{})
		m.sweepLocked(time.Time{})
		used().touch()
		return m, used
	}
	m, used := filled()
	m.sweepLocked(time.Time{})
	m.evictLocked() // the hand is on what is used
	if idle := used().idle; idle != 0 {
		t.Errorf("after a use and a sweep %d sweeps count as idle", idle)
	}
	m, used = filled()
	m.evictLocked()
	m.sweepLocked(time.Time{})
	if idle := used().idle; idle != 0 {
		t.Errorf("after a use, the hand and a sweep %d sweeps count as idle", idle)
	}
}
