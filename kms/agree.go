package kms

import "context"

// maxPeer bounds a public key that a caller sends: the SubjectPublicKeyInfo of
// the largest curve is 158 bytes.
const maxPeer = 512

// SharedSecret computes the ECDH shared secret of a key and another party's
// public key, a SubjectPublicKeyInfo in DER on the same curve. The secret is
// the x-coordinate as it is; callers feed it to a key derivation function.
func (s *Service) SharedSecret(ctx context.Context, t *Ticket, ref string, peer []byte, version uint32) ([]byte, error) {
	w := Work{Verb: VerbAgree, Peer: peer}
	err := s.keyed(ctx, t, OpSharedSecret, ref, version, "", &w, func(*Ticket) error {
		if len(peer) == 0 || len(peer) > maxPeer {
			return Errorf(KindInvalidArgument, "public_key: must be a SubjectPublicKeyInfo in DER of at most %d bytes", maxPeer)
		}
		return nil
	})
	return w.Output, err
}

// Bounds of derived bytes. Fewer than 16 could be searched, and would then
// tell about the key's other outputs; more than 255 blocks HKDF does not give
// (RFC 5869, 2.3), which the smallest hash on offer makes 8,160.
const (
	MinDerived = 16
	MaxDerived = 8160
)

// DeriveInput is the input of Service.Derive.
type DeriveInput struct {
	Context   []byte // what the derived bytes are for; may be empty
	Length    int    // bytes, MinDerived to MaxDerived
	Algorithm Algorithm
	Version   uint32 // 0: the primary version
}

// Derive computes bytes from a key and a context: the same for the same
// input, independent for different ones. Only keys made for it derive, since
// derivation with another key could reveal what that one protects.
func (s *Service) Derive(ctx context.Context, t *Ticket, ref string, in DeriveInput) ([]byte, error) {
	w := Work{Verb: VerbDerive, Input: in.Context, Length: in.Length}
	err := s.keyed(ctx, t, OpDerive, ref, in.Version, in.Algorithm, &w, func(*Ticket) error {
		if in.Length < MinDerived || in.Length > MaxDerived {
			return Errorf(KindInvalidArgument, "bytes: must be %d to %d", MinDerived, MaxDerived)
		}
		if len(in.Context) > MaxDeriveContext {
			return Errorf(KindInvalidArgument, "context: must be at most %d bytes", MaxDeriveContext)
		}
		return nil
	})
	return w.Output, err
}

// Encapsulation is a shared secret and what its receiver recovers it from.
type Encapsulation struct {
	Secret     []byte
	Ciphertext []byte
	Version    uint32
}

// Encapsulate makes a shared secret for the holder of the key (FIPS 203).
func (s *Service) Encapsulate(ctx context.Context, t *Ticket, ref string, version uint32) (*Encapsulation, error) {
	w := Work{Verb: VerbEncapsulate}
	if err := s.keyed(ctx, t, OpEncapsulate, ref, version, "", &w, nil); err != nil {
		return nil, err
	}
	return &Encapsulation{Secret: w.Secret, Ciphertext: w.Output, Version: t.Version}, nil
}

// Decapsulate recovers the shared secret. A ciphertext that was tampered with
// gives another secret, not an error (implicit rejection); only one of the
// wrong length fails.
func (s *Service) Decapsulate(ctx context.Context, t *Ticket, ref string, ciphertext []byte, version uint32) ([]byte, error) {
	w := Work{Verb: VerbDecapsulate, Input: ciphertext}
	err := s.keyed(ctx, t, OpDecapsulate, ref, version, "", &w, func(*Ticket) error {
		if len(ciphertext) == 0 || len(ciphertext) > maxEncapsulation {
			return ErrDecryptionFailed
		}
		return nil
	})
	return w.Output, err
}

// maxEncapsulation is the length in bytes of an ML-KEM-1024 ciphertext (FIPS
// 203, table 3).
const maxEncapsulation = 1568
