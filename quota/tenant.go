package quota

import (
	"math"
	"slices"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// rampSteps is in how many equal steps a ramp rises: with a ramp of a day, one
// an hour.
const rampSteps = 24

// scopeKind is what a scope is.
type scopeKind uint8

const (
	tenantScope scopeKind = iota
	projectScope
	credentialScope
	keyScope
)

// scope is what a tenant, project, credential or key has used. Its shard's
// lock guards it.
//
// What every request needs stands together, here and in tenant: with many
// tenants, fetching it from memory is most of what an admission takes.
type scope struct {
	owner    *tenant
	limits   *scopeLimits
	id       uuid.UUID // of a tenant, credential or key
	rampZero int64     // ns when it was made; far back: no ramp
	filled   int64     // ns to which credits are filled; a tenant's fill by another time
	lease    *scopeLease
	inFlight int64 // requests that count against concurrency
	held     int32 // open reservations that name the scope
	kind     scopeKind
	credits  bucket
	day      total
	requests bucket
}

// keyState is a key's scope with its breakers.
type keyState struct {
	scope
	hotSpot, failures breaker
}

// total counts the use of a day or month.
type total struct {
	window int32 // yyyymmdd or yyyymm
	used   int64
}

// turn begins the window if it is another one.
func (t *total) turn(window int32) {
	if t.window != window {
		t.window, t.used = window, 0
	}
}

// giveBack undoes a part of a use, unless its window is over: what is given
// back late must not make room in another window.
func (t *total) giveBack(n int64, window int32) {
	if t.window == window {
		t.used = max(t.used-n, 0)
	}
}

// tenant is the scope that all others of a customer are in.
type tenant struct {
	scope
	snapshot *Snapshot
	limits   *tenantLimits
	dayEnds  int64 // ns of Unix time
	// The ones used last: most requests are with the same as the one before.
	lastCredential *scope
	lastKey        *keyState

	elastic   elastic
	month     total
	bandwidth total
	soft      [3]int32 // the window in which the soft limit of day, month, bandwidth was told

	// The books of the credits bucket; see Accounts.
	granted, lost, charged, reserved int64
	admitted, refused                uint64
	retries                          retries
	open                             int64

	refunds  bucket // what failed work may give back
	since    int64  // ns from which limits hold
	counted  int64  // ns: when stored was told
	share    *tenantShare
	packs    []pack
	projects map[string]*scope
	stored   [objectKinds]int32 // -1: not known
	scopes   int64              // credentials and keys that the shard holds of it

	// What was admitted, and refused by the cost breaker; nil: nothing lately.
	minute     *minuteUse
	costLooked int64      // ns: when its risk was looked at last
	cost       *costState // nil: its risk is not above the line
}

// pack is what is used of a burst pack.
type pack struct {
	id    string
	used  int64
	today int64 // of used, on the present day
}

// longAgo is before every moment of the engine: a ramp that began then is over.
const longAgo = math.MinInt64 / 2

// tenantOf finds the tenant, or makes it as one that used nothing: its bucket
// full, or on its ramp.
func (e *Engine) tenantOf(s *engineShard, h *hold, r *Request) *tenant {
	tier := tierIndex(r.Principal.Tenant.Tier)
	t := s.tenants[r.Principal.Tenant.ID]
	if t == nil {
		t = e.newTenant(r.Principal.Tenant, h.snapshot, h.now)
		s.tenants[t.id] = t
		return t
	}
	if t.snapshot != h.snapshot || t.limits.tier != tier {
		e.adopt(t, h.snapshot, tier, h.now)
	}
	return t
}

func (e *Engine) newTenant(of *kms.Tenant, snapshot *Snapshot, now instant) *tenant {
	t := &tenant{snapshot: snapshot, limits: snapshot.limits(of.ID, tierIndex(of.Tier))}
	t.owner, t.kind, t.id = t, tenantScope, of.ID
	t.scope.limits = &t.limits.scopeLimits
	t.rampZero = t.rampSince(of.Created, now)
	t.elastic.day = t.calendar().day(now.wall)
	t.elastic.pool = t.limits.days.pool
	for i := range t.stored {
		t.stored[i] = -1
	}
	e.begin(t, &t.scope, now.ns)
	t.beginDay()
	t.refunds = newBucket(t.refundRate().burst, now.ns)
	t.fitPacks()
	return t
}

// loadTime is the time by which the tenant's bucket fills.
func (e *Engine) loadTime(t *tenant, now int64) int64 {
	return e.load.current.Load().time(t.limits.tier, now)
}

// rampSince returns where in the engine's time a ramp began.
func (t *tenant) rampSince(made time.Time, now instant) int64 {
	if made.IsZero() || t.limits.ramp >= permille {
		return longAgo
	}
	age := now.wall.Sub(made)
	if age >= time.Duration(rampSteps*t.snapshot.rampStep) {
		return longAgo
	}
	return now.ns - int64(max(age, 0))
}

// begin fills a new scope's buckets: on a ramp, as far as that is.
func (e *Engine) begin(t *tenant, sc *scope, now int64) {
	level := sc.limits.credits.burst
	if e.shared != nil && e.shared.leased(sc) {
		sc.lease = newScopeLease(sc, now)
		level = 0
	}
	if sc.rampZero != longAgo {
		level, _ = mulDiv(level, t.limits.ramp, permille)
	}
	sc.credits = newBucket(level, now)
	if sc.kind == tenantScope && sc.lease == nil {
		sc.credits.last = e.loadTime(t, now)
	}
	sc.filled = now
	sc.requests = newBucket(sc.limits.requests.burst, now)
	if sc.lease != nil {
		sc.requests.level = 0
	}
}

// ramped returns the part of its rate that a scope has in a step of its ramp,
// in thousandths.
func (t *tenant) ramped(step int64) int64 {
	if step >= rampSteps {
		return permille
	}
	return t.limits.ramp + (permille-t.limits.ramp)*step/rampSteps
}

// step returns the step of a scope's ramp at a moment.
func (sc *scope) step(now int64) int64 {
	if sc.rampZero == longAgo {
		return rampSteps
	}
	return max(min((now-sc.rampZero)/sc.owner.snapshot.rampStep, rampSteps), 0)
}

// rate returns how the scope's bucket fills in a step of its ramp.
func (sc *scope) rate(step int64) rate {
	r, t := sc.limits.credits, sc.owner
	if step < rampSteps {
		r.perSecond, _ = mulDiv(r.perSecond, t.ramped(step), permille)
	}
	if sc.kind == tenantScope && t.elastic.lowered {
		r.perSecond, _ = mulDiv(r.perSecond, t.limits.days.notch, permille)
		r.burst, _ = mulDiv(r.burst, t.limits.days.notch, permille)
	}
	return r
}

// fill refills the scope's buckets up to a moment. The steps of a ramp are
// taken one by one, so that it does not matter how often a scope is looked at.
func (e *Engine) fill(sc *scope, now int64) {
	if sc.lease != nil {
		e.fillLeased(sc, now)
		return
	}
	for sc.filled < now {
		step, to := sc.step(sc.filled), now
		if step < rampSteps {
			to = min(now, sc.rampZero+(step+1)*sc.owner.snapshot.rampStep)
		}
		e.fillStep(sc, to, sc.rate(step))
	}
	sc.requests.refill(now, sc.limits.requests, 0)
}

func (e *Engine) fillStep(sc *scope, to int64, r rate) {
	sc.filled = to
	if sc.kind != tenantScope {
		sc.credits.refill(to, r, 0)
		return
	}
	t := sc.owner
	granted, overflow := sc.credits.refill(e.loadTime(t, to), r, t.snapshot.repay)
	t.granted += granted
	t.lost += overflow
}

// advance brings a tenant to now: its day and its buckets.
func (e *Engine) advance(t *tenant, now instant) {
	if now.wall.UnixNano() >= t.dayEnds {
		e.turnDay(t, now)
	}
	e.fill(&t.scope, now.ns)
}

// turnDay ends the tenant's day. What the pool then lacks lowers the rate from
// that moment on, not from when it is noticed.
func (e *Engine) turnDay(t *tenant, now instant) {
	ended := now.ns - (now.wall.UnixNano() - t.dayEnds)
	e.fill(&t.scope, min(max(ended, t.filled), now.ns))
	day := t.calendar().day(now.wall)
	if t.lease != nil {
		t.elastic.day, t.elastic.used = day, 0 // the store turns the pool
	} else {
		t.elastic.turn(day, daysBetween(t.elastic.day, day), t.limits.days)
		t.lost += t.credits.resize(t.rate(t.step(now.ns)).burst)
	}
	t.beginDay()
}

// calendar is made when it is asked for: it takes less than its place in every
// tenant.
func (t *tenant) calendar() calendar { return newCalendar(t.limits.zone, t.id) }

// setDay notes when the day ends.
func (t *tenant) setDay() { t.dayEnds = t.calendar().ends(t.elastic.day).UnixNano() }

// dayEnd and monthEnd are when the totals begin anew.
func (t *tenant) dayEnd() time.Time   { return time.Unix(0, t.dayEnds).In(t.limits.zone) }
func (t *tenant) monthEnd() time.Time { return t.calendar().monthEnds(t.elastic.day) }

// beginDay begins what goes by the day.
func (t *tenant) beginDay() {
	t.setDay()
	t.month.turn(month(t.elastic.day))
	t.bandwidth.turn(t.elastic.day)
	t.day.turn(t.elastic.day)
	for i := range t.packs {
		t.packs[i].today = 0
	}
	if t.lease != nil {
		t.turnLeases()
	}
}

// adopt makes new limits those of the tenant, from the moment on at which they
// came to hold.
func (e *Engine) adopt(t *tenant, snapshot *Snapshot, tier int, now instant) {
	since := now.ns
	if t.snapshot != snapshot {
		since = min(max(int64(snapshot.since.Sub(e.start)), t.filled), now.ns)
	}
	e.fill(&t.scope, since)
	old := t.limits
	t.snapshot, t.limits, t.since = snapshot, snapshot.limits(t.id, tier), since
	if old.tier != tier && t.lease == nil {
		t.credits.last = e.loadTime(t, since) // of the other tier's clock
	}
	t.elastic.adopt(old.days, t.limits.days)
	t.lost += t.scope.fit(&t.limits.scopeLimits, since)
	t.refunds.resize(t.refundRate().burst)
	t.setDay()
	t.fitPacks()
	for name, sc := range t.projects {
		if t.limits.projects[name] == nil && sc.held == 0 {
			delete(t.projects, name)
		}
	}
}

// fit gives a scope other limits and returns the credits that no longer find
// room. A limit that was not there before begins full.
func (sc *scope) fit(limits *scopeLimits, now int64) (lost int64) {
	old := sc.limits
	sc.limits = limits
	if sc.lease != nil {
		return 0 // the store knows what there is
	}
	if old.credits.perSecond == 0 {
		sc.credits = newBucket(limits.credits.burst, now)
	}
	if old.requests.perSecond == 0 {
		sc.requests = newBucket(limits.requests.burst, now)
	}
	sc.requests.resize(limits.requests.burst)
	return sc.credits.resize(sc.rate(sc.step(now)).burst)
}

// refundRate is the bucket of what failed work may give back.
func (t *tenant) refundRate() rate {
	perSecond, _ := mulDiv(t.limits.credits.perSecond, t.snapshot.refund, permille)
	burst, _ := mulDiv(t.limits.credits.burst, t.snapshot.refund, permille)
	return rate{perSecond: perSecond, burst: burst}
}

// fitPacks makes the tenant's packs those of its limits, in the order in which
// they expire, and keeps what is used of each.
func (t *tenant) fitPacks() {
	old := t.packs
	t.packs = nil
	for _, limit := range t.limits.packs {
		p := pack{id: limit.id}
		if i := slices.IndexFunc(old, func(o pack) bool { return o.id == p.id }); i >= 0 {
			p.used, p.today = old[i].used, old[i].today
		}
		t.packs = append(t.packs, p)
	}
}
