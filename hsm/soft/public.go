package soft

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/mldsa"
	"crypto/rsa"
	"crypto/x509"
	"slices"

	"github.com/decred/dcrd/dcrec/secp256k1/v4"
	"github.com/emmansun/gmsm/sm2"

	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/kms"
)

// verifier is a public key that verifies. The call has passed checkFields,
// and its algorithm is one of the spec's. A malformed signature is not valid.
type verifier interface {
	verify(c *hsm.Call) bool
}

// publicEncrypter is a public key that encrypts.
type publicEncrypter interface {
	encryptTo(c *hsm.Call) ([]byte, error)
}

// encapsulatePublic runs VerbEncapsulate (FIPS 203, algorithm 20).
func encapsulatePublic(c *hsm.Call) (secret, ciphertext []byte, err error) {
	info := c.Spec.Info()
	if info == nil || !slices.Contains(info.Algorithms(kms.UsageEncapsulateDecapsulate), c.Algorithm) {
		return nil, nil, errAlgorithm
	}
	pub, err := parsePublicKey(info, c.PublicKey)
	if err != nil {
		return nil, nil, err
	}
	encapsulate, ok := pub.(encapsulation)
	if !ok {
		return nil, nil, errAlgorithm
	}
	if secret, ciphertext, err = encapsulate(); err != nil {
		return nil, nil, failed("encapsulate", err)
	}
	return secret, ciphertext, nil
}

// verifyPublic runs VerbVerify.
func verifyPublic(c *hsm.Call) (bool, error) {
	info := c.Spec.Info()
	if info == nil || !slices.Contains(info.Algorithms(kms.UsageSignVerify), c.Algorithm) {
		return false, errAlgorithm
	}
	pub, err := parsePublicKey(info, c.PublicKey)
	if err != nil {
		return false, err
	}
	v, ok := pub.(verifier)
	if !ok {
		return false, errAlgorithm
	}
	return v.verify(c), nil
}

// encryptPublic runs VerbEncrypt with a public key.
func encryptPublic(info *kms.SpecInfo, c *hsm.Call) ([]byte, error) {
	if !slices.Contains(info.Algorithms(kms.UsageEncryptDecrypt), c.Algorithm) {
		return nil, errAlgorithm
	}
	pub, err := parsePublicKey(info, c.PublicKey)
	if err != nil {
		return nil, err
	}
	e, ok := pub.(publicEncrypter)
	if !ok {
		return nil, errAlgorithm
	}
	return e.encryptTo(c)
}

// parsePublicKey reads a SubjectPublicKeyInfo of the spec: the DER encoding
// and no other, nothing after it, a point on the curve, a modulus of the
// spec's size, coefficients in range. Parsed keys are not cached: for RSA and
// the curves parsing takes a small part of a verification, and where it takes
// more, with ML-KEM and ML-DSA, a cache is one that hostile keys can churn.
func parsePublicKey(info *kms.SpecInfo, der []byte) (any, error) {
	if info.Family == kms.FamilyRSA {
		return parseRSAPublic(info, der)
	}
	octets, err := publicOctets(info, der)
	if err != nil {
		return nil, err
	}
	pub, err := parseOctets(info, octets)
	if err != nil {
		return nil, errPublicKey
	}
	return pub, nil
}

func parseOctets(info *kms.SpecInfo, octets []byte) (any, error) {
	switch info.Family {
	case kms.FamilyEC:
		pub, err := ecdsa.ParseUncompressedPublicKey(curves[info.Spec], octets)
		return ecdsaPublic{pub}, err
	case kms.FamilySM2:
		pub, err := sm2.NewPublicKey(octets)
		return sm2Public{pub}, err
	case kms.FamilySecp256k1:
		pub, err := secp256k1.ParsePubKey(octets)
		return secp256k1Public{pub}, err
	case kms.FamilyEd25519:
		return ed25519Public(octets), nil
	case kms.FamilyMLKEM:
		return mlkemSets[info.Spec].public(octets)
	case kms.FamilyMLDSA:
		pub, err := mldsa.NewPublicKey(mldsaSets[info.Spec], octets)
		return mldsaPublic{pub}, err
	case kms.FamilySLHDSA:
		pub, err := slhdsaSets[info.Spec].public(octets)
		return slhdsaPublic{pub}, err
	}
	return nil, errPublicKey
}

func parseRSAPublic(info *kms.SpecInfo, der []byte) (any, error) {
	parsed, err := x509.ParsePKIXPublicKey(der)
	if err != nil {
		return nil, errPublicKey
	}
	pub, ok := parsed.(*rsa.PublicKey)
	if !ok || pub.N.BitLen() != info.Bits {
		return nil, errPublicKey
	}
	// x509 lets some bytes pass that are part of no key, such as what follows
	// the exponent.
	if canonical, err := x509.MarshalPKIXPublicKey(pub); err != nil || !bytes.Equal(canonical, der) {
		return nil, errPublicKey
	}
	return rsaPublic{pub}, nil
}
