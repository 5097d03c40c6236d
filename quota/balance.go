package quota

import (
	"maps"
	"slices"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// Balance is what a tenant had used at a moment of the journal: its totals
// without what open reservations hold.
type Balance struct {
	Tenant uuid.UUID
	Totals Totals
	// Open are the requests that were open, in the order of their ids: what
	// the journal has of them is not in Totals, wherever it stands.
	Open []uuid.UUID
	// Mark is the journal's last record then: what comes after it is not in
	// Totals.
	Mark uint64
}

// Spent is a charge that the journal has.
type Spent struct {
	At      time.Time // when it was reserved
	Charged kms.Credits
	Bytes   int64
	// Where in the tenant; "" and zero for nowhere.
	Project         string
	Credential, Key uuid.UUID
}

// Balances calls fn with the balance of every tenant that used anything; mark
// returns the journal's last record. Since a request is recorded before it is
// settled, all that is settled when a tenant is looked at stands before the
// mark. Tenants whose totals other nodes share are left out: the store has
// them. An error of fn ends it.
func (e *Engine) Balances(mark func() uint64, fn func(*Balance) error) error {
	for i := range e.shards {
		for _, b := range e.balancesOf(&e.shards[i], mark) {
			if err := fn(&b); err != nil {
				return err
			}
		}
	}
	return nil
}

func (e *Engine) balancesOf(s *engineShard, mark func() uint64) []Balance {
	s.mu.Lock()
	defer s.mu.Unlock()
	open := make(map[*tenant][]*hold)
	for _, h := range s.holds {
		open[h.tenant] = append(open[h.tenant], h)
	}
	now, last := e.nowLocked(s), mark()
	for _, t := range s.tenants {
		e.advance(t, now)
	}
	uses := s.dayUsesLocked()
	balances := make([]Balance, 0, len(s.tenants))
	for _, t := range s.tenants {
		if t.lease != nil {
			continue
		}
		settled := *t
		settled.packs = slices.Clone(t.packs)
		b := Balance{Tenant: t.id, Mark: last}
		for _, h := range open[t] {
			h.takeBack(&settled, int64(h.reservation.Cost), false)
			uses.takeBack(h)
			b.Open = append(b.Open, h.reservation.RequestID)
		}
		slices.SortFunc(b.Open, func(x, y uuid.UUID) int { return slices.Compare(x[:], y[:]) })
		b.Totals = settled.totals()
		b.Totals.Scopes = uses.of(t)
		balances = append(balances, b)
	}
	return balances
}

// totals reads the totals of a tenant that was brought to now.
func (t *tenant) totals() Totals {
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
	return totals
}

// RestoreSpent is Restore with what was spent after the totals were taken, in
// the order of time. With zero Totals the tenant is one that had used nothing
// before.
func (e *Engine) RestoreSpent(of *kms.Tenant, totals Totals, spent []Spent) bool {
	s := e.shardOf(of.ID)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tenants[of.ID] != nil {
		return false
	}
	now := e.nowLocked(s)
	t := e.newTenant(of, e.policies.Current(), now)
	if totals.Day == 0 && len(spent) > 0 {
		fresh := t.totals()
		fresh.Day = min(t.calendar().day(spent[0].At), fresh.Day)
		totals = fresh
	}
	s.tenants[t.id] = t
	if totals.Day != 0 {
		t.put(totals)
		e.restoreScopes(s, t, t.elastic.day, totals.Scopes, now)
	}
	for _, spent := range spent {
		then := instant{now.ns, spent.At}
		if then.wall.After(now.wall) {
			then = now // the clock went back
		}
		e.advance(t, then)
		t.spend(spent)
		e.spendScopes(s, t, spent, now)
	}
	e.advance(t, now)
	t.lost += t.credits.resize(t.rate(t.step(now.ns)).burst)
	return true
}

// Book implements kms.Quota. The journal is written under the tenant's lock, so
// that every balance has both the record and the charge, or neither. Of totals
// that nodes share, what a process had counts as used when it ends, whatever it
// recorded.
func (e *Engine) Book(of *kms.Tenant, entries []*kms.Entry, record func() []error) []error {
	s := e.shardOf(of.ID)
	s.mu.Lock()
	defer s.mu.Unlock()
	now := e.nowLocked(s)
	t := s.tenants[of.ID]
	if t == nil {
		t = e.newTenant(of, e.policies.Current(), now)
		s.tenants[t.id] = t
	}
	e.advance(t, now)
	errs := record()
	for i, entry := range entries {
		if errs[i] != nil || t.lease != nil || !charges(entry) {
			continue
		}
		spent := spentBy(entry)
		switch day := t.calendar().day(spent.At); {
		case day >= t.elastic.day:
			t.spend(spent)
			e.spendScopes(s, t, spent, now)
		case month(day) == t.month.window:
			t.month.used += int64(max(spent.Charged, 0))
		}
	}
	return errs
}

// put sets a tenant's totals, of this day or an earlier one.
func (t *tenant) put(totals Totals) {
	t.elastic = elastic{
		day:  min(totals.Day, t.elastic.day), // later: the clock went back, the day is not over
		used: int64(totals.DayUsed), drawn: int64(totals.Drawn),
		pool: min(int64(totals.Pool), t.limits.days.pool), lowered: totals.Lowered,
	}
	t.month = total{month(t.elastic.day), int64(totals.MonthUsed)}
	t.bandwidth = total{t.elastic.day, totals.Bytes}
	for i := range t.packs {
		t.packs[i].used = int64(totals.Packs[t.packs[i].id])
	}
	t.setDay()
}

// spend counts a charge as takeTotals did when it was made; what no longer
// fits, because the policy is another one, is used all the same.
func (t *tenant) spend(s Spent) {
	charged := int64(max(s.Charged, 0))
	_, room := t.elastic.room(t.limits.days)
	own := min(charged, room, max(t.limits.month-t.month.used, 0))
	rest := charged - own
	for i := range t.packs {
		amount := min(rest, t.packRoom(i, s.At))
		t.packs[i].take(amount)
		rest -= amount
	}
	t.elastic.take(min(own+rest, max(room, 0)), t.limits.days)
	t.elastic.used += max(own+rest-max(room, 0), 0)
	t.month.used += own + rest
	t.bandwidth.used += max(s.Bytes, 0)
}

// Equal tells whether two totals are the same.
func (t Totals) Equal(o Totals) bool {
	return maps.Equal(t.Packs, o.Packs) && maps.Equal(t.Scopes, o.Scopes) && t.Day == o.Day && t.DayUsed == o.DayUsed && t.Drawn == o.Drawn && t.Pool == o.Pool &&
		t.Lowered == o.Lowered && t.MonthUsed == o.MonthUsed && t.Bytes == o.Bytes
}
