package provider_test

import (
	"slices"
	"testing"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
	"github.com/sluice-kms/sluice/provider"
)

var start = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

const model = "gpt"

// gateway is a route with its health under a clock of its own, and what a
// gateway would know of it.
type gateway struct {
	t      testing.TB
	view   kms.RouteView
	stored []byte
	order  kms.RouteOrder
	events []kms.RouteEvent
}

// newGateway makes a route with the primary "a" and fallbacks named so.
func newGateway(t testing.TB, fallbacks ...string) *gateway {
	r := &kms.ProviderRoute{ID: uuid.MustParse("0198c1a5-0000-7000-8000-000000000001"), Name: "chat", Models: []string{model}, AuthHeader: kms.AuthBearer}
	g := &gateway{t: t, view: kms.RouteView{Route: r, Rules: kms.DefaultRouteRules(), Now: start, Keys: map[string]kms.RouteKeys{}, Down: map[string]bool{}}}
	for i, name := range append([]string{"a"}, fallbacks...) {
		target := kms.RouteTarget{Name: name, Provider: "openai", BaseURL: "https://" + name + ".example/v1", Region: "eu", Secret: "llm/" + name}
		if i == 0 {
			target.Weight = 100
		}
		r.Targets = append(r.Targets, target)
		g.view.Keys[name] = kms.RouteKeys{Needed: true, Versions: []uint32{1}}
	}
	g.look()
	return g
}

// look asks for the order without telling anything.
func (g *gateway) look() kms.RouteOrder {
	g.t.Helper()
	order, err := provider.Health{}.Order(&g.view, g.stored)
	if err != nil {
		g.t.Fatal(err)
	}
	g.order = order
	return order
}

// report tells of calls that followed the last order.
func (g *gateway) report(outcomes ...kms.RouteOutcome) kms.RouteOrder {
	g.t.Helper()
	return g.reportAs(g.order.Generation, outcomes...)
}

func (g *gateway) reportAs(generation uint64, outcomes ...kms.RouteOutcome) kms.RouteOrder {
	g.t.Helper()
	for i := range outcomes {
		if outcomes[i].Model == "" {
			outcomes[i].Model = model
		}
		if outcomes[i].Version == 0 {
			outcomes[i].Version = 1
		}
	}
	next, order, events, err := provider.Health{}.Report(&g.view, g.stored, &kms.RouteReport{Generation: generation, Outcomes: outcomes})
	if err != nil {
		g.t.Fatal(err)
	}
	g.stored, g.order, g.events = next, order, append(g.events, events...)
	return order
}

func (g *gateway) pass(d time.Duration) { g.view.Now = g.view.Now.Add(d) }

func (g *gateway) choice(name string) kms.RouteChoice {
	g.t.Helper()
	for _, c := range g.order.Choices {
		if c.Target == name {
			return c
		}
	}
	g.t.Fatalf("no target %s in %+v", name, g.order)
	return kms.RouteChoice{}
}

// want checks a target's state and part of the calls.
func (g *gateway) want(name string, state kms.TargetState, weight uint32) {
	g.t.Helper()
	if c := g.choice(name); c.State != state || c.Weight != weight {
		g.t.Fatalf("%v: %s is %s (%s) with %d of 100, want %s with %d: %+v", g.view.Now.Sub(start), name, c.State, c.Cause, c.Weight, state, weight, g.order)
	}
}

func (g *gateway) told(e kms.EventType) (n int) {
	for i := range g.events {
		if g.events[i].Type == e {
			n++
		}
	}
	return n
}

func ok(name string, n int64) kms.RouteOutcome { return kms.RouteOutcome{Target: name, OK: n} }
func failed(name string, n int64) kms.RouteOutcome {
	return kms.RouteOutcome{Target: name, Transient: n}
}

// broken makes the primary one whose calls have all moved away, up to the
// moment at which its breaker lets one call through, and returns its lease.
func (g *gateway) broken() uint64 {
	g.t.Helper()
	g.report(failed("a", 5))
	g.want("a", kms.TargetUnhealthy, 90)
	for range 60 { // at most 15 minutes and the jitter
		g.pass(20 * time.Second)
		if lease := g.lease("a"); lease != 0 {
			return lease
		}
	}
	g.t.Fatal("no lease in 20 minutes")
	return 0
}

// lease asks for a lease.
func (g *gateway) lease(name string) uint64 {
	g.t.Helper()
	g.report()
	return g.choice(name).Lease
}

func (g *gateway) because(name string, reason kms.RouteReason) {
	g.t.Helper()
	if c := g.choice(name); !slices.Contains(c.Reasons, reason) {
		g.t.Errorf("%s is where it is because of %v, want %s", name, c.Reasons, reason)
	}
}
