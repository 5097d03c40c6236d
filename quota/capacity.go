package quota

import (
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// PlanCapacity decides what a pool of that many slots can do, and what of it is
// left beside what was sold. m is what was measured, nil while nothing was.
//
// Credits per second are slots × 10⁹ ÷ the slot-nanoseconds of a credit, taken
// from the dearest of the operations that make up the load: however tenants mix
// those, the slots suffice. It follows the HSMs by itself: what makes them
// slow, or takes slots away, is in both.
func PlanCapacity(m *Measurement, b *kms.Baselines, slots int, sold kms.Sold) *kms.Capacity {
	c := &kms.Capacity{Slots: slots, SafetyPercent: b.SafetyPercent, Committed: sold.Committed}
	switch {
	case m != nil:
		c.Source = kms.CapacityMeasured
		c.SlotTimePerCredit, c.Op, c.Spec, c.Operations, c.MeasuredAt = time.Duration(m.SlotNsPerCredit), m.Op, m.Spec, m.Operations, m.At
		c.PerSecond, _ = mulDiv(int64(slots), second, m.SlotNsPerCredit)
	case b.Unmeasured > 0:
		c.Source, c.PerSecond = kms.CapacityConfigured, b.Unmeasured
	default:
		c.Source = kms.CapacityUnknown
	}
	c.Sellable, _ = mulDiv(c.PerSecond, b.SafetyPercent, 100)
	for _, tier := range kms.Tiers() {
		row := kms.CapacityTier{Tier: tier, PerSecond: b.Tiers[tier], Tenants: sold.Tenants[tier]}
		if row.PerSecond > 0 {
			row.Fits = max(c.Available(), 0) / row.PerSecond
		}
		c.Tiers = append(c.Tiers, row)
	}
	return c
}

// Baselines returns what the policy promises.
func (p *Policy) Baselines() *kms.Baselines {
	b := &kms.Baselines{Tiers: map[kms.Tier]int64{}, Unmeasured: p.Capacity.CreditsPerSecond, SafetyPercent: p.Gate.CapacityPercent}
	for tier, limits := range p.Tiers {
		b.Tiers[tier] = limits.CreditsPerSecond
	}
	for id, t := range p.Tenants {
		if rate := t.Limits.CreditsPerSecond; rate != nil {
			if b.Tenants == nil {
				b.Tenants = map[uuid.UUID]int64{}
			}
			b.Tenants[id] = *rate
		}
	}
	return b
}
