package scheduler

import "time"

// poll is how soon a domain looks again when slots are free and what
// waits is held by something that time alone may lift.
const poll = 10 * time.Millisecond

// allowed is the set of buckets that may start on n now; none when it has no
// free slot.
func (d *domain) allowed(n *node) (set uint8) {
	if n.free() == 0 {
		return 0
	}
	for r := range rank(ranks) {
		if d.busy >= d.lines[r] || r != rankHigh && n.others >= n.openSlots() {
			continue
		}
		set |= 1 << bucketOf(r, false)
		if d.bigBusy < d.bigLimit() {
			set |= 1 << bucketOf(r, true)
		}
	}
	return set
}

// dispatch starts all that may start, and finds what the rest waits for.
func (d *domain) dispatch() {
	d.restart()
	d.wake = 0
	if d.queued == 0 {
		return
	}
	for tried := uint64(0); ; {
		n := d.emptiest(d.known &^ tried)
		if n == nil {
			break
		}
		if d.next(n) {
			tried = 0 // its slot was home to something, or its start let others go
		} else {
			tried |= 1 << n.bit
		}
	}
	if d.queued > 0 {
		d.explain()
		d.wake = d.nextLook()
	}
}

// emptiest is the node of a set with the largest part of its slots free, of
// equals the one where nothing changed for longest, nil when all are full. Being
// asked first it keeps as many busy as the others: the slots that the gate keeps
// free are everybody's then, and not those of the node whose work takes longest.
func (d *domain) emptiest(mask uint64) (best *node) {
	for _, n := range d.members(mask) {
		if n.free() > 0 && (best == nil || n.emptier(best)) {
			best = n
		}
	}
	return best
}

func (n *node) emptier(o *node) bool {
	a, b := n.busy*o.slots, o.busy*n.slots
	return a < b || a == b && n.moved < o.moved
}

// next starts one request on n, if one may start.
func (d *domain) next(n *node) bool {
	allowed := d.allowed(n)
	if allowed == 0 || d.queued == 0 || d.entranceEmpty() {
		return false
	}
	q, least := d.pick(n, allowed)
	aged := d.agedFor(n, allowed)
	if aged != nil {
		q = aged
	}
	if q == nil {
		return false
	}
	// With many tenants all of this lies in memory that the processor has not
	// seen for a while: it fetches tenant and request together if neither is
	// found through the other.
	r, t := q.head, q.branch.tenant
	if r.until < d.now {
		d.decide(r, nil, ErrWaitExceeded)
		return true
	}
	if aged != nil {
		r.aged = true
		t.promoted[r.urgency] = d.now
		d.aging.budget -= r.estimate
	} else {
		d.advance(n, least)
		d.forfeit(t, n)
	}
	d.decide(r, n, nil)
	return true
}

// candidate is the first of a heap.
type candidate struct {
	*entry[*branch]
	bucket int
}

func (c candidate) queue() *queue { return c.item.urge(c.bucket) }

// before tells whether c's turn is before o's. In one tenant, whose branches
// all have its tag and turn, the urgency's turn decides, then the order of
// arrival.
func (c candidate) before(o candidate) bool {
	if o.entry == nil || c.key != o.key || c.tie != o.tie || c.item.tenant != o.item.tenant {
		return o.entry == nil || c.entry.before(o.entry)
	}
	a, b, inner := c.queue().head, o.queue().head, &c.item.tenant.inner
	if inner[a.urgency] != inner[b.urgency] {
		return inner[a.urgency] < inner[b.urgency]
	}
	return a.precedes(b)
}

// pick returns the queue whose turn it is on n, and the least tag that n could
// serve: the least of those at home on n, unless one that waits for another
// node is earlier by more than the tie window.
func (d *domain) pick(n *node, allowed uint8) (*queue, int64) {
	var here, there candidate
	for _, rt := range d.routes {
		if rt.mask>>n.bit&1 == 0 || rt.filled&allowed == 0 {
			continue
		}
		best, set := &here, rt.filled&allowed
		if rt.home != n.bit && !d.noAffinity {
			if !d.worthMoving(rt.home) {
				continue
			}
			best = &there
			set &^= d.allowed(d.nodes[rt.home]) // what home can start is left to it
		}
		for ; set != 0; set &= set - 1 {
			k := lowest(set)
			if top := (candidate{&rt.heaps[k][0], k}); top.before(*best) {
				*best = top
			}
		}
	}
	switch {
	case here.entry == nil && there.entry == nil:
		return nil, 0
	case here.entry == nil:
		return there.queue(), there.key
	case there.entry == nil:
		return here.queue(), here.key
	case there.key+d.tieWindow(there.item.tenant) < here.key:
		return there.queue(), there.key
	}
	return here.queue(), min(here.key, there.key)
}

// nextLook is when time alone may let something start: never while no slot is
// free, because the next completion looks.
func (d *domain) nextLook() time.Duration {
	for _, n := range d.members(d.known) {
		if n.free() > 0 {
			if wait := d.entrance.wait(); wait > 0 {
				return wait
			}
			return poll
		}
	}
	return 0
}
