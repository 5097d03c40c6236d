package keystore

// index finds entries of a shard by the tags of their keys: a hash table with
// linear probing (Knuth, "The Art of Computer Programming", volume 3, 6.4,
// algorithms L and R). It holds eight bytes a slot and no pointers, so the
// garbage collector does not look into it and one look-up touches one cache line
// of it, nearly always. The caller compares keys and has the locks.
type index struct {
	slots []slot // a power of two of them, at most three quarters used; nil: none
	used  int
}

// slot is the tag of an entry's key and one more than its place; an empty slot
// is zero.
type slot struct{ tag, next uint32 }

// minSlots is the smallest size of an index that is not empty: one cache line.
const minSlots = 8

// first returns where a search for a tag begins.
func (x *index) first(tag uint32) int { return int(tag) & (len(x.slots) - 1) }

// after returns the position after one.
func (x *index) after(at int) int { return (at + 1) & (len(x.slots) - 1) }

// look returns the place in the slot at a position, -1 when it is empty, and
// whether its key has the tag.
func (x *index) look(at int, tag uint32) (place int, same bool) {
	if len(x.slots) == 0 {
		return -1, false
	}
	s := x.slots[at]
	return int(s.next) - 1, s.tag == tag
}

// add adds a place, which is also the number of places so far; tagOf tells the
// tags of those.
func (x *index) add(tag uint32, place int, tagOf func(place int) uint32) {
	if 4*(x.used+1) > 3*len(x.slots) {
		x.rebuild(place, tagOf)
	}
	x.put(tag, place)
	x.used++
}

func (x *index) put(tag uint32, place int) {
	at := x.first(tag)
	for x.slots[at].next != 0 {
		at = x.after(at)
	}
	x.slots[at] = slot{tag, uint32(place) + 1}
}

// rebuild makes the index anew for the places below n, with room for another.
func (x *index) rebuild(n int, tagOf func(place int) uint32) {
	size := minSlots
	for 4*(n+1) > 3*size {
		size *= 2
	}
	x.slots, x.used = make([]slot, size), n
	for place := range n {
		x.put(tagOf(place), place)
	}
}

// at returns the position of a place that is there.
func (x *index) at(tag uint32, place int) int {
	at := x.first(tag)
	for x.slots[at].next != uint32(place)+1 {
		at = x.after(at)
	}
	return at
}

// move gives an entry another place.
func (x *index) move(tag uint32, from, to int) {
	x.slots[x.at(tag, from)].next = uint32(to) + 1
}

// remove removes a place. Those behind it that were put off by it move up, so
// that no search ends too early.
func (x *index) remove(tag uint32, place int) {
	hole := x.at(tag, place)
	for at := x.after(hole); x.slots[at].next != 0; at = x.after(at) {
		home := x.first(x.slots[at].tag)
		// A slot may move up to the hole unless that is before its home.
		if (at-home)&(len(x.slots)-1) >= (at-hole)&(len(x.slots)-1) {
			x.slots[hole] = x.slots[at]
			hole = at
		}
	}
	x.slots[hole] = slot{}
	x.used--
}
