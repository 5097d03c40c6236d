package quota

import (
	"encoding/json/v2"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// Policy is the document that carries every number of the service: prices,
// tiers, lines, times. Credits, bytes and counts are whole; percentages are of
// 100; the unit of a field is in its name. What has a range must lie in it,
// and a document that leaves such a field out is refused like one that has it
// wrong.
type Policy struct {
	Costs Costs                    `json:"costs"`
	Tiers map[kms.Tier]*TierLimits `json:"tiers"`

	Ramp         RampRules        `json:"ramp"`
	Overdraft    OverdraftRules   `json:"overdraft"`
	Elastic      ElasticRules     `json:"elastic"`
	Totals       TotalRules       `json:"totals"`
	Reservations ReservationRules `json:"reservations"`
	RetryAfter   RetryRules       `json:"retry_after"`
	HotSpot      BreakerRules     `json:"hot_spot_breaker"`
	Failures     BreakerRules     `json:"failure_breaker"`
	CostBreaker  CostBreakerRules `json:"cost_breaker"`
	Gate         GateLines        `json:"gate"`
	Capacity     CapacityRules    `json:"capacity"`
	Leases       LeaseRules       `json:"leases"`
	Freshness    FreshnessRules   `json:"freshness"`
	Secrets      SecretRules      `json:"secrets"`
	Alerts       AlertLines       `json:"alerts"`
	// Abuse is what follows of suspicious credentials; nil: what Sluice comes with.
	Abuse *AbusePolicy `json:"abuse,omitzero"`

	// Tenants overrides the tier of single tenants.
	Tenants map[uuid.UUID]*TenantPolicy `json:"tenants,omitzero"`
}

// TierLimits are what a tier promises and allows. The ranges keep a month's
// total within an int64 of micro-credits, and the arithmetic of leases exact in
// the 53 bits of a double, which is what the shared store computes with.
type TierLimits struct {
	CreditsPerSecond  int64 `json:"credits_per_second" range:"1:1000000"`
	BurstCredits      int64 `json:"burst_credits" range:"1:4000000"`
	OverdraftCredits  int64 `json:"overdraft_credits" range:"0:4000000"`
	RequestsPerSecond int64 `json:"requests_per_second" range:"0:1000000"` // 0: no limit
	BurstRequests     int64 `json:"burst_requests" range:"0:4000000"`
	DayCredits        int64 `json:"day_credits" range:"1:90000000000"`
	PoolCredits       int64 `json:"pool_credits" range:"0:90000000000"`
	BandwidthBytes    int64 `json:"bandwidth_bytes_per_day" range:"1:1125899906842624"`
	Concurrency       int64 `json:"concurrency" range:"1:65536"`
	Keys              int64 `json:"keys" range:"1:100000000"`
	Secrets           int64 `json:"secrets" range:"1:100000000"`
	Credentials       int64 `json:"credentials" range:"1:1000000"`
	VersionsPerKey    int64 `json:"versions_per_key" range:"1:100000"`
	// KeyPercent is the part of the tenant's rate that one key may use.
	KeyPercent int64     `json:"key_percent" range:"1:100"`
	MaxWait    WaitTimes `json:"max_wait_ms"`
	// LoadPercent is what is left of the refill above the safe line. It is the
	// tier's and cannot be set for one tenant.
	LoadPercent int64 `json:"load_percent" range:"1:100"`
	// EmergencyPercent is what is left of the rate while the shared store is
	// away; never 0, never more than all.
	EmergencyPercent int64 `json:"emergency_percent" range:"1:100"`
	// RampFromPercent is where new tenants and credentials begin; 100: no ramp.
	RampFromPercent int64 `json:"ramp_from_percent" range:"1:100"`
	// CostFactorPermille is the factor of the cost breaker's risk, in thousandths:
	// the less it is, the higher a peak above the plan has to be. 0, or no such
	// field, which documents of before it have not: the breaker is off.
	CostFactorPermille int64   `json:"cost_factor_permille" range:"0:1000000"`
	Class              Classes `json:"class"`
}

// WaitTimes are how long requests of each urgency wait for a slot at most.
type WaitTimes struct {
	Interactive int64 `json:"interactive" range:"1:3600000"`
	Normal      int64 `json:"normal" range:"1:3600000"`
	Bulk        int64 `json:"bulk" range:"1:3600000"`
}

// Classes are the classes at the pool's entrance: HIGH, MID or LOW.
type Classes struct {
	Interactive string `json:"interactive" oneof:"HIGH MID LOW"`
	Normal      string `json:"normal" oneof:"HIGH MID LOW"`
	Bulk        string `json:"bulk" oneof:"HIGH MID LOW"`
}

// RampRules are those of new tenants and credentials.
type RampRules struct {
	Hours int64 `json:"hours" range:"1:720"`
}

// OverdraftRules are those of a tenant's debt with its own future.
type OverdraftRules struct {
	RepayPercent int64 `json:"repay_percent" range:"1:100"`
}

// ElasticRules are those of the pool that a tenant's days share.
type ElasticRules struct {
	RepayPercent int64 `json:"repay_percent" range:"1:100"` // of a day's unused quota
	NotchPercent int64 `json:"notch_percent" range:"1:100"` // of the baseline, while the pool is not full
}

// TotalRules are those of totals by day and month.
type TotalRules struct {
	SoftPercent int64 `json:"soft_percent" range:"1:100"`
	MonthDays   int64 `json:"month_days" range:"1:31"` // a month's total, in days' totals
}

// ReservationRules are those of reservations and their ends.
type ReservationRules struct {
	// TimeoutSeconds is after how long a reservation that nobody settled is
	// to be reconciled. Longer than any device call may take.
	TimeoutSeconds int64 `json:"timeout_seconds" range:"10:3600"`
	// ChargeAfterHours is when one that could not be reconciled is charged.
	ChargeAfterHours int64 `json:"charge_after_hours" range:"1:720"`
	// RefundPercent bounds what work that ran and failed gives back to the
	// bucket, as a part of the rate, so that failing on purpose is not free.
	RefundPercent int64 `json:"refund_percent" range:"1:100"`
}

// RetryRules are those of Retry-After.
type RetryRules struct {
	MaxSeconds    int64 `json:"max_seconds" range:"1:3600"`
	JitterPercent int64 `json:"jitter_percent" range:"0:100"` // upward only
}

// BreakerRules are those of a breaker.
type BreakerRules struct {
	MinCalls       int64 `json:"min_calls" range:"1:1000000"`
	MinBad         int64 `json:"min_bad" range:"1:1000000"`
	BadPercent     int64 `json:"bad_percent" range:"1:99"` // opens above it
	WindowSeconds  int64 `json:"window_seconds" range:"1:600"`
	OpenSeconds    int64 `json:"open_seconds" range:"1:3600"` // at first, doubling
	MaxOpenSeconds int64 `json:"max_open_seconds" range:"1:3600"`
	ProbeMs        int64 `json:"probe_ms" range:"100:60000"`
}

// CostBreakerRules are those of the breaker of runaway cost: see costRules. A
// tier's or a tenant's cost_factor_permille is the factor.
type CostBreakerRules struct {
	RiskPercent     int64 `json:"risk_percent" range:"100:10000"` // of what the rest of the period allows, times the factor
	WindowSeconds   int64 `json:"window_seconds" range:"1:3600"`  // above it, before each stage
	RecoverPercent  int64 `json:"recover_percent" range:"1:10000"`
	RecoverySeconds int64 `json:"recovery_seconds" range:"1:3600"`
}

// GateLines are the lines of the pool's use, in percent of its slots.
type GateLines struct {
	SafePercent       int64 `json:"safe_percent" range:"1:100"`
	HardPercent       int64 `json:"hard_percent" range:"1:100"`
	HysteresisPercent int64 `json:"hysteresis_percent" range:"0:50"`
	TenantPercent     int64 `json:"tenant_percent" range:"1:100"` // hard cap of one tenant
	AgingPercent      int64 `json:"aging_percent" range:"1:50"`
	CapacityPercent   int64 `json:"capacity_percent" range:"1:100"` // of what the pool can do, that may be sold
}

// CapacityRules are those of what may be sold of the pool, beside
// GateLines.CapacityPercent.
type CapacityRules struct {
	// CreditsPerSecond is what the pool is taken to do until it was measured;
	// 0: nobody knows, and nothing is refused until then.
	CreditsPerSecond int64 `json:"credits_per_second" range:"0:1000000000"`
}

// LeaseRules are those of limits that several nodes share.
type LeaseRules struct {
	TickMs     int64 `json:"tick_ms" range:"10:10000"`       // between two exchanges with the store
	PeriodMs   int64 `json:"period_ms" range:"20:60000"`     // for which a rate is granted
	SlotsTTLMs int64 `json:"slots_ttl_ms" range:"100:60000"` // of concurrency
	// DownMs is after how long without an answer the store counts as away.
	DownMs int64 `json:"down_ms" range:"100:60000"`
}

// FreshnessRules are how old what is served may be.
type FreshnessRules struct {
	MetadataSeconds   int64 `json:"metadata_seconds" range:"1:3600"`
	RevocationSeconds int64 `json:"revocation_seconds" range:"1:3600"`
}

// SecretRules are those of provider secrets and of the providers' breakers.
type SecretRules struct {
	ClientFreshSeconds   int64 `json:"client_fresh_seconds" range:"1:86400"`
	ClientExpirySeconds  int64 `json:"client_expiry_seconds" range:"1:604800"`
	HeartbeatSeconds     int64 `json:"heartbeat_seconds" range:"1:3600"`
	BreakerFailures      int64 `json:"breaker_failures" range:"1:1000"`
	BreakerOpenSeconds   int64 `json:"breaker_open_seconds" range:"1:86400"`
	BreakerMaxSeconds    int64 `json:"breaker_max_seconds" range:"1:86400"`
	ProbeSeconds         int64 `json:"probe_seconds" range:"1:3600"`
	ProbeFailures        int64 `json:"probe_failures" range:"1:100"`
	SwitchPercents       Steps `json:"switch_percents" range:"1:100"`
	SwitchStepSeconds    int64 `json:"switch_step_seconds" range:"1:86400"`
	FailbackPercents     Steps `json:"failback_percents" range:"1:100"`
	FailbackStepSeconds  int64 `json:"failback_step_seconds" range:"1:86400"`
	LimitedSeconds       int64 `json:"limited_seconds" range:"1:86400"` // of 429, then it is a failure
	RetriesOnOtherPerReq int64 `json:"retries_on_other" range:"0:10"`
}

// Steps are the shares of a gradual change, in percent, ascending to 100.
type Steps []int64

// AlertLines are when operators are told.
type AlertLines struct {
	P99Ms                  int64 `json:"p99_ms" range:"1:600000"`
	RefusedPercent         int64 `json:"refused_percent" range:"1:100"`
	GateTripsPerHour       int64 `json:"gate_trips_per_hour" range:"1:100000"`
	P99SpreadPercent       int64 `json:"p99_spread_percent" range:"100:100000"` // slowest tenant ÷ fastest
	UtilisationLowPercent  int64 `json:"utilisation_low_percent" range:"1:100"`
	UtilisationHighPercent int64 `json:"utilisation_high_percent" range:"1:100"`
	UtilisationMinutes     int64 `json:"utilisation_minutes" range:"1:1440"`
	OverloadPercent        int64 `json:"overload_percent" range:"1:100"`
	OverloadMinutes        int64 `json:"overload_minutes" range:"1:1440"`
	RetryPercent           int64 `json:"retry_percent" range:"1:100"`
	JournalLagSeconds      int64 `json:"journal_lag_seconds" range:"1:3600"`
	DecryptFailuresPerMin  int64 `json:"decrypt_failures_per_minute" range:"1:100000"`
	SuccessPermyriad       int64 `json:"success_permyriad" range:"1:10000"` // 9950 is 99.5 %
}

// TenantPolicy is what holds for one tenant instead of its tier's numbers.
type TenantPolicy struct {
	// Limits are the numbers that differ; nil fields are the tier's.
	Limits TierOverride `json:"limits,omitzero"`
	// TimeZone is where its days begin, an IANA name; "" is UTC.
	TimeZone string `json:"time_zone,omitzero"`
	// Packs are prepaid credits, used when the day or the month is exhausted.
	Packs []Pack `json:"packs,omitzero"`
	// Projects, Credentials and Keys have limits of their own inside the
	// tenant's. A project's also hold all projects below it in the path.
	Projects    map[string]*ScopeLimits    `json:"projects,omitzero"`
	Credentials map[uuid.UUID]*ScopeLimits `json:"credentials,omitzero"`
	Keys        map[uuid.UUID]*ScopeLimits `json:"keys,omitzero"`
	// AbuseAction is what follows of its suspicious credentials; nil: as of all.
	AbuseAction *kms.AbuseAction `json:"abuse_action,omitzero" oneof:"alert throttle second_factor suspend"`
}

// TierOverride has the fields of TierLimits that can be set for one tenant.
type TierOverride struct {
	CreditsPerSecond  *int64 `json:"credits_per_second,omitzero"`
	BurstCredits      *int64 `json:"burst_credits,omitzero"`
	OverdraftCredits  *int64 `json:"overdraft_credits,omitzero"`
	RequestsPerSecond *int64 `json:"requests_per_second,omitzero"`
	BurstRequests     *int64 `json:"burst_requests,omitzero"`
	DayCredits        *int64 `json:"day_credits,omitzero"`
	PoolCredits       *int64 `json:"pool_credits,omitzero"`
	BandwidthBytes    *int64 `json:"bandwidth_bytes_per_day,omitzero"`
	Concurrency       *int64 `json:"concurrency,omitzero"`
	Keys              *int64 `json:"keys,omitzero"`
	Secrets           *int64 `json:"secrets,omitzero"`
	Credentials       *int64 `json:"credentials,omitzero"`
	VersionsPerKey    *int64 `json:"versions_per_key,omitzero"`
	KeyPercent        *int64 `json:"key_percent,omitzero"`
	EmergencyPercent  *int64 `json:"emergency_percent,omitzero"`
	RampFromPercent   *int64 `json:"ramp_from_percent,omitzero"`

	CostFactorPermille *int64 `json:"cost_factor_permille,omitzero"`
}

// ScopeLimits are the limits of a project, credential or key; 0: none.
type ScopeLimits struct {
	CreditsPerSecond  int64 `json:"credits_per_second,omitzero" range:"0:1000000"`
	BurstCredits      int64 `json:"burst_credits,omitzero" range:"0:4000000"`
	RequestsPerSecond int64 `json:"requests_per_second,omitzero" range:"0:1000000"`
	BurstRequests     int64 `json:"burst_requests,omitzero" range:"0:4000000"`
	DayCredits        int64 `json:"day_credits,omitzero" range:"0:90000000000"`
	Concurrency       int64 `json:"concurrency,omitzero" range:"0:65536"`
}

// Pack is a number of prepaid credits.
type Pack struct {
	ID      string    `json:"id"`
	Credits int64     `json:"credits" range:"1:90000000000"`
	Expires time.Time `json:"expires"`
}

// ParsePolicy decodes and validates a document. It is strict: a field that is
// not known, given twice or of another type is an error, and the error names
// its place.
func ParsePolicy(document []byte) (*Policy, error) {
	p := new(Policy)
	if err := json.Unmarshal(document, p, json.RejectUnknownMembers(true)); err != nil {
		return nil, decodeError(err)
	}
	if err := p.Validate(); err != nil {
		return nil, err
	}
	return p, nil
}

// Document encodes the policy, so that equal policies give equal bytes.
func (p *Policy) Document() ([]byte, error) {
	return json.Marshal(p, json.Deterministic(true))
}
