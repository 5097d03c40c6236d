package kms

import "context"

// MaxWrap is the length in bytes of the longest bytes that Wrap takes: keys,
// not data.
const MaxWrap = 4096

// Wrap protects the caller's bytes under a key by RFC 5649, for systems that
// speak it; for anything else Encrypt is the better choice, which binds
// context.
func (s *Service) Wrap(ctx context.Context, t *Ticket, ref string, plaintext []byte) ([]byte, uint32, error) {
	return s.wrapping(ctx, t, OpWrap, VerbWrap, ref, plaintext, 0)
}

// Unwrap is the inverse of Wrap; what was wrapped does not name its version,
// 0 stands for the primary one.
func (s *Service) Unwrap(ctx context.Context, t *Ticket, ref string, wrapped []byte, version uint32) ([]byte, uint32, error) {
	return s.wrapping(ctx, t, OpUnwrap, VerbUnwrap, ref, wrapped, version)
}

func (s *Service) wrapping(ctx context.Context, t *Ticket, op Op, verb Verb, ref string, input []byte, version uint32) ([]byte, uint32, error) {
	w := Work{Verb: verb, Input: input}
	err := s.keyed(ctx, t, op, ref, version, "", &w, func(*Ticket) error {
		switch {
		case verb == VerbWrap && (len(input) < 1 || len(input) > MaxWrap):
			return Errorf(KindInvalidArgument, "plaintext: must be 1 to %d bytes", MaxWrap)
		case verb == VerbUnwrap && (len(input) < 16 || len(input) > MaxWrap+8 || len(input)%8 != 0):
			return ErrDecryptionFailed
		}
		return nil
	})
	return w.Output, t.Version, err
}

// keyed runs an operation that is one piece of work with one version of a
// key. check sees the key, before anything is spent. On an error w has no
// output.
func (s *Service) keyed(ctx context.Context, t *Ticket, op Op, ref string, version uint32, alg Algorithm, w *Work, check func(*Ticket) error) error {
	err := s.run(ctx, t, &task{
		op: op, ref: ref, bytes: len(w.Input),
		prepare: func(t *Ticket) error {
			if err := usable(t.Key, op); err != nil {
				return err
			}
			a, err := chooseAlgorithm(t.Key, alg)
			if err != nil {
				return err
			}
			if check != nil {
				if err := check(t); err != nil {
					return err
				}
			}
			v, err := usableVersion(t.Key, version)
			if err != nil {
				return err
			}
			t.Version, t.Algorithm = v.Number, a
			w.Key, w.Version, w.Algorithm = t.Key, v, a
			return nil
		},
		nodes: func(*Ticket) ([]NodeID, error) { return s.device.Nodes(w) },
		execute: func(ctx context.Context, t *Ticket, node NodeID) error {
			return runWork(ctx, s.device, t, node, w)
		},
	})
	if err != nil {
		clear(w.Output)
		clear(w.Secret)
		w.Output, w.Secret = nil, nil
	}
	return err
}
