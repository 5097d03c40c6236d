package quota

import (
	"github.com/sluice-kms/sluice/kms"
)

// objectNames are the kinds of stored objects in accounts.
var objectNames = [objectKinds]string{Keys: "keys", Secrets: "secrets", Credentials: "credentials"}

// Account implements kms.QuotaAccounts: a tenant of whom the engine knows
// nothing has used nothing.
func (e *Engine) Account(of *kms.Tenant) kms.QuotaAccount {
	snapshot := e.policies.Current()
	s := e.shardOf(of.ID)
	s.mu.Lock()
	defer s.mu.Unlock()
	now := e.nowLocked(s)
	t := s.tenants[of.ID]
	if t == nil {
		t = e.newTenant(of, snapshot, now)
	}
	if tier := tierIndex(of.Tier); t.snapshot != snapshot || t.limits.tier != tier {
		e.adopt(t, snapshot, tier, now)
	}
	e.advance(t, now)
	a := e.accountsOf(t, now)
	line := func(limit kms.Credits) int64 {
		soft, _ := mulDiv(int64(limit), snapshot.soft, permille)
		return soft
	}
	account := kms.QuotaAccount{
		Tier: a.Tier, PolicyVersion: a.PolicyVersion,
		PerSecond: a.PerSecond, Burst: a.Burst, Available: a.Available, Overdraft: a.Overdraft, Debt: a.Debt,
		Ramp: int(a.Ramp), LoadShare: int(a.LoadShare),
		Day:   kms.QuotaTotal{Used: a.DayUsed, Max: a.DayTotal, Soft: int64(a.DayUsed) >= line(a.DayTotal), Resets: a.DayEnds},
		Month: kms.QuotaTotal{Used: a.MonthUsed, Max: a.MonthMax, Soft: int64(a.MonthUsed) >= line(a.MonthMax), Resets: a.MonthEnds},
		Pool:  a.Pool, PoolMax: a.PoolMax, Lowered: a.Lowered,
		Bytes: a.Bytes, BytesMax: a.BytesMax, InFlight: a.InFlight, InFlightMax: a.MaxFlight,
		Admitted: a.Admitted, Refused: a.Refused, Retries: s.retryContract(t, now.ns),
		Cost: t.costBreaker(now),
	}
	for _, p := range a.Packs {
		account.Packs = append(account.Packs, kms.QuotaPack{ID: p.ID, Left: p.Left, Expires: p.Expires})
	}
	for kind, name := range objectNames {
		if name != "" {
			account.Stored = append(account.Stored, kms.QuotaStored{Kind: name, Have: a.Stored[kind], Max: a.MaxStored[kind]})
		}
	}
	return account
}

var _ kms.QuotaAccounts = (*Engine)(nil)
