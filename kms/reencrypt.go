package kms

import "context"

// ReencryptInput is the input of Service.Reencrypt.
type ReencryptInput struct {
	Ciphertext     []byte
	SourceKey      string // id or name of the key that decrypts
	AAD            []byte
	DestinationAAD []byte // nil: AAD
	// What Decrypt takes beside; zero values are its defaults.
	SourceAlgorithm Algorithm
	SourceVersion   uint32
	SourceOrder     SM2Order
	SourceIV        []byte
}

// ReencryptOutput is its result.
type ReencryptOutput struct {
	Ciphertext    []byte
	Version       uint32
	SourceVersion uint32
}

// Reencrypt decrypts a ciphertext with one key and encrypts it with another,
// ref, or with a newer version of the same. The caller must be allowed to
// decrypt with the one and to encrypt with the other; the plaintext does not
// leave the service.
func (s *Service) Reencrypt(ctx context.Context, t *Ticket, ref string, in ReencryptInput) (*ReencryptOutput, error) {
	var open Work
	var seal sealing
	var committed bool
	var plain DecryptOutput
	out := &ReencryptOutput{}
	k := &task{op: OpReencrypt, ref: ref, bytes: len(in.Ciphertext)}
	k.prepare = func(t *Ticket) error {
		if in.DestinationAAD == nil {
			in.DestinationAAD = in.AAD
		}
		source, err := s.source(ctx, t, in.SourceKey)
		if err != nil {
			return err
		}
		k.source = source
		if err := usable(t.Key, OpReencrypt); err != nil {
			return err
		}
		if !t.Key.Spec.Info().Symmetric() {
			return Errorf(KindInvalidArgument, "the destination of a re-encryption is a symmetric key")
		}
		open, err = sourceWork(t.By, source, in)
		if err != nil {
			return err
		}
		committed = source.Spec.Info().Symmetric() && !isLegacy(open.Algorithm)
		out.SourceVersion = open.Version.Number
		v, err := usableVersion(t.Key, 0)
		if err != nil {
			return err
		}
		t.Version, t.Algorithm = v.Number, t.Key.Spec.Info().Algorithms(t.Key.Usage)[0]
		return sizes(nil, in.DestinationAAD)
	}
	k.nodes = func(*Ticket) ([]NodeID, error) { return s.device.Nodes(&open) }
	k.execute = func(ctx context.Context, t *Ticket, node NodeID) error {
		if err := runWork(ctx, s.device, t, node, &open); err != nil {
			return err
		}
		plain.Plaintext = open.Output
		if committed {
			return checkCommitment(&plain)
		}
		return nil
	}
	k.then = &deviceStep{
		nodes: func(t *Ticket) ([]NodeID, error) {
			v, err := usableVersion(t.Key, t.Version)
			if err != nil {
				return nil, err
			}
			seal.seal(t.Key, v, t.Algorithm, plain.Plaintext, in.DestinationAAD)
			return s.sealNodes(ctx, &seal)(t)
		},
		execute: seal.execute(s.device),
	}
	err := s.run(ctx, t, k)
	clear(open.Output)
	clear(seal.work.Input)
	if err != nil {
		return nil, err
	}
	out.Ciphertext, out.Version = seal.result(), t.Version
	return out, nil
}

// source finds the key that decrypts and checks that the caller may use it so.
func (s *Service) source(ctx context.Context, t *Ticket, ref string) (*Key, error) {
	if ref == "" {
		return nil, Errorf(KindInvalidArgument, "source_key: is missing")
	}
	key, err := s.lookup(ctx, t.By, ref)
	if err != nil {
		return nil, err
	}
	if !t.By.Allowed(OpDecrypt, key) || !t.By.Allowed(OpEncrypt, t.Key) {
		return nil, ErrPermissionDenied
	}
	return key, usable(key, OpDecrypt)
}

func sourceWork(by *Principal, source *Key, in ReencryptInput) (Work, error) {
	t := &Ticket{By: by, Key: source} // takes the source's version and algorithm
	d := DecryptInput{Ciphertext: in.Ciphertext, Algorithm: in.SourceAlgorithm, Version: in.SourceVersion, Order: in.SourceOrder, IV: in.SourceIV}
	if source.Spec.Info().Symmetric() && !isLegacy(in.SourceAlgorithm) {
		d.AAD = in.AAD
	}
	return decryptWork(t, d)
}
