package keystore

import (
	"context"
	"uuid"
)

// CountObjects counts a tenant's keys and secrets that are not destroyed, and
// its credentials that can still be used. ErrNotFound when there is no such tenant.
//
// The rows are counted and not authenticated: a database that lies about their
// number makes a limit too wide or too narrow and gives nobody anything else.
// It reads as many entries of an index as there are objects.
func (s *Store) CountObjects(ctx context.Context, tenant uuid.UUID) (ObjectCounts, error) {
	if _, err := s.coder(); err != nil {
		return ObjectCounts{}, err
	}
	if _, err := s.tenants.get(ctx, tenant); err != nil {
		return ObjectCounts{}, err
	}
	n, err := s.driver.CountObjects(ctx, CountObjectsParams{Tenant: tenant, Now: timestamp(s.now())})
	return n, translate(err)
}
