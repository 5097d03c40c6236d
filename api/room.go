package api

import (
	"sync"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// What the bodies of requests may take of memory, in bytes, all together and of
// one tenant. Bodies that fit a small buffer do not count: the connections bound
// them.
const (
	// maxBodies is a fraction of what a server has, and 128 of the largest.
	maxBodies = 256 << 20
	// maxTenantBodies leaves room for seven others: 16 of the largest requests
	// at once, which are read and decoded in milliseconds, or 32 batches.
	maxTenantBodies = maxBodies / 8
	// roomRetry is when one comes back whose body had no room: those there are
	// mostly gone in milliseconds, slow ones within ReadTimeout.
	roomRetry = time.Second
)

// room is the memory of bodies. It is safe for concurrent use.
type room struct {
	mu      sync.Mutex // guards the rest
	taken   int64
	tenants map[uuid.UUID]int64
}

var (
	errNoRoom = &kms.Error{Kind: kms.KindReducedCapacity, RetryAfter: roomRetry,
		Detail: "the bodies of requests take as much memory as they may"}
	errNoOwnRoom = &kms.Error{Kind: kms.KindQuotaExceeded, RetryAfter: roomRetry,
		Detail: "the bodies of the tenant's requests take as much memory as they may; send fewer large ones at once"}
)

// take takes room for n bytes of a tenant's.
func (r *room) take(tenant uuid.UUID, n int64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.tenants[tenant]+n > maxTenantBodies:
		return errNoOwnRoom
	case r.taken+n > maxBodies:
		return errNoRoom
	}
	r.taken += n
	r.tenants[tenant] += n
	return nil
}

// give gives back what was taken.
func (r *room) give(tenant uuid.UUID, n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.taken -= n
	if r.tenants[tenant] -= n; r.tenants[tenant] == 0 {
		delete(r.tenants, tenant)
	}
}
