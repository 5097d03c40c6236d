package api_test

import (
	"context"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// routeBook is the part of memory for routes over providers.
type routeBook struct {
	routes map[routeKey]*kms.ProviderRoute
	health map[routeKey]routeHealth
	// answer is what providers say to keys that are tried out, tried the keys.
	answer kms.KeyValidation
	tried  []string
}

type routeKey struct {
	tenant uuid.UUID
	name   string
}

type routeHealth struct {
	document []byte
	revision uint64
}

func newRouteBook() routeBook {
	return routeBook{routes: map[routeKey]*kms.ProviderRoute{}, health: map[routeKey]routeHealth{}}
}

func (m *memory) Route(_ context.Context, tenant uuid.UUID, name string) (*kms.ProviderRoute, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.storeFault != nil {
		return nil, m.storeFault
	}
	if r := m.paths.routes[routeKey{tenant, name}]; r != nil {
		return r, nil
	}
	return nil, kms.ErrNotFound
}

func (m *memory) ListRoutes(_ context.Context, tenant uuid.UUID, p kms.Page) ([]*kms.ProviderRoute, string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var list []*kms.ProviderRoute
	for k, r := range m.paths.routes {
		if k.tenant == tenant {
			list = append(list, r)
		}
	}
	return page(list, func(r *kms.ProviderRoute) string { return r.Name }, p)
}

func (m *memory) RouteRevision(_ context.Context, tenant uuid.UUID, name string) (uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.paths.routes[routeKey{tenant, name}]; r != nil {
		return r.Revision, nil
	}
	return 0, nil
}

func (m *memory) PutRoute(_ context.Context, r *kms.ProviderRoute) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	key, was := routeKey{r.Tenant, r.Name}, uint64(0)
	if old := m.paths.routes[key]; old != nil {
		was = old.Revision
	}
	if was != r.Revision-1 {
		return kms.Errorf(kms.KindPreconditionFailed, "the revision is another")
	}
	stored := *r
	m.paths.routes[key] = &stored
	return nil
}

func (m *memory) DeleteRoute(_ context.Context, tenant uuid.UUID, name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.paths.routes, routeKey{tenant, name})
	delete(m.paths.health, routeKey{tenant, name})
	return nil
}

func (m *memory) HealthOfRoute(_ context.Context, r *kms.ProviderRoute) ([]byte, uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	h := m.paths.health[routeKey{r.Tenant, r.Name}]
	return h.document, h.revision, m.storeFault
}

func (m *memory) SetHealthOfRoute(_ context.Context, r *kms.ProviderRoute, health []byte, revision uint64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := routeKey{r.Tenant, r.Name}
	if m.paths.health[key].revision != revision {
		return kms.Errorf(kms.KindPreconditionFailed, "the revision is another")
	}
	m.paths.health[key] = routeHealth{health, revision + 1}
	return nil
}

// WantEndpoints implements kms.EndpointProbes. Nothing is probed.
func (m *memory) WantEndpoints(context.Context, []string, time.Time) error { return nil }

func (m *memory) Endpoints(context.Context, []string) ([]kms.Endpoint, error) { return nil, nil }

func (m *memory) ClaimEndpoints(context.Context, time.Duration, int) ([]kms.Endpoint, error) {
	return nil, nil
}

func (m *memory) EndProbe(context.Context, string, int, time.Time) error { return nil }

// TryKey implements kms.KeyTrials.
func (m *memory) TryKey(_ context.Context, provider string, key []byte) (kms.KeyValidation, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.paths.tried = append(m.paths.tried, provider+" "+string(key))
	return m.paths.answer, true
}
