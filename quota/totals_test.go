package quota

import (
	"reflect"
	"testing"
	"time"
	"uuid"

	"pgregory.net/rapid"

	"github.com/sluice-kms/sluice/kms"
)

// However a tenant used its quota, an engine that is given its totals goes on
// as the one it had: on the same day and on days after, in which nobody came.
func TestTotalsSurviveARestartExactly(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		edit := func(p *Policy) {
			s := p.Tiers[kms.TierSilver]
			s.CreditsPerSecond, s.BurstCredits, s.OverdraftCredits, s.DayCredits, s.PoolCredits = 1000, 1000, 0, 3000, 1500
			p.Totals.MonthDays = 3
			p.Tenants = map[uuid.UUID]*TenantPolicy{testTenant: {TimeZone: "Asia/Shanghai", Packs: []Pack{{"a", 700, morning.Add(90 * time.Hour)}}}}
		}
		old := newTestEngine(t, kms.TierSilver, edit)
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			if r, err := old.AdmitRequest(old.costing(rapid.Int64Range(1, 800).Draw(rt, "cost"))); err == nil {
				old.Settle(r, kms.Settlement{State: kms.Settled, Charged: r.Cost})
			}
			old.clock.pass(time.Duration(rapid.SampledFrom([]int64{1, 5, 5, 3600, 30_000, 100_000}).Draw(rt, "seconds")) * time.Second)
		}
		totals, _ := old.Totals(testTenant)
		fresh := newTestEngine(t, kms.TierSilver, edit)
		fresh.clock.pass(old.clock.now().Sub(fresh.clock.now()))
		if !fresh.Restore(fresh.tenant, totals) {
			rt.Fatal("the tenant is known already")
		}
		for range 3 {
			a, _ := old.Totals(testTenant)
			b, _ := fresh.Totals(testTenant)
			if !reflect.DeepEqual(a, b) {
				rt.Fatalf("before %+v\nafter  %+v", a, b)
			}
			pass := time.Duration(rapid.Int64Range(0, 80).Draw(rt, "hours")) * time.Hour
			old.clock.pass(pass)
			fresh.clock.pass(pass)
			cost := rapid.Int64Range(1, 800).Draw(rt, "cost after")
			_, errOld := old.AdmitRequest(old.costing(cost))
			_, errFresh := fresh.AdmitRequest(fresh.costing(cost))
			if pass > 0 && (errOld == nil) != (errFresh == nil) {
				rt.Fatalf("before %v\nafter  %v", reasons(errOld), reasons(errFresh))
			}
		}
	})
}

func TestRestoreChangesNoTenantThatIsKnown(t *testing.T) {
	e := newTestEngine(t, kms.TierFree, nil)
	e.must(e.costing(100))
	if e.Restore(e.tenant, Totals{Day: 20300310, DayUsed: 1}) || e.accounts().DayUsed != 100*kms.Credit {
		t.Error("it did")
	}
	if _, known := e.Totals(uuid.New()); known {
		t.Error("a tenant that nobody saw has totals")
	}
}
