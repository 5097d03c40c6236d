package quota

import (
	"time"

	"github.com/sluice-kms/sluice/kms"
)

// AbusePolicy says what follows when a credential is suspicious.
type AbusePolicy struct {
	Action kms.AbuseAction `json:"action" oneof:"alert throttle second_factor suspend"`
	// ThrottlePercent is the part of its tenant's rate that a throttled
	// credential may use.
	ThrottlePercent int64 `json:"throttle_percent" range:"1:100"`
	// ProofMinutes is for how long a second factor is good.
	ProofMinutes int64 `json:"proof_minutes" range:"1:10080"`
	// AlertHours is after how long a flag that led to an alert only ends by
	// itself.
	AlertHours int64 `json:"alert_hours" range:"1:8760"`
}

// defaultAbuse tells people and does nothing, because what it would do takes a
// working application down if it is wrong.
func defaultAbuse() *AbusePolicy {
	return &AbusePolicy{Action: kms.AbuseAlert, ThrottlePercent: 10, ProofMinutes: 8 * 60, AlertHours: 7 * 24}
}

// AbuseRules are those of a tenant.
func (p *Policy) AbuseRules(tenant *kms.Tenant) kms.AbuseRules {
	a := p.Abuse
	if a == nil { // a document from before there were any
		a = defaultAbuse()
	}
	perSecond := int64(1)
	if limits := p.Tiers[tenant.Tier]; limits != nil {
		perSecond = limits.CreditsPerSecond
	}
	rules := kms.AbuseRules{Action: a.Action, Proven: time.Duration(a.ProofMinutes) * time.Minute, AlertEnds: time.Duration(a.AlertHours) * time.Hour}
	if own := p.Tenants[tenant.ID]; own != nil {
		if own.Limits.CreditsPerSecond != nil {
			perSecond = *own.Limits.CreditsPerSecond
		}
		if own.AbuseAction != nil {
			rules.Action = *own.AbuseAction
		}
	}
	rules.Throttled = max(kms.Credits(perSecond)*kms.Credit*kms.Credits(a.ThrottlePercent)/100, 1)
	return rules
}
