package api_test

import (
	"context"

	"github.com/sluice-kms/sluice/kms"
	"github.com/sluice-kms/sluice/quota"
)

func (m *memory) CountTenants(context.Context) (map[kms.Tier]int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	counts := map[kms.Tier]int64{}
	for _, t := range m.tenants {
		if !t.Deleted() && t.Name != kms.SystemTenantName {
			counts[t.Tier]++
		}
	}
	return counts, nil
}

// Baselines implements kms.CapacityPlanner.
func (m *memory) Baselines(document []byte) (*kms.Baselines, error) {
	if document == nil {
		return m.engine.Current().Policy().Baselines(), nil
	}
	p, err := quota.ParsePolicy(document)
	if err != nil {
		return nil, err
	}
	return p.Baselines(), nil
}

// Plan implements kms.CapacityPlanner for HSMs of which nothing was measured.
func (m *memory) Plan(b *kms.Baselines, slots int, sold kms.Sold) *kms.Capacity {
	return quota.PlanCapacity(nil, b, slots, sold)
}
