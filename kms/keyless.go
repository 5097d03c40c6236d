package kms

import "context"

// MaxRandom is how many random bytes one call gives.
const MaxRandom = 1024

// Random returns length random bytes from an HSM of the tenant's domain.
func (s *Service) Random(ctx context.Context, t *Ticket, length int) ([]byte, error) {
	if length < 1 || length > MaxRandom {
		return nil, s.Refuse(ctx, t, OpRandom, Errorf(KindInvalidArgument, "bytes: must be 1 to %d", MaxRandom))
	}
	w := Work{Verb: VerbRandom, Length: length}
	if err := s.keyless(ctx, t, OpRandom, length, &w); err != nil {
		return nil, err
	}
	return w.Output, nil
}

// Digest returns the digest of data.
func (s *Service) Digest(ctx context.Context, t *Ticket, d Digest, data []byte) ([]byte, error) {
	if d.Size() == 0 {
		return nil, s.Refuse(ctx, t, OpDigest, Errorf(KindInvalidArgument,
			"algorithm: must be SHA_224, SHA_256, SHA_384, SHA_512 or SM3"))
	}
	if data == nil {
		return nil, s.Refuse(ctx, t, OpDigest, Errorf(KindInvalidArgument, "data: is missing"))
	}
	if err := sizes(data, nil); err != nil {
		return nil, s.Refuse(ctx, t, OpDigest, err)
	}
	w := Work{Verb: VerbDigest, Digest: d, Input: data}
	if err := s.keyless(ctx, t, OpDigest, len(data), &w); err != nil {
		return nil, err
	}
	return w.Output, nil
}

func (s *Service) keyless(ctx context.Context, t *Ticket, op Op, bytes int, w *Work) error {
	return s.run(ctx, t, &task{
		op: op, bytes: bytes,
		nodes: func(*Ticket) ([]NodeID, error) { return s.device.Nodes(w) },
		execute: func(ctx context.Context, t *Ticket, node NodeID) error {
			return runWork(ctx, s.device, t, node, w)
		},
	})
}
