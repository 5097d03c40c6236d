package keystore

import (
	"bytes"
	"context"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// The states of a claim as they are stored.
const (
	ClaimInFlight = "IN_FLIGHT"
	ClaimDone     = "DONE"
)

// maxClaimLength is the longest Idempotency-Key in bytes, as the port promises.
const maxClaimLength = 255

// Begin implements kms.Idempotency. ErrNotFound when there is no such tenant.
func (s *Store) Begin(ctx context.Context, k kms.IdempotencyKey, fingerprint [32]byte) (*kms.IdempotencyRecord, error) {
	id, err := s.claimID(k)
	if err != nil {
		return nil, err
	}
	now := s.now()
	row, err := s.driver.Claim(ctx, ClaimParams{ClaimID: id, Fingerprint: fingerprint[:],
		Now: timestamp(now), Expires: timestamp(now.Add(kms.IdempotencyClaimTTL))})
	if err != nil {
		return nil, translate(err)
	}
	if row == nil {
		return nil, nil
	}
	record, err := decodeClaim(k.Tenant, row)
	switch {
	case err != nil:
		return nil, s.decoded(err)
	case !bytes.Equal(row.Fingerprint.Bytes, fingerprint[:]):
		return nil, kms.Errorf(kms.KindInvalidArgument, "the idempotency key was used for a different request")
	case record == nil:
		return nil, kms.Errorf(kms.KindConflict, "a request with this idempotency key is being processed")
	}
	return record, nil
}

// Finish implements kms.Idempotency. ErrNotFound when the claim is not in
// flight.
func (s *Store) Finish(ctx context.Context, k kms.IdempotencyKey, r kms.IdempotencyRecord) error {
	id, err := s.claimID(k)
	if err != nil {
		return err
	}
	if !validStatus(int64(r.Status)) {
		return errArgument("status", reasonRange)
	}
	if !storableText(r.Resource) {
		return errArgument("resource", "is not text")
	}
	return translate(s.driver.FinishClaim(ctx, FinishClaimParams{ClaimID: id, Status: r.Status, Resource: r.Resource,
		Secret: r.Secret, Expires: timestamp(s.now().Add(kms.IdempotencyTTL))}))
}

// Abandon implements kms.Idempotency. ErrNotFound when the claim is not in
// flight.
func (s *Store) Abandon(ctx context.Context, k kms.IdempotencyKey) error {
	id, err := s.claimID(k)
	if err != nil {
		return err
	}
	return translate(s.driver.DeleteClaim(ctx, DeleteClaimParams{ClaimID: id}))
}

func (s *Store) claimID(k kms.IdempotencyKey) (ClaimID, error) {
	if _, err := s.coder(); err != nil {
		return ClaimID{}, err
	}
	if len(k.Key) == 0 || len(k.Key) > maxClaimLength {
		return ClaimID{}, kms.Errorf(kms.KindInvalidArgument, "idempotency key: must be 1 to %d bytes", maxClaimLength)
	}
	return ClaimID{Tenant: k.Tenant, Credential: k.Credential, Claim: []byte(k.Key)}, nil
}

// decodeClaim returns nil for a claim in flight.
func decodeClaim(tenant uuid.UUID, r *ClaimRow) (*kms.IdempotencyRecord, error) {
	d := newDecoder(ObjectClaim, tenant, uuid.Nil())
	d.require(len(d.bytes(r.Fingerprint, "fingerprint")) == 32, "fingerprint", "has the wrong length")
	switch d.text(r.State, "state") {
	case ClaimInFlight:
		return nil, d.result()
	case ClaimDone:
		status := d.integer(r.Status, "status", minStatus, maxStatus)
		record := &kms.IdempotencyRecord{Status: int(status), Resource: d.maybeBlank(r.Resource, "resource"),
			Secret: d.boolean(r.Secret, "secret")}
		return record, d.result()
	}
	d.fail("state", reasonUnknown)
	return nil, d.result()
}

// HTTP status codes have three digits (RFC 9110, section 15).
const minStatus, maxStatus = 100, 599

func validStatus(status int64) bool { return minStatus <= status && status <= maxStatus }
