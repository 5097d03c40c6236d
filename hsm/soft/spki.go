package soft

import (
	"bytes"
	"slices"

	"golang.org/x/crypto/cryptobyte"
	"golang.org/x/crypto/cryptobyte/asn1"

	"github.com/sluice-kms/sluice/kms"
)

// publicFormat is how the public keys of a spec are written.
type publicFormat struct {
	// algorithm is the AlgorithmIdentifier in DER (RFC 5280, section 4.1.1.2),
	// which private keys in PKCS #8 have too.
	algorithm string
	octets    int // length of the key itself
	// prefix is what comes before the octets in a SubjectPublicKeyInfo (RFC
	// 5280, section 4.1.2.7). DER has one encoding for each value, so with the
	// length fixed this prefix is the whole syntax.
	prefix string
}

// publicFormats holds the formats of all specs but RSA's. Curves are named and
// points uncompressed (RFC 5480, section 2; GM/T 0009-2012, section 7.1 for
// SM2; RFC 8410, section 4 for Ed25519). The keys of ML-KEM, ML-DSA and SLH-DSA
// are the octets of their standards under an identifier of NIST's without
// parameters (RFC 9935, 9881 and 9909).
var publicFormats = map[kms.Spec]publicFormat{
	kms.SpecP256:      newFormat("\x30\x13\x06\x07\x2a\x86\x48\xce\x3d\x02\x01\x06\x08\x2a\x86\x48\xce\x3d\x03\x01\x07", 65),
	kms.SpecP384:      newFormat("\x30\x10\x06\x07\x2a\x86\x48\xce\x3d\x02\x01\x06\x05\x2b\x81\x04\x00\x22", 97),
	kms.SpecP521:      newFormat("\x30\x10\x06\x07\x2a\x86\x48\xce\x3d\x02\x01\x06\x05\x2b\x81\x04\x00\x23", 133),
	kms.SpecSecp256k1: newFormat("\x30\x10\x06\x07\x2a\x86\x48\xce\x3d\x02\x01\x06\x05\x2b\x81\x04\x00\x0a", 65),
	kms.SpecSM2:       newFormat("\x30\x13\x06\x07\x2a\x86\x48\xce\x3d\x02\x01\x06\x08\x2a\x81\x1c\xcf\x55\x01\x82\x2d", 65),
	kms.SpecEd25519:   newFormat("\x30\x05\x06\x03\x2b\x65\x70", 32),

	// id-alg-ml-kem-*: 2.16.840.1.101.3.4.4, lengths of FIPS 203, table 3.
	kms.SpecMLKEM512:  newFormat(nistKEMs+"\x01", 800),
	kms.SpecMLKEM768:  newFormat(nistKEMs+"\x02", 1184),
	kms.SpecMLKEM1024: newFormat(nistKEMs+"\x03", 1568),

	// id-ml-dsa-* and id-slh-dsa-*: 2.16.840.1.101.3.4.3, lengths of FIPS 204,
	// table 2, and FIPS 205, table 2.
	kms.SpecMLDSA44: newFormat(nistSignatures+"\x11", 1312),
	kms.SpecMLDSA65: newFormat(nistSignatures+"\x12", 1952),
	kms.SpecMLDSA87: newFormat(nistSignatures+"\x13", 2592),

	kms.SpecSLHDSASHA2128S:  newFormat(nistSignatures+"\x14", 32),
	kms.SpecSLHDSASHA2128F:  newFormat(nistSignatures+"\x15", 32),
	kms.SpecSLHDSASHA2192S:  newFormat(nistSignatures+"\x16", 48),
	kms.SpecSLHDSASHA2192F:  newFormat(nistSignatures+"\x17", 48),
	kms.SpecSLHDSASHA2256S:  newFormat(nistSignatures+"\x18", 64),
	kms.SpecSLHDSASHA2256F:  newFormat(nistSignatures+"\x19", 64),
	kms.SpecSLHDSASHAKE128S: newFormat(nistSignatures+"\x1a", 32),
	kms.SpecSLHDSASHAKE128F: newFormat(nistSignatures+"\x1b", 32),
	kms.SpecSLHDSASHAKE192S: newFormat(nistSignatures+"\x1c", 48),
	kms.SpecSLHDSASHAKE192F: newFormat(nistSignatures+"\x1d", 48),
	kms.SpecSLHDSASHAKE256S: newFormat(nistSignatures+"\x1e", 64),
	kms.SpecSLHDSASHAKE256F: newFormat(nistSignatures+"\x1f", 64),
}

// The AlgorithmIdentifiers under NIST's arcs of signature algorithms and of
// key encapsulation mechanisms, up to the last byte of the identifier.
const (
	nistAlgorithms = "\x30\x0b\x06\x09\x60\x86\x48\x01\x65\x03\x04"
	nistSignatures = nistAlgorithms + "\x03"
	nistKEMs       = nistAlgorithms + "\x04"
)

func newFormat(algorithm string, octets int) publicFormat {
	var b cryptobyte.Builder
	b.AddASN1(asn1.SEQUENCE, func(b *cryptobyte.Builder) {
		b.AddBytes([]byte(algorithm))
		b.AddASN1BitString(make([]byte, octets))
	})
	info := b.BytesOrPanic() // of constants
	return publicFormat{algorithm, octets, string(info[:len(info)-octets])}
}

// pointUncompressed begins an uncompressed point (SEC 1, section 2.3.3).
const pointUncompressed = 4

// marshalPublic returns the SubjectPublicKeyInfo of a key's octets, which for
// curves but Ed25519 are an uncompressed point.
func marshalPublic(spec kms.Spec, octets []byte) []byte {
	return slices.Concat([]byte(publicFormats[spec].prefix), octets)
}

// publicOctets returns the octets inside a SubjectPublicKeyInfo of the spec,
// in the same memory.
func publicOctets(info *kms.SpecInfo, der []byte) ([]byte, error) {
	format, known := publicFormats[info.Spec]
	octets, ok := bytes.CutPrefix(der, []byte(format.prefix))
	if !known || !ok || len(octets) != format.octets {
		return nil, errPublicKey
	}
	switch info.Family {
	case kms.FamilyEC, kms.FamilySecp256k1, kms.FamilySM2:
		if octets[0] != pointUncompressed {
			return nil, errPublicKey
		}
	}
	return octets, nil
}
