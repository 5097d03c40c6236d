package quota

import (
	"fmt"
	"testing"
	"time"
	"uuid"

	"pgregory.net/rapid"

	"github.com/sluice-kms/sluice/kms"
)

// books are what a test writes down of a tenant in the simplest way.
type books struct {
	admitted map[uuid.UUID]entry // open
	charged  kms.Credits
	byDay    map[int32]int64 // settled and open, in the tenant's days
	peak     int64           // the largest rate that held, per second
	began    int64           // level
	maxBurst int64
}

type entry struct {
	reservation kms.Reservation
	day         int32
}

// conservationMachine drives an engine with any interleaving of requests,
// settlements, refunds, changes of policy, tier and load, clock jumps, reaping
// and sweeping, beside the books.
type conservationMachine struct {
	*testEngine
	books   books
	ever    []kms.Reservation
	version uint64
}

func (m *conservationMachine) draw(t *rapid.T) *Policy {
	p := DefaultPolicy()
	for _, tier := range kms.Tiers() {
		l := p.Tiers[tier]
		l.CreditsPerSecond = rapid.Int64Range(1, 5000).Draw(t, "rate")
		l.BurstCredits = l.CreditsPerSecond + rapid.Int64Range(0, 5000).Draw(t, "burst")
		l.OverdraftCredits = rapid.Int64Range(0, l.BurstCredits).Draw(t, "overdraft")
		l.DayCredits = l.BurstCredits + rapid.Int64Range(0, 20_000).Draw(t, "day")
		l.PoolCredits = rapid.Int64Range(0, l.DayCredits).Draw(t, "pool")
		l.KeyPercent = rapid.Int64Range(1, 100).Draw(t, "key")
		l.RampFromPercent = rapid.Int64Range(1, 100).Draw(t, "ramp")
		m.books.peak = max(m.books.peak, l.CreditsPerSecond*micro)
		m.books.maxBurst = max(m.books.maxBurst, (l.BurstCredits+l.OverdraftCredits)*micro)
	}
	p.Elastic.RepayPercent = rapid.Int64Range(1, 100).Draw(t, "repay")
	return p
}

func (m *conservationMachine) step(t *rapid.T) {
	switch rapid.IntRange(0, 11).Draw(t, "do") {
	case 0, 1, 2, 3:
		m.admit(t)
	case 4, 5, 6:
		m.settle(t)
	case 7:
		m.clock.pass(time.Duration(rapid.Int64Range(0, int64(3*time.Second)).Draw(t, "pass")))
	case 8: // a clock that jumps, back too
		m.clock.pass(time.Duration(rapid.Int64Range(-int64(26*time.Hour), int64(50*time.Hour)).Draw(t, "jump")))
	case 9:
		m.version++
		p := m.draw(t)
		if err := m.policies.Apply(m.version, document(m.t, p)); err != nil {
			t.Fatal(err)
		}
	case 10:
		m.tenant.Tier = rapid.SampledFrom(kms.Tiers()).Draw(t, "tier")
		m.SetUtilisation(rapid.Int64Range(0, 1000).Draw(t, "busy"))
	case 11:
		m.Reap()
		m.settleCharged()
	}
}

func (m *conservationMachine) admit(t *rapid.T) {
	r := m.costing(rapid.Int64Range(1, 3000).Draw(t, "cost"))
	r.Key = requestID(rapid.Uint64Range(0, 3).Draw(t, "key"))
	r.Principal.Credential = requestID(rapid.Uint64Range(0, 3).Draw(t, "credential"))
	res, err := m.AdmitRequest(r)
	if err != nil {
		if len(reasons(err)) == 0 {
			t.Fatalf("a refusal without reasons: %v", err)
		}
		return
	}
	day := m.accounts().Day
	m.books.admitted[res.RequestID] = entry{res, day}
	m.books.byDay[day] += int64(res.Cost)
	m.ever = append(m.ever, res)
}

// settle ends any reservation there ever was, in any way.
func (m *conservationMachine) settle(t *rapid.T) {
	if len(m.ever) == 0 {
		return
	}
	r := rapid.SampledFrom(m.ever).Draw(t, "reservation")
	o := Outcome{kms.Settlement{
		State:    rapid.SampledFrom([]kms.SettlementState{kms.Settled, kms.Partial, kms.Cancelled, "?"}).Draw(t, "state"),
		Charged:  kms.Credits(rapid.Int64Range(-10, 4000*micro).Draw(t, "charged")),
		SlotTime: time.Duration(rapid.Int64Range(0, 1).Draw(t, "ran")),
	}, rapid.SampledFrom([]Fault{NoFault, ClientsOwn, KeysOwn}).Draw(t, "fault")}
	m.Finish(r, o)
	if was, ok := m.books.admitted[r.RequestID]; ok {
		delete(m.books.admitted, r.RequestID)
		charged := min(max(0, o.Charged), o.State.Charge(r.Cost))
		m.books.charged += charged
		m.books.byDay[was.day] -= int64(r.Cost - charged)
	}
}

// settleCharged writes down what the reaper charged.
func (m *conservationMachine) settleCharged() {
	s := m.shardOf(testTenant)
	for id, e := range m.books.admitted {
		if _, open := s.holds[id]; !open {
			delete(m.books.admitted, id)
			m.books.charged += e.reservation.Cost
		}
	}
}

func (m *conservationMachine) check(t *rapid.T) {
	a, ok := m.Accounts(testTenant)
	if !ok {
		return
	}
	var reserved kms.Credits
	for _, e := range m.books.admitted {
		reserved += e.reservation.Cost
	}
	if a.Charged != m.books.charged || a.Reserved != reserved || int(a.Open) != len(m.books.admitted) {
		t.Fatalf("charged %d, reserved %d, %d open; the books say %d, %d, %d", a.Charged, a.Reserved, a.Open,
			m.books.charged, reserved, len(m.books.admitted))
	}
	if got, want := int64(a.Available-a.Debt), m.books.began+int64(a.Granted-a.Lost-a.Charged-a.Reserved); got != want {
		t.Fatalf("conservation: there are %d, there must be %d: %+v", got, want, a)
	}
	if got, want := int64(a.DayUsed), m.books.byDay[a.Day]; got != want {
		t.Fatalf("day %d has used %d, the books say %d", a.Day, got, want)
	}
	ns := m.shardOf(testTenant).latest
	bound, _ := mulDiv(ns, m.books.peak, second)
	if used := int64(a.Charged + a.Reserved); used > bound+m.books.began+m.books.maxBurst {
		t.Fatalf("%d are used, rate·t + capacity is %d", used, bound+m.books.maxBurst)
	}
	if a.Available < 0 || a.Debt < 0 || a.Pool < 0 || a.InFlight < 0 {
		t.Fatalf("below zero: %+v", a)
	}
}

// TestCreditsAreConserved: granted = settled + live reservations + available +
// overflowed, for any interleaving, refund, policy change and clock jump.
func TestCreditsAreConserved(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := &conservationMachine{version: 1}
		m.books = books{admitted: make(map[uuid.UUID]entry), byDay: make(map[int32]int64)}
		m.testEngine = newTestEngine(t, rapid.SampledFrom(kms.Tiers()).Draw(rt, "first tier"), nil)
		p := m.draw(rt)
		m.version++
		if err := m.policies.Apply(m.version, document(m.t, p)); err != nil {
			rt.Fatal(err)
		}
		if rapid.Bool().Draw(rt, "new") {
			m.tenant.Created = morning.Add(-time.Duration(rapid.Int64Range(0, int64(26*time.Hour)).Draw(rt, "age")))
		}
		if r, err := m.AdmitRequest(m.costing(1)); err == nil { // makes the tenant known
			m.Settle(r, kms.Settlement{State: kms.Cancelled})
		}
		m.books.began = int64(m.accounts().Available)
		for range rapid.IntRange(1, 80).Draw(rt, "steps") {
			m.step(rt)
			m.check(rt)
		}
	})
}

// How often an engine is asked changes nothing: through ramps, days and loads.
func TestLookingAtATenantChangesNothing(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		seen, unseen := newTestEngine(t, kms.TierFree, nil), newTestEngine(t, kms.TierFree, nil)
		ramps := rapid.Bool().Draw(rt, "ramps") // and else the load changes
		for _, e := range []*testEngine{seen, unseen} {
			if ramps {
				e.tenant.Created = morning
			}
			e.must(e.costing(100))
		}
		for range rapid.IntRange(1, 30).Draw(rt, "steps") {
			d := time.Duration(rapid.Int64Range(0, int64(2*time.Hour)).Draw(rt, "pass"))
			if rapid.Bool().Draw(rt, "short") {
				d /= 10_000
			}
			busy := rapid.Int64Range(800, 900).Draw(rt, "busy")
			for _, e := range []*testEngine{seen, unseen} {
				e.clock.pass(d)
				if !ramps {
					e.SetUtilisation(busy)
				}
			}
			if a := seen.accounts(); rapid.IntRange(0, 3).Draw(rt, "use") == 0 {
				cost := min(int64(a.Available)/micro, 50)
				if cost > 0 {
					for _, e := range []*testEngine{seen, unseen} {
						r := e.must(e.costing(cost))
						e.Settle(r, settledInFull(r))
					}
				}
			}
		}
		a, b := seen.accounts(), unseen.accounts()
		// What a full bucket is granted and loses is counted in whole
		// micro-credits, which does depend on how often.
		a.Lost, b.Lost = a.Granted-a.Lost, b.Granted-b.Lost
		a.Granted, b.Granted = 0, 0
		if fmt.Sprint(a) != fmt.Sprint(b) {
			rt.Fatalf("looked at often: %+v\nseldom: %+v", a, b)
		}
	})
}
