package api

import (
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// QuotaResponse is what a tenant may use and has used. Amounts are in credits.
type QuotaResponse struct {
	Tier          kms.Tier `json:"tier"`
	PolicyVersion uint64   `json:"policy_version" doc:"Of the policy that holds; 0: the one that the service comes with"`

	PerSecond Cost `json:"per_second" doc:"The refill that holds now, with ramp, lowered day and load counted"`
	Burst     Cost `json:"burst" doc:"What the bucket holds at most"`
	Available Cost `json:"available" doc:"What the bucket holds now"`
	Overdraft Cost `json:"overdraft" doc:"How far the bucket may run below zero while the pool of HSMs has room"`
	Debt      Cost `json:"debt" doc:"What of that is owed; a part of the refill repays it"`
	Ramp      int  `json:"ramp_permille" doc:"The part of its rate that a new tenant has, in thousandths" max:"1000"`
	LoadShare int  `json:"load_share_permille" doc:"The part of the refill that the load of the pool leaves, in thousandths" max:"1000"`

	Day   QuotaTotal  `json:"day"`
	Month QuotaTotal  `json:"month"`
	Pool  ElasticPool `json:"pool"`
	Packs []QuotaPack `json:"packs,omitempty" doc:"Burst packs, used when the totals are"`

	Bandwidth   QuotaUse      `json:"bandwidth" doc:"Bytes of the day"`
	Concurrency QuotaUse      `json:"concurrency" doc:"Requests in flight"`
	Storage     []StoredQuota `json:"storage"`

	CostBreaker CostBreaker `json:"cost_breaker"`

	Admitted uint64 `json:"admitted" doc:"Requests since the service started, on this API node"`
	Refused  uint64 `json:"refused"`

	Retries RetryContract `json:"retry_contract" doc:"How Retry-After was obeyed in the last one to two minutes, on this API node"`
	Charge
}

// RetryContract is how a tenant obeyed Retry-After.
type RetryContract struct {
	Calls int    `json:"calls" doc:"Requests since the first one that came too early, or just in time" min:"0"`
	Early int    `json:"early" doc:"Those that came before the Retry-After that the tenant was given was over" min:"0"`
	Share int    `json:"share_permille" doc:"The part of the early ones, in thousandths" min:"0" max:"1000"`
	Spike int    `json:"spike,omitzero" doc:"How many times as many came in the second after a Retry-After as in others; absent: too few did to tell" min:"0"`
	Note  string `json:"note,omitzero" doc:"What to change; absent: nothing"`
}

// QuotaTotal is a total of a day or a month.
type QuotaTotal struct {
	Used      Cost      `json:"used"`
	Limit     Cost      `json:"limit"`
	Remaining Cost      `json:"remaining"`
	Soft      bool      `json:"soft_limit_reached"`
	ResetsAt  time.Time `json:"resets_at"`
}

// ElasticPool is what days draw on beyond their total.
type ElasticPool struct {
	Left    Cost `json:"left"`
	Size    Cost `json:"size"`
	Lowered bool `json:"day_lowered" doc:"The pool was not full at the end of a day: the days after run one notch lower until it is"`
}

// QuotaPack is a burst pack.
type QuotaPack struct {
	ID        string    `json:"id"`
	Left      Cost      `json:"left"`
	ExpiresAt time.Time `json:"expires_at"`
}

// QuotaUse is a use and its limit.
type QuotaUse struct {
	Used  int64 `json:"used"`
	Limit int64 `json:"limit,omitzero" doc:"Absent: none"`
}

// StoredQuota is how many objects of a kind are stored.
type StoredQuota struct {
	Kind  string `json:"kind" example:"keys"`
	Used  int64  `json:"used" doc:"-1: not counted yet"`
	Limit int64  `json:"limit,omitzero" doc:"Absent: none"`
}

// QuotaStanding is a tenant near a limit, or beyond one. Amounts are in
// credits.
type QuotaStanding struct {
	Tenant     uuid.UUID `json:"tenant"`
	Tier       kms.Tier  `json:"tier"`
	Near       int       `json:"near_permille" doc:"How much of the nearest of its totals is used, in thousandths" min:"0"`
	Debt       Cost      `json:"debt" doc:"What its bucket owes"`
	Drawn      Cost      `json:"drawn" doc:"What it has drawn from its elastic pool and not repaid"`
	Lowered    bool      `json:"day_lowered" doc:"Its days run one notch lower until the pool is full"`
	Admitted   uint64    `json:"admitted" doc:"Requests since the service started, on this API node"`
	Refused    uint64    `json:"refused"`
	RetryShare int       `json:"retry_permille" doc:"The part of its requests that came before the last Retry-After it was given was over, in thousandths" min:"0" max:"1000"`
}

// QuotaStandingsResponse is what an API node knows of tenants near a limit.
type QuotaStandingsResponse struct {
	Tenants []QuotaStanding `json:"tenants" doc:"The nearest first"`
	Total   int             `json:"total" doc:"How many there are" min:"0"`
	Charge
}
