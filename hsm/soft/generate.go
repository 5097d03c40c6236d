package soft

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"

	"github.com/emmansun/gmsm/sm2"

	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/kms"
)

// Generate makes a key. RSA keys take up to some seconds (the search for
// primes), all others less than a millisecond. The material is the key in the
// clear: the caller seals it and wipes it.
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
	switch info.Family {
	case kms.FamilyRSA:
		priv, err := rsa.GenerateKey(rand.Reader, info.Bits)
		if err != nil {
			return nil, nil, err
		}
		if raw, err = x509.MarshalPKCS8PrivateKey(priv); err != nil {
			return nil, nil, err
		}
		public, err = x509.MarshalPKIXPublicKey(&priv.PublicKey)
		return raw, public, err
	case kms.FamilyEC:
		priv, err := ecdsa.GenerateKey(curves[info.Spec], rand.Reader)
		if err != nil {
			return nil, nil, err
		}
		if raw, err = priv.Bytes(); err != nil {
			return nil, nil, err
		}
		point, err := priv.PublicKey.Bytes()
		return raw, marshalPoint(info.Spec, point), err
	case kms.FamilySM2:
		priv, err := sm2.GenerateKey(rand.Reader)
		if err != nil {
			return nil, nil, err
		}
		return sm2Scalar(priv), marshalPoint(info.Spec, sm2Point(&priv.PublicKey)), nil
	case kms.FamilySecp256k1:
		raw, point := generateSecp256k1()
		return raw, marshalPoint(info.Spec, point), nil
	case kms.FamilyEd25519:
		pub, priv, err := ed25519.GenerateKey(rand.Reader)
		if err != nil {
			return nil, nil, err
		}
		defer clear(priv)
		return priv.Seed(), marshalPoint(info.Spec, pub), nil
	}
	raw = make([]byte, info.Bits/8)
	rand.Read(raw) // never fails
	return raw, nil, nil
}
