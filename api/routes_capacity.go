package api

import (
	"net/http"

	"github.com/sluice-kms/sluice/kms"
)

// capacityDescription is said of every route that can sell more than there is.
const capacityDescription = "What promises tenants more than the HSMs can do with safety is refused with conflict and the reason capacity, in credits per second, unless force is true."

func capacityRoutes() []Route {
	return []Route{
		define(Route{Name: "capacity", Group: anyTenant.group, Method: http.MethodGet, Path: "/v1/capacity", Op: kms.OpReadCapacity,
			Summary: "Show what the HSMs can do and what of it was sold",
			Description: "Slots × 10⁹ ÷ slot_ns_per_credit, as this API node measured it in the last ten minutes with enough load, or as the policy says until then. " +
				"The safe part of it, less the rates of all tenants that are not deleted, can still be sold."}, describeCapacity),
	}
}

func describeCapacity(c *call, _ *NoBody) (*CapacityResponse, error) {
	found, err := c.service.Capacity(c.context, &c.ticket)
	if err != nil {
		return nil, err
	}
	out := &CapacityResponse{
		Source: found.Source, Slots: found.Slots,
		SlotNsPerCredit: int64(found.SlotTimePerCredit), Operation: found.Op, Spec: found.Spec, Operations: found.Operations,
		PerSecond: found.PerSecond, SafetyPercent: found.SafetyPercent, Sellable: found.Sellable,
		Committed: found.Committed, Available: found.Available(), Oversold: found.Oversold(),
		Tiers: make([]CapacityTier, len(found.Tiers)), Charge: c.charge(),
	}
	if !found.MeasuredAt.IsZero() {
		out.MeasuredAt = found.MeasuredAt.UTC()
	}
	for i, t := range found.Tiers {
		out.Tiers[i] = CapacityTier(t)
	}
	return out, nil
}
