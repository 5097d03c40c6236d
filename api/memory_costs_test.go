package api_test

import (
	"context"
	"slices"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// costBook is kms.CostIncidents in memory.
type costBook struct {
	incidents []*kms.CostIncident // the latest first
	lifted    map[uuid.UUID]time.Time
	here      map[uuid.UUID]int // lifts of stops of this API node
}

func (m *memory) AddCostIncident(_ context.Context, i *kms.CostIncident) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.costs.incidents = append([]*kms.CostIncident{i}, m.costs.incidents...)
	return nil
}

func (m *memory) CostIncident(_ context.Context, tenant, id uuid.UUID) (*kms.CostIncident, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, i := range m.costs.incidents {
		if i.Tenant == tenant && i.ID == id {
			return i, nil
		}
	}
	return nil, kms.ErrNotFound
}

func (m *memory) ListCostIncidents(_ context.Context, tenant uuid.UUID, p kms.Page) ([]*kms.CostIncident, string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	own := slices.DeleteFunc(slices.Clone(m.costs.incidents), func(i *kms.CostIncident) bool { return i.Tenant != tenant })
	return own[:min(p.Size, len(own))], "", nil
}

func (m *memory) NoteCostLift(_ context.Context, tenant uuid.UUID) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.costs.lifted == nil {
		m.costs.lifted = map[uuid.UUID]time.Time{}
	}
	m.costs.lifted[tenant] = time.Now()
	return m.storeFault
}

func (m *memory) CostLifted(_ context.Context, tenant uuid.UUID) (time.Time, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.costs.lifted[tenant], nil
}

// incident stores an incident of a tenant.
func (w *world) incident(of tenant) *kms.CostIncident {
	w.t.Helper()
	began := time.Date(2030, 3, 10, 6, 0, 0, 0, time.UTC)
	i := &kms.CostIncident{ID: uuid.NewV7(), Tenant: uuid.MustParse(of.id), Node: "api-1", Began: began, Ended: began.Add(5 * time.Minute),
		Tier: kms.TierGold, PolicyVersion: 1, Factor: 400, Line: 2000, Recover: 1000, PeakRisk: 2500, PeakAt: began,
		Used: 5000 * kms.Credit, Over: 4000 * kms.Credit, Planned: 1000 * kms.Credit, Refused: kms.Credit, Calls: 5000, RefusedCalls: 1,
		Stopped: began.Add(3 * time.Minute), StoppedUsed: 5000 * kms.Credit, SpanSeconds: 60,
		Timeline:   []kms.CostPoint{{Used: 5000 * kms.Credit, Calls: 5000, Risk: 2500, Stage: kms.CostStopped}},
		Changes:    []kms.CostChange{{At: began, Component: "loop <1>", To: kms.CostNoBulk, Risk: 2100, PerMinute: 9 * kms.Credit}},
		Components: []kms.CostShare{{Name: "loop <1>", Credits: 5000 * kms.Credit, Calls: 5000}},
		Causes:     []kms.CostCause{{Code: kms.CauseRetryLoop, Detail: "all of it is one call", Advice: "bound the retries"}}}
	if err := w.incidents.AddCostIncident(w.t.Context(), i); err != nil {
		w.t.Fatal(err)
	}
	return i
}

func (m *memory) liftedHere(tenant uuid.UUID) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.costs.here[tenant]
}

func (m *memory) LiftCost(tenant uuid.UUID, _ time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.costs.here == nil {
		m.costs.here = map[uuid.UUID]int{}
	}
	m.costs.here[tenant]++
	return true
}
