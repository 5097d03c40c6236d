package kms

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
)

// MaxInput is the length in bytes of the largest plaintext, ciphertext,
// message or AAD of one operation; the API's body limit is set so that base64
// of it fits.
const MaxInput = 1<<20 + 4096

// EncryptInput is the input of Service.Encrypt.
type EncryptInput struct {
	Plaintext []byte
	AAD       []byte    // symmetric keys only
	Algorithm Algorithm // "": the key's default
	Version   uint32    // asymmetric keys only; 0: the primary version
	Order     SM2Order  // SM2PKE only; "": C1C3C2
}

// EncryptOutput is its result.
type EncryptOutput struct {
	Ciphertext []byte
	Version    uint32
}

// Encrypt encrypts with a key: symmetric keys give our envelope with the
// primary version, asymmetric ones the standard ciphertext of the algorithm.
func (s *Service) Encrypt(ctx context.Context, t *Ticket, ref string, in EncryptInput) (*EncryptOutput, error) {
	var seal sealing
	out := &EncryptOutput{}
	err := s.run(ctx, t, &task{
		op: OpEncrypt, ref: ref, bytes: len(in.Plaintext),
		prepare: func(t *Ticket) error {
			if err := usable(t.Key, OpEncrypt); err != nil {
				return err
			}
			if t.Key.Spec.Info().Symmetric() {
				return seal.prepare(t, in)
			}
			return seal.preparePublic(t, in)
		},
		nodes:   s.sealNodes(ctx, &seal),
		execute: seal.execute(s.device),
	})
	if err != nil {
		return nil, err
	}
	out.Ciphertext, out.Version = seal.result(), t.Version
	return out, nil
}

// sealing is one encryption under way.
type sealing struct {
	work   Work
	header []byte // of the envelope; nil for asymmetric keys
}

func (e *sealing) prepare(t *Ticket, in EncryptInput) error {
	if in.Version != 0 {
		return Errorf(KindInvalidArgument, "version: symmetric encryption always uses the newest version")
	}
	if in.Order != "" {
		return Errorf(KindInvalidArgument, "order: only SM2PKE has one")
	}
	if err := sizes(in.Plaintext, in.AAD); err != nil {
		return err
	}
	alg, err := chooseAlgorithm(t.Key, in.Algorithm)
	if err != nil {
		return err
	}
	if isLegacy(alg) {
		return Errorf(KindInvalidArgument, "algorithm: %s is for decrypting old data only", alg)
	}
	v, err := usableVersion(t.Key, 0)
	if err != nil {
		return err
	}
	t.Version, t.Algorithm = v.Number, alg
	e.seal(t.Key, v, alg, in.Plaintext, in.AAD)
	return nil
}

// seal plans the encryption of plaintext into an envelope.
func (e *sealing) seal(key *Key, v *Version, alg Algorithm, plaintext, aad []byte) {
	var nonce [nonceSize]byte
	rand.Read(nonce[:])
	// With room for what is sealed, so that the result is joined in place.
	e.header = appendEnvelopeHeader(make([]byte, 0, EnvelopeOverhead+len(plaintext)), alg, key.ID, v.Number, nonce[:])
	committed := make([]byte, commitmentSize+len(plaintext))
	copy(committed[commitmentSize:], plaintext)
	e.work = Work{
		Verb: VerbEncrypt, Algorithm: alg, Key: key, Version: v,
		Input: committed, Nonce: e.header[headerSize-nonceSize:], AAD: envelopeAAD(e.header, aad),
	}
}

// sealNodes counts the nonce of an encryption, once it was admitted, and
// returns the nodes for it.
func (s *Service) sealNodes(ctx context.Context, e *sealing) func(*Ticket) ([]NodeID, error) {
	return func(*Ticket) ([]NodeID, error) {
		if e.header != nil {
			rotate, err := s.nonces.take(ctx, e.work.Key, e.work.Version)
			if rotate {
				s.wantRotation(e.work.Key)
			}
			if err != nil {
				return nil, err
			}
		}
		return s.device.Nodes(&e.work)
	}
}

func (e *sealing) preparePublic(t *Ticket, in EncryptInput) error {
	if in.AAD != nil {
		return Errorf(KindInvalidArgument, "aad: asymmetric encryption has no additional data")
	}
	alg, err := chooseAlgorithm(t.Key, in.Algorithm)
	if err != nil {
		return err
	}
	order, err := chooseOrder(alg, in.Order)
	if err != nil {
		return err
	}
	if limit := maxPlaintext(t.Key.Spec, alg); len(in.Plaintext) > limit {
		return Errorf(KindInvalidArgument, "plaintext: %s with %s takes at most %d bytes", alg, t.Key.Spec, limit)
	}
	v, err := usableVersion(t.Key, in.Version)
	if err != nil {
		return err
	}
	t.Version, t.Algorithm = v.Number, alg
	e.work = Work{Verb: VerbEncrypt, Algorithm: alg, Key: t.Key, Version: v, Input: in.Plaintext, Order: order}
	return nil
}

func (e *sealing) execute(d Device) func(context.Context, *Ticket, NodeID) error {
	return func(ctx context.Context, t *Ticket, node NodeID) error {
		return runWork(ctx, d, t, node, &e.work)
	}
}

func (e *sealing) result() []byte {
	if e.header == nil {
		return e.work.Output
	}
	return append(e.header, e.work.Output...)
}

// runWork runs one piece of work on a node and notes its measures.
func runWork(ctx context.Context, d Device, t *Ticket, node NodeID, w *Work) error {
	err := d.Do(ctx, node, w)
	t.SlotTime += w.SlotTime
	t.ColdLoad = t.ColdLoad || w.ColdLoad
	return err
}

// DecryptInput is the input of Service.Decrypt.
type DecryptInput struct {
	Ciphertext []byte
	AAD        []byte
	Algorithm  Algorithm
	Version    uint32   // asymmetric keys and CBC only; 0: the primary version
	Order      SM2Order // SM2PKE only; "": C1C3C2
	IV         []byte   // CBC only
}

// DecryptOutput is its result.
type DecryptOutput struct {
	Plaintext []byte
	Version   uint32
}

// Decrypt is the inverse of Encrypt. Whatever is wrong with a ciphertext, the
// answer is ErrDecryptionFailed.
func (s *Service) Decrypt(ctx context.Context, t *Ticket, ref string, in DecryptInput) (*DecryptOutput, error) {
	var w Work
	var committed bool
	out := &DecryptOutput{}
	err := s.run(ctx, t, &task{
		op: OpDecrypt, ref: ref, bytes: len(in.Ciphertext),
		prepare: func(t *Ticket) (err error) {
			if err := usable(t.Key, OpDecrypt); err != nil {
				return err
			}
			w, err = decryptWork(t, in)
			committed = t.Key.Spec.Info().Symmetric() && !isLegacy(w.Algorithm)
			return err
		},
		nodes: func(*Ticket) ([]NodeID, error) { return s.device.Nodes(&w) },
		execute: func(ctx context.Context, t *Ticket, node NodeID) error {
			if err := runWork(ctx, s.device, t, node, &w); err != nil {
				return err
			}
			out.Plaintext = w.Output
			if committed {
				return checkCommitment(out)
			}
			return nil
		},
	})
	if err != nil {
		clear(out.Plaintext)
		return nil, err
	}
	out.Version = t.Version
	return out, nil
}

// decryptWork plans a decryption: of an envelope, of a bare CBC ciphertext, or
// with a private key.
func decryptWork(t *Ticket, in DecryptInput) (Work, error) {
	if !t.Key.Spec.Info().Symmetric() {
		if in.IV != nil {
			return Work{}, Errorf(KindInvalidArgument, "iv: only CBC has one")
		}
		return privateDecryptWork(t, in)
	}
	alg, err := chooseAlgorithm(t.Key, in.Algorithm)
	if err != nil {
		return Work{}, err
	}
	if in.Order != "" {
		return Work{}, Errorf(KindInvalidArgument, "order: only SM2PKE has one")
	}
	if isLegacy(alg) {
		return legacyWork(t, alg, in)
	}
	if in.IV != nil {
		return Work{}, Errorf(KindInvalidArgument, "iv: the ciphertext holds it")
	}
	return openWork(t, alg, in)
}

// checkCommitment takes the key-committing zeros off a decrypted plaintext.
func checkCommitment(out *DecryptOutput) error {
	p := out.Plaintext
	var zeros [commitmentSize]byte
	if len(p) < commitmentSize || subtle.ConstantTimeCompare(p[:commitmentSize], zeros[:]) != 1 {
		clear(p)
		out.Plaintext = nil
		return ErrDecryptionFailed
	}
	out.Plaintext = p[commitmentSize:]
	return nil
}

func openWork(t *Ticket, alg Algorithm, in DecryptInput) (Work, error) {
	if in.Version != 0 {
		return Work{}, Errorf(KindInvalidArgument, "version: the ciphertext names it")
	}
	if err := sizes(in.Ciphertext, in.AAD); err != nil {
		return Work{}, err
	}
	t.Algorithm = alg
	env, ok := ParseEnvelope(in.Ciphertext)
	if !ok || env.Key != t.Key.ID || env.Algorithm != alg {
		return Work{}, ErrDecryptionFailed
	}
	v := t.Key.Version(env.Version)
	if v == nil {
		return Work{}, ErrDecryptionFailed
	}
	if v.State != VersionEnabled {
		return Work{}, Errorf(KindKeyDisabled, "the key version is disabled")
	}
	t.Version = v.Number
	return Work{
		Verb: VerbDecrypt, Algorithm: alg, Key: t.Key, Version: v,
		Input: env.Sealed, Nonce: env.Nonce, AAD: envelopeAAD(env.header, in.AAD),
	}, nil
}

func privateDecryptWork(t *Ticket, in DecryptInput) (Work, error) {
	if in.AAD != nil {
		return Work{}, Errorf(KindInvalidArgument, "aad: asymmetric encryption has no additional data")
	}
	alg, err := chooseAlgorithm(t.Key, in.Algorithm)
	if err != nil {
		return Work{}, err
	}
	order, err := chooseOrder(alg, in.Order)
	if err != nil {
		return Work{}, err
	}
	v, err := usableVersion(t.Key, in.Version)
	if err != nil {
		return Work{}, err
	}
	t.Version, t.Algorithm = v.Number, alg
	if info := t.Key.Spec.Info(); info.Family == FamilyRSA && len(in.Ciphertext) != info.Bits/8 ||
		info.Family == FamilySM2 && len(in.Ciphertext) > maxSM2Plaintext+maxSM2Overhead {
		return Work{}, ErrDecryptionFailed
	}
	return Work{Verb: VerbDecrypt, Algorithm: alg, Key: t.Key, Version: v, Input: in.Ciphertext, Order: order}, nil
}

// Bounds of SM2 encryption. The standard sets none; a caller with more bytes
// wants a data key, and the key stream of a longer message would occupy a
// slot for as long as hundreds of ordinary calls.
const (
	maxSM2Plaintext = 64 << 10
	maxSM2Overhead  = 160 // C1, C3 and their ASN.1
)

// maxPlaintext is the longest plaintext, in bytes, of an asymmetric
// algorithm; for OAEP it is k − 2·hLen − 2 (RFC 8017, 7.1.1).
func maxPlaintext(s Spec, a Algorithm) int {
	switch a {
	case AlgRSAOAEPSHA1:
		return s.Info().Bits/8 - 2*20 - 2
	case AlgRSAOAEPSHA256:
		return s.Info().Bits/8 - 2*32 - 2
	}
	return maxSM2Plaintext
}

func chooseOrder(alg Algorithm, order SM2Order) (SM2Order, error) {
	if alg != AlgSM2PKE {
		if order != "" {
			return "", Errorf(KindInvalidArgument, "order: only SM2PKE has one")
		}
		return "", nil
	}
	switch order {
	case "":
		return SM2OrderC1C3C2, nil
	case SM2OrderC1C3C2, SM2OrderC1C2C3, SM2OrderASN1:
		return order, nil
	}
	return "", Errorf(KindInvalidArgument, "order: must be C1C3C2, C1C2C3 or ASN1")
}

func sizes(input, aad []byte) error {
	if len(input) > MaxInput || len(aad) > MaxInput {
		return Errorf(KindTooLarge, "an operation takes at most %d bytes", MaxInput)
	}
	return nil
}

// DataKeyInput is the input of Service.DataKey.
type DataKeyInput struct {
	Length int // bytes, 16 to MaxDataKey
	AAD    []byte
}

// Bounds of a data key's length in bytes.
const (
	MinDataKey = 16
	MaxDataKey = 1024
)

// DataKeyOutput is its result.
type DataKeyOutput struct {
	Plaintext  []byte
	Ciphertext []byte // the envelope of Plaintext
	Version    uint32
}

// DataKey makes a random key for use outside and encrypts it under a
// symmetric key.
func (s *Service) DataKey(ctx context.Context, t *Ticket, ref string, in DataKeyInput) (*DataKeyOutput, error) {
	var seal sealing
	out := &DataKeyOutput{}
	err := s.run(ctx, t, &task{
		op: OpDataKey, ref: ref, bytes: max(in.Length, 0),
		prepare: func(t *Ticket) error {
			if err := usable(t.Key, OpDataKey); err != nil {
				return err
			}
			if !t.Key.Spec.Info().Symmetric() {
				return Errorf(KindInvalidArgument, "data keys are encrypted under symmetric keys only")
			}
			if in.Length < MinDataKey || in.Length > MaxDataKey {
				return Errorf(KindInvalidArgument, "bytes: must be %d to %d", MinDataKey, MaxDataKey)
			}
			out.Plaintext = make([]byte, in.Length)
			rand.Read(out.Plaintext)
			return seal.prepare(t, EncryptInput{Plaintext: out.Plaintext, AAD: in.AAD})
		},
		nodes:   s.sealNodes(ctx, &seal),
		execute: seal.execute(s.device),
	})
	clear(seal.work.Input)
	if err != nil {
		clear(out.Plaintext)
		return nil, err
	}
	out.Ciphertext, out.Version = seal.result(), t.Version
	return out, nil
}
