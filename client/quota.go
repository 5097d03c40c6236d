package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// Quota is what a tenant may use and has used. Amounts are in credits.
type Quota struct {
	Tier          Tier   `json:"tier"`
	PolicyVersion uint64 `json:"policy_version"` // 0: the policy that the service comes with

	PerSecond float64 `json:"per_second"` // the refill that holds now
	Burst     float64 `json:"burst"`      // what the bucket holds at most
	Available float64 `json:"available"`  // what it holds now
	// Overdraft is how far the bucket may run below zero, Debt what of that is
	// owed.
	Overdraft float64 `json:"overdraft"`
	Debt      float64 `json:"debt"`
	Ramp      int     `json:"ramp_permille"`       // the part of its rate that a new tenant has
	LoadShare int     `json:"load_share_permille"` // the part of the refill that the load leaves

	Day   QuotaTotal  `json:"day"`
	Month QuotaTotal  `json:"month"`
	Pool  ElasticPool `json:"pool"`
	Packs []QuotaPack `json:"packs,omitempty"`

	Bandwidth   QuotaUse      `json:"bandwidth"`   // bytes of the day
	Concurrency QuotaUse      `json:"concurrency"` // requests in flight
	Storage     []StoredQuota `json:"storage"`

	CostBreaker CostBreaker `json:"cost_breaker"`

	// Admitted and Refused count requests since the API node started.
	Admitted uint64 `json:"admitted"`
	Refused  uint64 `json:"refused"`

	Retries RetryContract `json:"retry_contract"`
	Charge
}

// RetryContract is how a tenant obeyed Retry-After in the last one to two minutes.
type RetryContract struct {
	Calls int    `json:"calls"`          // since the first early one
	Early int    `json:"early"`          // before the Retry-After that it was given was over
	Share int    `json:"share_permille"` // of the early ones
	Spike int    `json:"spike,omitzero"` // times as many in the second after a Retry-After as in others; 0: not told
	Note  string `json:"note,omitzero"`  // what to change; "": nothing
}

// QuotaTotal is a total of a day or a month.
type QuotaTotal struct {
	Used      float64   `json:"used"`
	Limit     float64   `json:"limit"`
	Remaining float64   `json:"remaining"`
	Soft      bool      `json:"soft_limit_reached"`
	ResetsAt  time.Time `json:"resets_at"`
}

// ElasticPool is what days draw on beyond their total.
type ElasticPool struct {
	Left    float64 `json:"left"`
	Size    float64 `json:"size"`
	Lowered bool    `json:"day_lowered"` // days run one notch lower until the pool is full
}

// QuotaPack is a burst pack.
type QuotaPack struct {
	ID        string    `json:"id"`
	Left      float64   `json:"left"`
	ExpiresAt time.Time `json:"expires_at"`
}

// QuotaUse is a use and its limit, 0 for none.
type QuotaUse struct {
	Used  int64 `json:"used"`
	Limit int64 `json:"limit,omitzero"`
}

// StoredQuota is how many objects of a kind are stored; -1: not counted yet.
type StoredQuota struct {
	Kind  string `json:"kind"`
	Used  int64  `json:"used"`
	Limit int64  `json:"limit,omitzero"`
}

// Quota reports the quota of a tenant: "" is the credential's own, another one
// takes an operator's credential.
func (c *Client) Quota(ctx context.Context, tenant string) (*Quota, error) {
	return invoke[Quota](ctx, c, call{method: http.MethodGet, path: inTenant(tenant, "quota")})
}

// QuotaStanding is a tenant near a limit, or beyond one. Amounts are in
// credits.
type QuotaStanding struct {
	Tenant  string  `json:"tenant"` // its id
	Tier    Tier    `json:"tier"`
	Near    int     `json:"near_permille"` // how much of the nearest of its totals is used
	Debt    float64 `json:"debt"`          // what its bucket owes
	Drawn   float64 `json:"drawn"`         // from its elastic pool, not repaid
	Lowered bool    `json:"day_lowered"`   // its days run one notch lower until the pool is full
	// Admitted and Refused count requests since the API node started, and
	// RetryShare is the part of them that came before the last Retry-After that
	// the tenant was given was over, in thousandths.
	Admitted   uint64 `json:"admitted"`
	Refused    uint64 `json:"refused"`
	RetryShare int    `json:"retry_permille"`
}

// QuotaStandings is what an API node knows of tenants near a limit, the
// nearest first.
type QuotaStandings struct {
	Tenants []QuotaStanding `json:"tenants"`
	Total   int             `json:"total"` // how many there are
	Charge
}

// QuotaStandings reports the tenants near a limit, at most limit of them, 0 for
// the default of 50. It takes an operator, and is what the API node that answers
// knows.
func (c *Client) QuotaStandings(ctx context.Context, limit int) (*QuotaStandings, error) {
	in := call{method: http.MethodGet, path: inTenant("", "quota", "tenants")}
	if limit > 0 {
		in.query = url.Values{"page_size": {strconv.Itoa(limit)}}
	}
	return invoke[QuotaStandings](ctx, c, in)
}
