package api

import (
	"testing"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// TestRoomForBodiesIsBoundedAndGivenBack: for a tenant, so that it takes no
// other's, and for all.
func TestRoomForBodiesIsBoundedAndGivenBack(t *testing.T) {
	r := room{tenants: make(map[uuid.UUID]int64)}
	tenants := make([]uuid.UUID, 9)
	for i := range tenants {
		tenants[i] = uuid.NewV7()
	}
	for i, tenant := range tenants[:8] {
		if err := r.take(tenant, maxTenantBodies); err != nil {
			t.Fatalf("tenant %d: %v", i, err)
		}
		if err := r.take(tenant, 1); kms.KindOf(err) != kms.KindQuotaExceeded {
			t.Errorf("tenant %d beyond its own: %v", i, err)
		}
	}
	if err := r.take(tenants[8], 1); kms.KindOf(err) != kms.KindReducedCapacity {
		t.Errorf("beyond all: %v", err)
	}
	r.give(tenants[0], maxTenantBodies)
	if err := r.take(tenants[8], maxTenantBodies); err != nil {
		t.Error(err)
	}
	for _, tenant := range tenants[1:] {
		r.give(tenant, maxTenantBodies)
	}
	if r.taken != 0 || len(r.tenants) != 0 {
		t.Errorf("%d bytes of %d tenants are left", r.taken, len(r.tenants))
	}
}
