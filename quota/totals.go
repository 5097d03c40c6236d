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
	// Scopes is what projects, credentials and keys have used of a limit of the
	// day, by their names; those that have none or used nothing are left out.
	Scopes map[string]kms.Credits
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
	totals, uses := t.totals(), s.dayUsesLocked()
	totals.Scopes = uses.of(t)
	return totals, true
}

// Restore gives a tenant the totals that it had, before its first request: a
// tenant that the engine knows already keeps what it has, and Restore returns
// false. Days that have passed since count as unused. With a Backing the
// store's word counts for what nodes share.
func (e *Engine) Restore(of *kms.Tenant, totals Totals) bool {
	return e.RestoreSpent(of, totals, nil)
}
