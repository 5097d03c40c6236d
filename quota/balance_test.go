package quota

import (
	"slices"
	"testing"
	"time"
	"uuid"

	"pgregory.net/rapid"

	"github.com/sluice-kms/sluice/kms"
)

// written is a record of the journal of the tests.
type written struct {
	id    uuid.UUID
	spent Spent
}

// A credential and a key of the test tenant, made long ago.
var (
	testCredential = uuid.MustParse("01890000-0000-7000-8000-0000000000c1")
	testKey        = uuid.MustParse("01890000-0000-7000-8000-0000000000e1")
)

// Whenever a balance is taken, with requests open that the journal has or has
// not, an engine that is given it and what the journal has after it has the
// totals of the old one: on the same day and on later ones.
func TestBalanceAndJournalMakeTheTotalsAgain(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		packs, nested := rapid.Bool().Draw(rt, "packs"), rapid.Bool().Draw(rt, "nested")
		edit := func(p *Policy) {
			s := p.Tiers[kms.TierSilver]
			s.CreditsPerSecond, s.BurstCredits, s.OverdraftCredits, s.DayCredits, s.PoolCredits = 1000, 3000, 0, 3000, 1500
			p.Totals.MonthDays = 3
			tenant := new(TenantPolicy)
			if packs {
				tenant.Packs = []Pack{{"a", 700, morning.Add(900 * time.Hour)}, {"b", 900, morning.Add(900 * time.Hour)}}
			}
			if nested {
				day := &ScopeLimits{DayCredits: 2500}
				tenant.Projects = map[string]*ScopeLimits{"default": day, "default/inner": day}
				tenant.Credentials, tenant.Keys = map[uuid.UUID]*ScopeLimits{testCredential: day}, map[uuid.UUID]*ScopeLimits{testKey: day}
			}
			p.Tenants = map[uuid.UUID]*TenantPolicy{testTenant: tenant}
		}
		old := newTestEngine(t, kms.TierSilver, edit)
		var journal []written
		type request struct {
			kms.Reservation
			at       time.Time
			bytes    int64
			project  string
			key      uuid.UUID
			recorded bool
			charged  kms.Credits
			state    kms.SettlementState
		}
		var open []*request
		record := func(r *request) {
			if r.recorded {
				return
			}
			r.state = rapid.SampledFrom([]kms.SettlementState{kms.Settled, kms.Partial, kms.Cancelled}).Draw(rt, "state")
			r.charged, r.recorded = r.state.Charge(r.Cost), true
			journal = append(journal, written{r.RequestID, Spent{At: r.at, Charged: r.charged, Bytes: r.bytes,
				Project: r.project, Credential: testCredential, Key: r.key}})
		}
		settle := func(i int) {
			record(open[i])
			old.Settle(open[i].Reservation, kms.Settlement{State: open[i].state, Charged: open[i].charged, SlotTime: 1})
			open = slices.Delete(open, i, i+1)
		}
		var balance *Balance
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			switch rapid.IntRange(0, 6).Draw(rt, "step") {
			case 0, 1, 2:
				asked := old.costing(rapid.Int64Range(1, 600).Draw(rt, "cost"))
				by := *asked.Principal
				by.Project = rapid.SampledFrom([]string{"default", "default/inner", "other"}).Draw(rt, "project")
				asked.Principal = &by
				by.Credential = testCredential
				if rapid.Bool().Draw(rt, "with a key") {
					asked.Key = testKey
				}
				if r, err := old.AdmitRequest(asked); err == nil {
					open = append(open, &request{Reservation: r, at: old.clock.now(), bytes: int64(asked.Bytes), project: by.Project, key: asked.Key})
				}
			case 3:
				if len(open) > 0 {
					record(open[rapid.IntRange(0, len(open)-1).Draw(rt, "recorded")])
				}
			case 4:
				if len(open) > 0 {
					settle(rapid.IntRange(0, len(open)-1).Draw(rt, "settled"))
				}
			case 5:
				old.clock.pass(time.Second)
			case 6: // days end with no request open
				for len(open) > 0 {
					settle(0)
				}
				old.clock.pass(time.Duration(rapid.SampledFrom([]int64{3600, 30_000, 100_000}).Draw(rt, "seconds")) * time.Second)
			}
			if rapid.IntRange(0, 9).Draw(rt, "balance") == 0 {
				old.Balances(func() uint64 { return uint64(len(journal)) }, func(b *Balance) error {
					balance = b
					return nil
				})
			}
		}
		for len(open) > 0 {
			settle(0)
		}
		var totals Totals
		var spent []Spent
		for i, w := range journal {
			if balance == nil || uint64(i) >= balance.Mark || slices.Contains(balance.Open, w.id) {
				spent = append(spent, w.spent)
			}
		}
		if balance != nil {
			totals = balance.Totals
		}
		slices.SortStableFunc(spent, func(a, b Spent) int { return a.At.Compare(b.At) })
		fresh := newTestEngine(t, kms.TierSilver, edit)
		fresh.clock.pass(old.clock.now().Sub(fresh.clock.now()))
		if !fresh.RestoreSpent(fresh.tenant, totals, spent) {
			rt.Fatal("the tenant is known already")
		}
		for range 3 {
			a, known := old.Totals(testTenant)
			b, _ := fresh.Totals(testTenant)
			if !known {
				a = b // nothing was used
			}
			if !a.Equal(b) {
				rt.Fatalf("before %+v\nafter  %+v", a, b)
			}
			pass := time.Duration(rapid.Int64Range(0, 80).Draw(rt, "hours")) * time.Hour
			old.clock.pass(pass)
			fresh.clock.pass(pass)
		}
	})
}
