package client

import (
	"context"
	"net/http"
	"time"
)

// CapacityOutput is what the HSMs can do and what of it was sold. Rates are in
// credits per second.
type CapacityOutput struct {
	Source string `json:"source"` // "measured", "configured" by the policy until it is, or "unknown"
	Slots  int    `json:"slots"`  // of the active HSM nodes that serve

	// The measurement; zero until there is one. The operation is the dearest
	// in slot time per credit among those that make up 95 % of the slot time.
	SlotNsPerCredit int64     `json:"slot_ns_per_credit,omitzero"`
	Operation       string    `json:"operation,omitzero"`
	Spec            Spec      `json:"spec,omitzero"`       // of its key
	Operations      int64     `json:"operations,omitzero"` // that the figure is made of
	MeasuredAt      time.Time `json:"measured_at,omitzero"`

	PerSecond     int64 `json:"credits_per_second"` // what the HSMs can do
	SafetyPercent int64 `json:"safety_percent"`     // the part of it that may be sold
	Sellable      int64 `json:"sellable"`           // that part
	Committed     int64 `json:"committed"`          // to all tenants that are not deleted
	Available     int64 `json:"available"`          // what can still be sold; below zero when oversold
	Oversold      bool  `json:"oversold"`

	Tiers []CapacityTier `json:"tiers"` // the strongest first
	Charge
}

// CapacityTier is one tier's part of the capacity.
type CapacityTier struct {
	Tier      Tier  `json:"tier"`
	PerSecond int64 `json:"credits_per_second"` // the rate of a tenant
	Tenants   int64 `json:"tenants"`            // that there are
	Fits      int64 `json:"fits"`               // how many more fit; 0 where the source is unknown
}

// ReasonCapacity is the code of the reason for which a call that promises
// tenants more than the HSMs can do is refused with ErrConflict, unless it is
// forced. Its unit is credits per second.
const ReasonCapacity = "capacity"

// Capacity reports what the HSMs can do and what of it was sold. It takes an
// operator's credential.
func (c *Client) Capacity(ctx context.Context) (*CapacityOutput, error) {
	return invoke[CapacityOutput](ctx, c, call{method: http.MethodGet, path: []string{"v1", "capacity"}})
}
