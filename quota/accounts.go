package quota

import (
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// Accounts is what a tenant has and has used, for its owner and for operators.
// Credits are in micro-credits.
type Accounts struct {
	Tenant        uuid.UUID
	Tier          kms.Tier
	PolicyVersion uint64

	Admitted, Refused uint64      // requests, since the engine knows the tenant
	Open              int64       // reservations
	Reserved, Charged kms.Credits // by open reservations; by settled ones

	// The bucket: Available − Debt = what it began with + Granted − Lost −
	// Reserved − Charged, always and exactly.
	Available, Debt     kms.Credits
	Granted, Lost       kms.Credits // by refill; what found no room or was forfeited
	PerSecond, Burst    kms.Credits // that hold now: ramp, notch and load counted
	Overdraft           kms.Credits
	Ramp                int64 // thousandths of the rate that a new tenant has
	LoadShare           int64 // thousandths of the refill that the load leaves
	Day, Month          int32 // yyyymmdd, yyyymm
	DayEnds, MonthEnds  time.Time
	DayUsed, DayTotal   kms.Credits // DayTotal without the pool
	MonthUsed, MonthMax kms.Credits
	Pool, PoolMax       kms.Credits // the elastic pool; what it lacks is the day-scale debt
	Lowered             bool        // the day runs one notch lower
	Packs               []PackState
	Bytes, BytesMax     int64
	InFlight, MaxFlight int64
	Stored, MaxStored   [objectKinds]int64 // -1: not known
}

// PackState is what is left of a burst pack.
type PackState struct {
	ID      string
	Left    kms.Credits
	Expires time.Time
}

// NearLimit tells whether the day or the month has come to its soft limit.
func (a *Accounts) NearLimit(s *Snapshot) bool {
	day, _ := mulDiv(int64(a.DayTotal), s.soft, permille)
	month, _ := mulDiv(int64(a.MonthMax), s.soft, permille)
	return int64(a.DayUsed) >= day || int64(a.MonthUsed) >= month
}

// Accounts returns a tenant's accounts; false when it used nothing that has
// not been forgotten, so that all of its limits are there for it.
func (e *Engine) Accounts(id uuid.UUID) (Accounts, bool) {
	s := e.shardOf(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tenants[id]
	if t == nil {
		return Accounts{}, false
	}
	now := e.nowLocked(s)
	e.advance(t, now)
	return e.accountsOf(t, now), true
}

func (e *Engine) accountsOf(t *tenant, now instant) Accounts {
	step := t.step(now.ns)
	r := t.rate(step)
	span := e.load.current.Load()
	a := Accounts{
		Tenant: t.id, Tier: kms.Tiers()[t.limits.tier], PolicyVersion: t.snapshot.Version,
		Admitted: t.admitted, Refused: t.refused, Open: t.open,
		Reserved: kms.Credits(t.reserved), Charged: kms.Credits(t.charged),
		Available: kms.Credits(t.credits.level), Debt: kms.Credits(t.credits.debt),
		Granted: kms.Credits(t.granted), Lost: kms.Credits(t.lost),
		PerSecond: kms.Credits(r.perSecond), Burst: kms.Credits(r.burst), Overdraft: kms.Credits(r.overdraft),
		Ramp: t.ramped(step), LoadShare: span.tiers[t.limits.tier].share,
		Day: t.elastic.day, Month: t.month.window, DayEnds: t.dayEnd(), MonthEnds: t.monthEnd(),
		DayUsed: kms.Credits(t.elastic.used), DayTotal: kms.Credits(t.elastic.base(t.limits.days)),
		MonthUsed: kms.Credits(t.month.used), MonthMax: kms.Credits(t.limits.month),
		Pool: kms.Credits(t.elastic.pool), PoolMax: kms.Credits(t.limits.days.pool), Lowered: t.elastic.lowered,
		Bytes: t.bandwidth.used, BytesMax: t.limits.bandwidth,
		InFlight: t.inFlight, MaxFlight: t.scope.limits.concurrency,
		MaxStored: t.limits.stored,
	}
	for i, n := range t.stored {
		a.Stored[i] = int64(n)
	}
	for i := range t.packs {
		limit := &t.limits.packs[i]
		a.Packs = append(a.Packs, PackState{limit.id, kms.Credits(t.packRoom(i, now.wall)), limit.expires})
	}
	return a
}

// Sweep forgets what can be made again exactly as it is: buckets that are full
// with no debt, of which nothing is reserved, and tenants that used nothing
// this month. To be called every few minutes.
func (e *Engine) Sweep() (forgotten int) {
	for i := range e.shards {
		s := &e.shards[i]
		s.mu.Lock()
		forgotten += e.sweepLocked(s)
		s.mu.Unlock()
	}
	return forgotten
}

func (e *Engine) sweepLocked(s *engineShard) (forgotten int) {
	now := e.nowLocked(s)
	for id, sc := range s.credentials {
		if e.asNew(sc, now) {
			delete(s.credentials, id)
			sc.owner.lastCredential = nil
			sc.owner.scopes--
			forgotten++
		}
	}
	for id, key := range s.keys {
		rules := key.owner.snapshot
		if e.asNew(&key.scope, now) && key.hotSpot.quiet(now.ns, &rules.hotSpot) && key.failures.quiet(now.ns, &rules.failures) {
			delete(s.keys, id)
			delete(s.hot, key)
			key.owner.lastKey = nil
			key.owner.scopes--
			forgotten++
		}
	}
	for id, t := range s.tenants {
		for name, sc := range t.projects {
			if e.asNew(sc, now) {
				delete(t.projects, name)
				forgotten++
			}
		}
		if len(t.projects) == 0 {
			t.projects = nil
		}
		e.advance(t, now)
		if t.cost == nil && t.minute.sum(now.ns) == 0 {
			t.minute = nil
		}
		if e.asNew(&t.scope, now) && t.unused(now.ns) {
			delete(s.tenants, id)
			delete(s.early, t)
			forgotten++
		}
	}
	return forgotten
}

// asNew tells whether a scope is what a new one would be.
func (e *Engine) asNew(sc *scope, now instant) bool {
	t := sc.owner
	if sc.held > 0 || sc.lease != nil && sc.lease.listed || sc.rampZero != longAgo && sc.step(now.ns) < rampSteps {
		return false
	}
	if sc.kind != tenantScope {
		e.fill(sc, now.ns)
		sc.day.turn(t.elastic.day)
	}
	if sc.lease != nil { // what it had was given back
		return true
	}
	return sc.day.used == 0 &&
		sc.credits.full(sc.rate(rampSteps)) && sc.requests.full(sc.limits.requests) && sc.credits.promised <= now.ns
}

// unused tells whether the rest of a tenant is what a new one's would be.
func (t *tenant) unused(now int64) bool {
	t.refunds.refill(now, t.refundRate(), 0)
	return t.elastic.fresh(t.limits.days) && t.month.used == 0 && t.bandwidth.used == 0 && t.refunds.full(t.refundRate()) &&
		len(t.packs) == 0 && t.scopes == 0 && len(t.projects) == 0 && t.cost == nil
}
