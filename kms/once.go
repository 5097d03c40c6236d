package kms

import (
	"context"
)

// MaxIdempotencyKey is the length in bytes of the longest Idempotency-Key.
const MaxIdempotencyKey = 255

const labelIdempotency = "sluice idempotency\x00"

// Claim is a claim on an Idempotency-Key for one state-changing request.
type Claim struct {
	service *Service
	key     IdempotencyKey
}

// Once claims the key that a client gave to a state-changing request, of which
// request is all that tells it from another: method, path and body. It returns
// a claim when the request is new and is to be carried out, the record of its
// answer when it was answered before, and an error when the key stands for
// another request (KindInvalidArgument) or the same one is in flight
// (KindConflict).
//
// Only the principal's own requests can meet. The request is stored as a code
// under the pepper, so the store cannot be searched for what was sent.
func (s *Service) Once(ctx context.Context, by *Principal, key string, request ...[]byte) (*Claim, *IdempotencyRecord, error) {
	if len(key) == 0 || len(key) > MaxIdempotencyKey || !ia5(key) {
		return nil, nil, Errorf(KindMalformed, "the idempotency key must be ASCII of 1 to %d bytes", MaxIdempotencyKey)
	}
	k := IdempotencyKey{Tenant: by.Tenant.ID, Credential: by.Credential, Key: key}
	fingerprint, _ := s.pepper.mac(s.pepper.current, labelIdempotency, lengthPrefixed(request)...)
	record, err := s.idempotency.Begin(ctx, k, fingerprint)
	if err != nil || record != nil {
		return nil, record, err
	}
	return &Claim{s, k}, nil, nil
}

// Done ends the claim: with a record, so that the request's next coming is
// answered by it, or, when the request changed nothing, without. A failure to
// store it is reported but must not fail the request, which has happened: its
// next coming finds the claim in flight until that expires.
func (c *Claim) Done(ctx context.Context, record *IdempotencyRecord) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	if record == nil {
		return c.service.idempotency.Abandon(ctx, c.key)
	}
	return c.service.idempotency.Finish(ctx, c.key, *record)
}

// Replay authorises and records the repetition of an answered request: its
// caller must still be allowed to do what was done, and sees the object as it
// is now. resource is the key's id for operations on keys, "" for others.
func (s *Service) Replay(ctx context.Context, t *Ticket, op Op, key string) (*Key, error) {
	t.Replayed = true
	if key == "" {
		return nil, s.run(ctx, t, &task{op: op, replay: true, allowed: func(t *Ticket) bool {
			return t.By.Allowed(op, nil) || t.By.Operator() && administers(op, SystemTenantName)(t)
		}})
	}
	// Looked up before it is decided on, as by the operations themselves: a
	// destroyed key is missing.
	err := s.replayOther(ctx, t, op, always, func(t *Ticket) error {
		found, err := s.lookup(ctx, t.By, key)
		if err != nil {
			return err
		}
		t.Key = found
		if !t.By.Allowed(op, found) {
			return ErrPermissionDenied
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return t.Key, nil
}

// lengthPrefixed puts each part's length before it.
func lengthPrefixed(parts [][]byte) [][]byte {
	out := make([][]byte, 0, 2*len(parts))
	for _, p := range parts {
		n := len(p)
		out = append(out, []byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}, p)
	}
	return out
}
