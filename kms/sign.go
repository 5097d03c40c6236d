package kms

import (
	"context"
	"slices"
	"unicode/utf8"
)

// SignatureFormat is how an ECDSA or SM2 signature is written.
type SignatureFormat string

// The formats. DER is SEQUENCE{r, s} (RFC 3279, 2.2.3); raw is r‖s, each as
// long as the curve's order.
const (
	FormatDER SignatureFormat = "der"
	FormatRaw SignatureFormat = "raw"
)

// MaxUserID is the length of the longest SM2 user id, in bytes: ENTL counts
// bits in 16 bits (GB/T 32918.2, 5.5).
const MaxUserID = 8191

// DefaultUserID is the SM2 user id that the standards prescribe where the
// parties agreed on none (GM/T 0009, 10).
const DefaultUserID = "1234567812345678"

// SignInput is the input of Service.Sign. Exactly one of Message and Digest
// is not nil; an empty message is a message.
type SignInput struct {
	Message   []byte
	Digest    []byte
	Algorithm Algorithm       // "": the key's default
	UserID    *string         // SM2DSA with a message only; nil: DefaultUserID
	Version   uint32          // 0: the primary version
	Format    SignatureFormat // ECDSA and SM2DSA only; "": FormatDER
}

// SignOutput is its result.
type SignOutput struct {
	Signature []byte
	Algorithm Algorithm
	Version   uint32
}

// Sign signs a message or a digest.
func (s *Service) Sign(ctx context.Context, t *Ticket, ref string, in SignInput) (*SignOutput, error) {
	var w Work
	out := &SignOutput{}
	err := s.run(ctx, t, &task{
		op: OpSign, ref: ref, bytes: len(in.Message) + len(in.Digest),
		prepare: func(t *Ticket) error {
			if err := usable(t.Key, OpSign); err != nil {
				return err
			}
			v, err := usableVersion(t.Key, in.Version)
			if err != nil {
				return err
			}
			w, err = signatureWork(t, VerbSign, in)
			w.Version, t.Version = v, v.Number
			return err
		},
		nodes: func(*Ticket) ([]NodeID, error) { return s.device.Nodes(&w) },
		execute: func(ctx context.Context, t *Ticket, node NodeID) error {
			if err := runWork(ctx, s.device, t, node, &w); err != nil {
				return err
			}
			var err error
			out.Signature, err = encodeSignature(t.Key.Spec, w.Output, in.Format)
			return err
		},
	})
	if err != nil {
		return nil, err
	}
	out.Algorithm, out.Version = t.Algorithm, t.Version
	return out, nil
}

// signatureWork checks what signing and verifying have in common.
func signatureWork(t *Ticket, verb Verb, in SignInput) (Work, error) {
	key := t.Key
	alg, err := chooseAlgorithm(key, in.Algorithm)
	if err != nil {
		return Work{}, err
	}
	t.Algorithm = alg
	w := Work{Verb: verb, Algorithm: alg, Key: key, Input: in.Message}
	switch {
	case (in.Message == nil) == (in.Digest == nil):
		return w, Errorf(KindInvalidArgument, "give either message or digest")
	case in.Digest != nil:
		size := alg.PrehashSize()
		if size == 0 {
			return w, Errorf(KindInvalidArgument, "digest: %s signs messages only", alg)
		}
		if len(in.Digest) != size {
			return w, Errorf(KindInvalidArgument, "digest: %s takes a digest of %d bytes", alg, size)
		}
		w.Input, w.Prehashed = in.Digest, true
	case len(in.Message) > MaxInput:
		return w, Errorf(KindTooLarge, "an operation takes at most %d bytes", MaxInput)
	}
	if w.UserID, err = chooseUserID(alg, in); err != nil {
		return w, err
	}
	if in.Format != "" && in.Format != FormatDER && (in.Format != FormatRaw || !hasRawFormat(key.Spec)) {
		return w, Errorf(KindInvalidArgument, "format: must be der, or raw for ECDSA and SM2DSA")
	}
	return w, nil
}

func chooseUserID(alg Algorithm, in SignInput) ([]byte, error) {
	if in.UserID == nil {
		if alg == AlgSM2DSA && in.Message != nil {
			return []byte(DefaultUserID), nil
		}
		return nil, nil
	}
	if alg != AlgSM2DSA || in.Message == nil {
		return nil, Errorf(KindInvalidArgument, "user_id: only SM2DSA of a message takes one")
	}
	id := *in.UserID
	if len(id) < 1 || len(id) > MaxUserID || !utf8.ValidString(id) {
		return nil, Errorf(KindInvalidArgument, "user_id: must be UTF-8 of 1 to %d bytes", MaxUserID)
	}
	return []byte(id), nil
}

// VerifyInput is the input of Service.Verify. Without a Version every usable
// version is tried, the newest first, up to maxVerifyVersions.
type VerifyInput struct {
	SignInput
	Signature []byte
}

// VerifyOutput is its result. Version is the one that the signature is valid
// under, 0 when it is not valid.
type VerifyOutput struct {
	Valid     bool
	Algorithm Algorithm
	Version   uint32
}

// maxVerifyVersions bounds the versions that one verification tries, so that
// a key of a thousand versions does not cost a thousand verifications.
const maxVerifyVersions = 8

// Verify tells whether a signature is valid. A malformed signature is one
// that is not.
func (s *Service) Verify(ctx context.Context, t *Ticket, ref string, in VerifyInput) (*VerifyOutput, error) {
	var w Work
	var versions []*Version
	out := &VerifyOutput{}
	err := s.run(ctx, t, &task{
		op: OpVerify, ref: ref, bytes: len(in.Message) + len(in.Digest),
		prepare: func(t *Ticket) (err error) {
			if err := usable(t.Key, OpVerify); err != nil {
				return err
			}
			if in.Signature == nil {
				return Errorf(KindInvalidArgument, "signature: is missing")
			}
			if w, err = signatureWork(t, VerbVerify, in.SignInput); err != nil {
				return err
			}
			versions, err = verifyVersions(t.Key, in.Version)
			if err != nil {
				return err
			}
			w.Version = versions[0]
			w.Signature = decodeSignature(t.Key.Spec, in.Signature, in.Format)
			return nil
		},
		nodes: func(*Ticket) ([]NodeID, error) { return s.device.Nodes(&w) },
		execute: func(ctx context.Context, t *Ticket, node NodeID) error {
			if w.Signature == nil {
				return nil
			}
			for _, v := range versions {
				w.Version = v
				if err := runWork(ctx, s.device, t, node, &w); err != nil {
					return err
				}
				if w.Valid {
					out.Valid, out.Version, t.Version = true, v.Number, v.Number
					return nil
				}
			}
			return nil
		},
	})
	if err != nil {
		return nil, err
	}
	out.Algorithm = t.Algorithm
	return out, nil
}

func verifyVersions(k *Key, number uint32) ([]*Version, error) {
	if number != 0 {
		v, err := usableVersion(k, number)
		return []*Version{v}, err
	}
	var usable []*Version
	for _, v := range slices.Backward(k.Versions) {
		if v.State == VersionEnabled && len(usable) < maxVerifyVersions {
			usable = append(usable, v)
		}
	}
	if usable == nil {
		return nil, Errorf(KindKeyDisabled, "every version of the key is disabled")
	}
	return usable, nil
}
