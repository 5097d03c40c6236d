package quota

import (
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// hold is an open reservation: what Admit took and from where, so that it can
// be given back to the same places.
type hold struct {
	reservation kms.Reservation
	snapshot    *Snapshot
	tenant      *tenant
	parts       []part    // the tenant's first
	room        [3]part   // of parts: all that a request has without projects
	key         *keyState // nil: none
	now         instant

	borrowed int64 // of the tenant's credits
	day      int32 // on which it counts
	drawn    int64 // from the elastic pool
	packed   []packPart
	bytes    int64
	creates  Object

	cost     *costState // the incident in which it was admitted; nil: none
	costPart *costPart

	expires     int64 // ns: to be reconciled then
	state       holdState
	probeHot    bool // is the probe of the key's breakers
	probeFailed bool
}

type holdState uint8

const (
	holdReserved holdState = iota
	holdPending            // RECONCILE_PENDING: nobody knows how it ended
)

// part is what a reservation holds of one scope.
type part struct {
	scope    *scope
	credits  bool // has taken credits
	requests bool
	day      bool
	running  bool // counts against concurrency
}

// packPart is what a reservation holds of a burst pack.
type packPart struct {
	id     string
	amount int64
}

// newHold takes a used hold or makes one. The shard's lock is held, as in all
// that follows.
func (s *engineShard) newHold() *hold {
	if n := len(s.free); n > 0 {
		h := s.free[n-1]
		s.free = s.free[:n-1]
		return h
	}
	h := new(hold)
	h.parts = h.room[:0]
	return h
}

// maxFreeHolds bounds the holds that a shard keeps for use: a peak of requests
// in flight does not stay in memory.
const maxFreeHolds = 64

func (s *engineShard) reuse(h *hold) {
	if len(s.free) >= maxFreeHolds {
		return
	}
	parts, packed := h.parts[:0], h.packed[:0]
	*h = hold{parts: parts, packed: packed}
	s.free = append(s.free, h)
}

// find finds all scopes that a request is in and brings them to now.
func (e *Engine) find(s *engineShard, h *hold, r *Request) {
	t := e.tenantOf(s, h, r)
	h.tenant = t
	e.advance(t, h.now)
	h.day = t.elastic.day
	h.parts = append(h.parts, part{scope: &t.scope})
	if e.shared != nil {
		e.shared.touch(s, &t.scope)
	}
	for sc, limits := range e.projectsOf(t, r.Principal.Project, h.now) {
		e.use(s, h, sc, limits)
	}
	if id := r.Principal.Credential; id != (uuid.UUID{}) {
		sc := e.credentialOf(s, t, id, r.CredentialSince, h.now)
		e.use(s, h, sc, t.credentialLimits(id))
	}
	if id := r.Key; id != (uuid.UUID{}) {
		h.key = e.keyOf(s, t, id, h.now)
		e.use(s, h, &h.key.scope, t.keyLimits(id))
	}
}

// use brings a scope inside the tenant to now and makes it a part of the hold.
func (e *Engine) use(s *engineShard, h *hold, sc *scope, limits *scopeLimits) {
	if sc.limits != limits {
		e.fill(sc, max(h.tenant.since, sc.filled))
		sc.fit(limits, max(h.tenant.since, sc.filled))
	}
	if sc.lease != nil {
		e.shared.touch(s, sc)
		sc.lease.day.turnTo(dayNumber(h.tenant.elastic.day), sc.limits.day)
	}
	e.fill(sc, h.now.ns)
	sc.day.turn(h.tenant.elastic.day)
	h.parts = append(h.parts, part{scope: sc})
}

// commit takes what every gate agreed to.
func (e *Engine) commit(h *hold) events {
	t, cost := h.tenant, int64(h.reservation.Cost)
	for i := range h.parts {
		p := &h.parts[i]
		sc := p.scope
		if sc.lease != nil {
			e.lendShort(sc, cost)
		}
		if p.credits = sc.limits.credits.perSecond > 0; p.credits {
			if borrowed := sc.credits.take(cost); sc.kind == tenantScope {
				h.borrowed = borrowed
			}
		}
		if p.requests = sc.limits.requests.perSecond > 0; p.requests {
			sc.requests.take(micro)
		}
		if p.day = sc.limits.day > 0; p.day {
			sc.day.used += cost
		}
		p.running = true
		sc.inFlight++
		sc.held++
	}
	if t.lease != nil {
		h.takeLeased(cost)
	} else {
		h.takeTotals(cost)
	}
	if h.creates != Nothing && t.stored[h.creates] >= 0 {
		t.stored[h.creates]++
	}
	if key := h.key; key != nil {
		h.beginProbes(key)
		key.hotSpot.count(false, h.now.ns, &h.snapshot.hotSpot)
	}
	h.expires = h.now.ns + h.snapshot.timeout
	t.admitted++
	t.open++
	t.reserved += cost
	return t.crossings(h.snapshot.soft)
}

// takeTotals counts a cost on day and month: first what the day has, then the
// pool, then packs, for which the tenant paid apart.
func (h *hold) takeTotals(cost int64) {
	t := h.tenant
	_, room := t.elastic.room(t.limits.days)
	own := min(cost, room, max(t.limits.month-t.month.used, 0))
	h.drawn = t.elastic.take(own, t.limits.days)
	t.month.used += own
	for i := 0; cost > own; i++ {
		p := &t.packs[i]
		amount := min(cost-own, t.packRoom(i, h.now.wall))
		if amount > 0 {
			p.take(amount)
			h.packed = append(h.packed, packPart{p.id, amount})
			own += amount
		}
	}
	t.bandwidth.used += h.bytes
}

func (p *pack) take(amount int64) { p.used, p.today = p.used+amount, p.today+amount }

// giveBack undoes a part of takes of the present day and returns how much.
func (p *pack) giveBack(amount int64) int64 {
	amount = min(amount, p.today)
	p.used, p.today = max(p.used-amount, 0), p.today-amount
	return amount
}

// packRoom returns what is left of a pack, 0 when it has expired.
func (t *tenant) packRoom(i int, wall time.Time) int64 {
	if limit := &t.limits.packs[i]; wall.Before(limit.expires) {
		return max(limit.credits-t.packs[i].used, 0)
	}
	return 0
}

func (t *tenant) packsRoom(wall time.Time) (room int64) {
	for i := range t.packs {
		room = addCapped(room, t.packRoom(i, wall))
	}
	return room
}

// beginProbes makes the request the probe of a breaker that is due for one.
func (h *hold) beginProbes(key *keyState) {
	if _, probe := key.hotSpot.wait(h.now.ns, &h.snapshot.hotSpot); probe {
		key.hotSpot.begin(h.reservation.RequestID, h.now.ns, &h.snapshot.hotSpot)
		h.probeHot = true
	}
	if _, probe := key.failures.wait(h.now.ns, &h.snapshot.failures); probe {
		key.failures.begin(h.reservation.RequestID, h.now.ns, &h.snapshot.failures)
		h.probeFailed = true
	}
}
