package keystore

import (
	"context"
	"log/slog"
	"time"

	"github.com/sluice-kms/sluice/kms"
)

const (
	// purgeInterval is how often expired records are removed. They are dead
	// already, so only the size of their tables depends on it.
	purgeInterval = time.Minute
	// purgeBatch bounds one transaction of the purge, so that it holds up a
	// writer no longer than another write would.
	purgeBatch = 500
)

// purge removes expired records until ctx ends.
func (s *Store) purge(ctx context.Context) {
	tick := time.NewTicker(purgeInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			s.purgeExpired(ctx)
		}
	}
}

// purgeExpired removes everything that is expired now, batch by batch. What a
// failure leaves waits for the next tick.
func (s *Store) purgeExpired(ctx context.Context) {
	now := timestamp(s.now())
	s.purgeBatches(ctx, "idempotency records", func() (int, error) {
		return s.driver.DeleteExpiredClaims(ctx, DeleteExpiredClaimsParams{Now: now, Limit: purgeBatch})
	})
	s.purgeBatches(ctx, "approvals", func() (int, error) {
		return s.driver.DeleteExpiredApprovals(ctx, DeleteExpiredApprovalsParams{Now: now, Limit: purgeBatch})
	})
	s.purgeBatches(ctx, "deliveries", func() (int, error) {
		return s.driver.DeleteEndedDeliveries(ctx, DeleteEndedDeliveriesParams{
			Before: timestamp(s.now().Add(-kms.DeliveriesKept)), Limit: purgeBatch})
	})
	s.purgeBatches(ctx, "records of requests", func() (int, error) {
		return s.driver.DeleteExpiredRecords(ctx, DeleteExpiredRecordsParams{Now: now, Limit: purgeBatch})
	})
	s.purgeBatches(ctx, "endpoints of providers", func() (int, error) {
		return s.driver.DeleteEndpoints(ctx, DeleteEndpointsParams{Now: now, Limit: purgeBatch})
	})
	s.purgeBatches(ctx, "incidents of cost breakers", func() (int, error) {
		return s.driver.DeleteCostIncidents(ctx, DeleteCostIncidentsParams{
			Before: timestamp(s.now().Add(-kms.CostIncidentsKept)), Limit: purgeBatch})
	})
	s.purgeBatches(ctx, "changes of secrets", func() (int, error) {
		return s.driver.DeleteSecretChanges(ctx, DeleteSecretChangesParams{
			Before: timestamp(s.now().Add(-kms.SecretChangesMaxAge)), Limit: purgeBatch})
	})
	if d, ok := s.driver.(ChangeDriver); ok {
		before := timestamp(s.now().Add(-changesKept))
		s.purgeBatches(ctx, "changes", func() (int, error) {
			return d.DeleteOldChanges(ctx, DeleteOldChangesParams{Before: before, Limit: purgeBatch})
		})
	}
}

func (s *Store) purgeBatches(ctx context.Context, what string, remove func() (int, error)) {
	for removed := purgeBatch; removed == purgeBatch; {
		var err error
		if removed, err = remove(); err != nil {
			if ctx.Err() == nil {
				s.log.Error("expired records could not be removed", slog.String("what", what), slog.Any("error", err))
			}
			return
		}
	}
}
