package provider

import (
	"cmp"
	"slices"
	"time"

	"github.com/sluice-kms/sluice/kms"
)

// good tells whether a target can take calls of others.
func (h *health) good(name string) bool {
	t := h.Targets[name]
	ok, _ := t.usable(h.now, h.view.Keys[name])
	return ok && t.State != kms.TargetUnhealthy
}

// panicking tells whether no target is good.
func (h *health) panicking() bool {
	for i := range h.view.Route.Targets {
		if h.good(h.view.Route.Targets[i].Name) {
			return false
		}
	}
	return true
}

// lend gives a lease on a target that gets no calls otherwise, where one may be
// given, and returns the target's name. There is one lease at a time for each
// target, and in a panic one for all.
func (h *health) lend() string {
	panicking := h.panicking()
	best := ""
	for i := range h.view.Route.Targets {
		name := h.view.Route.Targets[i].Name
		t := h.Targets[name]
		if t.Lease != 0 {
			if panicking {
				return ""
			}
			continue
		}
		if panicking && h.view.Keys[name].Needed && len(h.view.Keys[name].Versions) == 0 || !panicking && !h.triable(name) {
			continue
		}
		if best == "" || t.Until.Before(h.Targets[best].Until) {
			best = name
		}
	}
	if best != "" {
		h.Leases++
		t := h.Targets[best]
		t.Lease, t.LeaseUntil = h.Leases, h.now.Add(leaseTime)
	}
	return best
}

// triable tells whether it is time to try a target that gets no calls.
func (h *health) triable(name string) bool {
	t := h.Targets[name]
	usable, _ := t.usable(h.now, h.view.Keys[name])
	return t.State == kms.TargetUnhealthy && usable && !h.now.Before(t.Until) && !h.view.Down[name]
}

// order puts the targets in their order, with their parts of the calls.
func (h *health) order() kms.RouteOrder {
	targets := h.view.Route.Targets
	order := kms.RouteOrder{Generation: h.Generation, Panic: h.panicking(), Choices: make([]kms.RouteChoice, len(targets)),
		RetriesPerRequest: h.view.Rules.RetriesPerRequest}
	weights, stands := h.weights(order.Panic)
	ranks := map[string]int{}
	for i := range targets {
		name := targets[i].Name
		t := h.Targets[name]
		c := &order.Choices[i]
		*c = kms.RouteChoice{Target: name, Weight: weights[i], State: t.State, Cause: t.Cause, Since: t.Since,
			Endpoint: kms.TargetHealthy, Breaker: h.breaker(t), Until: t.Until, Keys: t.keys(), Cools: t.cools(h.now)}
		if t.State != kms.TargetHealthy && faulty(t.Cause) {
			c.Endpoint = t.State
		}
		c.Reasons = h.reasons(i, stands[i], order.Panic)
		ranks[name] = h.rank(i)
	}
	slices.SortStableFunc(order.Choices, func(a, b kms.RouteChoice) int {
		if order.Panic {
			return a.Until.Compare(b.Until)
		}
		return cmp.Or(cmp.Compare(ranks[a.Target], ranks[b.Target]), cmp.Compare(b.Weight, a.Weight))
	})
	if order.Panic {
		order.RetryAfter = h.nextTry()
	}
	return order
}

// nextTry is after how long a lease can be given at the latest.
func (h *health) nextTry() time.Duration {
	wait := leaseTime
	for _, t := range h.Targets {
		if t.Lease != 0 {
			wait = min(wait, t.LeaseUntil.Sub(h.now))
		}
	}
	return max(wait, time.Second)
}

// rank is a target's place: what is cooling is tried after what is not, the
// last resort after both, and last what gets no calls. Nothing is left out.
func (h *health) rank(i int) int {
	r := h.view.Route
	name := r.Targets[i].Name
	switch {
	case !h.good(name):
		return 3
	case r.LastResort && i == len(r.Targets)-1:
		return 2
	case h.Targets[name].cooling(h.now, h.view.Keys[name], h.models()):
		return 1
	}
	return 0
}

// models are those that an order is for.
func (h *health) models() []string {
	if h.view.Model != "" {
		return []string{h.view.Model}
	}
	return h.view.Route.Models
}

// weights returns the parts of the first attempts, and who has a part of
// another's: what has moved away from a target goes to the first that can take
// it. In a panic nobody has a part.
func (h *health) weights(panicking bool) (weights []uint32, stands []bool) {
	targets := h.view.Route.Targets
	weights, stands = make([]uint32, len(targets)), make([]bool, len(targets))
	if panicking {
		return weights, stands
	}
	for i := range targets {
		away := targets[i].Weight * h.moved(h.Targets[targets[i].Name]) / 100
		to := h.standIn(i)
		if away == 0 || to < 0 {
			weights[i] += targets[i].Weight
			continue
		}
		weights[i] += targets[i].Weight - away
		weights[to] += away
		stands[to] = true
	}
	return weights, stands
}

// standIn is who takes the calls that leave a target: the first healthy one in
// the order of the route, else, of an unhealthy one, a suspect one, the last
// resort, or one that is returning, since there is nobody else; -1: nobody.
func (h *health) standIn(of int) int {
	r := h.view.Route
	best, found := -1, 0
	for i := range r.Targets {
		t := h.Targets[r.Targets[i].Name]
		if i == of || !h.good(r.Targets[i].Name) {
			continue
		}
		value := 0
		switch {
		case r.LastResort && i == len(r.Targets)-1:
			value = 2
		case t.State == kms.TargetHealthy:
			value = 4
		case t.State == kms.TargetSuspect:
			value = 3
		case t.State == kms.TargetRecovering:
			value = 1
		}
		if value > found && (value == 4 || value == 2 || h.Targets[r.Targets[of].Name].State == kms.TargetUnhealthy) {
			best, found = i, value
		}
	}
	return best
}

// breaker is the state of the endpoint's breaker, which neither keys nor rate
// limits open.
func (h *health) breaker(t *target) kms.BreakerState {
	switch {
	case t.State != kms.TargetUnhealthy || !faulty(t.Cause):
		return kms.BreakerClosed
	case h.now.Before(t.Until):
		return kms.BreakerOpen
	}
	return kms.BreakerHalfOpen
}

func (h *health) reasons(i int, stands, panicking bool) (list []kms.RouteReason) {
	r := h.view.Route
	name := r.Targets[i].Name
	t, keys := h.Targets[name], h.view.Keys[name]
	add := func(holds bool, reason kms.RouteReason) {
		if holds {
			list = append(list, reason)
		}
	}
	add(panicking, kms.RoutePanic)
	switch t.State {
	case kms.TargetHealthy:
		add(true, kms.RouteHealthy)
	case kms.TargetSuspect:
		add(true, kms.RouteSuspect)
	case kms.TargetRecovering:
		add(true, kms.RouteFailback)
	case kms.TargetUnhealthy:
		add(h.moved(t) < 100, kms.RouteSwitching)
		add(h.breaker(t) == kms.BreakerOpen, kms.RouteBreakerOpen)
		add(h.breaker(t) != kms.BreakerOpen && !h.now.Before(t.Until), kms.RouteHalfOpen)
		add(t.Cause == kms.CauseProbe, kms.RouteProbeDown)
		add(t.Cause == kms.CauseLatency, kms.RouteLatency)
		add(t.Cause == kms.CauseRateLimit, kms.RouteRateLimited)
	}
	if usable, _ := t.usable(h.now, keys); !usable {
		add(len(keys.Versions) == 0, kms.RouteKeyMissing)
		add(len(keys.Versions) > 0 && !t.exhausted(h.now, keys), kms.RouteKeyInvalid)
	}
	add(t.exhausted(h.now, keys), kms.RouteKeyExhausted)
	add(t.cooling(h.now, keys, h.models()), kms.RouteCooling)
	add(stands, kms.RouteStandsIn)
	add(r.LastResort && i == len(r.Targets)-1, kms.RouteLastResort)
	return list
}

func (t *target) keys() (list []kms.RouteKey) {
	for version, k := range t.Keys {
		shown := kms.RouteKey{Version: version, State: k.State, Until: k.Until}
		if v := k.Validation; v != nil {
			shown.Validation = &kms.KeyValidation{State: v.State, Class: v.Class, At: v.At}
		}
		list = append(list, shown)
	}
	slices.SortFunc(list, func(a, b kms.RouteKey) int { return cmp.Compare(a.Version, b.Version) })
	return list
}

func (t *target) cools(now time.Time) (list []kms.RouteCool) {
	for _, c := range t.Cools {
		if now.Before(c.Until) {
			list = append(list, kms.RouteCool{Version: c.Version, Model: c.Model, Until: c.Until})
		}
	}
	return list
}
