package quota

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-kms/sluice/kms"
)

// costEngine is an engine with a gold tenant whose day is short for its rate.
type costEngine struct {
	*testEngine
	events []CostEvent
}

func newCostEngine(t testing.TB) *costEngine {
	e := &costEngine{testEngine: newTestEngine(t, kms.TierGold, func(p *Policy) {
		gold := p.Tiers[kms.TierGold]
		gold.DayCredits, gold.PoolCredits, gold.BandwidthBytes = 10*million, 0, tib
	})}
	e.tenant.Created = morning.AddDate(-1, 0, 0)
	return e
}

// send sends a request of a component and returns its refusal.
func (e *costEngine) send(component string, credits int64, edit ...func(*Request)) (kms.Reservation, error) {
	r := e.costing(credits)
	r.Principal.Component = component
	for _, f := range edit {
		f(r)
	}
	reservation, err := e.AdmitRequest(r)
	if err == nil {
		e.Settle(reservation, kms.Settlement{State: kms.Settled, Charged: reservation.Cost})
	}
	return reservation, err
}

// seconds lets time pass, every second of which each component sends its
// credits, and returns what happened.
func (e *costEngine) seconds(n int, load map[string]int64) []CostEvent {
	from := len(e.events)
	for range n {
		e.clock.pass(time.Second)
		for component, credits := range load {
			e.send(component, credits)
		}
		e.events = append(e.events, e.WatchCosts()...)
	}
	return e.events[from:]
}

// until is seconds until something comes of a kind, and how long that took.
func (e *costEngine) until(load map[string]int64, most time.Duration, want func(CostEvent) bool) (CostEvent, time.Duration) {
	e.t.Helper()
	for took := time.Second; took <= most; took += time.Second {
		for _, event := range e.seconds(1, load) {
			if want(event) {
				return event, took
			}
		}
	}
	e.t.Fatalf("it does not come in %v: %+v", most, e.events)
	return CostEvent{}, 0
}

func to(stage kms.CostStage) func(CostEvent) bool {
	return func(e CostEvent) bool { return e.Incident == nil && e.Change.To == stage && e.Change.From < stage }
}

// codesOf are the codes of a refusal's reasons.
func codesOf(err error) (codes []string) {
	for _, r := range reasons(err) {
		codes = append(codes, r.Code)
	}
	return codes
}

func over(e CostEvent) bool { return e.Incident != nil }

func TestLoopIsStoppedAtThePredictedPoint(t *testing.T) {
	e := newCostEngine(t)
	load := map[string]int64{"app": 10, "loop": 3000}
	first, took := e.until(load, 3*time.Minute, to(kms.CostNoBulk))
	if took < time.Minute || took > 2*time.Minute {
		t.Errorf("the first stage comes after %v, want a minute above the line", took)
	}
	if first.Change.Component != "loop" || first.Change.Whole {
		t.Fatalf("the first stage is of %+v", first.Change)
	}
	before := e.Account(e.tenant).Day.Used
	second, took2 := e.until(load, 2*time.Minute, to(kms.CostMarked))
	third, took3 := e.until(load, 2*time.Minute, to(kms.CostStopped))
	if took2 != time.Minute || took3 != time.Minute {
		t.Errorf("the stages come after %v and %v, want a minute each", took2, took3)
	}
	within := func(what string, got, want float64) {
		t.Helper()
		t.Logf("%s: %.0f, predicted %.0f", what, got, want)
		if got < want*0.95 || got > want*1.05 {
			t.Errorf("%s: %v, and %v was predicted", what, got, want)
		}
	}
	predicted := first.Predicted
	within("seconds to the stop", third.Change.At.Sub(first.Change.At).Seconds(), predicted.StopsAt.Sub(first.Change.At).Seconds())
	c := e.shardOf(testTenant).tenants[testTenant].cost
	within("credits of the loop at the stop", float64(c.part("loop").used), float64(predicted.Credits))
	within("credits from the first stage to the stop", float64(e.Account(e.tenant).Day.Used-before), 3010*120*float64(kms.Credit))
	if second.Exhausted.Before(third.Change.At) {
		t.Error("it is said that all is used up before it is")
	}

	// The others go on, and what is stopped is charged nothing.
	used := e.Account(e.tenant).Day.Used
	if _, err := e.send("app", 10); err != nil {
		t.Errorf("another component is refused: %v", err)
	}
	_, err := e.send("loop", 1)
	if kms.KindOf(err) != kms.KindQuotaExceeded || !slices.Equal(codesOf(err), []string{ReasonCostStopped}) {
		t.Errorf("the loop is refused with %v %v", err, codesOf(err))
	}
	if got := e.Account(e.tenant).Day.Used - used; got != 10*kms.Credit {
		t.Errorf("%d micro-credits are charged", got)
	}
}

func TestStagesRefuseBulkThenMarkThenRefuseAll(t *testing.T) {
	e := newCostEngine(t)
	load := map[string]int64{"loop": 3000}
	bulk := func(r *Request) { r.Urgency = kms.UrgencyBulk }
	batch := func(r *Request) { r.Batch = true }
	quotaRead := func(r *Request) { r.Op, r.Spec, r.Bytes = kms.OpReadQuota, "", 0 }
	disable := func(r *Request) { r.Op = kms.OpDisableKey }
	check := func(stage string, bulkCode, code string, marked bool) {
		t.Helper()
		refused := func(err error) string {
			if err == nil {
				return ""
			}
			if list := codesOf(err); len(list) == 1 {
				return list[0]
			}
			return err.Error()
		}
		for _, b := range []func(*Request){bulk, batch} {
			if _, err := e.send("loop", 1, b); refused(err) != bulkCode {
				t.Errorf("%s: bulk work: %q, want %q", stage, refused(err), bulkCode)
			}
		}
		r, err := e.send("loop", 1)
		if refused(err) != code {
			t.Errorf("%s: other work: %q, want %q", stage, refused(err), code)
		}
		if err == nil && r.Exhausted.IsZero() == marked {
			t.Errorf("%s: marked with %v", stage, r.Exhausted)
		}
		for _, f := range []func(*Request){quotaRead, disable} {
			if _, err := e.send("loop", 1, f); err != nil {
				t.Errorf("%s: what looks after the tenant is refused: %v", stage, err)
			}
		}
	}
	e.seconds(30, load)
	check("calm", "", "", false)
	e.until(load, 3*time.Minute, to(kms.CostNoBulk))
	check("first", ReasonCostBulk, "", false)
	e.until(load, 3*time.Minute, to(kms.CostMarked))
	check("second", ReasonCostBulk, "", true)
	e.until(load, 3*time.Minute, to(kms.CostStopped))
	check("third", ReasonCostStopped, ReasonCostStopped, true)
}

func TestManyComponentsTogetherStopTheTenant(t *testing.T) {
	e := newCostEngine(t)
	load := map[string]int64{"a": 1000, "b": 1000, "c": 1000, "d": 1000}
	first, _ := e.until(load, 3*time.Minute, to(kms.CostNoBulk))
	if !first.Change.Whole {
		t.Fatalf("one of four alike is to blame: %+v", first.Change)
	}
	e.until(load, 3*time.Minute, to(kms.CostStopped))
	for _, component := range []string{"a", "d", "new"} {
		if _, err := e.send(component, 1); !slices.Contains(codesOf(err), ReasonCostStopped) {
			t.Errorf("%s is refused with %v", component, err)
		}
	}
}

func TestSecondLoopIsStoppedToo(t *testing.T) {
	e := newCostEngine(t)
	load := map[string]int64{"app": 5, "one": 2500}
	e.until(load, 10*time.Minute, to(kms.CostStopped))
	load["two"] = 2400
	second, _ := e.until(load, 10*time.Minute, to(kms.CostStopped))
	if second.Change.Component != "two" {
		t.Errorf("the second stop is of %+v", second.Change)
	}
	if _, err := e.send("app", 5); err != nil {
		t.Errorf("who does as always is refused: %v", err)
	}
}

func TestLoopThatGoesOnStaysStoppedAndSilenceEndsIt(t *testing.T) {
	e := newCostEngine(t)
	load := map[string]int64{"app": 10, "loop": 3000}
	e.until(load, 10*time.Minute, to(kms.CostStopped))
	for _, event := range e.seconds(30*60, load) {
		t.Errorf("while it goes on: %+v", event)
	}
	_, err := e.send("loop", 1)
	refusal := err.(*kms.Error)
	before := e.clock.at
	last, took := e.until(map[string]int64{"app": 10}, 5*time.Minute, over)
	if took < time.Minute {
		t.Errorf("it has recovered after %v, want a minute below the lower line", took)
	}
	if _, err := e.send("loop", 1); err != nil {
		t.Errorf("after it has recovered: %v", err)
	}
	if promised := before.Add(refusal.RetryAfter); e.clock.at.After(promised) {
		t.Errorf("Retry-After was %v, and it took %v", refusal.RetryAfter, took)
	} else if refusal.RetryAfter > 2*took {
		t.Errorf("Retry-After was %v, and %v would have done", refusal.RetryAfter, took)
	}
	i := last.Incident
	if i.Stopped.IsZero() || i.RefusedCalls < 30*60 || i.Used == 0 || i.Over <= 0 || i.PeakRisk <= i.Line {
		t.Errorf("the incident is %+v", i)
	}
	if len(i.Changes) != 4 || i.Changes[3].To != kms.CostCalm {
		t.Errorf("changes %+v", i.Changes)
	}
	if i.Components[0].Name != "loop" || i.Operations[0].Name != string(kms.OpEncrypt) {
		t.Errorf("components %+v, operations %+v", i.Components, i.Operations)
	}
	var used, refused kms.Credits
	for _, p := range i.Timeline {
		used, refused = used+p.Used, refused+p.Refused
	}
	if used != i.Used || refused != i.Refused || len(i.Timeline) > storyPoints {
		t.Errorf("a timeline of %d points with %d and %d, of %d and %d", len(i.Timeline), used, refused, i.Used, i.Refused)
	}
	if !slices.ContainsFunc(i.Causes, func(c kms.CostCause) bool { return c.Code == kms.CauseDataKeys }) {
		t.Errorf("causes %+v", i.Causes)
	}
}

func TestShortPeakComesToNothing(t *testing.T) {
	e := newCostEngine(t)
	e.seconds(15, map[string]int64{"app": 4000}) // its minute is above the line until the peak has left it
	for _, event := range e.seconds(300, map[string]int64{"app": 50}) {
		t.Errorf("%+v", event)
	}
	if s := e.shardOf(testTenant); len(s.costly) != 0 || s.tenants[testTenant].cost != nil {
		t.Error("a tenant that is calm is still watched")
	}
}

func TestWorkThatIsNotChargedIsNoCost(t *testing.T) {
	e := newCostEngine(t)
	for range 600 {
		e.clock.pass(time.Second)
		r := e.must(e.costing(3000))
		e.Settle(r, kms.Settlement{State: kms.Cancelled})
		if events := e.WatchCosts(); len(events) > 0 {
			t.Fatalf("%+v", events)
		}
	}
}

func TestLiftedStopLetsAllThroughUntilTheIncidentIsOver(t *testing.T) {
	e := newCostEngine(t)
	load := map[string]int64{"app": 10, "loop": 3000}
	if e.LiftCost(testTenant, e.clock.at) {
		t.Error("there is something to lift")
	}
	e.until(load, 10*time.Minute, to(kms.CostStopped))
	open := e.OpenCosts()
	if len(open) != 1 || open[0].Tenant != testTenant {
		t.Fatalf("open incidents %v", open)
	}
	if e.LiftCost(testTenant, open[0].Began.Add(-time.Second)) {
		t.Error("what was lifted before the incident began is lifted in it")
	}
	if !e.LiftCost(testTenant, e.clock.at) {
		t.Fatal("it is not lifted")
	}
	for _, event := range e.seconds(300, load) {
		t.Errorf("after the lift: %+v", event)
	}
	r, err := e.send("loop", 10, func(r *Request) { r.Urgency = kms.UrgencyBulk })
	if err != nil || r.Exhausted.IsZero() {
		t.Errorf("after the lift: %+v, %v", r, err)
	}
	last, _ := e.until(nil, 5*time.Minute, over)
	if !last.Incident.Lifted {
		t.Error("the report does not say that it was lifted")
	}
	e.until(load, 10*time.Minute, to(kms.CostStopped)) // the next one is another one
}

func TestBreakerIsOffWithoutAFactor(t *testing.T) {
	e := newCostEngine(t)
	p := DefaultPolicy()
	*p.Tiers[kms.TierGold] = *e.policies.Current().Policy().Tiers[kms.TierGold]
	p.Tiers[kms.TierGold].CostFactorPermille = 0
	document, err := p.Document()
	if err != nil {
		t.Fatal(err)
	}
	load := map[string]int64{"loop": 3000}
	e.until(load, 10*time.Minute, to(kms.CostStopped))
	if err := e.policies.Apply(2, document); err != nil {
		t.Fatal(err)
	}
	e.clock.pass(time.Second)
	if _, err := e.send("loop", 1); err != nil {
		t.Errorf("with the breaker off: %v", err)
	}
	e.until(load, 3*time.Minute, over)
}

// Whatever is sent, stages are entered one by one and in their order, and left
// all at once.
func TestStagesAreEnteredOneByOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rules := costRules{line: 2000, recover: 1000, stage: minute, calm: minute}
		a := allowance{perMinute: 600, left: [2]int64{1 << 40, 1 << 40}, factor: permille}
		now := int64(0)
		c := newCostState(instant{ns: now})
		var all minuteUse
		stages := map[*costPart]int{}
		load := map[string]int64{}
		for range rapid.IntRange(1, 60).Draw(t, "phases") {
			for _, name := range []string{"a", "b", "c"} {
				load[name] = rapid.SampledFrom([]int64{0, 1, 5, 15, 60}).Draw(t, name)
			}
			if rapid.IntRange(0, 20).Draw(t, "lift") == 0 {
				c.lift()
				for p := range stages {
					stages[p] = min(stages[p], costMarked)
				}
			}
			for range rapid.IntRange(1, 90).Draw(t, "seconds") {
				now += second
				for name, n := range load {
					c.part(name).use.add(n, now)
					all.add(n, now)
				}
				for _, step := range c.look(all.sum(now), now, &a, &rules) {
					was := stages[step.part]
					if step.from != was || step.to != was+1 && step.to != costCalm || step.to > costStopped {
						t.Fatalf("from %d to %d, after %d", step.from, step.to, was)
					}
					if c.lifted && step.to == costStopped {
						t.Fatal("what was lifted is stopped again")
					}
					stages[step.part] = step.to
				}
			}
		}
	})
}

// The use of a minute is that of a count of single requests, to a sixth of what
// is not even.
func TestMinuteUseIsThatOfTheLastMinute(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var m minuteUse
		type use struct{ at, n int64 }
		var uses []use
		now := int64(0)
		for range rapid.IntRange(1, 300).Draw(t, "uses") {
			now += rapid.Int64Range(0, 20*second).Draw(t, "pause")
			n := rapid.Int64Range(0, 1000).Draw(t, "n")
			m.add(n, now)
			uses = append(uses, use{now, n})
			var least, most int64
			for _, u := range uses {
				if u.at > now-minute+costSpan {
					least += u.n
				}
				if u.at > now-minute-costSpan {
					most += u.n
				}
			}
			if got := m.sum(now); got < least || got > most {
				t.Fatalf("at %d: %d, want %d to %d", now, got, least, most)
			}
			limit := rapid.Int64Range(0, 3000).Draw(t, "limit")
			later := m
			if at := later.under(limit, now); later.sum(at) > limit {
				t.Fatalf("at %d, when it is said to be under %d, it is %d", at, limit, later.sum(at))
			}
		}
	})
}

func TestComponentsBeyondTheBoundAreOne(t *testing.T) {
	c := newCostState(instant{})
	for i := range 100 {
		c.part(string(rune('A' + i)))
	}
	if n := len(c.parts); n != costParts+1 {
		t.Errorf("%d components are told apart", n)
	}
	if p := c.part("one more"); p.component != otherComponents {
		t.Errorf("one more is %q", p.component)
	}
}
