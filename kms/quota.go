package kms

import (
	"context"
	"time"
	"uuid"
)

// QuotaAccounts tells what tenants may use and have used.
type QuotaAccounts interface {
	// Account returns a tenant's account as of now.
	Account(t *Tenant) QuotaAccount
	// Standings returns the tenants near a limit or beyond one, the nearest
	// first, up to limit of them, and how many there are.
	Standings(limit int) (list []QuotaStanding, all int)
	// LiftCost ends the stop of an incident of a tenant that began before a time,
	// and tells whether there is one here.
	LiftCost(tenant uuid.UUID, at time.Time) bool
}

// QuotaAccount is what a tenant may use and has used.
type QuotaAccount struct {
	Tier          Tier
	PolicyVersion uint64

	// The bucket.
	PerSecond Credits // the refill that holds now: ramp, notch and load counted
	Burst     Credits // what the bucket holds at most
	Available Credits
	Overdraft Credits // how far below zero it may run while the pool has room
	Debt      Credits // what is to be repaid from the refill
	Ramp      int     // thousandths of the full rate that a new tenant has
	LoadShare int     // thousandths of the refill that the pool's load leaves

	Day, Month QuotaTotal
	// Pool is what is left of the elastic pool, on which a day draws beyond
	// its total; what is missing is repaid from quota that is not used.
	Pool, PoolMax Credits
	Lowered       bool // the day runs one notch lower, until the pool is full
	Packs         []QuotaPack

	Bytes, BytesMax       int64 // of the day; BytesMax 0: no limit
	InFlight, InFlightMax int64
	Stored                []QuotaStored

	Admitted, Refused uint64 // requests, since the service started

	Retries RetryContract
	Cost    CostBreaker
}

// RetryContract is how a tenant obeyed Retry-After in the last one to two minutes,
// as one API node saw it. All clients of the tenant are counted together, so
// the numbers are bounds from above; of one that never came too early nor just in
// time they are 0.
type RetryContract struct {
	Calls, Early int // its requests, and those before their Retry-After was over
	// Spike is how many times as many came in the second after a Retry-After as
	// in others; 0: too few did to tell.
	Spike int
}

// The lines of the contract.
const (
	RetryLine  = 100 // thousandths of calls that come too early
	RetryCalls = 100 // that tell something of it
	SpikeLine  = 5   // times
)

// Share is the part of the requests that came too early, in thousandths.
func (r *RetryContract) Share() int {
	if r.Calls == 0 {
		return 0
	}
	return r.Early * 1000 / r.Calls
}

// Note says what a tenant should change, "" for nothing.
func (r *RetryContract) Note() string {
	switch early := r.Calls >= RetryCalls && r.Share() > RetryLine; {
	case early && r.Spike >= SpikeLine:
		return noteEarly + ", and " + noteSpike
	case early:
		return noteEarly
	case r.Spike >= SpikeLine:
		return noteSpike
	}
	return ""
}

const (
	noteEarly = "many calls come before their Retry-After is over: wait for it, each of them costs a tenth of a credit"
	noteSpike = "many calls come together when a Retry-After ends: add a random part to the wait"
)

// QuotaTotal is a total of a day or a month.
type QuotaTotal struct {
	Used   Credits
	Max    Credits
	Soft   bool // it has come to its soft limit
	Resets time.Time
}

// QuotaPack is what is left of a burst pack.
type QuotaPack struct {
	ID      string
	Left    Credits
	Expires time.Time
}

// QuotaStored is how many objects of a kind a tenant has, -1 when nobody has
// counted them yet, and may have.
type QuotaStored struct {
	Kind      string
	Have, Max int64
}

// Quota reports the account of a tenant: "" is the caller's own, another one
// takes an operator.
func (s *Service) Quota(ctx context.Context, t *Ticket, ref string) (account *QuotaAccount, err error) {
	var tenant *Tenant
	err = s.run(ctx, t, &task{op: OpReadQuota, allowed: administers(OpReadQuota, ref),
		prepare: func(t *Ticket) (err error) {
			if tenant, err = s.target(ctx, t, ref); err == nil {
				t.onTenant(tenant)
			}
			return err
		},
		store: func(context.Context, *Ticket) error {
			a := s.accounts.Account(tenant)
			account = &a
			return nil
		}})
	if err != nil {
		return nil, err
	}
	return account, nil
}

// QuotaStanding is a tenant that is near a limit, or beyond one.
type QuotaStanding struct {
	Tenant uuid.UUID
	Tier   Tier
	// Near is how near it is to the nearest of its totals, in thousandths; 1000
	// and more: it has come to it.
	Near    int
	Debt    Credits // of its bucket
	Drawn   Credits // from its elastic pool, not yet repaid
	Lowered bool    // its days run one notch lower
	// Refused are its requests that were refused since the service started, and
	// Early those requests that came before the Retry-After that the tenant had
	// last been given was over.
	Admitted, Refused, Early uint64
}

// RetryShare is the share of the requests that came too early, in thousandths.
func (q *QuotaStanding) RetryShare() int {
	all := q.Admitted + q.Refused
	if all == 0 {
		return 0
	}
	return int(q.Early * 1000 / all)
}

// MaxQuotaStandings bounds a page of standings.
const MaxQuotaStandings = 200

// QuotaStandings returns the tenants that owe credits, have drawn on their
// elastic pool, run one notch lower or have come to the soft part of a total,
// the nearest to its limit first, up to limit of them, and how many there are.
// It is what this API node knows: tenants that others serve are missing.
func (s *Service) QuotaStandings(ctx context.Context, t *Ticket, limit int) (list []QuotaStanding, all int, err error) {
	err = s.run(ctx, t, &task{op: OpReadQuotas,
		prepare: func(*Ticket) error {
			if limit < 1 || limit > MaxQuotaStandings {
				return Errorf(KindInvalidArgument, "page_size: must be 1 to %d", MaxQuotaStandings)
			}
			return nil
		},
		store: func(context.Context, *Ticket) error {
			list, all = s.accounts.Standings(limit)
			return nil
		}})
	if err != nil {
		return nil, 0, err
	}
	return list, all, nil
}
