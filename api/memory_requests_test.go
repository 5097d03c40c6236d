package api_test

import (
	"context"
	"slices"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

func (m *memory) StoreRecords(_ context.Context, records []kms.RequestRecord) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.records = append(m.records, records...)
	return m.storeFault
}

func (m *memory) RequestRecord(ctx context.Context, tenant, request uuid.UUID) (*kms.RequestRecord, error) {
	r, err := m.AnyRequestRecord(ctx, request)
	if err == nil && r.Tenant != tenant {
		return nil, kms.ErrNotFound
	}
	return r, err
}

func (m *memory) AnyRequestRecord(_ context.Context, request uuid.UUID) (*kms.RequestRecord, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	i := slices.IndexFunc(m.records, func(r kms.RequestRecord) bool { return r.RequestID == request })
	if i < 0 {
		return nil, kms.ErrNotFound
	}
	return &m.records[i], nil
}

func (m *memory) Queues() kms.QueueState {
	m.mu.Lock()
	defer m.mu.Unlock()
	state := kms.QueueState{Waiting: 1, MaxWaiting: 4096, Nodes: []kms.QueueNode{{Node: memoryNode, Domain: "hsm", Slots: 1, Busy: 1}}}
	domain := kms.QueueDomain{Name: "hsm", Slots: 1, Busy: 1, Waiting: 1, Band: "below_safe",
		Classes: []kms.QueueClass{{Class: "HIGH", Waited: []kms.QueueWait{{Code: "SHARE", Time: 1500}}}}}
	for id := range m.tenants {
		domain.Tenants = append(domain.Tenants, kms.QueueTenant{Tenant: id, Weight: 1000, Running: 1, Parked: "TENANT_CAP"})
	}
	state.Domains = []kms.QueueDomain{domain}
	return state
}
