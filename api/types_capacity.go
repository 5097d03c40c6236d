package api

import (
	"time"

	"github.com/sluice-kms/sluice/kms"
)

// CapacityResponse is what the HSMs can do and what of it was sold. Rates are
// in credits per second.
type CapacityResponse struct {
	Source          kms.CapacitySource `json:"source" doc:"measured; configured: by the policy, until it is measured; unknown: the policy names no figure, and nothing is refused"`
	Slots           int                `json:"slots" doc:"Of the active HSM nodes that serve, as this API node has them"`
	SlotNsPerCredit int64              `json:"slot_ns_per_credit,omitzero" doc:"Measured: slot time of a credit of the operation below, in nanoseconds"`
	Operation       kms.Op             `json:"operation,omitzero" doc:"The dearest in slot time per credit among those that make up 95 % of the slot time" example:"sign"`
	Spec            kms.Spec           `json:"spec,omitzero" doc:"Of its key"`
	Operations      int64              `json:"operations,omitzero" doc:"That the figure is made of"`
	MeasuredAt      time.Time          `json:"measured_at,omitzero"`
	PerSecond       int64              `json:"credits_per_second" doc:"What the HSMs can do"`
	SafetyPercent   int64              `json:"safety_percent" doc:"The part of it that may be sold"`
	Sellable        int64              `json:"sellable" doc:"That part"`
	Committed       int64              `json:"committed" doc:"The rates of all tenants that are not deleted"`
	Available       int64              `json:"available" doc:"What can still be sold; below zero when more was sold than may be"`
	Oversold        bool               `json:"oversold"`
	Tiers           []CapacityTier     `json:"tiers" doc:"The strongest first"`
	Charge
}

// CapacityTier is one tier's part of the capacity.
type CapacityTier struct {
	Tier      kms.Tier `json:"tier"`
	PerSecond int64    `json:"credits_per_second" doc:"The rate of a tenant"`
	Tenants   int64    `json:"tenants" doc:"That there are"`
	Fits      int64    `json:"fits" doc:"How many more fit; 0 where the source is unknown"`
}
