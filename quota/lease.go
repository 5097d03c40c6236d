package quota

import "math"

// leaseRules are the times of leases, in ns.
type leaseRules struct {
	tick, period, slots, down int64
}

// rateLease feeds a bucket of which other nodes have a part too. In place of
// the limit's own rate the bucket has the rate that it was lent; it has no
// capacity, because what it does not need is given back.
//
// What it spends without having been lent it is a loan, which the next claim
// declares: after the lease's end it goes on at the same rate, and when the
// store is away for long at the emergency rate, so that a store which is slow,
// away or empty neither stops a tenant nor frees it.
type rateLease struct {
	perSecond int64 // lent
	until     int64 // ns: to when it is lent
	down      int64 // ns: when the store counts as away
	emergency int64 // per second, from then on
	burst     int64 // most that loans heap up while nothing is used
	granted   bool  // a grant came since the line was last idle
	idling    bool  // gave everything back with its last claim

	left   int64 // with the store, as told last
	target int64 // what the line wants to hold, as of its last claim
	asked  bool  // for an early exchange since then

	// whole is a bucket of the whole limit, and a second's slack for clocks
	// that differ: more than all of it one node never admits, whatever the
	// store says.
	whole bucket

	offered int64 // asked of the line since the last claim
	head    int64 // dearest request refused lately, which is waited for
	demand  int64 // per second, smoothed
	loan    int64 // not declared yet
}

// fill refills the bucket up to now. granted and lost are as of refill.
func (l *rateLease) fill(b *bucket, now int64) (granted, lost int64) {
	for _, phase := range [...]struct {
		to   int64
		r    rate
		loan bool
	}{
		{l.until, rate{perSecond: l.perSecond, burst: math.MaxInt64}, false},
		{l.down, rate{perSecond: max(l.perSecond, l.emergency), burst: l.heap(b)}, true},
		{math.MaxInt64, rate{perSecond: l.emergency, burst: l.heap(b)}, true},
	} {
		g, overflow := b.refill(min(phase.to, now), phase.r, 0)
		granted, lost = granted+g, lost+overflow
		if phase.loan {
			l.loan += g - overflow
		}
	}
	return granted, lost
}

// bound refills the bucket of the whole limit.
func (l *rateLease) bound(now int64, full rate) {
	l.whole.refill(now, rate{perSecond: full.perSecond, burst: addCapped(full.burst+full.overdraft, full.perSecond)}, 0)
}

// heap is how far loans fill the bucket: a second's worth, or what the request
// needs that waits.
func (l *rateLease) heap(b *bucket) int64 { return max(l.burst, l.head, b.level) }

// first tells whether a request may go ahead on a loan because the line knows
// of no grant yet: one may, whatever it costs, or it could wait for ever on a
// store that is away.
func (l *rateLease) first() bool { return !l.granted && l.loan <= l.burst }

// low tells, once, that the bucket runs low while the store has more.
func (l *rateLease) low(level int64) bool {
	if l.asked || l.left == 0 || level > l.target/3 {
		return false
	}
	l.asked = true
	return true
}

// claim makes the line's part of a claim. idle gives everything back.
func (l *rateLease) claim(b *bucket, c *LineClaim, passed, period int64, idle bool) (returned int64) {
	inst, _ := mulDiv(l.offered, second, max(passed, 1))
	if l.demand = (l.demand + inst + 1) / 2; inst < l.demand {
		l.demand = (l.demand + 3*inst) / 4 // a load that has gone keeps no share
	}
	l.demand = min(l.demand, c.PerSecond*Grain*MaxDemand)
	if l.idling = idle; idle {
		l.demand = 0
	}
	lent, _ := mulDiv(l.demand, period, second)
	target := lent + l.head
	if b.level > 2*target {
		returned = (b.level - target) / Grain * Grain
	}
	b.level -= returned
	c.Returned = returned / Grain
	c.Extra = (l.loan + Grain - 1) / Grain
	l.loan -= c.Extra * Grain // what was declared too much is lent already
	c.Demand = l.demand / Grain
	c.Head = (l.head + Grain - 1) / Grain
	if b.level < max(target/3, l.head) {
		c.Ask = (target - b.level) / Grain
	}
	l.offered, l.target, l.asked = 0, target, false
	return returned
}

// grant takes what the line was lent.
func (l *rateLease) grant(b *bucket, g LineGrant, now int64, rules leaseRules) (granted int64) {
	l.perSecond, l.until, l.down, l.granted = g.PerSecond*Grain, now+rules.period, now+rules.down, !l.idling
	l.left = g.Left * Grain
	b.level += g.Tokens * Grain
	return g.Tokens * Grain
}

// totalLease is what a node was lent of a total.
type totalLease struct {
	room      int64 // may be used
	used      int64 // by this node in the window
	window    int64
	known     bool  // told of in this window
	began     bool  // used before that
	born      int64 // of the line in the store, as told last
	allocated int64 // as told last, to all nodes; in the claim's unit
	pool      int64
	lowered   bool
	left      int64 // as told last, for all; in the unit of the total
	returned  int64 // to be given back
	loan      int64 // used without having been lent, not declared yet
	head      int64
	offered   int64 // used since the last claim
	demand    int64 // per second, smoothed
	rescued   bool  // has taken its emergency part in this window
}

// turn begins another window. What of it is left for all is the whole limit.
func (l *totalLease) turn(window, limit int64, witnessed bool) {
	*l = totalLease{window: window, pool: l.pool, lowered: l.lowered, born: l.born}
	if witnessed {
		l.left = limit
	}
}

// fits tells whether n can be used: what was lent, and before the first grant
// of a window one request, or as much as is certainly left at its beginning.
func (l *totalLease) fits(n, limit, nodes int64) bool {
	if n <= l.room {
		return true
	}
	if l.known || n > limit {
		return false
	}
	return !l.began || l.loan+n <= l.left/(8*max(nodes, 1))
}

// take uses n, which fits.
func (l *totalLease) take(n int64) {
	short := max(n-l.room, 0)
	l.began = l.began || short > 0
	l.loan += short
	l.room += short - n
	l.offered += n
	l.used += n
}

// giveBack undoes a part of a take of the same window.
func (l *totalLease) giveBack(n int64) {
	l.room += n
	l.used = max(l.used-n, 0)
}

// rescue lends a part of what was left when the store was last heard of: half,
// divided by the nodes, so that all nodes together stay below it.
func (l *totalLease) rescue(limit, nodes int64) {
	if l.rescued {
		return
	}
	l.rescued = true
	left := l.left
	if !l.known && left == 0 {
		left = limit // a node that began while the store was away
	}
	part := left / 2 / max(nodes, 1)
	l.room += part
	l.loan += part
	l.known = true
}

// holdSeconds is for how long what a node holds of a total lasts.
const holdSeconds = 5

// idleShare is what part of what is left an idle node keeps, as a divisor.
const idleShare = 64

// claim makes the line's part of a claim.
func (l *totalLease) claim(c *LineClaim, passed, grain, nodes int64, idle bool) {
	inst, _ := mulDiv(l.offered, second, max(passed, 1))
	l.demand, l.offered = (l.demand+inst+1)/2, 0
	// All nodes together hold no more than is left beside, so that the end of
	// a total does not lie idle with nodes that nobody asks.
	target := max(min(l.demand*holdSeconds, l.left/(2*max(nodes, 1))), l.head)
	keep := 2 * target
	if idle {
		keep = l.left / (idleShare * max(nodes, 1))
	}
	if back := l.room - keep; back > 0 {
		l.room -= back / grain * grain
		l.returned += back / grain * grain
	}
	c.Returned = l.returned / grain
	l.returned -= c.Returned * grain
	c.Extra = (l.loan + grain - 1) / grain
	l.room += c.Extra*grain - l.loan // the rest of a grain is lent now
	l.loan = 0
	c.Head = (l.head + grain - 1) / grain
	if l.room < max(target/3, l.head) {
		c.Ask = (target - l.room + grain - 1) / grain
	}
	if l.born != 0 {
		c.KnownBorn, c.Known, c.KnownPool, c.KnownLowered = l.born, l.allocated, l.pool, l.lowered
	}
}

// grant takes what the line was lent.
func (l *totalLease) grant(g LineGrant, window, grain int64) {
	if l.window != window {
		return // of a window that is over: it falls to nobody
	}
	l.known, l.rescued = true, false
	l.room += g.Tokens * grain
	l.allocated, l.left, l.pool, l.lowered, l.born = g.Allocated, g.Left*grain, g.Pool, g.Lowered, g.Born
}

// slotLease is how many requests a node may have in flight.
type slotLease struct {
	slots, until int64
	peak         int64 // most wanted since the last claim
}

// limit returns what holds now: what was lent, and when that is over a part of
// the emergency, one at least.
func (l *slotLease) limit(now, whole, emergency, nodes int64) int64 {
	if now < l.until {
		return l.slots
	}
	part, _ := mulDiv(whole, emergency, permille)
	return max(part/max(nodes, 1), 1)
}
