package quota

import (
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// Totals are what of a tenant must survive a restart: all that does not come
// back by itself in a few seconds. The ledger has them; buckets begin anew.
type Totals struct {
	Day       int32 // yyyymmdd of the tenant's calendar, of what follows
	DayUsed   kms.Credits
	Drawn     kms.Credits // from the pool, of DayUsed
	Pool      kms.Credits // what is left in the elastic pool
	Lowered   bool        // the day runs one notch lower
	MonthUsed kms.Credits // of Day's month
	Bytes     int64       // of the day
	Packs     map[string]kms.Credits
}

// Totals returns a tenant's totals as of now, false when it has none that
// differ from a new tenant's.
func (e *Engine) Totals(id uuid.UUID) (Totals, bool) {
	s := e.shardOf(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tenants[id]
	if t == nil {
		return Totals{}, false
	}
	e.advance(t, e.nowLocked(s))
	totals := Totals{
		Day: t.elastic.day, DayUsed: kms.Credits(t.elastic.used), Drawn: kms.Credits(t.elastic.drawn),
		Pool: kms.Credits(t.elastic.pool), Lowered: t.elastic.lowered,
		MonthUsed: kms.Credits(t.month.used), Bytes: t.bandwidth.used,
	}
	for _, p := range t.packs {
		if p.used > 0 {
			if totals.Packs == nil {
				totals.Packs = make(map[string]kms.Credits)
			}
			totals.Packs[p.id] = kms.Credits(p.used)
		}
	}
	return totals, true
}

// Restore gives a tenant the totals that it had, before its first request: a
// tenant that the engine knows already keeps what it has, and Restore returns
// false. Days that have passed since count as unused. With a Backing the
// store's word counts for what nodes share.
func (e *Engine) Restore(of *kms.Tenant, totals Totals) bool {
	snapshot := e.policies.Current()
	s := e.shardOf(of.ID)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tenants[of.ID] != nil {
		return false
	}
	now := e.nowLocked(s)
	t := e.newTenant(of, snapshot, now)
	if totals.Day > t.elastic.day {
		totals.Day = t.elastic.day // the clock went back: the day is not over
	}
	t.elastic = elastic{
		day: totals.Day, used: int64(totals.DayUsed), drawn: int64(totals.Drawn),
		pool: min(int64(totals.Pool), t.limits.days.pool), lowered: totals.Lowered,
	}
	t.month = total{month(totals.Day), int64(totals.MonthUsed)}
	t.bandwidth = total{totals.Day, totals.Bytes}
	for i := range t.packs {
		t.packs[i].used = int64(totals.Packs[t.packs[i].id])
	}
	t.dayEnds = t.calendar.ends(t.elastic.day)
	s.tenants[t.id] = t
	e.advance(t, now)
	t.lost += t.credits.resize(t.rate(t.step(now.ns)).burst)
	return true
}
