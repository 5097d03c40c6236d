package quota

import "github.com/sluice-kms/sluice/kms"

const (
	million = 1_000_000
	gib     = 1 << 30
	tib     = 1 << 40
)

// unmeasuredCapacity is what a pool of which nobody knows anything is taken to
// do, in credits per second: a hundred slots on which a credit takes the 100 µs
// of an SM2 signature on a slow token. Of a smaller pool it promises too much,
// so that trying Sluice out is never refused by a guess; a pool in production
// is measured within minutes of load, and its operator knows the vendor's
// figures before.
const unmeasuredCapacity = million

// The factors of the cost breaker's risk, in thousandths. The highest use above
// the plan that is normal is the bought rate for an hour, at any time of the day:
// 3.6 times what the rest of the period allows with platinum and gold, 5.4 with
// silver and 59 with free, whose rate for an hour is most of its day. With these
// factors that comes to a risk of 1.4, and a line of 2 leaves a tenant with a
// heavy month some room. docs/cost-breaker.md has the figures, which a
// simulation of months gives.
const (
	platinumCostFactor = 400
	goldCostFactor     = 400
	silverCostFactor   = 250
	freeCostFactor     = 20
)

// DefaultPolicy returns the numbers that Sluice comes with.
func DefaultPolicy() *Policy {
	return &Policy{
		Costs:        DefaultCosts(),
		Tiers:        defaultTiers(),
		Ramp:         RampRules{Hours: 24},
		Overdraft:    OverdraftRules{RepayPercent: 30},
		Elastic:      ElasticRules{RepayPercent: 30, NotchPercent: 80},
		Totals:       TotalRules{SoftPercent: 80, MonthDays: 25},
		Reservations: ReservationRules{TimeoutSeconds: 120, ChargeAfterHours: 24, RefundPercent: 10},
		RetryAfter:   RetryRules{MaxSeconds: 300, JitterPercent: 20},
		HotSpot:      BreakerRules{MinCalls: 100, MinBad: 1, BadPercent: 50, WindowSeconds: 10, OpenSeconds: 1, MaxOpenSeconds: 60, ProbeMs: 1000},
		Failures:     BreakerRules{MinCalls: 5, MinBad: 5, BadPercent: 50, WindowSeconds: 10, OpenSeconds: 1, MaxOpenSeconds: 60, ProbeMs: 1000},
		CostBreaker:  CostBreakerRules{RiskPercent: 200, WindowSeconds: 60, RecoverPercent: 100, RecoverySeconds: 60},
		Gate: GateLines{
			SafePercent: 85, HardPercent: 95, HysteresisPercent: 3, TenantPercent: 40, AgingPercent: 10, CapacityPercent: 80,
		},
		Capacity:  CapacityRules{CreditsPerSecond: unmeasuredCapacity},
		Leases:    LeaseRules{TickMs: 100, PeriodMs: 250, SlotsTTLMs: 3000, DownMs: 2000},
		Freshness: FreshnessRules{MetadataSeconds: 30, RevocationSeconds: 1},
		Secrets: SecretRules{
			ClientFreshSeconds: 300, ClientExpirySeconds: 3600, HeartbeatSeconds: 15,
			BreakerFailures: 5, BreakerOpenSeconds: 120, BreakerMaxSeconds: 900, ProbeSeconds: 30, ProbeFailures: 3,
			SwitchPercents: Steps{10, 30, 100}, SwitchStepSeconds: 60,
			FailbackPercents: Steps{20, 50, 100}, FailbackStepSeconds: 300,
			LimitedSeconds: 120, RetriesOnOtherPerReq: 1,
		},
		Alerts: AlertLines{
			P99Ms: 200, RefusedPercent: 1, GateTripsPerHour: 3, P99SpreadPercent: 300,
			UtilisationLowPercent: 60, UtilisationHighPercent: 85, UtilisationMinutes: 15, OverloadPercent: 95, OverloadMinutes: 1,
			RetryPercent: 10, JournalLagSeconds: 10, DecryptFailuresPerMin: 20, SuccessPermyriad: 9950,
		},
		Abuse: defaultAbuse(),
	}
}

func defaultTiers() map[kms.Tier]*TierLimits {
	return map[kms.Tier]*TierLimits{
		kms.TierPlatinum: {
			CreditsPerSecond: 20_000, BurstCredits: 60_000, OverdraftCredits: 20_000,
			DayCredits: 600 * million, PoolCredits: 300 * million, BandwidthBytes: tib, Concurrency: 256,
			Keys: 100_000, Secrets: 10_000, Credentials: 1000, VersionsPerKey: 1000,
			KeyPercent: 100, MaxWait: WaitTimes{1000, 2000, 30_000}, LoadPercent: 100, EmergencyPercent: 80, RampFromPercent: 100, CostFactorPermille: platinumCostFactor,
			Class: Classes{"HIGH", "HIGH", "MID"},
		},
		kms.TierGold: {
			CreditsPerSecond: 5000, BurstCredits: 15_000, OverdraftCredits: 5000,
			DayCredits: 150 * million, PoolCredits: 75 * million, BandwidthBytes: 256 * gib, Concurrency: 128,
			Keys: 10_000, Secrets: 2000, Credentials: 200, VersionsPerKey: 1000,
			KeyPercent: 50, MaxWait: WaitTimes{1000, 2000, 30_000}, LoadPercent: 100, EmergencyPercent: 60, RampFromPercent: 50, CostFactorPermille: goldCostFactor,
			Class: Classes{"HIGH", "MID", "LOW"},
		},
		kms.TierSilver: {
			CreditsPerSecond: 1000, BurstCredits: 3000, OverdraftCredits: 500, RequestsPerSecond: 2000, BurstRequests: 2000,
			DayCredits: 20 * million, PoolCredits: 10 * million, BandwidthBytes: 32 * gib, Concurrency: 64,
			Keys: 1000, Secrets: 500, Credentials: 50, VersionsPerKey: 200,
			KeyPercent: 50, MaxWait: WaitTimes{2000, 5000, 60_000}, LoadPercent: 70, EmergencyPercent: 40, RampFromPercent: 25, CostFactorPermille: silverCostFactor,
			Class: Classes{"MID", "MID", "LOW"},
		},
		kms.TierFree: {
			CreditsPerSecond: 200, BurstCredits: 600, RequestsPerSecond: 200, BurstRequests: 200,
			DayCredits: million, BandwidthBytes: gib, Concurrency: 16,
			Keys: 100, Secrets: 20, Credentials: 5, VersionsPerKey: 20,
			KeyPercent: 50, MaxWait: WaitTimes{2000, 5000, 60_000}, LoadPercent: 40, EmergencyPercent: 20, RampFromPercent: 25, CostFactorPermille: freeCostFactor,
			Class: Classes{"MID", "LOW", "LOW"},
		},
	}
}
