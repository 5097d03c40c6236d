package provider_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-kms/sluice/kms"
)

// TestOrdersKeepTheirPromisesWhateverIsReported drives a route with arbitrary
// reports, also of liars, and looks at every order.
func TestOrdersKeepTheirPromisesWhateverIsReported(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		g := newGateway(t, "b", "c")
		g.view.Route.LastResort = rapid.Bool().Draw(rt, "last resort")
		var first, granted int64
		last := g.order // of the last report: what was only looked at is stored nowhere
		rt.Repeat(map[string]func(*rapid.T){
			"time passes": func(rt *rapid.T) {
				g.pass(time.Duration(rapid.IntRange(0, 400).Draw(rt, "seconds")) * time.Second)
				g.look()
			},
			"a key changes": func(rt *rapid.T) {
				name := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "target")
				g.view.Keys[name] = kms.RouteKeys{Needed: true, Versions: rapid.SliceOfN(rapid.Uint32Range(1, 3), 0, 2).Draw(rt, "versions")}
				g.look()
			},
			"a probe": func(rt *rapid.T) {
				g.view.Down[rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "target")] = rapid.Bool().Draw(rt, "down")
				g.look()
			},
			"a report": func(rt *rapid.T) {
				n := func(name string) int64 { return int64(rapid.SampledFrom([]int{0, 0, 0, 1, 5, 100}).Draw(rt, name)) }
				o := kms.RouteOutcome{Target: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "target"), Version: rapid.Uint32Range(1, 3).Draw(rt, "version"),
					OK: n("ok"), Credential: n("credential"), Quota: n("quota"), RateLimit: n("rate limit"), Transient: n("transient"),
					P99: time.Duration(n("p99")) * time.Millisecond}
				if rapid.Bool().Draw(rt, "under a lease") {
					o.Lease = g.choice(o.Target).Lease
				}
				o.Retries = min(n("retries"), o.Calls())
				first += o.Calls() - o.Retries
				g.reportAs(g.order.Generation-min(g.order.Generation, uint64(n("age"))), o)
				granted += int64(g.order.Retries)
				if g.order.Generation < last.Generation {
					rt.Fatalf("generation %d after %d", g.order.Generation, last.Generation)
				}
				checkReturn(rt, g, last)
				last = g.order
			},
			"": func(rt *rapid.T) {
				checkOrder(rt, g)
				if most := 10 + g.view.Now.Sub(start).Seconds() + 0.1*float64(first); float64(granted) > most {
					rt.Fatalf("%d retries granted of %v", granted, most)
				}
			},
		})
	})
}

// checkReturn checks that a target that comes back while others are well gets
// the first step of its calls.
func checkReturn(rt *rapid.T, g *gateway, last kms.RouteOrder) {
	a, well := g.choice("a"), false
	for _, c := range g.order.Choices {
		well = well || c.State == kms.TargetHealthy
	}
	if well && a.State == kms.TargetRecovering && stateOf(last, "a") == kms.TargetUnhealthy && a.Since.Equal(g.view.Now) && a.Weight > 20 {
		rt.Fatalf("a stampede: %+v", g.order)
	}
}

func checkOrder(rt *rapid.T, g *gateway) {
	var sum uint32
	leases := 0
	for _, c := range g.order.Choices {
		sum += c.Weight
		if c.Lease != 0 {
			leases++
		}
		if len(c.Reasons) == 0 {
			rt.Fatalf("no reason for %+v", c)
		}
		if (c.Breaker != kms.BreakerClosed) != (c.State == kms.TargetUnhealthy && (c.Cause == kms.CauseEndpoint || c.Cause == kms.CauseLatency || c.Cause == kms.CauseProbe)) {
			rt.Fatalf("the breaker is %s: %+v", c.Breaker, c)
		}
	}
	switch {
	case len(g.order.Choices) != 3:
		rt.Fatalf("%d targets", len(g.order.Choices))
	case g.order.Panic && sum != 0 || !g.order.Panic && sum != 100:
		rt.Fatalf("weights add up to %d: %+v", sum, g.order)
	case leases > 1:
		rt.Fatalf("%d leases in one answer", leases)
	}
}

func stateOf(o kms.RouteOrder, name string) kms.TargetState {
	for _, c := range o.Choices {
		if c.Target == name {
			return c.State
		}
	}
	return ""
}

// TestABackUpGetsNoMoreThanItsBudget lets gateways obey their orders while the
// primary is dead: what the back-up meets is its step, and one retry of as many
// calls as the budget has.
func TestABackUpGetsNoMoreThanItsBudget(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		g := newGateway(t, "b")
		rate := int64(rapid.IntRange(10, 5000).Draw(rt, "calls a second"))
		gateways := rapid.IntRange(1, 5).Draw(rt, "gateways")
		g.report(ok("a", rate))
		granted := make([]int, gateways)
		dead := false
		var firstB, retries, calls int64
		begin := g.view.Now
		for second := range 300 {
			g.pass(time.Second)
			dead = dead || second >= 5
			share := rate / int64(gateways)
			for i := range gateways {
				g.look()
				toB := share * int64(g.choice("b").Weight) / 100
				toA := share - toB
				var again int64
				if dead {
					again = min(toA, int64(granted[i]))
				}
				firstB, retries, calls = firstB+toB, retries+again, calls+share
				var lost int64
				if dead {
					lost = toA
				}
				order := g.report(kms.RouteOutcome{Target: "a", OK: toA - lost, Transient: lost}, kms.RouteOutcome{Target: "b", OK: toB + again, Retries: again})
				granted[i] = order.Retries
			}
			most := float64(calls)/10 + g.view.Now.Sub(begin).Seconds() + 10 + float64(gateways)
			if float64(retries) > most {
				rt.Fatalf("second %d: %d retries of %d calls", second, retries, calls)
			}
			if second < 5+60 && firstB > calls/10+int64(gateways) {
				rt.Fatalf("second %d: %d first attempts of %d at the back-up", second, firstB, calls)
			}
		}
	})
}
