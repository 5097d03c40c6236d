package quota

import (
	"cmp"
	"slices"
	"time"

	"github.com/sluice-kms/sluice/kms"
)

// retries measures how a tenant obeys Retry-After, in the least memory: one
// time for the whole tenant. A request of another of its clients, which was
// told nothing, counts like one of the client that was; a share is therefore a
// bound from above. The shard's lock guards it.
type retries struct {
	until int64 // ns to which the last Retry-After of the tenant lasts
	early uint64
}

// returnTime is for how long after the end of a Retry-After requests count as
// those that waited for it: its whole seconds are drawn so that not all of them
// come in one.
const returnTime = int64(time.Second)

// arrival is how a request came, seen from the last Retry-After of its tenant.
type arrival uint8

const (
	atWill arrival = iota
	tooEarly
	atTheEnd // in the second after it
)

// came counts a request and tells how it came.
func (r *retries) came(now int64) arrival {
	switch {
	case now < r.until:
		r.early++
		return tooEarly
	case r.until > 0 && now < r.until+returnTime:
		return atTheEnd
	}
	return atWill
}

// told notes what a refusal said. That a lease is on its way is waited for by
// the API node and told to nobody.
func (r *retries) told(now int64, err *kms.Error) {
	if err.RetryAfter > 0 && slices.ContainsFunc(err.Reasons, func(reason kms.Reason) bool { return reason.Code != ReasonLease }) {
		r.until = max(r.until, now+int64(err.RetryAfter))
	}
}

// Standings implements kms.QuotaAccounts. It looks at every tenant that the
// engine knows, shard by shard.
func (e *Engine) Standings(limit int) (list []kms.QuotaStanding, all int) {
	for i := range e.shards {
		list = e.standings(&e.shards[i], list)
	}
	slices.SortFunc(list, func(a, b kms.QuotaStanding) int {
		return cmp.Or(cmp.Compare(b.Near, a.Near), cmp.Compare(b.Debt, a.Debt), cmp.Compare(b.Drawn, a.Drawn),
			a.Tenant.Compare(b.Tenant))
	})
	return list[:min(limit, len(list))], len(list)
}

func (e *Engine) standings(s *engineShard, list []kms.QuotaStanding) []kms.QuotaStanding {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := e.nowLocked(s)
	for _, t := range s.tenants {
		e.advance(t, now)
		standing := t.standing()
		if standing.Near >= int(t.snapshot.soft) || standing.Debt > 0 || standing.Drawn > 0 || standing.Lowered {
			list = append(list, standing)
		}
	}
	return list
}

func (t *tenant) standing() kms.QuotaStanding {
	return kms.QuotaStanding{
		Tenant: t.id, Tier: kms.Tiers()[t.limits.tier],
		Near: max(near(t.elastic.used, t.elastic.base(t.limits.days)), near(t.month.used, t.limits.month),
			near(t.bandwidth.used, t.limits.bandwidth)),
		Debt: kms.Credits(t.credits.debt), Drawn: kms.Credits(max(t.limits.days.pool-t.elastic.pool, 0)), Lowered: t.elastic.lowered,
		Admitted: t.admitted, Refused: t.refused, Early: t.retries.early,
	}
}

// near is how much of a total is used, in thousandths; 0 of one without limit.
func near(used, limit int64) int {
	if limit <= 0 {
		return 0
	}
	n, _ := mulDiv(used, permille, limit)
	return int(n)
}
