package quota

import (
	"math"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// Fault says whose fault it was that work failed.
type Fault uint8

// The faults.
const (
	NoFault    Fault = iota
	ClientsOwn       // the request's
	KeysOwn          // the key's or the HSM's: counts in the key's failure breaker
)

// Outcome is a kms.Settlement with what the breakers need to know.
type Outcome struct {
	kms.Settlement
	Fault Fault
}

// Settle ends a reservation; see Finish.
func (e *Engine) Settle(r kms.Reservation, outcome kms.Settlement) {
	o := Outcome{Settlement: outcome}
	if outcome.State == kms.Partial {
		o.Fault = ClientsOwn
	}
	e.Finish(r, o)
}

// Finish ends a reservation and charges what the outcome says, but no more
// than the rule of settlement allows. The rest goes back to where it came
// from: to the day on which it was reserved, whatever day it is now. A
// reservation that is not open, because it was ended before or never made, is
// ignored, so that nothing is charged or given back twice.
func (e *Engine) Finish(r kms.Reservation, outcome Outcome) {
	s := e.shardOf(r.Tenant)
	s.mu.Lock()
	defer s.mu.Unlock()
	h, ok := s.holds[r.RequestID]
	if !ok || h.reservation.Tenant != r.Tenant {
		return
	}
	h.now = e.nowLocked(s)
	delete(s.holds, r.RequestID)
	e.end(h, outcome)
	s.reuse(h)
}

// Leave frees what a reservation holds of concurrency, before it is settled:
// its request has left the HSMs and only waits to be recorded. One that is not
// open is ignored.
func (e *Engine) Leave(r kms.Reservation) {
	s := e.shardOf(r.Tenant)
	s.mu.Lock()
	defer s.mu.Unlock()
	if h, ok := s.holds[r.RequestID]; ok && h.reservation.Tenant == r.Tenant {
		h.stopRunning()
	}
}

// end settles a hold.
func (e *Engine) end(h *hold, outcome Outcome) {
	t := h.tenant
	e.advance(t, h.now)
	cost := int64(h.reservation.Cost)
	charged := int64(min(max(outcome.Charged, 0), outcome.State.Charge(h.reservation.Cost)))
	ran := outcome.SlotTime > 0 || outcome.State == kms.Partial || outcome.Fault == KeysOwn
	t.charged += charged
	t.reserved -= cost
	t.open--
	if t.lease != nil {
		h.giveBackLeased(cost-charged, ran)
	} else {
		h.giveBackTotals(cost-charged, ran)
	}
	e.giveBackRates(h, cost-charged, ran)
	h.giveBackCost(cost - charged)
	h.stopRunning()
	for i := range h.parts {
		h.parts[i].scope.held--
	}
	if h.creates != Nothing && outcome.State != kms.Settled && t.stored[h.creates] > 0 {
		t.stored[h.creates]--
	}
	if h.key != nil {
		h.tellBreakers(outcome, ran)
	}
}

// stopRunning frees what the request held of concurrency.
func (h *hold) stopRunning() {
	for i := range h.parts {
		if p := &h.parts[i]; p.running {
			p.running = false
			p.scope.inFlight--
		}
	}
}

// giveBackTotals gives a part of the cost back to the totals of its day.
func (h *hold) giveBackTotals(back int64, ran bool) {
	for i := range h.parts {
		if p := &h.parts[i]; p.day {
			p.scope.day.giveBack(back, h.day)
		}
	}
	h.takeBack(h.tenant, back, ran)
}

// takeBack gives a part of the cost back to the tenant's own totals, or to
// those of a copy of it: in the opposite order of taking, packs before month and
// pool, whoever drew on them. So what each has given on a day follows from what
// was charged on it alone, in whatever order requests ended.
func (h *hold) takeBack(t *tenant, back int64, ran bool) {
	if !ran {
		t.bandwidth.giveBack(h.bytes, h.day)
	}
	if h.day != t.elastic.day {
		h.takeBackLater(t, back)
		return
	}
	for i := len(t.packs) - 1; i >= 0; i-- {
		back -= t.packs[i].giveBack(back)
	}
	t.month.giveBack(back, month(h.day))
	t.elastic.giveBack(back, t.limits.days)
}

// takeBackLater gives back what was taken on a day that is over.
func (h *hold) takeBackLater(t *tenant, back int64) {
	for i := len(h.packed) - 1; i >= 0 && back > 0; i-- {
		amount := min(back, h.packed[i].amount)
		t.packGiveBack(h.packed[i].id, amount)
		back -= amount
	}
	t.month.giveBack(back, month(h.day))
	t.elastic.giveBackLater(back, h.drawn, t.limits.days)
}

func (t *tenant) packGiveBack(id string, amount int64) {
	for i := range t.packs {
		if t.packs[i].id == id {
			t.packs[i].used = max(t.packs[i].used-amount, 0)
		}
	}
}

// giveBackRates gives a part of the cost back to the buckets. Work that ran
// and failed took the pool's time: what it gives back is limited, so that
// failing on purpose is not a way around the rate.
func (e *Engine) giveBackRates(h *hold, back int64, ran bool) {
	t, tokens := h.tenant, back
	if ran {
		t.refunds.refill(h.now.ns, t.refundRate(), 0)
		tokens = min(back, t.refunds.level)
		t.refunds.take(tokens)
	}
	for i := range h.parts {
		p := &h.parts[i]
		sc := p.scope
		e.fill(sc, h.now.ns)
		if p.requests && !ran {
			sc.requests.giveBack(micro, 0, max(sc.limits.requests.burst, sc.requests.level))
		}
		if !p.credits {
			continue
		}
		burst := sc.rate(sc.step(h.now.ns)).burst
		if sc.lease != nil {
			burst = math.MaxInt64 // what is too much is given back to the store
			sc.lease.credits.whole.level += tokens
		}
		if sc.kind != tenantScope {
			sc.credits.giveBack(tokens, 0, burst)
			continue
		}
		t.lost += back - tokens + sc.credits.giveBack(tokens, h.borrowed, burst)
	}
}

// tellBreakers tells the key's breakers how its call ended.
func (h *hold) tellBreakers(o Outcome, ran bool) {
	id, now := h.reservation.RequestID, h.now.ns
	switch {
	case h.probeHot && ran:
		h.key.hotSpot.end(id, true, now, &h.snapshot.hotSpot)
	case h.probeHot:
		h.key.hotSpot.release(id, now)
	}
	told := ran || o.State == kms.Settled
	switch {
	case h.probeFailed && told:
		h.key.failures.end(id, o.Fault != KeysOwn, now, &h.snapshot.failures)
	case h.probeFailed:
		h.key.failures.release(id, now)
	case told:
		h.key.failures.count(o.Fault == KeysOwn, now, &h.snapshot.failures)
	}
}

// Penalise charges the credential, or a tenant that is known without one, for
// a request that was refused before it was admitted: for its scopes, or an
// object that is not there. It takes what the bucket has and never refuses.
func (e *Engine) Penalise(of *kms.Tenant, credential uuid.UUID) {
	s := e.shardOf(of.ID)
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tenants[of.ID]
	if t == nil {
		return // its bucket is full, and there is nothing to take it to
	}
	now := e.nowLocked(s)
	price := int64(t.snapshot.Costs.Refused())
	if sc := s.credentials[credential]; sc != nil && sc.owner == t {
		e.fill(sc, now.ns)
		sc.credits.take(min(price, sc.credits.level))
	}
	e.advance(t, now)
	taken := min(price, t.credits.level)
	t.credits.take(taken)
	t.charged += taken
}

// Reap finds the reservations that nobody ended in time. They no longer count
// against concurrency, and wait to be reconciled: Unresolved lists them, and
// Finish ends them once the journal has told how. What nobody could tell of
// within the policy's time is charged in full. It returns how many it found
// and how many it charged. To be called every few seconds.
func (e *Engine) Reap() (found, charged int) {
	for i := range e.shards {
		s := &e.shards[i]
		s.mu.Lock()
		now := e.nowLocked(s)
		for id, h := range s.holds {
			h.now = now
			switch {
			case h.state == holdReserved && now.ns >= h.expires:
				h.state, h.expires = holdPending, now.ns+h.snapshot.chargeAfter
				h.stopRunning()
				h.freeProbes()
				found++
			case h.state == holdPending && now.ns >= h.expires:
				delete(s.holds, id)
				e.end(h, Outcome{Settlement: kms.Settlement{State: kms.Settled, Charged: h.reservation.Cost}})
				s.reuse(h)
				charged++
			}
		}
		s.mu.Unlock()
	}
	return found, charged
}

// freeProbes gives up a probe that was never heard of.
func (h *hold) freeProbes() {
	id := h.reservation.RequestID
	if h.probeHot {
		h.key.hotSpot.release(id, h.now.ns)
	}
	if h.probeFailed {
		h.key.failures.end(id, false, h.now.ns, &h.snapshot.failures)
	}
	h.probeHot, h.probeFailed = false, false
}

// Unresolved returns the reservations that wait to be reconciled.
func (e *Engine) Unresolved() []kms.Reservation {
	var list []kms.Reservation
	for i := range e.shards {
		s := &e.shards[i]
		s.mu.Lock()
		for _, h := range s.holds {
			if h.state == holdPending {
				list = append(list, h.reservation)
			}
		}
		s.mu.Unlock()
	}
	return list
}
