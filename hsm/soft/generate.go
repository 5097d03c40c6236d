package soft

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/mldsa"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"

	"github.com/emmansun/gmsm/mlkem"
	"github.com/emmansun/gmsm/slhdsa"
	"github.com/emmansun/gmsm/sm2"

	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/kms"
)

// Generate makes a key. RSA keys take up to some seconds (the search for
// primes), those of the small SLH-DSA sets some tenths of one, all others a
// millisecond or less. The material is the key in the clear: the caller seals
// it and wipes it.
func (t *Token) Generate(spec kms.Spec, usage kms.Usage) (hsm.Generated, error) {
	if t.closed.Load() {
		return hsm.Generated{}, errClosed
	}
	info := spec.Info()
	if info == nil || info.Algorithms(usage) == nil {
		return hsm.Generated{}, errNoSuchSpec
	}
	raw, public, err := generate(info)
	if err != nil {
		return hsm.Generated{}, failed("generate", err)
	}
	defer clear(raw)
	return hsm.Generated{Material: encodeMaterial(spec, usage, raw), PublicKey: public}, nil
}

// generate returns a new key in its raw form and its SubjectPublicKeyInfo.
func generate(info *kms.SpecInfo) (raw, public []byte, err error) {
	if raw, err = newRaw(info); err != nil {
		return nil, nil, err
	}
	if public, err = publicHalf(info, raw); err != nil {
		clear(raw)
		return nil, nil, err
	}
	return raw, public, nil
}

// newRaw returns a new key in its raw form.
func newRaw(info *kms.SpecInfo) ([]byte, error) {
	size := info.Bits / 8 // of the families whose keys are random bytes
	switch info.Family {
	case kms.FamilyRSA:
		private, err := rsa.GenerateKey(rand.Reader, info.Bits)
		if err != nil {
			return nil, err
		}
		return x509.MarshalPKCS8PrivateKey(private)
	case kms.FamilyEC:
		private, err := ecdsa.GenerateKey(curves[info.Spec], rand.Reader)
		if err != nil {
			return nil, err
		}
		return private.Bytes()
	case kms.FamilySM2:
		private, err := sm2.GenerateKey(rand.Reader)
		if err != nil {
			return nil, err
		}
		return sm2Scalar(private), nil
	case kms.FamilySecp256k1:
		return generateSecp256k1(), nil
	case kms.FamilyEd25519:
		size = ed25519.SeedSize
	case kms.FamilyMLKEM:
		size = mlkem.SeedSize
	case kms.FamilyMLDSA:
		size = mldsa.PrivateKeySize
	case kms.FamilySLHDSA:
		size = 3 * slhdsaSets[info.Spec].n
	}
	raw := make([]byte, size)
	rand.Read(raw) // never fails
	return raw, nil
}

// publicHalf returns the SubjectPublicKeyInfo of a key in its raw form; nil
// for a symmetric one. An error is errMaterial.
func publicHalf(info *kms.SpecInfo, raw []byte) ([]byte, error) {
	if info.Symmetric() {
		return nil, nil
	}
	if info.Family == kms.FamilyRSA {
		private, err := parseRSA(info, raw)
		if err != nil {
			return nil, err
		}
		return x509.MarshalPKIXPublicKey(&private.PublicKey)
	}
	octets, err := publicOctetsOf(info, raw)
	if err != nil {
		return nil, errMaterial
	}
	return marshalPublic(info.Spec, octets), nil
}

func publicOctetsOf(info *kms.SpecInfo, raw []byte) ([]byte, error) {
	switch info.Family {
	case kms.FamilyEC:
		private, err := ecdsa.ParseRawPrivateKey(curves[info.Spec], raw)
		if err != nil {
			return nil, err
		}
		return private.PublicKey.Bytes()
	case kms.FamilySM2:
		private, err := sm2.NewPrivateKey(raw)
		if err != nil {
			return nil, err
		}
		return sm2Point(&private.PublicKey), nil
	case kms.FamilySecp256k1:
		return secp256k1Point(raw)
	case kms.FamilyEd25519:
		private := ed25519.NewKeyFromSeed(raw)
		defer clear(private)
		return private.Public().(ed25519.PublicKey), nil
	case kms.FamilyMLKEM:
		private, err := mlkemSets[info.Spec].private(raw)
		if err != nil {
			return nil, err
		}
		return private.public(), nil
	case kms.FamilyMLDSA:
		private, err := mldsa.NewPrivateKey(mldsaSets[info.Spec], raw)
		if err != nil {
			return nil, err
		}
		return private.PublicKey().Bytes(), nil
	case kms.FamilySLHDSA:
		private, err := slhdsaSets[info.Spec].expand(raw)
		if err != nil {
			return nil, err
		}
		return private.Public().(*slhdsa.PublicKey).Bytes(), nil
	}
	return nil, errMaterial
}
