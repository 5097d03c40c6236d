package quota

import (
	"testing"
	"time"

	"github.com/sluice-kms/sluice/kms"
)

// costMonths are months of a tenant's use, by minutes: its day and month, as
// the engine counts them, and no bucket.
type costMonths struct {
	limits  *tenantLimits
	elastic elastic
	month   total
	at      time.Time
}

func newCostMonths(tier kms.Tier, from time.Time) *costMonths {
	s := NewSnapshot(1, DefaultPolicy())
	m := &costMonths{limits: s.limits(testTenant, tierIndex(tier)), at: from}
	m.elastic.day, m.elastic.pool = calendar{zone: time.UTC}.day(from), m.limits.days.pool
	return m
}

// minute uses credits a minute, as far as there are any and the rate allows, and
// returns the risk with a factor of 1, in thousandths.
func (m *costMonths) minute(use int64) int64 {
	c := calendar{zone: time.UTC}
	if day := c.day(m.at); day != m.elastic.day {
		m.elastic.turn(day, daysBetween(m.elastic.day, day), m.limits.days)
	}
	m.month.turn(month(m.elastic.day))
	_, room := m.elastic.room(m.limits.days)
	use = min(use, m.limits.credits.perSecond*60, room, m.limits.month-m.month.used)
	m.elastic.take(use, m.limits.days)
	m.month.used += use
	a := allowance{factor: permille}
	_, room = m.elastic.room(m.limits.days)
	a.allow(0, room, c.ends(m.elastic.day).Sub(m.at))
	a.allow(1, m.limits.month-m.month.used, c.monthEnds(m.elastic.day).Sub(m.at))
	m.at = m.at.Add(time.Minute)
	return a.risk(use)
}

// costHabits are habits of tenants that nothing is wrong with: the part of the
// day's total that is used in a minute of the week, in millionths.
var costHabits = map[string]func(m *costMonths) int64{
	"office hours":              func(m *costMonths) int64 { return m.office(600) },
	"office hours, month's end": func(m *costMonths) int64 { return m.office(600) * m.monthEnd(3) / 2 },
	"month's end on the elastic pool": func(m *costMonths) int64 {
		if m.limits.days.pool > 0 && m.at.AddDate(0, 0, 1).Month() != m.at.Month() {
			return m.office(1200) // of a day's total
		}
		return m.office(600)
	},
	"a batch every night": func(m *costMonths) int64 {
		if m.at.Hour() == 1 && m.at.Minute() < 20 {
			return m.limits.credits.perSecond * 60
		}
		return m.office(400)
	},
	"the bought rate for an hour": func(m *costMonths) int64 {
		if m.at.YearDay()%7 == 3 && m.at.Hour() == m.at.YearDay()/7%24 {
			return m.limits.credits.perSecond * 60
		}
		return m.office(200)
	},
}

// office is three times the mean in the eight hours of a working day, of a day's
// use in thousandths of the total; little in the rest and at weekends.
func (m *costMonths) office(permilleOfDay int64) int64 {
	mean := m.limits.days.total / permille * permilleOfDay / (24 * 60)
	weekend := m.at.Weekday() == time.Saturday || m.at.Weekday() == time.Sunday
	switch hour := m.at.Hour(); {
	case weekend:
		return mean / 10
	case hour >= 9 && hour < 17:
		return 3*mean*9/10 + 3*mean*int64(m.at.Minute()%5)/20 // uneven by a tenth
	}
	return mean / 20
}

// monthEnd is a factor in the last four days of a month.
func (m *costMonths) monthEnd(factor int64) int64 {
	if m.at.AddDate(0, 0, 4).Month() != m.at.Month() {
		return factor
	}
	return 2
}

// TestNormalUseIsNeverAboveTheLine is what the default factors are chosen by.
func TestNormalUseIsNeverAboveTheLine(t *testing.T) {
	policy := DefaultPolicy()
	for _, tier := range kms.Tiers() {
		for name, habit := range costHabits {
			m := newCostMonths(tier, time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))
			var most int64
			var at time.Time
			for m.at.Before(time.Date(2030, 7, 1, 0, 0, 0, 0, time.UTC)) {
				if risk := m.minute(habit(m)); risk > most {
					most, at = risk, m.at
				}
			}
			most = most * policy.Tiers[tier].CostFactorPermille / permille
			t.Logf("%s, %s: a risk of at most %d thousandths, at %v", tier, name, most, at)
			if most > policy.CostBreaker.RiskPercent*10*3/4 {
				t.Errorf("%s, %s: the risk comes to %d thousandths at %v", tier, name, most, at)
			}
		}
	}
}

// A loop of one component that takes all of the bought rate, beside office hours
// of another one, from different hours on.
func TestRunawayLoopIsStoppedBeforeATenthOfTheMonthIsGone(t *testing.T) {
	const step = 2 * time.Second
	for _, tier := range kms.Tiers() {
		for _, hour := range []int{0, 9, 15, 21} {
			e := newTestEngine(t, tier, func(p *Policy) { p.Tiers[tier].BandwidthBytes = 1 << 50 })
			e.clock.at = time.Date(2030, 4, 5, hour, 10, 0, 0, time.UTC)
			e.tenant.Created = time.Date(2029, 1, 1, 0, 0, 0, 0, time.UTC)
			s := e.shardOf(testTenant)
			limits := e.policies.Current().limits(testTenant, tierIndex(tier))
			perStep := limits.credits.perSecond / micro * int64(step/time.Second)
			var stopped, ended bool
			var took time.Duration
			for ; took < 96*time.Hour && !stopped && !ended; took += step {
				e.clock.pass(step)
				loop := e.costing(max(perStep*9/10, 1))
				loop.Principal.Component = "loop"
				e.AdmitRequest(loop) // what is refused for other reasons is not the question
				app := e.costing(max(perStep/10, 1))
				app.Principal.Component = "app"
				if _, err := e.AdmitRequest(app); err != nil && kms.KindOf(err) == kms.KindQuotaExhausted {
					ended = true
				}
				for _, event := range e.watchCosts(s, nil) {
					stopped = stopped || event.Change.To == kms.CostStopped && event.Change.Component == "loop"
					if event.Change.Whole && event.Change.To == kms.CostStopped {
						t.Fatalf("%s from %d h: the whole tenant is stopped", tier, hour)
					}
				}
				e.endAll()
			}
			a := e.Account(e.tenant)
			share := int64(a.Month.Used) * 1000 / int64(a.Month.Max)
			t.Logf("%s from %d h: stopped after %v, with %d thousandths of the month and %d of the day used", tier, hour, took, share,
				int64(a.Day.Used)*1000/int64(a.Day.Max))
			if ended && tier == kms.TierFree && hour == 21 {
				continue // the bought rate uses a day up in 83 minutes: its total ends the loop a minute before
			}
			if !stopped || ended || share >= 100 {
				t.Errorf("%s from %d h: stopped: %v after %v, with %d thousandths of the month used", tier, hour, stopped, took, share)
			}
			app := e.costing(1)
			app.Principal.Component = "app"
			if _, err := e.AdmitRequest(app); err != nil {
				t.Errorf("%s from %d h: the other component is refused: %v", tier, hour, err)
			}
		}
	}
}

// endAll ends all requests that are open.
func (e *testEngine) endAll() {
	s := e.shardOf(testTenant)
	for _, h := range s.holds {
		r := h.reservation
		e.Settle(r, kms.Settlement{State: kms.Settled, Charged: r.Cost})
	}
}
