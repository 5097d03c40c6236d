package soft

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/x509"
	"slices"

	"github.com/decred/dcrd/dcrec/secp256k1/v4"
	"github.com/emmansun/gmsm/sm2"

	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/kms"
)

// spkiPrefixes holds what comes before the point in the DER form of a
// SubjectPublicKeyInfo (RFC 5280, section 4.1.2.7) with the curve named and
// the point uncompressed (RFC 5480, section 2; RFC 8410, section 4 for
// Ed25519; GM/T 0009-2012, section 7.1 for SM2). DER has one encoding for each
// value, so with the length fixed this prefix is the whole syntax.
var spkiPrefixes = map[kms.Spec]string{
	kms.SpecP256:      "\x30\x59\x30\x13\x06\x07\x2a\x86\x48\xce\x3d\x02\x01\x06\x08\x2a\x86\x48\xce\x3d\x03\x01\x07\x03\x42\x00",
	kms.SpecP384:      "\x30\x76\x30\x10\x06\x07\x2a\x86\x48\xce\x3d\x02\x01\x06\x05\x2b\x81\x04\x00\x22\x03\x62\x00",
	kms.SpecP521:      "\x30\x81\x9b\x30\x10\x06\x07\x2a\x86\x48\xce\x3d\x02\x01\x06\x05\x2b\x81\x04\x00\x23\x03\x81\x86\x00",
	kms.SpecSecp256k1: "\x30\x56\x30\x10\x06\x07\x2a\x86\x48\xce\x3d\x02\x01\x06\x05\x2b\x81\x04\x00\x0a\x03\x42\x00",
	kms.SpecSM2:       "\x30\x59\x30\x13\x06\x07\x2a\x86\x48\xce\x3d\x02\x01\x06\x08\x2a\x81\x1c\xcf\x55\x01\x82\x2d\x03\x42\x00",
	kms.SpecEd25519:   "\x30\x2a\x30\x05\x06\x03\x2b\x65\x70\x03\x21\x00",
}

// marshalPoint returns the SubjectPublicKeyInfo of a point: uncompressed, or
// the 32 bytes of an Ed25519 key.
func marshalPoint(spec kms.Spec, point []byte) []byte {
	return slices.Concat([]byte(spkiPrefixes[spec]), point)
}

// parsePoint returns the point inside a SubjectPublicKeyInfo of the spec, in
// the same memory.
func parsePoint(info *kms.SpecInfo, der []byte) ([]byte, error) {
	size := 1 + 2*((info.Bits+7)/8)
	if info.Family == kms.FamilyEd25519 {
		size = ed25519.PublicKeySize
	}
	point, ok := bytes.CutPrefix(der, []byte(spkiPrefixes[info.Spec]))
	if !ok || len(point) != size {
		return nil, errPublicKey
	}
	if info.Family != kms.FamilyEd25519 && point[0] != pointUncompressed {
		return nil, errPublicKey
	}
	return point, nil
}

// pointUncompressed begins an uncompressed point (SEC 1, section 2.3.3).
const pointUncompressed = 4

// verifier is a public key that verifies. The call has passed checkFields,
// and its algorithm is one of the spec's. A malformed signature is not valid.
type verifier interface {
	verify(c *hsm.Call) bool
}

// publicEncrypter is a public key that encrypts.
type publicEncrypter interface {
	encryptTo(c *hsm.Call) ([]byte, error)
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
// spec's size. Parsed keys are not cached: parsing takes a seventh of an RSA_2048
// verification and less than a thirtieth of any other (see the benchmarks),
// which is not worth a cache that hostile keys can churn.
func parsePublicKey(info *kms.SpecInfo, der []byte) (any, error) {
	if info.Family == kms.FamilyRSA {
		return parseRSAPublic(info, der)
	}
	point, err := parsePoint(info, der)
	if err != nil {
		return nil, err
	}
	switch info.Family {
	case kms.FamilyEC:
		pub, err := ecdsa.ParseUncompressedPublicKey(curves[info.Spec], point)
		if err != nil {
			return nil, errPublicKey
		}
		return ecdsaPublic{pub}, nil
	case kms.FamilySM2:
		pub, err := sm2.NewPublicKey(point)
		if err != nil {
			return nil, errPublicKey
		}
		return sm2Public{pub}, nil
	case kms.FamilySecp256k1:
		pub, err := secp256k1.ParsePubKey(point)
		if err != nil {
			return nil, errPublicKey
		}
		return secp256k1Public{pub}, nil
	case kms.FamilyEd25519:
		return ed25519Public(point), nil
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
