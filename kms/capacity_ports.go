package kms

import (
	"time"
	"uuid"
)

// CapacityPlanner knows what the HSMs have shown that they can do, and what a
// policy promises of it. All methods are safe for concurrent use.
type CapacityPlanner interface {
	// Baselines returns what a valid policy document promises; nil stands for
	// the policy in force.
	Baselines(document []byte) (*Baselines, error)
	// Plan decides what a pool of that many slots can do, and what of it is
	// left beside what was sold.
	Plan(b *Baselines, slots int, sold Sold) *Capacity
}

// Baselines are the rates that a policy promises, in credits per second, and
// its rules of capacity.
type Baselines struct {
	Tiers map[Tier]int64
	// Tenants are the rates of those whose rate is not their tier's.
	Tenants map[uuid.UUID]int64
	// Unmeasured is what the pool is taken to do until it was measured, in
	// credits per second; 0: nobody knows.
	Unmeasured int64
	// SafetyPercent is the part of what the pool can do that may be sold.
	SafetyPercent int64
}

// Of returns the rate of a tenant.
func (b *Baselines) Of(tenant uuid.UUID, tier Tier) int64 {
	if rate, apart := b.Tenants[tenant]; apart {
		return rate
	}
	return b.Tiers[tier]
}

// Sold is what tenants have bought.
type Sold struct {
	Tenants   map[Tier]int64 // how many there are
	Committed int64          // the sum of their rates, in credits per second
}

// CapacitySource tells where the figure of a pool's capacity comes from.
type CapacitySource string

// The sources.
const (
	CapacityMeasured   CapacitySource = "measured"
	CapacityConfigured CapacitySource = "configured" // by the policy, until it is measured
	// CapacityUnknown: it was not measured, and the policy names no figure.
	// Nothing is refused then.
	CapacityUnknown CapacitySource = "unknown"
)

// Capacity is what the pool can do and what of it was sold. Rates are in
// credits per second.
type Capacity struct {
	Source CapacitySource
	Slots  int // of the HSM nodes that serve

	// The measurement; zero until there is one.
	SlotTimePerCredit time.Duration // of the operation that follows
	Op                Op            // the dearest of those that make up the load
	Spec              Spec          // of its key; "" for none
	Operations        int64         // that the figure is made of
	MeasuredAt        time.Time

	PerSecond     int64 // what the pool can do
	SafetyPercent int64
	Sellable      int64 // the safe part of it
	Committed     int64 // to all tenants that are not deleted
	Tiers         []CapacityTier
}

// CapacityTier is one tier's part.
type CapacityTier struct {
	Tier      Tier
	PerSecond int64 // the rate of a tenant
	Tenants   int64 // that there are
	Fits      int64 // that still fit; 0 where the capacity is not known
}

// Available is what can still be sold; below zero the pool is oversold.
func (c *Capacity) Available() int64 { return c.Sellable - c.Committed }

// Oversold tells whether more was sold than the pool can do with safety.
func (c *Capacity) Oversold() bool { return c.Source != CapacityUnknown && c.Available() < 0 }
