package provider_test

import (
	"slices"
	"testing"
	"time"

	"github.com/sluice-kms/sluice/client/outcome"
	"github.com/sluice-kms/sluice/client/outcome/outcometest"
	"github.com/sluice-kms/sluice/kms"
	"github.com/sluice-kms/sluice/provider"
)

func TestAFailingPrimaryGivesItsCallsAwayInSteps(t *testing.T) {
	g := newGateway(t, "b")
	g.want("a", kms.TargetHealthy, 100)
	g.report(failed("a", 4))
	g.want("a", kms.TargetHealthy, 100)
	g.report(failed("a", 1))
	g.want("a", kms.TargetUnhealthy, 90)
	g.want("b", kms.TargetHealthy, 10)
	g.because("b", kms.RouteStandsIn)
	g.because("a", kms.RouteBreakerOpen)
	for _, step := range []struct {
		at   time.Duration
		left uint32
	}{{59 * time.Second, 90}, {60 * time.Second, 70}, {119 * time.Second, 70}, {120 * time.Second, 0}, {time.Hour, 0}} {
		g.view.Now = start.Add(step.at)
		g.look()
		g.want("a", kms.TargetUnhealthy, step.left)
		g.want("b", kms.TargetHealthy, 100-step.left)
	}
	if g.told(kms.EventRouteFailOver) != 1 || g.told(kms.EventProviderUnhealthy) != 1 {
		t.Errorf("events %+v", g.events)
	}
}

// The numbers are the policy's, also of a target that is on its way by other
// ones.
func TestThePolicysNumbersDecide(t *testing.T) {
	g := newGateway(t, "b")
	g.view.Rules.BreakerFailures, g.view.Rules.Switch, g.view.Rules.SwitchTime = 2, []uint32{40, 60, 80, 100}, time.Second
	g.report(failed("a", 1))
	g.want("a", kms.TargetHealthy, 100)
	g.report(failed("a", 1))
	for _, left := range []uint32{60, 40, 20, 0} {
		g.want("a", kms.TargetUnhealthy, left)
		g.pass(time.Second)
		g.look()
	}
	g.report()
	g.view.Rules = kms.DefaultRouteRules()
	g.look()
	g.want("a", kms.TargetUnhealthy, 0)
	g.view.Rules.Failback, g.view.Rules.FailbackTime = []uint32{30, 100}, time.Second
	g.pass(time.Hour)
	g.report()
	g.report(kms.RouteOutcome{Target: "a", OK: 1, Lease: g.choice("a").Lease})
	g.want("a", kms.TargetRecovering, 30)
	g.pass(time.Second)
	g.look()
	g.want("a", kms.TargetRecovering, 100)
	g.pass(time.Second)
	g.look()
	g.want("a", kms.TargetHealthy, 100)
}

// A policy that allows no call on another target grants none, whatever the
// budget has.
func TestNoCallIsRetriedAgainstThePolicy(t *testing.T) {
	g := newGateway(t, "b")
	g.report(kms.RouteOutcome{Target: "a", OK: 100, Transient: 5})
	if o := g.order; o.RetriesPerRequest != 1 || o.Retries == 0 {
		t.Fatalf("by default %d, of them %d for one call", o.Retries, o.RetriesPerRequest)
	}
	g.view.Rules.RetriesPerRequest = 0
	g.report(kms.RouteOutcome{Target: "a", OK: 100, Transient: 5})
	if o := g.order; o.RetriesPerRequest != 0 || o.Retries != 0 {
		t.Errorf("against the policy %d, of them %d for one call", o.Retries, o.RetriesPerRequest)
	}
}

// bifrost's issue 125: a back-up, or a primary that is back, must not meet all
// calls at once.
func TestARecoveredPrimaryGetsTwentyFiftyAndHundred(t *testing.T) {
	g := newGateway(t, "b")
	lease := g.broken()
	g.want("a", kms.TargetUnhealthy, 0)
	g.report(kms.RouteOutcome{Target: "a", OK: 1, Lease: lease})
	for _, share := range []uint32{20, 50, 100} {
		g.want("a", kms.TargetRecovering, share)
		g.because("a", kms.RouteFailback)
		g.report(ok("a", int64(share)), ok("b", int64(100-share)))
		g.pass(5*time.Minute - time.Second)
		g.look()
		g.want("a", kms.TargetRecovering, share)
		g.pass(time.Second)
		g.look()
	}
	g.want("a", kms.TargetHealthy, 100)
	g.report()
	if g.told(kms.EventRouteFailback) != 2 {
		t.Errorf("events %+v, want the begin and the end", g.events)
	}
}

func TestTheWayBackEndsWhenSomethingSpeaksAgainstIt(t *testing.T) {
	timed := func(n int64, p99 time.Duration) kms.RouteOutcome {
		return kms.RouteOutcome{Target: "a", OK: n, P99: p99}
	}
	for name, c := range map[string]struct {
		bad   kms.RouteOutcome
		wait  time.Duration
		cause kms.TargetCause
	}{
		"five failures":           {failed("a", 5), 0, kms.CauseEndpoint},
		"a tenth of the calls":    {kms.RouteOutcome{Target: "a", OK: 18, Transient: 2}, 0, kms.CauseEndpoint},
		"a tenth of few calls":    {kms.RouteOutcome{Target: "a", OK: 4, Transient: 1}, 5 * time.Minute, kms.CauseEndpoint},
		"slow calls":              {timed(20, 3*time.Second), 0, kms.CauseLatency},
		"few slow calls":          {timed(3, 3*time.Second), 5 * time.Minute, kms.CauseLatency},
		"an account out of money": {kms.RouteOutcome{Target: "a", OK: 50, Quota: 1}, 0, kms.CauseKey},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGateway(t, "b")
			g.report(timed(100, time.Second))
			g.report(kms.RouteOutcome{Target: "a", OK: 1, Lease: g.broken()})
			g.want("a", kms.TargetRecovering, 20)
			g.report(c.bad)
			g.pass(c.wait)
			g.report()
			g.want("a", kms.TargetUnhealthy, 0)
			g.want("b", kms.TargetHealthy, 100)
			if got := g.choice("a").Cause; got != c.cause {
				t.Errorf("because of %s, want %s", got, c.cause)
			}
		})
	}
	t.Run("nothing bad", func(t *testing.T) {
		g := newGateway(t, "b")
		g.report(timed(100, time.Second))
		g.report(kms.RouteOutcome{Target: "a", OK: 1, Lease: g.broken()})
		g.report(kms.RouteOutcome{Target: "a", OK: 97, Transient: 3, RateLimit: 2, P99: 1900 * time.Millisecond})
		g.pass(5 * time.Minute)
		g.look()
		g.want("a", kms.TargetRecovering, 50)
	})
}

// higress takes a key out for any 4xx, and one-api a channel for any 401:
// neither says anything of the endpoint.
func TestRefusalsOfKeysAreNoFaultOfTheEndpoint(t *testing.T) {
	for name, bad := range map[string]kms.RouteOutcome{
		"credential": {Target: "a", Credential: 50},
		"quota":      {Target: "a", Quota: 50},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGateway(t, "b")
			g.view.Keys["a"] = kms.RouteKeys{Needed: true, Versions: []uint32{1, 2}}
			g.report(bad)
			g.want("a", kms.TargetHealthy, 100) // version 2 is there still
			bad.Version = 2
			g.report(bad)
			g.want("a", kms.TargetUnhealthy, 90)
			c := g.choice("a")
			if c.Cause != kms.CauseKey || c.Endpoint != kms.TargetHealthy || c.Breaker != kms.BreakerClosed {
				t.Errorf("%+v", c)
			}
			if g.told(kms.EventProviderUnhealthy) != 0 {
				t.Errorf("events %+v", g.events)
			}
			// A new version is tried at once, and comes back in steps.
			g.view.Keys["a"] = kms.RouteKeys{Needed: true, Versions: []uint32{3}}
			lease := g.lease("a")
			if lease == 0 {
				t.Fatalf("no lease for the new version: %+v", g.order)
			}
			g.report(kms.RouteOutcome{Target: "a", Version: 3, OK: 1, Lease: lease})
			g.want("a", kms.TargetRecovering, 20)
		})
	}
}

func TestOneRefusalMakesNoKeyInvalid(t *testing.T) {
	g := newGateway(t, "b")
	g.report(kms.RouteOutcome{Target: "a", Credential: 2})
	g.report(ok("a", 1))
	g.report(kms.RouteOutcome{Target: "a", Credential: 2})
	g.want("a", kms.TargetHealthy, 100)
	if k := g.choice("a").Keys; len(k) != 1 || k[0].State != kms.KeyRefused {
		t.Errorf("keys %+v", k)
	}
	g.report(kms.RouteOutcome{Target: "a", Credential: 1})
	if k := g.choice("a").Keys; k[0].State != kms.KeyInvalid || g.told(kms.EventProviderKeyInvalid) != 1 {
		t.Errorf("keys %+v, events %+v", k, g.events)
	}
}

// new-api's issues 3537 and 7040: keys that were taken out could never come
// back.
func TestAnInvalidKeyIsTriedAgain(t *testing.T) {
	g := newGateway(t, "b")
	g.report(kms.RouteOutcome{Target: "a", Credential: 3})
	g.pass(16 * time.Minute)
	if g.lease("a") == 0 {
		t.Fatalf("no lease after a quarter of an hour: %+v", g.order)
	}
	next, _, err := provider.Health{}.Validated(&g.view, g.stored, "a", 1, kms.KeyValidation{State: kms.KeyInvalid, Class: "credential", At: start})
	if err != nil {
		t.Fatal(err)
	}
	g.stored = next
	next, _, err = provider.Health{}.Validated(&g.view, g.stored, "a", 1, kms.KeyValidation{State: kms.KeyOK, Class: "ok", At: start})
	if err != nil {
		t.Fatal(err)
	}
	g.stored = next
	g.pass(2 * time.Minute) // the lease that nobody used is over
	if g.lease("a") == 0 {
		t.Fatalf("no lease after the key was found good: %+v", g.order)
	}
}

// voidllm's issues 184 and 185: a 429 counted as a success, which wiped real
// failures, and kept the half-open slot for ever.
func TestARateLimitIsNeutralForTheBreaker(t *testing.T) {
	limited := kms.RouteOutcome{Target: "a", RateLimit: 100, RetryAfter: 10 * time.Second}
	t.Run("it never opens one", func(t *testing.T) {
		g := newGateway(t, "b")
		for range 5 {
			g.report(limited)
			g.pass(11 * time.Second)
		}
		g.report(ok("a", 1))
		g.want("a", kms.TargetHealthy, 100)
		if g.choice("a").Breaker != kms.BreakerClosed {
			t.Errorf("%+v", g.choice("a"))
		}
	})
	t.Run("it wipes no failures", func(t *testing.T) {
		g := newGateway(t, "b")
		g.report(failed("a", 4))
		g.report(limited)
		g.report(failed("a", 1))
		g.want("a", kms.TargetUnhealthy, 90)
	})
	t.Run("it gives the half-open slot back", func(t *testing.T) {
		g := newGateway(t, "b")
		lease := g.broken()
		if g.lease("a") != 0 {
			t.Fatal("two leases at once")
		}
		g.report(kms.RouteOutcome{Target: "a", RateLimit: 1, RetryAfter: 10 * time.Second, Lease: lease})
		g.want("a", kms.TargetUnhealthy, 0)
		g.pass(10 * time.Second)
		again := g.lease("a")
		if again == 0 || again == lease {
			t.Fatalf("lease %d after %d", again, lease)
		}
		g.report(kms.RouteOutcome{Target: "a", OK: 1, Lease: again})
		g.want("a", kms.TargetRecovering, 20)
	})
}

// litellm's issues 7669 and 3274: Retry-After was not obeyed, or waited for
// without end instead of going elsewhere.
func TestARateLimitThatLastsBecomesAFailOver(t *testing.T) {
	g := newGateway(t, "b")
	limited := kms.RouteOutcome{Target: "a", RateLimit: 1, RetryAfter: 30 * time.Second}
	for at := time.Duration(0); at < 2*time.Minute; at += 30 * time.Second {
		g.view.Now = start.Add(at)
		g.report(limited)
		g.want("a", kms.TargetHealthy, 100)
		g.because("a", kms.RouteCooling)
		if c := g.choice("a").Cools; len(c) != 1 || c[0].Model != model || !c[0].Until.Equal(g.view.Now.Add(30*time.Second)) {
			t.Fatalf("cool-downs %+v", c)
		}
	}
	g.view.Now = start.Add(2 * time.Minute)
	g.report(limited)
	g.want("a", kms.TargetUnhealthy, 90)
	g.because("a", kms.RouteRateLimited)
	if c := g.choice("a"); c.Breaker != kms.BreakerClosed || c.Endpoint != kms.TargetHealthy || g.told(kms.EventProviderUnhealthy) != 0 {
		t.Errorf("%+v", c)
	}
}

func TestARateLimitWithConnectionErrorsIsAFailOver(t *testing.T) {
	g := newGateway(t, "b")
	g.report(kms.RouteOutcome{Target: "a", OK: 2, RateLimit: 3, Transient: 2, Connections: 2})
	g.want("a", kms.TargetUnhealthy, 90)
	g.because("a", kms.RouteRateLimited)
}

// deltallm and voidllm: what cools down is tried last, and not left out.
func TestACoolingTargetIsLastAndNotLeftOut(t *testing.T) {
	g := newGateway(t, "b", "c")
	g.report(kms.RouteOutcome{Target: "a", RateLimit: 1})
	if got := g.order.Choices; len(got) != 3 || got[2].Target != "a" || got[0].Target != "b" {
		t.Errorf("%+v", got)
	}
	g.view.Model = "another"
	g.look()
	if got := g.order.Choices[0].Target; got != "a" {
		t.Errorf("%s is first for another model", got)
	}
}

func TestALeaseHasADeadline(t *testing.T) {
	g := newGateway(t, "b")
	lost := g.broken()
	g.pass(59 * time.Second)
	if g.lease("a") != 0 {
		t.Fatal("two leases at once")
	}
	g.pass(time.Second)
	second := g.lease("a")
	if second == 0 || second == lost {
		t.Fatalf("lease %d", second)
	}
	g.report(kms.RouteOutcome{Target: "a", OK: 1, Lease: lost}) // of a holder that came back late
	g.want("a", kms.TargetUnhealthy, 0)
	g.report(kms.RouteOutcome{Target: "a", OK: 1, Lease: second})
	g.want("a", kms.TargetRecovering, 20)
}

func TestABreakerIsOpenForTwiceAsLongEachTimeAndForgets(t *testing.T) {
	g := newGateway(t, "b")
	open := func() time.Duration {
		g.t.Helper()
		return g.choice("a").Until.Sub(g.view.Now)
	}
	around := func(what string, got, want time.Duration) {
		t.Helper()
		if got < want*8/10 || got > want*12/10 {
			t.Errorf("%s: open for %v, want %v ± 20 %%", what, got, want)
		}
	}
	lease := uint64(0)
	for i, want := range []time.Duration{2, 4, 8, 15, 15} {
		if i == 0 {
			g.report(failed("a", 5))
		} else {
			g.report(kms.RouteOutcome{Target: "a", Transient: 1, Lease: lease})
		}
		around("in a row", open(), want*time.Minute)
		g.view.Now = g.choice("a").Until
		lease = g.lease("a")
	}
	g.report(kms.RouteOutcome{Target: "a", OK: 1, Lease: lease})
	for range 3 {
		g.pass(5 * time.Minute)
		g.report(ok("a", 30))
	}
	g.want("a", kms.TargetHealthy, 100)
	g.pass(10*time.Minute - time.Second)
	before := g.stored
	g.report(failed("a", 5))
	around("before it has forgotten", open(), 15*time.Minute)
	g.stored = before
	g.pass(time.Second)
	g.report(failed("a", 5))
	around("when it has forgotten", open(), 2*time.Minute)
}

// deltallm's issue 247 and litellm's 40405: the state is looked at again for
// each call, and a failing primary costs no call once its calls have moved.
func TestASuspectGetsLessAndRecoversByItself(t *testing.T) {
	g := newGateway(t, "b")
	g.report(kms.RouteOutcome{Target: "a", OK: 17, Transient: 2})
	g.want("a", kms.TargetHealthy, 100) // too few to tell
	g.report(kms.RouteOutcome{Target: "a", OK: 1})
	g.want("a", kms.TargetSuspect, 90)
	g.want("b", kms.TargetHealthy, 10)
	g.report(ok("a", 1000))
	g.want("a", kms.TargetSuspect, 90)
	g.pass(time.Minute)
	g.report(ok("a", 1000))
	g.want("a", kms.TargetHealthy, 100)
}

func TestHalfOfTheCallsBreakATarget(t *testing.T) {
	g := newGateway(t, "b")
	g.report(kms.RouteOutcome{Target: "a", OK: 10, Transient: 10})
	g.want("a", kms.TargetUnhealthy, 90)
}

// litellm's issues 33258 and 35104, and every gateway with more than one
// process: what followed from an older state says nothing of this one.
func TestOutcomesOfAnOlderGenerationAreIgnored(t *testing.T) {
	g := newGateway(t, "b")
	old := g.order.Generation
	g.report(kms.RouteOutcome{Target: "a", OK: 1, Lease: g.broken()})
	g.want("a", kms.TargetRecovering, 20)
	g.reportAs(old, failed("a", 1000))
	g.want("a", kms.TargetRecovering, 20)
	g.report(failed("a", 1000))
	g.want("a", kms.TargetUnhealthy, 0)
}

// higress' issue 1530: all targets were black-listed and nothing was left.
// hermes' issue 100725: the gateway then made up a 429 of its own.
func TestWhenAllAreBadOneIsTriedAtATime(t *testing.T) {
	g := newGateway(t, "b")
	g.report(failed("a", 5), failed("b", 5))
	if !g.order.Panic || len(g.order.Choices) != 2 || g.order.RetryAfter <= 0 {
		t.Fatalf("%+v", g.order)
	}
	g.because("a", kms.RoutePanic)
	leases := 0
	for range 5 { // five gateways
		for _, c := range g.order.Choices {
			if c.Lease != 0 {
				leases++
			}
			if c.Weight != 0 {
				t.Errorf("%s has a weight in a panic", c.Target)
			}
		}
		g.report()
	}
	if leases != 1 {
		t.Fatalf("%d leases at once", leases)
	}
	g.pass(time.Minute)
	order := g.report()
	for _, c := range order.Choices {
		if c.Lease != 0 {
			g.report(kms.RouteOutcome{Target: c.Target, OK: 1, Lease: c.Lease})
		}
	}
	if g.order.Panic {
		t.Errorf("still a panic: %+v", g.order)
	}
}

func TestTheLastResortIsTheLast(t *testing.T) {
	g := newGateway(t, "b", "local")
	g.view.Route.LastResort = true
	g.view.Keys["local"] = kms.RouteKeys{}
	g.report(failed("a", 5))
	g.pass(2 * time.Minute)
	g.look()
	g.want("b", kms.TargetHealthy, 100)
	g.report(failed("b", 5))
	g.want("local", kms.TargetHealthy, 100)
	g.because("local", kms.RouteLastResort)
}

func TestMissedProbesAreAFaultUnlessCallsGetThrough(t *testing.T) {
	g := newGateway(t, "b")
	g.report(ok("a", 1))
	g.view.Down["a"] = true
	g.report()
	g.want("a", kms.TargetHealthy, 100)
	g.pass(2 * time.Minute)
	g.report()
	g.want("a", kms.TargetUnhealthy, 90)
	g.because("a", kms.RouteProbeDown)
	g.pass(time.Hour)
	if g.lease("a") != 0 {
		t.Error("a call to what is known to be down")
	}
	g.view.Down["a"] = false
	if g.lease("a") == 0 {
		t.Error("no call to what is up again")
	}
}

func TestWhatIsKnownIsOfTheAddress(t *testing.T) {
	g := newGateway(t, "b")
	g.report(failed("a", 5))
	g.view.Route.Targets[0].BaseURL = "https://new.example/v1"
	g.look()
	g.want("a", kms.TargetHealthy, 100)
}

func TestAClockThatGoesBackTurnsNothingBack(t *testing.T) {
	g := newGateway(t, "b")
	g.report(failed("a", 5))
	g.pass(2 * time.Minute)
	g.report()
	g.want("a", kms.TargetUnhealthy, 0)
	g.pass(-time.Hour)
	g.report()
	g.want("a", kms.TargetUnhealthy, 0)
}

func TestAHealthThatIsNoneIsRefused(t *testing.T) {
	g := newGateway(t, "b")
	for _, stored := range []string{"", "null1", `{"generation":1,"colour":"red"}`,
		`{"generation":1,"targets":{"a":{"address":"https://a.example/v1","state":"unhealthy","step":100}}}`} {
		if _, err := (provider.Health{}).Order(&g.view, []byte(stored)); err == nil {
			t.Errorf("%q was taken", stored)
		}
	}
}

// litellm's issue 24005: errors in streams were counted as successes.
func TestEveryAnswerOfAProviderIsCountedInItsScope(t *testing.T) {
	for _, c := range slices.Concat(outcometest.Answers(), outcometest.Errors()) {
		var o kms.RouteOutcome
		provider.Count(&o, c.Want)
		want := kms.RouteOutcome{RetryAfter: c.Want.RetryAfter, Connections: o.Connections}
		switch c.Want.Class {
		case outcome.OK:
			want.OK = 1
		case outcome.Credential:
			want.Credential = 1
		case outcome.Quota:
			want.Quota = 1
		case outcome.RateLimit:
			want.RateLimit = 1
		case outcome.Transient:
			want.Transient = 1
		}
		if o != want {
			t.Errorf("%s: %+v, want %+v", c.Name, o, want)
		}
		if (c.Err != nil && c.Want.Class == outcome.Transient) != (o.Connections == 1) && !c.Breaks {
			t.Errorf("%s: %d connection errors", c.Name, o.Connections)
		}
		if c.Status == 401 && c.Want.Scope == outcome.Key && !provider.Reached(c.Want) {
			t.Errorf("%s: a 401 shows that the endpoint is up", c.Name)
		}
		if s := provider.KeyOf(c.Want); c.Want.Scope == outcome.Endpoint && s != "" {
			t.Errorf("%s: says that the key is %s", c.Name, s)
		}
	}
}
