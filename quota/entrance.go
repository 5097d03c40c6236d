package quota

import (
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// CreditsPerSecond is the baseline that a tenant of a tier has bought, with
// what is set for itself: its weight among the others.
func (h *Policies) CreditsPerSecond(tenant uuid.UUID, tier kms.Tier) int64 {
	return h.Current().limits(tenant, tierIndex(tier)).credits.perSecond / micro
}

// MaxWait is how long a tenant's requests of an urgency may wait for a slot.
func (h *Policies) MaxWait(tenant uuid.UUID, tier kms.Tier, u kms.Urgency) time.Duration {
	w := &h.Current().limits(tenant, tierIndex(tier)).wait
	ms := w.Normal
	switch u {
	case kms.UrgencyInteractive:
		ms = w.Interactive
	case kms.UrgencyBulk:
		ms = w.Bulk
	}
	return time.Duration(ms) * time.Millisecond
}

// Class is the class of a tier's requests of an urgency at the pool's entrance:
// HIGH, MID or LOW.
func (h *Policies) Class(tier kms.Tier, u kms.Urgency) string {
	c := &h.Current().policy.Tiers[kms.Tiers()[tierIndex(tier)]].Class
	switch u {
	case kms.UrgencyInteractive:
		return c.Interactive
	case kms.UrgencyBulk:
		return c.Bulk
	}
	return c.Normal
}
