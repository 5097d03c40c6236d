package keystore

import (
	"context"
	"sync"
	"uuid"
)

// maxTenantLoads is the number of loads that one tenant may have in the
// database at a time: half of a driver's readers, so that whoever asks for
// keys that do not exist leaves the other half to everybody else.
const maxTenantLoads = 4

// loadGate bounds the loads of each tenant. It is passed only when the cache
// has no answer.
type loadGate struct {
	mu      sync.Mutex
	tenants map[uuid.UUID]*tenantLoads // only of tenants that load or wait
}

type tenantLoads struct {
	places chan struct{}
	users  int // that load or wait; guarded by loadGate.mu
}

func newLoadGate() *loadGate {
	return &loadGate{tenants: make(map[uuid.UUID]*tenantLoads)}
}

// enter waits for a place of the tenant and returns the function that frees
// it. The error is the context's.
func (g *loadGate) enter(ctx context.Context, tenant uuid.UUID) (leave func(), err error) {
	g.mu.Lock()
	t := g.tenants[tenant]
	if t == nil {
		t = &tenantLoads{places: make(chan struct{}, maxTenantLoads)}
		g.tenants[tenant] = t
	}
	t.users++
	g.mu.Unlock()

	select {
	case t.places <- struct{}{}:
		return func() {
			<-t.places
			g.release(tenant, t)
		}, nil
	case <-ctx.Done():
		g.release(tenant, t)
		return nil, ctx.Err()
	}
}

func (g *loadGate) release(tenant uuid.UUID, t *tenantLoads) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if t.users--; t.users == 0 {
		delete(g.tenants, tenant)
	}
}
