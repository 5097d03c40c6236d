package kms

import (
	"context"
	"uuid"
)

// ProviderRoutes stores routes over providers, and what is known of their
// health. Another tenant's route and a missing one give ErrNotFound. All methods
// are safe for concurrent use.
type ProviderRoutes interface {
	Route(ctx context.Context, tenant uuid.UUID, name string) (*ProviderRoute, error)
	// ListRoutes returns up to page.Size routes, ordered by name.
	ListRoutes(ctx context.Context, tenant uuid.UUID, page Page) ([]*ProviderRoute, string, error)
	// PutRoute stores a route of which r.Revision-1 is the present revision, that
	// of RouteRevision for a new one; KindPreconditionFailed when it is not,
	// KindConflict when the tenant has MaxRoutes already.
	PutRoute(ctx context.Context, r *ProviderRoute) error
	// RouteRevision returns the revision of a route that is there or was deleted,
	// which counts as a change; 0 for one that never was. It answers for a route
	// that is refused as well.
	RouteRevision(ctx context.Context, tenant uuid.UUID, name string) (uint64, error)
	// DeleteRoute removes it with its health, also when it is refused.
	DeleteRoute(ctx context.Context, tenant uuid.UUID, name string) error
	// HealthOfRoute returns what was stored of a route's health with its
	// revision, nil and 0 for nothing. It asks the database.
	HealthOfRoute(ctx context.Context, r *ProviderRoute) (health []byte, revision uint64, err error)
	// SetHealthOfRoute stores the next health after a revision;
	// KindPreconditionFailed when that is not the present one.
	SetHealthOfRoute(ctx context.Context, r *ProviderRoute, health []byte, revision uint64) error
}

// MaxRouteHealth bounds the health of a route in bytes: 8 targets of 32 keys and
// 256 cool-downs each.
const MaxRouteHealth = 1 << 20
