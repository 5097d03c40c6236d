package api_test

import (
	"context"

	"github.com/sluice-kms/sluice/kms"
)

// claim is a claim on an Idempotency-Key; record is nil while it is in flight.
type claim struct {
	fingerprint [32]byte
	record      *kms.IdempotencyRecord
}

func (m *memory) Begin(_ context.Context, k kms.IdempotencyKey, fingerprint [32]byte) (*kms.IdempotencyRecord, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.claims[k]
	switch {
	case c == nil:
		m.claims[k] = &claim{fingerprint: fingerprint}
		return nil, nil
	case c.fingerprint != fingerprint:
		return nil, kms.Errorf(kms.KindInvalidArgument, "the idempotency key was used for a different request")
	case c.record == nil:
		return nil, kms.Errorf(kms.KindConflict, "in flight")
	}
	return c.record, nil
}

func (m *memory) Finish(_ context.Context, k kms.IdempotencyKey, r kms.IdempotencyRecord) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.claimFault != nil {
		return m.claimFault
	}
	m.claims[k].record = &r
	return nil
}

func (m *memory) Abandon(_ context.Context, k kms.IdempotencyKey) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.claimFault != nil {
		return m.claimFault
	}
	delete(m.claims, k)
	return nil
}
