package provider

import (
	"time"

	"github.com/sluice-kms/sluice/kms"
)

// target is the health of one target of a route.
type target struct {
	// Address is the endpoint's: what is known is not of another one.
	Address string          `json:"address"`
	State   kms.TargetState `json:"state"`
	Cause   kms.TargetCause `json:"cause,omitempty"`
	Since   time.Time       `json:"since,omitzero"`
	// Generation is that of its last transition.
	Generation uint64 `json:"generation,omitzero"`
	// Step of the way away or back, and when it began.
	Step      int       `json:"step,omitzero"`
	StepSince time.Time `json:"step_since,omitzero"`
	// Until is before when an unhealthy one is not tried.
	Until time.Time `json:"until,omitzero"`
	// Opens is how often the breaker opened since it was last forgotten.
	Opens int `json:"opens,omitzero"`
	// Failures are those in a row.
	Failures int64  `json:"failures,omitzero"`
	Window   window `json:"window,omitzero"`

	Lease      uint64    `json:"lease,omitzero"`
	LeaseUntil time.Time `json:"lease_until,omitzero"`

	// Observed is what came of the calls of a step back.
	Observed observed `json:"observed,omitzero"`
	// Usual is the P99 while it was healthy; 0: not known.
	Usual  nanoseconds `json:"usual,omitzero"`
	LastOK time.Time   `json:"last_ok,omitzero"`

	Keys  map[uint32]key `json:"keys,omitempty"`
	Cools []cool         `json:"cools,omitempty"`
}

// observed is what a step back is judged by.
type observed struct {
	counts
	Billing int64 `json:"billing,omitzero"`
	// Slowness is the sum of P99 in nanoseconds over calls, of which Timed were
	// timed.
	Slowness float64 `json:"slowness,omitzero"`
	Timed    int64   `json:"timed,omitzero"`
}

// nanoseconds are a duration that is a number in the document.
type nanoseconds int64

// p99 is the mean of the reported ones by calls, 0 when none were.
func (o *observed) p99() nanoseconds {
	if o.Timed == 0 {
		return 0
	}
	return nanoseconds(o.Slowness / float64(o.Timed))
}

// moved is the part of its calls that others have, in hundredths.
func (h *health) moved(t *target) uint32 {
	switch t.State {
	case kms.TargetSuspect:
		return h.rules().Switch[0]
	case kms.TargetUnhealthy:
		return h.rules().Switch[t.Step]
	case kms.TargetRecovering:
		return 100 - h.rules().Failback[t.Step]
	}
	return 0
}

// faulty tells whether a cause is a fault of the endpoint.
func faulty(c kms.TargetCause) bool {
	return c == kms.CauseEndpoint || c == kms.CauseLatency || c == kms.CauseProbe
}

// leave begins, or goes on with, the way away. An endpoint's fault opens the
// breaker; a rate limit or a key says when it may be tried again.
func (h *health) leave(name string, t *target, cause kms.TargetCause, until time.Time) {
	moved, away, known := h.moved(t), t.State == kms.TargetUnhealthy, t.State == kms.TargetUnhealthy && faulty(t.Cause)
	if faulty(cause) {
		until = h.now.Add(h.openFor(name, t.Opens))
		t.Opens++
	}
	t.State, t.Cause, t.Until = kms.TargetUnhealthy, cause, until
	t.Failures, t.Lease, t.LeaseUntil = 0, 0, time.Time{}
	if !away {
		// No back-up gets fewer calls than it has already, or many more at once.
		t.Step = 0
		for h.rules().Switch[t.Step] < moved {
			t.Step++
		}
		t.StepSince = h.now
	}
	h.transition(t)
	if faulty(cause) && !known {
		h.tell(kms.EventProviderUnhealthy, name, t, 0)
	}
	if !away {
		h.tell(kms.EventRouteFailOver, name, t, 0)
	}
}

// openFor is how long the breaker is open for the next time: OpenFirst doubling
// to OpenLast, give or take openJitter. The jitter follows from what opens, so
// that all API nodes come to the same.
func (h *health) openFor(name string, opens int) time.Duration {
	d := h.rules().OpenFirst
	for range opens {
		if d = min(2*d, h.rules().OpenLast); d == h.rules().OpenLast {
			break
		}
	}
	return time.Duration(float64(d) * (1 + openJitter*(2*h.fraction(name)-1)))
}

// comeBack begins the way back after a success.
func (h *health) comeBack(name string, t *target) {
	t.State, t.Until, t.Step, t.StepSince, t.Observed = kms.TargetRecovering, time.Time{}, 0, h.now, observed{}
	t.Failures, t.Window, t.Lease, t.LeaseUntil = 0, window{}, 0, time.Time{}
	h.transition(t)
	h.tell(kms.EventRouteFailback, name, t, 0)
}

func (h *health) settle(name string, t *target, state kms.TargetState) {
	back := t.State == kms.TargetRecovering
	t.State, t.Step, t.StepSince, t.Observed = state, 0, time.Time{}, observed{}
	if state == kms.TargetHealthy {
		t.Cause = ""
	}
	h.transition(t)
	if back {
		h.tell(kms.EventRouteFailback, name, t, 0)
	}
}

// take takes an outcome. fresh tells whether it followed from the present state
// of the target.
func (h *health) take(name string, t *target, o *kms.RouteOutcome, keys kms.RouteKeys, fresh bool) {
	if t.takeKey(h.now, o) {
		h.tell(kms.EventProviderKeyInvalid, name, t, o.Version)
	}
	t.takeLimit(h.now, o, h.rules().LimitLasts)
	if o.OK > 0 {
		t.LastOK = h.now
	}
	if o.Lease != 0 {
		// A lease that is over, or another's, decides nothing.
		if o.Lease == t.Lease {
			h.settleLease(name, t, o)
		}
		return
	}
	if !fresh {
		return
	}
	c := counts{OK: o.OK, Failed: o.Transient, Limited: o.RateLimit, Connections: o.Connections}
	t.Window.add(h.now, c)
	if o.OK > 0 {
		t.Failures = 0
	} else {
		t.Failures += o.Transient
	}
	switch t.State {
	case kms.TargetRecovering:
		t.observe(o, c)
		h.judgeReturn(name, t)
	case kms.TargetHealthy:
		t.learn(o)
		h.judge(name, t)
	default:
		h.judge(name, t)
	}
}

// settleLease decides by the one call of a lease. What says nothing of the
// endpoint gives the lease back.
func (h *health) settleLease(name string, t *target, o *kms.RouteOutcome) {
	switch {
	case o.Transient > 0:
		cause := t.Cause
		if !faulty(cause) {
			cause = kms.CauseEndpoint
		}
		h.leave(name, t, cause, time.Time{})
	case o.OK > 0:
		h.comeBack(name, t)
	default:
		t.Lease, t.LeaseUntil = 0, time.Time{}
		if until := t.cooledUntil(h.now); o.RateLimit > 0 && until.After(t.Until) {
			t.Until = until
		}
	}
}

// learn notes what latency is usual, slowly, so that a slow day shows.
func (t *target) learn(o *kms.RouteOutcome) {
	switch {
	case o.P99 <= 0:
	case t.Usual == 0:
		t.Usual = nanoseconds(o.P99)
	default:
		t.Usual += (nanoseconds(o.P99) - t.Usual) / learning
	}
}

func (t *target) observe(o *kms.RouteOutcome, c counts) {
	t.Observed.add(c)
	t.Observed.Billing += o.Quota
	if o.P99 > 0 {
		t.Observed.Slowness += float64(o.P99) * float64(o.Calls())
		t.Observed.Timed += o.Calls()
	}
}

// judge decides on a target that is not returning.
func (h *health) judge(name string, t *target) {
	sum := t.Window.sum(h.now)
	many := sum.judged() >= minCalls
	broken := t.Failures >= h.rules().BreakerFailures || many && sum.rate() >= brokenRate
	switch {
	case t.State == kms.TargetUnhealthy && faulty(t.Cause):
		// It is known.
	case broken:
		h.leave(name, t, kms.CauseEndpoint, time.Time{})
	case t.State == kms.TargetUnhealthy:
	case t.limitsLast(h.now, h.rules().LimitLasts), sum.Limited > 0 && sum.Connections >= limitConnections && 2*sum.OK < sum.judged()+sum.Limited:
		h.leave(name, t, kms.CauseRateLimit, t.cooledUntil(h.now))
	case t.State == kms.TargetHealthy && many && sum.rate() >= suspectRate:
		h.suspect(name, t)
	case t.State == kms.TargetSuspect && many && sum.rate() < clearRate && h.now.Sub(t.Since) >= suspectTime:
		h.settle(name, t, kms.TargetHealthy)
	}
}

func (h *health) suspect(name string, t *target) {
	t.Cause = kms.CauseEndpoint
	h.settle(name, t, kms.TargetSuspect)
}

// judgeReturn ends the way back as soon as something speaks against it.
func (h *health) judgeReturn(name string, t *target) {
	o := &t.Observed
	switch {
	case o.Billing > 0:
		h.leave(name, t, kms.CauseKey, h.now.Add(exhaustedTime))
	case t.Failures >= h.rules().BreakerFailures, o.judged() >= minCalls && o.rate() >= suspectRate:
		h.leave(name, t, kms.CauseEndpoint, time.Time{})
	case t.limitsLast(h.now, h.rules().LimitLasts):
		h.leave(name, t, kms.CauseRateLimit, t.cooledUntil(h.now))
	case o.Timed >= minCalls && t.slow():
		h.leave(name, t, kms.CauseLatency, time.Time{})
	}
}

func (t *target) slow() bool {
	return t.Usual > 0 && t.Observed.p99() > max(slowFactor*t.Usual, nanoseconds(slowFloor))
}

// advance does what time does.
func (h *health) advance(name string, t *target, keys kms.RouteKeys, down bool) {
	if t.Lease != 0 && !h.now.Before(t.LeaseUntil) {
		t.Lease, t.LeaseUntil = 0, time.Time{}
	}
	usable, until := t.usable(h.now, keys)
	switch {
	case t.State != kms.TargetUnhealthy && !usable:
		h.leave(name, t, kms.CauseKey, until)
	case t.State == kms.TargetUnhealthy && t.Cause == kms.CauseKey && usable && t.Until.After(h.now) && !t.exhausted(h.now, keys):
		// A new version, or one that was found good.
		t.Until = h.now
	case t.State != kms.TargetUnhealthy && down && h.now.Sub(t.LastOK) > windowBuckets*bucketTime:
		h.leave(name, t, kms.CauseProbe, time.Time{})
	}
	switch t.State {
	case kms.TargetUnhealthy:
		for t.Step+1 < len(h.rules().Switch) && h.now.Sub(t.StepSince) >= h.rules().SwitchTime {
			t.Step++
			t.StepSince = t.StepSince.Add(h.rules().SwitchTime)
			h.Generation++
		}
	case kms.TargetRecovering:
		h.advanceReturn(name, t)
	case kms.TargetSuspect:
		if sum := t.Window.sum(h.now); sum.judged() == 0 && h.now.Sub(t.Since) >= suspectTime {
			h.settle(name, t, kms.TargetHealthy)
		}
	case kms.TargetHealthy:
		if t.Opens > 0 && h.now.Sub(t.Since) >= forgetAfter {
			t.Opens = 0
		}
	}
}

// exhausted tells whether any of the versions in use is out of money.
func (t *target) exhausted(now time.Time, keys kms.RouteKeys) bool {
	for _, v := range keys.Versions {
		if k, ok := t.Keys[v]; ok && k.State == kms.KeyExhausted && k.blocked(now) {
			return true
		}
	}
	return false
}

// advanceReturn takes a returning target to its next step when the one before
// was observed for long enough and nothing speaks against it. Where nobody
// reports, time alone decides.
func (h *health) advanceReturn(name string, t *target) {
	for t.State == kms.TargetRecovering && h.now.Sub(t.StepSince) >= h.rules().FailbackTime {
		o := &t.Observed
		switch {
		case o.Failed > 0 && o.rate() >= suspectRate:
			h.leave(name, t, kms.CauseEndpoint, time.Time{})
			return
		case t.slow():
			h.leave(name, t, kms.CauseLatency, time.Time{})
			return
		case o.Limited > 0 && o.OK == 0:
			return // nothing got through yet
		}
		if t.Step+1 == len(h.rules().Failback) {
			h.settle(name, t, kms.TargetHealthy)
			return
		}
		t.Step++
		t.StepSince = t.StepSince.Add(h.rules().FailbackTime)
		t.Observed = observed{}
		h.Generation++
	}
}
