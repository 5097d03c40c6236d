package quota

import (
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// Object is a kind of stored object that is counted.
type Object uint8

// The kinds.
const (
	Nothing Object = iota
	Keys
	Secrets
	Credentials
	objectKinds
)

// The codes of reasons why a request is refused. PROJECT, CREDENTIAL and KEY
// stand before RATE, REQUESTS, DAY_HARD and CONCURRENCY too.
const (
	ReasonRate        = "TENANT_RATE"        // micro-credits
	ReasonDebt        = "TENANT_DEBT_REPAY"  // micro-credits; the debt slows the refill down
	ReasonRequests    = "TENANT_REQUESTS"    // micro-requests
	ReasonConcurrency = "TENANT_CONCURRENCY" // requests in flight
	ReasonDay         = "DAY_HARD"           // micro-credits
	ReasonMonth       = "MONTH_HARD"         // micro-credits
	ReasonNotch       = "DAY_NOTCH"          // micro-credits; fits again when the pool is full
	ReasonBandwidth   = "BANDWIDTH"          // bytes
	ReasonStorage     = "STORAGE"            // objects
	ReasonVersions    = "VERSIONS"           // of one key
	ReasonHotKey      = "KEY_BREAKER_OPEN"   // calls in vain: use a data key and cache it
	ReasonFailingKey  = "KEY_FAILING"
	ReasonCostBulk    = "COST_BULK_REFUSED" // micro-credits a minute; the cost breaker refuses bulk work
	ReasonCostStopped = "COST_STOPPED"      // micro-credits a minute; the cost breaker refuses everything
	ReasonLease       = "LEASE_PENDING"     // another node's share is on its way
	ReasonStoreAway   = "STORE_AWAY"        // emergency limits hold
)

var (
	rateReasons        = [...]string{ReasonRate, "PROJECT_RATE", "CREDENTIAL_RATE", "KEY_RATE"}
	requestReasons     = [...]string{ReasonRequests, "PROJECT_REQUESTS", "CREDENTIAL_REQUESTS", "KEY_REQUESTS"}
	dayReasons         = [...]string{ReasonDay, "PROJECT_DAY_HARD", "CREDENTIAL_DAY_HARD", "KEY_DAY_HARD"}
	concurrencyReasons = [...]string{ReasonConcurrency, "PROJECT_CONCURRENCY", "CREDENTIAL_CONCURRENCY", "KEY_CONCURRENCY"}
)

// slotRetry is after what a request that found too many in flight may try
// again: several times what an operation takes.
const slotRetry = time.Second

// refusal collects the reasons of all gates that refuse.
type refusal struct {
	reasons []kms.Reason
	never   bool // what was asked for can never fit
	spent   bool // nothing before a reset, or at all
	ours    bool // no quota is at fault
	keyRate bool // the key's own bucket refuses
	// costOnly tells that the cost breaker refuses, and nothing else.
	costOnly bool
	retry    time.Duration
}

// refuse notes a reason; retry 0: waiting does not help.
func (f *refusal) refuse(code string, limit, need, have int64, retry time.Duration) {
	f.reasons = append(f.reasons, kms.Reason{Code: code, Limit: limit, Need: need, Have: have, RetryIn: retry})
	f.retry = max(f.retry, retry)
}

// error makes the answer of a refusal: the kind of the reason that lasts
// longest.
func (f *refusal) error(s *Snapshot) *kms.Error {
	e := &kms.Error{Reasons: f.reasons}
	switch {
	case f.never:
		e.Kind, e.Detail = kms.KindUnsatisfiable, "the request costs more than its limits can ever hold"
		return e
	case f.spent:
		e.Kind, e.Detail = kms.KindQuotaExhausted, "a total of the quota is used up"
	case f.ours:
		e.Kind, e.Detail = kms.KindReducedCapacity, "the key fails: calls with it are held back"
	default:
		e.Kind, e.Detail = kms.KindQuotaExceeded, "the quota does not allow this request now"
	}
	for _, r := range f.reasons {
		if r.RetryIn == 0 {
			return e // one of the reasons does not go away
		}
		if r.Code == ReasonHotKey {
			e.Detail = "most calls with this key are refused: use a data key and cache it locally"
		}
		if r.Code == ReasonCostStopped || r.Code == ReasonCostBulk {
			e.Detail = costDetail(r.Code)
		}
	}
	e.RetryAfter = retryAfter(s.jitter(f.retry))
	return e
}

func costDetail(code string) string {
	if code == ReasonCostBulk {
		return "bulk work is refused: at the present rate the quota would be used up long before its reset"
	}
	return "everything is refused: at the present rate the quota would be used up long before its reset"
}

// retryAfter rounds a wait up to the whole seconds of a Retry-After header, at
// least one: a client that comes back a moment too early is refused again.
func retryAfter(wait time.Duration) time.Duration {
	return max((wait + time.Second - 1).Truncate(time.Second), time.Second)
}

// RetryAfter is a wait as an answer tells it: lengthened by a random part, by
// the policy, and rounded up.
func (h *Policies) RetryAfter(wait time.Duration) time.Duration {
	return retryAfter(h.Current().jitter(wait))
}

// peek asks every gate and tells whether all agree. It changes nothing but what
// a refusal leaves behind: promises, and what breakers count.
func (e *Engine) peek(f *refusal, h *hold, r *Request) bool {
	for i := range h.parts {
		e.peekScope(f, h, h.parts[i].scope)
	}
	if h.tenant.lease != nil {
		e.peekLeasedTotals(f, h)
	} else {
		h.peekTotals(f)
	}
	h.peekStored(f, r)
	if h.key != nil {
		h.peekBreakers(f)
	}
	h.peekCost(f, r)
	if f.reasons == nil {
		return true
	}
	h.tenant.refused++
	for i := range h.parts {
		if l := h.parts[i].scope.lease; l != nil {
			l.refused = h.now.ns
		}
	}
	if h.key != nil {
		rules := &h.snapshot.hotSpot
		if _, probe := h.key.hotSpot.wait(h.now.ns, rules); probe && f.keyRate {
			h.key.hotSpot.trip(h.now.ns, rules) // it would have been the probe
		}
		h.key.hotSpot.count(f.keyRate, h.now.ns, rules)
	}
	return false
}

// peekScope asks the gates that every scope has.
func (e *Engine) peekScope(f *refusal, h *hold, sc *scope) {
	cost, now := int64(h.reservation.Cost), h.now.ns
	if sc.lease != nil {
		e.peekLeased(f, h, sc)
		return
	}
	if l := sc.limits.credits; l.perSecond > 0 {
		e.peekCredits(f, h, sc, cost)
	}
	if l := sc.limits.requests; l.perSecond > 0 {
		if lack := sc.requests.lack(micro, l, false); lack > 0 {
			wait := sc.requests.promise(micro, now, l, 0, h.snapshot.retryHorizon)
			f.refuse(requestReasons[sc.kind], l.burst, micro, sc.requests.level, time.Duration(wait))
		}
	}
	if limit := sc.limits.day; limit > 0 && sc.day.used+cost > limit {
		f.spent = true
		f.refuse(dayReasons[sc.kind], limit, cost, max(limit-sc.day.used, 0), h.untilReset(h.tenant.dayEnd()))
		f.never = f.never || cost > limit
	}
	if limit := sc.limits.concurrency; limit > 0 && sc.inFlight >= limit {
		f.refuse(concurrencyReasons[sc.kind], limit, 1, 0, slotRetry)
	}
}

// peekCredits asks a bucket of credits.
func (e *Engine) peekCredits(f *refusal, h *hold, sc *scope, cost int64) {
	full, r := sc.limits.credits, sc.rate(sc.step(h.now.ns))
	if cost > full.burst {
		f.never = true
		f.refuse(rateReasons[sc.kind], full.burst, cost, sc.credits.level, 0)
		return
	}
	mayBorrow, repay := false, repayShare(0)
	if sc.kind == tenantScope {
		span := e.load.current.Load()
		mayBorrow, repay = !span.above, h.snapshot.repay
		r.perSecond = r.perSecond / permille * span.tiers[h.tenant.limits.tier].share
	}
	if sc.credits.lack(cost, r, mayBorrow) == 0 {
		return
	}
	if cost > r.burst { // until the notch is taken back
		f.spent = true
		f.refuse(ReasonNotch, r.burst, cost, sc.credits.level, h.untilReset(h.tenant.dayEnd()))
		return
	}
	code := rateReasons[sc.kind]
	if sc.credits.debt > 0 {
		code = ReasonDebt
	}
	f.keyRate = f.keyRate || sc.kind == keyScope
	wait := sc.credits.promise(cost, h.now.ns, r, repay, h.snapshot.retryHorizon)
	f.refuse(code, r.burst, cost, sc.credits.level-sc.credits.debt, time.Duration(wait))
}

// untilReset returns how long it is to a moment of the tenant's calendar.
func (h *hold) untilReset(at time.Time) time.Duration {
	return max(at.Sub(h.now.wall), time.Second)
}

// peekTotals asks the day with its pool, the month, the packs behind both, and
// the day's bytes.
func (h *hold) peekTotals(f *refusal) {
	t, cost := h.tenant, int64(h.reservation.Cost)
	_, day := t.elastic.room(t.limits.days)
	month := max(t.limits.month-t.month.used, 0)
	if room := min(day, month); cost > room && cost > room+t.packsRoom(h.now.wall) {
		f.spent = true
		if cost > day {
			f.refuse(ReasonDay, t.elastic.base(t.limits.days), cost, day, h.untilReset(t.dayEnd()))
		}
		if cost > month {
			f.refuse(ReasonMonth, t.limits.month, cost, month, h.untilReset(t.monthEnd()))
		}
	}
	if limit := t.limits.bandwidth; t.bandwidth.used+h.bytes > limit {
		f.spent = true
		f.never = f.never || h.bytes > limit
		f.refuse(ReasonBandwidth, limit, h.bytes, max(limit-t.bandwidth.used, 0), h.untilReset(t.dayEnd()))
	}
}

// peekStored asks how many objects the tenant has.
func (h *hold) peekStored(f *refusal, r *Request) {
	t := h.tenant
	if limit := t.limits.stored[r.Creates]; r.Creates != Nothing && int64(t.stored[r.Creates]) >= limit {
		f.spent = true
		f.refuse(ReasonStorage, limit, 1, 0, 0)
	}
	if limit := t.limits.versions; int64(r.Versions) >= limit {
		f.spent = true
		f.refuse(ReasonVersions, limit, 1, 0, 0)
	}
}

// peekBreakers asks the breakers of the key.
func (h *hold) peekBreakers(f *refusal) {
	if wait, _ := h.key.hotSpot.wait(h.now.ns, &h.snapshot.hotSpot); wait > 0 {
		f.refuse(ReasonHotKey, 0, 0, 0, time.Duration(wait))
	}
	if wait, _ := h.key.failures.wait(h.now.ns, &h.snapshot.failures); wait > 0 {
		f.ours = len(f.reasons) == 0
		f.refuse(ReasonFailingKey, 0, 0, 0, time.Duration(wait))
	}
}

// EventKind says what a tenant has come to.
type EventKind string

// The kinds of events.
const (
	EventDaySoft       EventKind = "day_soft_limit"
	EventMonthSoft     EventKind = "month_soft_limit"
	EventBandwidthSoft EventKind = "bandwidth_soft_limit"
)

// Event tells that a tenant has come to a line, once a window.
type Event struct {
	Tenant uuid.UUID
	Kind   EventKind
	Window int32 // the day yyyymmdd or the month yyyymm
	Used   int64 // micro-credits, or bytes
	Limit  int64
}

// events are those of one request: seldom any.
type events struct {
	list []Event
}

func (e events) all(yield func(Event) bool) {
	for _, event := range e.list {
		if !yield(event) {
			return
		}
	}
}

// crossings returns the soft limits that the tenant has come to and was not
// told of yet.
func (t *tenant) crossings(soft int64) (e events) {
	lines := &t.limits.soft
	day := lines[0]
	if t.elastic.lowered {
		day, _ = mulDiv(t.elastic.base(t.limits.days), soft, permille)
	}
	if t.elastic.used >= day && t.soft[0] != t.elastic.day {
		t.soft[0] = t.elastic.day
		e.list = append(e.list, Event{t.id, EventDaySoft, t.elastic.day, t.elastic.used, t.elastic.base(t.limits.days)})
	}
	if t.month.used >= lines[1] && t.soft[1] != t.month.window {
		t.soft[1] = t.month.window
		e.list = append(e.list, Event{t.id, EventMonthSoft, t.month.window, t.month.used, t.limits.month})
	}
	if t.bandwidth.used >= lines[2] && t.soft[2] != t.bandwidth.window {
		t.soft[2] = t.bandwidth.window
		e.list = append(e.list, Event{t.id, EventBandwidthSoft, t.bandwidth.window, t.bandwidth.used, t.limits.bandwidth})
	}
	return e
}
