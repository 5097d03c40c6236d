package provider

import (
	"encoding/json/v2"
	"errors"
	"hash/fnv"
	"math"
	"strconv"
	"time"

	"github.com/sluice-kms/sluice/kms"
)

// Health implements kms.RouteHealth. It has no state of its own and is safe for
// concurrent use.
type Health struct{}

var _ kms.RouteHealth = Health{}

// health is what is known of a route, as it is stored, and what is being decided
// on it.
type health struct {
	Generation uint64             `json:"generation"`
	Leases     uint64             `json:"leases,omitzero"` // given out so far
	Latest     time.Time          `json:"latest"`          // the latest time that was seen
	Targets    map[string]*target `json:"targets"`
	Budget     budget             `json:"budget"`

	view   *kms.RouteView
	now    time.Time
	events []kms.RouteEvent
}

var errHealth = errors.New("provider: the stored health of the route is not one")

// open reads a stored health, fits it to the route as it is now, and lets the
// time pass until now. Clocks of API nodes that disagree never turn it back.
func open(v *kms.RouteView, stored []byte) (*health, error) {
	h := &health{Generation: 1}
	if stored != nil {
		if err := json.Unmarshal(stored, h, json.RejectUnknownMembers(true)); err != nil {
			return nil, errHealth
		}
	}
	h.view, h.now = v, v.Now
	if h.now.Before(h.Latest) {
		h.now = h.Latest
	}
	h.Latest = h.now
	known := h.Targets
	h.Targets = make(map[string]*target, len(v.Route.Targets))
	for i := range v.Route.Targets {
		name := v.Route.Targets[i].Name
		t := known[name]
		if t == nil || t.Address != v.Route.Targets[i].BaseURL {
			t = &target{Address: v.Route.Targets[i].BaseURL, State: kms.TargetHealthy, Since: h.now}
		}
		if t.Step < 0 || t.Step >= maxSteps {
			return nil, errHealth
		}
		// The policy may have fewer steps than when the target came to its own.
		switch t.State {
		case kms.TargetUnhealthy:
			t.Step = min(t.Step, len(h.rules().Switch)-1)
		case kms.TargetRecovering:
			t.Step = min(t.Step, len(h.rules().Failback)-1)
		}
		h.Targets[name] = t
	}
	h.pass()
	return h, nil
}

func (h *health) rules() *kms.RouteRules { return &h.view.Rules }

// pass lets time do its work on all targets, in the order of the route.
func (h *health) pass() {
	for i := range h.view.Route.Targets {
		name := h.view.Route.Targets[i].Name
		h.advance(name, h.Targets[name], h.view.Keys[name], h.view.Down[name])
	}
}

// transition begins a new generation with a target's new state.
func (h *health) transition(t *target) {
	h.Generation++
	t.Since, t.Generation = h.now, h.Generation
}

func (h *health) tell(e kms.EventType, name string, t *target, version uint32) {
	h.events = append(h.events, kms.RouteEvent{Type: e, Target: name, Cause: t.Cause, Version: version, Share: 100 - h.moved(t), Generation: h.Generation})
}

// fraction is a number from 0 to below 1 that follows from a target, the route
// and its generation.
func (h *health) fraction(name string) float64 {
	f := fnv.New64a()
	f.Write(h.view.Route.ID[:])
	f.Write([]byte(name))
	f.Write([]byte(strconv.FormatUint(h.Generation, 10)))
	return float64(f.Sum64()) / math.MaxUint64
}

func (h *health) encode() ([]byte, error) { return json.Marshal(h, json.Deterministic(true)) }

// Order implements kms.RouteHealth.
func (Health) Order(v *kms.RouteView, stored []byte) (kms.RouteOrder, error) {
	h, err := open(v, stored)
	if err != nil {
		return kms.RouteOrder{}, err
	}
	return h.order(), nil
}

// Report implements kms.RouteHealth.
func (Health) Report(v *kms.RouteView, stored []byte, in *kms.RouteReport) ([]byte, kms.RouteOrder, []kms.RouteEvent, error) {
	h, err := open(v, stored)
	if err != nil {
		return nil, kms.RouteOrder{}, nil, err
	}
	var first int64
	for i := range in.Outcomes {
		o := &in.Outcomes[i]
		t := h.Targets[o.Target]
		if t == nil {
			continue // it was taken out of the route
		}
		first += max(o.Calls()-o.Retries, 0)
		h.take(o.Target, t, o, v.Keys[o.Target], in.Generation >= t.Generation)
	}
	h.pass()
	h.Budget.earn(h.now, first)
	leased := h.lend()
	order := h.order()
	for i := range order.Choices {
		if c := &order.Choices[i]; c.Target == leased {
			c.Lease, c.LeaseUntil = h.Targets[leased].Lease, h.Targets[leased].LeaseUntil
		}
	}
	if order.RetriesPerRequest > 0 {
		order.Retries = h.Budget.grant(first)
	}
	next, err := h.encode()
	return next, order, h.events, err
}

// Validated implements kms.RouteHealth.
func (Health) Validated(v *kms.RouteView, stored []byte, name string, version uint32, answer kms.KeyValidation) ([]byte, []kms.RouteEvent, error) {
	h, err := open(v, stored)
	if err != nil {
		return nil, nil, err
	}
	if t := h.Targets[name]; t != nil {
		h.validated(name, t, version, answer)
	}
	h.pass()
	next, err := h.encode()
	return next, h.events, err
}

// validated takes the answer to a key that was tried out. One that says nothing
// of the key changes nothing about it.
func (h *health) validated(name string, t *target, version uint32, answer kms.KeyValidation) {
	k, known := t.Keys[version]
	if !known {
		k.State = kms.KeyOK
	}
	was := k.State
	k.Validation = &validation{answer.State, answer.Class, answer.At}
	switch answer.State {
	case kms.KeyOK:
		k.State, k.Until, k.Refusals = kms.KeyOK, time.Time{}, 0
	case kms.KeyInvalid:
		k.State, k.Until = kms.KeyInvalid, h.now.Add(invalidTime)
	case kms.KeyExhausted:
		k.State, k.Until = kms.KeyExhausted, h.now.Add(exhaustedTime)
	}
	t.setKey(version, k)
	if k.State == kms.KeyInvalid && was != kms.KeyInvalid {
		h.tell(kms.EventProviderKeyInvalid, name, t, version)
	}
}
