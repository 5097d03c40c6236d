package quota

import "time"

// scopeLease is what this node was lent of a scope's limits.
type scopeLease struct {
	name              string // of its lines
	credits, requests rateLease
	day               totalLease
	slots             slotLease

	month, bandwidth totalLease // of a tenant
	packs            map[string]*totalLease

	refused int64 // ns: when a request was last
	touched bool  // since the last claim
	listed  bool  // is in the tenant's list of scopes to claim for
	idle    int   // ticks since it was touched
}

// newScopeLease makes the lease of a scope that has nothing yet. A project's
// name is to be set.
func newScopeLease(sc *scope, now int64) *scopeLease {
	l := new(scopeLease)
	l.credits.whole = newBucket(sc.limits.credits.burst, now)
	l.requests.whole = newBucket(sc.limits.requests.burst, now)
	switch sc.kind {
	case tenantScope:
		l.name = "t"
	case credentialScope:
		l.name = credentialPrefix + sc.id.String()
	case keyScope:
		l.name = keyPrefix + sc.id.String()
	}
	return l
}

// leased tells whether a scope's limits are shared with other nodes. A
// credential that has none of its own is held by its tenant's anyway.
func (x *exchange) leased(sc *scope) bool {
	return sc.kind != credentialScope || sc.limits != &sc.owner.limits.anyone || sc.rampZero != longAgo
}

// headWait is for how long what a refused request needs is kept for it: it
// comes back after a second at the earliest.
const headWait = 3 * second

// forgetHeads no longer waits for requests that were refused.
func (l *scopeLease) forgetHeads() {
	l.credits.head, l.requests.head = 0, 0
	for _, t := range []*totalLease{&l.day, &l.month, &l.bandwidth} {
		t.head = 0
	}
	for _, t := range l.packs {
		t.head = 0
	}
}

// turnTo begins another window.
func (l *totalLease) turnTo(window, limit int64) {
	if l.window != window {
		l.turn(window, limit, l.window != 0 && window > l.window)
	}
}

// turnLeases begins what goes by the day and the month, of a tenant.
func (t *tenant) turnLeases() {
	l, day := t.lease, dayNumber(t.elastic.day)
	l.day.turnTo(day, t.limits.days.total)
	l.bandwidth.turnTo(day, t.limits.bandwidth)
	l.month.turnTo(monthNumber(t.month.window), t.limits.month)
}

// fillLeased refills a scope's buckets by what they were lent.
func (e *Engine) fillLeased(sc *scope, now int64) {
	l, t := sc.lease, sc.owner
	if now <= sc.filled {
		return
	}
	sc.filled = now
	nodes := e.shared.nodesOf(t)
	r := sc.rate(sc.step(now))
	l.credits.bound(now, sc.limits.credits)
	l.requests.bound(now, sc.limits.requests)
	l.credits.emergency, l.credits.burst = e.shared.emergency(t, r, nodes)
	granted, lost := l.credits.fill(&sc.credits, now)
	if sc.kind == tenantScope {
		t.granted += granted
		t.lost += lost
	}
	l.requests.emergency, l.requests.burst = e.shared.emergency(t, sc.limits.requests, nodes)
	l.requests.fill(&sc.requests, now)
}

// emergency is the rate that a node has when the store is away: the tier's part
// of it, divided by the nodes that were there last; and what heaps up of it.
func (x *exchange) emergency(t *tenant, r rate, nodes int64) (perSecond, burst int64) {
	part, _ := mulDiv(r.perSecond, t.limits.emergency, permille)
	perSecond = max(part/nodes, min(r.perSecond, 1))
	return perSecond, perSecond
}

// peekLeased asks the gates of a scope that has leases.
func (e *Engine) peekLeased(f *refusal, h *hold, sc *scope) {
	l, cost := sc.lease, int64(h.reservation.Cost)
	if full := sc.limits.credits; full.perSecond > 0 {
		if cost > full.burst {
			f.never = true
			f.refuse(rateReasons[sc.kind], full.burst, cost, sc.credits.level, 0)
		} else if !e.peekLease(f, h, rateReasons[sc.kind], &sc.credits, &l.credits, cost, full) {
			f.keyRate = f.keyRate || sc.kind == keyScope
		}
	}
	if full := sc.limits.requests; full.perSecond > 0 {
		e.peekLease(f, h, requestReasons[sc.kind], &sc.requests, &l.requests, micro, full)
	}
	if limit := sc.limits.day; limit > 0 {
		e.peekLeasedTotal(f, h, dayReasons[sc.kind], &l.day, cost, limit, h.tenant.dayEnd())
	}
	if whole := sc.limits.concurrency; whole > 0 {
		limit := l.slots.limit(h.now.ns, whole, h.tenant.limits.emergency, e.shared.nodesOf(h.tenant))
		l.slots.peak = max(l.slots.peak, sc.inFlight+1)
		if sc.inFlight >= limit {
			e.shared.kick()
			f.refuse(concurrencyReasons[sc.kind], whole, 1, max(limit-sc.inFlight, 0), slotRetry)
		}
	}
}

// peekLease asks a bucket that is fed by a lease.
func (e *Engine) peekLease(f *refusal, h *hold, code string, b *bucket, l *rateLease, n int64, full rate) bool {
	l.offered = addCapped(l.offered, n)
	if l.low(b.level - n) {
		e.shared.kick()
	}
	if short := n - l.whole.level; short > 0 {
		f.refuse(code, full.burst, n, l.whole.level, time.Duration(l.whole.untilLevel(short, full, 0)))
		return false
	}
	if b.level >= n || l.first() {
		return true
	}
	l.head = max(l.head, n)
	r := rate{perSecond: max(l.perSecond, l.emergency), burst: full.burst}
	switch {
	case e.shared.away(h.now.ns):
		code, r.perSecond = ReasonStoreAway, l.emergency
	case !l.granted || l.perSecond == 0 || l.left >= n && h.now.ns < l.down:
		code = ReasonLease
		e.shared.kick()
	}
	wait := b.promise(n, h.now.ns, r, 0, h.snapshot.retryHorizon)
	f.refuse(code, full.burst, n, b.level, time.Duration(wait))
	return false
}

// lendShort lets a scope's buckets go into a loan for the one request that may
// go ahead before there is a grant.
func (e *Engine) lendShort(sc *scope, cost int64) {
	l := sc.lease
	l.credits.whole.level -= cost
	l.requests.whole.level -= micro
	if sc.limits.credits.perSecond > 0 && sc.credits.level < cost {
		short := cost - sc.credits.level
		sc.credits.level += short
		l.credits.loan += short
		if sc.kind == tenantScope {
			sc.owner.granted += short
		}
		e.shared.kick()
	}
	if sc.limits.requests.perSecond > 0 && sc.requests.level < micro {
		l.requests.loan += micro - sc.requests.level
		sc.requests.level = micro
	}
	if sc.limits.day > 0 {
		l.day.take(cost)
	}
}

// peekLeasedTotal asks a total that is lent in chunks.
func (e *Engine) peekLeasedTotal(f *refusal, h *hold, code string, l *totalLease, n, limit int64, resets time.Time) bool {
	nodes := e.shared.nodesOf(h.tenant)
	if l.used+n > limit {
		f.spent = true
		f.refuse(code, limit, n, max(limit-l.used, 0), h.untilReset(resets))
		return false
	}
	if e.shared.away(h.now.ns) && n > l.room {
		l.rescue(limit, nodes)
	}
	if l.fits(n, limit, nodes) {
		return true
	}
	l.head = max(l.head, min(n, limit))
	if n <= limit && (!l.known || l.left >= n) {
		e.shared.kick()
		f.refuse(ReasonLease, limit, n, max(l.room, 0), time.Duration(2*h.snapshot.leases.tick))
		return false
	}
	f.spent = true
	f.refuse(code, limit, n, max(l.room, 0)+l.left, h.untilReset(resets))
	return false
}

// peekLeasedTotals asks the day, the month and the bytes of a tenant, and when
// day or month are used up a pack that can pay the whole request.
func (e *Engine) peekLeasedTotals(f *refusal, h *hold) {
	t, l, cost := h.tenant, h.tenant.lease, int64(h.reservation.Cost)
	var own refusal
	day := e.peekLeasedTotal(&own, h, ReasonDay, &l.day, cost, t.limits.days.total+l.day.pool*Grain, t.dayEnd())
	month := e.peekLeasedTotal(&own, h, ReasonMonth, &l.month, cost, t.limits.month, t.monthEnd())
	if !(day && month) && (!own.spent || !e.peekPacks(&own, h, cost)) {
		f.spent = f.spent || own.spent
		for _, r := range own.reasons {
			f.refuse(r.Code, r.Limit, r.Need, r.Have, r.RetryIn)
		}
	}
	if e.peekLeasedTotal(f, h, ReasonBandwidth, &l.bandwidth, h.bytes, t.limits.bandwidth, t.dayEnd()); h.bytes > t.limits.bandwidth {
		f.never = true
	}
}

// peekPacks looks for a pack that pays the request. A pack that may have
// enough, of which nothing is lent yet, is asked for.
func (e *Engine) peekPacks(f *refusal, h *hold, cost int64) bool {
	t := h.tenant
	for i := range t.limits.packs {
		pack := &t.limits.packs[i]
		if !h.now.wall.Before(pack.expires) || pack.credits < cost {
			continue
		}
		l := t.lease.packs[pack.id]
		if l == nil {
			if t.lease.packs == nil {
				t.lease.packs = make(map[string]*totalLease)
			}
			l = &totalLease{window: 1}
			t.lease.packs[pack.id] = l
		}
		if e.peekLeasedTotal(f, h, ReasonDay, l, cost, pack.credits, pack.expires) {
			h.packed = append(h.packed, packPart{pack.id, cost})
			return true
		}
	}
	return false
}

// takeLeased takes a cost from the totals that are lent.
func (h *hold) takeLeased(cost int64) {
	t, l := h.tenant, h.tenant.lease
	l.bandwidth.take(h.bytes)
	t.bandwidth.used += h.bytes
	if len(h.packed) > 0 {
		l.packs[h.packed[0].id].take(cost)
		return
	}
	l.day.take(cost)
	l.month.take(cost)
	t.elastic.used += cost
	t.month.used += cost
}

// giveBackLeased gives a part of the cost back to what it was taken from,
// unless its window is over.
func (h *hold) giveBackLeased(back int64, ran bool) {
	t, l := h.tenant, h.tenant.lease
	today := h.day == t.elastic.day
	for i := range h.parts {
		if p := &h.parts[i]; p.day && today {
			p.scope.day.giveBack(back, h.day)
			if p.scope.lease != nil {
				p.scope.lease.day.giveBack(back)
			}
		}
	}
	if !ran && today {
		t.bandwidth.giveBack(h.bytes, h.day)
		l.bandwidth.giveBack(h.bytes)
	}
	if len(h.packed) > 0 {
		l.packs[h.packed[0].id].giveBack(back)
		return
	}
	if today {
		t.elastic.used = max(t.elastic.used-back, 0)
		l.day.giveBack(back)
	}
	if month(h.day) == t.month.window {
		t.month.giveBack(back, month(h.day))
		l.month.giveBack(back)
	}
}

// dayNumber counts days from 1 January 1970.
func dayNumber(day int32) int64 {
	return time.Date(int(day/10000), time.Month(day/100%100), int(day%100), 0, 0, 0, 0, time.UTC).Unix() / (24 * 60 * 60)
}

// monthNumber counts months from the year 0.
func monthNumber(month int32) int64 { return int64(month/100)*12 + int64(month%100) }
