package kms

import (
	"context"
	"encoding/binary"
	"slices"
	"time"
)

// ImportWrapping is how a key travels to the service.
type ImportWrapping string

// The ways. RSA_AES_KEY_WRAP_SHA_256 is RSAES-OAEP with SHA-256 of a fresh
// AES-256 key, followed by the key wrapped under it by RFC 5649 (PKCS#11
// v2.40, 2.1.21); SM2PKE is SM2 encryption, C1C3C2, of the key itself;
// SM2_ENVELOPED_KEY is the SM2EnvelopedKey of GB/T 35276-2017, 7.4, for SM2
// keys only: SM4 in ECB under a key that is encrypted by SM2.
const (
	ImportRSAAES       ImportWrapping = "RSA_AES_KEY_WRAP_SHA_256"
	ImportSM2          ImportWrapping = "SM2PKE"
	ImportSM2Enveloped ImportWrapping = "SM2_ENVELOPED_KEY"
)

var importWrappings = []ImportWrapping{ImportRSAAES, ImportSM2, ImportSM2Enveloped}

// ImportWrappings returns the ways, in the order in which they are documented.
// The caller must not change them.
func ImportWrappings() []ImportWrapping { return importWrappings }

// importTTL is how long import parameters are good for: long enough for a
// ceremony across two rooms, short enough that a stolen token is worth little.
const importTTL = 24 * time.Hour

// Bounds of an import in bytes: PKCS#8 of an RSA-4096 key takes 2.4 KiB.
const (
	MaxImportToken = 8 << 10
	MaxImportKey   = 16 << 10
)

// ImportParameters are what a key is wrapped for.
type ImportParameters struct {
	Wrapping  ImportWrapping
	PublicKey []byte // SubjectPublicKeyInfo, DER
	Token     []byte // opaque; goes with the key
	Expires   time.Time
}

// ImportParameters makes a key pair for imports of the caller's tenant. The
// service keeps nothing of it: the private half is sealed into the token,
// which opens for that tenant only.
func (s *Service) ImportParameters(ctx context.Context, t *Ticket, wrapping ImportWrapping) (*ImportParameters, error) {
	p := &ImportParameters{Wrapping: wrapping}
	err := s.run(ctx, t, &task{op: OpImportParams,
		prepare: func(*Ticket) error { return checkWrapping(wrapping) },
		nodes:   func(t *Ticket) ([]NodeID, error) { return s.device.ImportNodes() },
		execute: func(ctx context.Context, t *Ticket, node NodeID) error {
			public, private, err := s.device.NewImportKey(ctx, node, wrapping)
			if err != nil {
				return err
			}
			defer clear(private)
			p.PublicKey, p.Expires = public, s.clock().Add(importTTL)
			header := binary.BigEndian.AppendUint64(nil, uint64(p.Expires.Unix()))
			p.Token, err = s.device.Seal(ctx, t.By.Tenant.Sealing, importName(wrapping), 1, append(header, private...))
			return err
		}})
	if err != nil {
		return nil, err
	}
	return p, nil
}

func checkWrapping(w ImportWrapping) error {
	if !slices.Contains(importWrappings, w) {
		return Errorf(KindInvalidArgument, "wrapping: must be one of %v", importWrappings)
	}
	return nil
}

// importName binds a token to its purpose and algorithm.
func importName(w ImportWrapping) string { return "import/" + string(w) }

// ImportKeyInput is the input of Service.ImportKey. Of CreateKey the usual
// fields count.
type ImportKeyInput struct {
	CreateKeyInput
	Wrapping ImportWrapping
	Token    []byte
	// Wrapped is the key under the parameters' public key: symmetric keys as
	// their bytes, others as PKCS#8 in DER, or an SM2EnvelopedKey.
	Wrapped []byte
}

// ImportKey makes a key of material from outside. It passes through process
// memory, and the key says so for good.
func (s *Service) ImportKey(ctx context.Context, t *Ticket, in ImportKeyInput) (*Key, error) {
	var key *Key
	version := &Version{ID: newID(), Number: 1, State: VersionEnabled}
	err := s.run(ctx, t, &task{
		op: OpImportKey, spec: in.Spec, bytes: len(in.Wrapped),
		prepare: func(t *Ticket) (err error) {
			if err := checkWrapping(in.Wrapping); err != nil {
				return err
			}
			if in.Wrapping == ImportSM2Enveloped && in.Spec != SpecSM2 {
				return Errorf(KindInvalidArgument, "wrapping: %s is for keys of spec %s", ImportSM2Enveloped, SpecSM2)
			}
			if len(in.Token) == 0 || len(in.Token) > MaxImportToken || len(in.Wrapped) == 0 || len(in.Wrapped) > MaxImportKey {
				return ErrImport
			}
			key, err = s.newKey(ctx, t, in.CreateKeyInput)
			if err != nil {
				return err
			}
			key.Origin = OriginImportedProcess
			t.Key, t.Version = key, 1
			return nil
		},
		nodes: func(t *Ticket) ([]NodeID, error) {
			return s.device.CreatorNodes(key.Tenant.Sealing.Domain, key.Spec, key.Protection)
		},
		execute: func(ctx context.Context, t *Ticket, node NodeID) error {
			private, err := s.openImportToken(ctx, t, in)
			if err != nil {
				return err
			}
			defer clear(private)
			return s.device.Import(ctx, node, key, version, ImportMaterial{in.Wrapping, private, in.Wrapped})
		},
		store: func(ctx context.Context, t *Ticket) error { return s.storeKey(ctx, key, version) },
	})
	if err != nil {
		return nil, err
	}
	return key, nil
}

// openImportToken returns the private half that a token holds.
func (s *Service) openImportToken(ctx context.Context, t *Ticket, in ImportKeyInput) ([]byte, error) {
	opened, err := s.device.Unseal(ctx, t.By.Tenant.Sealing, importName(in.Wrapping), 1, in.Token)
	if err != nil {
		if KindOf(err) == KindInternal { // not a blob of this tenant and purpose
			return nil, ErrImport
		}
		return nil, err
	}
	if len(opened) < 8 || s.clock().Unix() >= int64(binary.BigEndian.Uint64(opened)) {
		clear(opened)
		return nil, Errorf(KindInvalidArgument, "token: has expired; get new import parameters")
	}
	return opened[8:], nil
}
