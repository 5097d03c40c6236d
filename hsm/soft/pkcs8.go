package soft

import (
	"bytes"
	"crypto/subtle"
	"slices"

	"github.com/emmansun/gmsm/mldsa"
	"github.com/emmansun/gmsm/mlkem"
	"golang.org/x/crypto/cryptobyte"
	"golang.org/x/crypto/cryptobyte/asn1"

	"github.com/sluice-kms/sluice/kms"
)

// pkcs8 is a OneAsymmetricKey (RFC 5958, section 2) taken apart; its slices
// alias the encoding.
type pkcs8 struct {
	private cryptobyte.String // what the algorithm defines
	public  []byte            // octets of the public key, nil when none is stated
}

// parsePKCS8 reads a key of an algorithm, given as AlgorithmIdentifier in DER.
// Attributes are refused: what they say would be ignored.
func parsePKCS8(algorithm string, der []byte) (k pkcs8, ok bool) {
	input := cryptobyte.String(der)
	var seq, public cryptobyte.String
	var version int
	var prefix []byte
	if !input.ReadASN1(&seq, asn1.SEQUENCE) || !input.Empty() ||
		!seq.ReadASN1Integer(&version) || version < 0 || version > 1 ||
		!seq.ReadBytes(&prefix, len(algorithm)) || string(prefix) != algorithm ||
		!seq.ReadASN1(&k.private, asn1.OCTET_STRING) {
		return pkcs8{}, false
	}
	var stated bool
	if !seq.ReadOptionalASN1(&public, &stated, asn1.Tag(1).ContextSpecific()) || !seq.Empty() ||
		stated != (version == 1) {
		return pkcs8{}, false
	}
	if stated && (len(public) == 0 || public[0] != 0 || !k.state(public[1:])) {
		return pkcs8{}, false
	}
	return k, true
}

// state notes a public key that the encoding states, and tells whether it is
// the same as one stated before.
func (k *pkcs8) state(public []byte) bool {
	if k.public != nil && !bytes.Equal(k.public, public) {
		return false
	}
	k.public = public
	return true
}

// octets reads an OCTET STRING of n bytes (RFC 8410, section 7).
func (k *pkcs8) octets(n int) (octets []byte, ok bool) {
	in := k.private
	var s cryptobyte.String
	return s, in.ReadASN1(&s, asn1.OCTET_STRING) && in.Empty() && len(s) == n
}

// scalar reads an ECPrivateKey (RFC 5915, section 3):
//
//	SEQUENCE { version INTEGER (1), privateKey OCTET STRING,
//	           parameters [0] OBJECT IDENTIFIER OPTIONAL,
//	           publicKey [1] BIT STRING OPTIONAL }
func (k *pkcs8) scalar(info *kms.SpecInfo) (scalar []byte, ok bool) {
	format := publicFormats[info.Spec]
	in := k.private
	var seq, parameters, wrapped, s cryptobyte.String
	var version int
	var named, stated bool
	if !in.ReadASN1(&seq, asn1.SEQUENCE) || !in.Empty() ||
		!seq.ReadASN1Integer(&version) || version != 1 ||
		!seq.ReadASN1(&s, asn1.OCTET_STRING) || len(s) != format.octets/2 ||
		!seq.ReadOptionalASN1(&parameters, &named, asn1.Tag(0).Constructed().ContextSpecific()) ||
		!seq.ReadOptionalASN1(&wrapped, &stated, asn1.Tag(1).Constructed().ContextSpecific()) || !seq.Empty() {
		return nil, false
	}
	if named {
		// The curve is the last element of the AlgorithmIdentifier.
		curve := []byte(parameters)
		if !parameters.SkipASN1(asn1.OBJECT_IDENTIFIER) || !parameters.Empty() ||
			!bytes.HasSuffix([]byte(format.algorithm), curve) {
			return nil, false
		}
	}
	if stated {
		var public []byte
		if !wrapped.ReadASN1BitStringAsBytes(&public) || !wrapped.Empty() || !k.state(public) {
			return nil, false
		}
	}
	return s, true
}

// seed reads the private key of ML-KEM (RFC 9935, section 6) or ML-DSA (RFC
// 9881, section 6):
//
//	CHOICE { seed [0] OCTET STRING, expandedKey OCTET STRING,
//	         both SEQUENCE { seed OCTET STRING, expandedKey OCTET STRING } }
//
// An expanded key alone is refused, since its seed cannot be computed.
func (k *pkcs8) seed(info *kms.SpecInfo) (seed []byte, ok bool) {
	in := k.private
	var s, both, expanded cryptobyte.String
	size := mlkem.SeedSize
	if info.Family == kms.FamilyMLDSA {
		size = mldsa.SeedSize
	}
	if in.PeekASN1Tag(asn1.Tag(0).ContextSpecific()) {
		return s, in.ReadASN1(&s, asn1.Tag(0).ContextSpecific()) && in.Empty() && len(s) == size
	}
	if !in.ReadASN1(&both, asn1.SEQUENCE) || !in.Empty() ||
		!both.ReadASN1(&s, asn1.OCTET_STRING) || len(s) != size ||
		!both.ReadASN1(&expanded, asn1.OCTET_STRING) || !both.Empty() {
		return nil, false
	}
	want, err := expandSeed(info.Spec, s)
	defer clear(want)
	return s, err == nil && subtle.ConstantTimeCompare(want, expanded) == 1
}

// expandSeed returns the expanded form of an ML-KEM or ML-DSA key (FIPS 203,
// section 7.1; FIPS 204, algorithm 24), which the standard library does not
// show.
func expandSeed(spec kms.Spec, seed []byte) ([]byte, error) {
	switch spec {
	case kms.SpecMLKEM512:
		return bytesOf(mlkem.NewDecapsulationKeyFromSeed512(seed))
	case kms.SpecMLKEM768:
		return bytesOf(mlkem.NewDecapsulationKeyFromSeed768(seed))
	case kms.SpecMLKEM1024:
		return bytesOf(mlkem.NewDecapsulationKeyFromSeed1024(seed))
	case kms.SpecMLDSA44:
		return bytesOf(mldsa.NewKey44(seed))
	case kms.SpecMLDSA65:
		return bytesOf(mldsa.NewKey65(seed))
	case kms.SpecMLDSA87:
		return bytesOf(mldsa.NewKey87(seed))
	}
	return nil, errNoSuchSpec
}

func bytesOf[K interface{ Bytes() []byte }](key K, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	return key.Bytes(), nil
}

// rsaExponent is the public exponent of every RSA key that is imported, as of
// those that are made.
const rsaExponent = 65537

// canonicalRSA reads an RSA key in the one encoding that material has too: what
// an encoding may hold beside, and what does not fit the rest, is refused.
func canonicalRSA(info *kms.SpecInfo, der []byte) (raw []byte, ok bool) {
	private, err := parseRSA(info, der)
	if err != nil || private.E != rsaExponent || len(private.Primes) != 2 {
		return nil, false
	}
	return slices.Clone(der), true
}
