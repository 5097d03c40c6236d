package soft

import (
	"github.com/sluice-kms/sluice/kms"
)

// Material is
//
//	version u8 = 1 | spec u8 | usage u8 | key
//
// where the key is, by family:
//
//	AES, SM4, HMAC, HMAC_SM3  the secret
//	RSA                       PKCS #8, DER (RFC 5958)
//	EC, SECP256K1, SM2        the scalar, big endian, as long as the order
//	ED25519                   the seed (RFC 8032, section 5.1.5)
//	ML_KEM                    the seed d ‖ z (FIPS 203, algorithm 19)
//	ML_DSA                    the seed ξ (FIPS 204, algorithm 1)
//	SLH_DSA                   SK.seed ‖ SK.prf ‖ PK.seed (FIPS 205, algorithm 21)
const (
	materialVersion = 1
	materialHeader  = 3

	// maxMaterial is above the 2,400 bytes of an RSA_4096 key and keeps
	// parsers from seeing more.
	maxMaterial = 4096
)

// The codes of specs and usages in material. They are stored: never change or
// reuse one.
var (
	specCodes = map[kms.Spec]byte{
		kms.SpecAES128:    1,
		kms.SpecAES192:    2,
		kms.SpecAES256:    3,
		kms.SpecSM4:       4,
		kms.SpecRSA2048:   5,
		kms.SpecRSA3072:   6,
		kms.SpecRSA4096:   7,
		kms.SpecP256:      8,
		kms.SpecP384:      9,
		kms.SpecP521:      10,
		kms.SpecSecp256k1: 11,
		kms.SpecEd25519:   12,
		kms.SpecSM2:       13,
		kms.SpecHMAC224:   14,
		kms.SpecHMAC256:   15,
		kms.SpecHMAC384:   16,
		kms.SpecHMAC512:   17,
		kms.SpecHMACSM3:   18,

		kms.SpecMLKEM512:  19,
		kms.SpecMLKEM768:  20,
		kms.SpecMLKEM1024: 21,
		kms.SpecMLDSA44:   22,
		kms.SpecMLDSA65:   23,
		kms.SpecMLDSA87:   24,

		kms.SpecSLHDSASHA2128S:  25,
		kms.SpecSLHDSASHA2128F:  26,
		kms.SpecSLHDSASHA2192S:  27,
		kms.SpecSLHDSASHA2192F:  28,
		kms.SpecSLHDSASHA2256S:  29,
		kms.SpecSLHDSASHA2256F:  30,
		kms.SpecSLHDSASHAKE128S: 31,
		kms.SpecSLHDSASHAKE128F: 32,
		kms.SpecSLHDSASHAKE192S: 33,
		kms.SpecSLHDSASHAKE192F: 34,
		kms.SpecSLHDSASHAKE256S: 35,
		kms.SpecSLHDSASHAKE256F: 36,
	}
	usageCodes = map[kms.Usage]byte{
		kms.UsageSignVerify:        1,
		kms.UsageEncryptDecrypt:    2,
		kms.UsageGenerateVerifyMAC: 3,

		kms.UsageKeyAgreement:           4,
		kms.UsageDerive:                 5,
		kms.UsageWrapUnwrap:             6,
		kms.UsageEncapsulateDecapsulate: 7,
	}
)

// encodeMaterial returns the material of a key.
func encodeMaterial(spec kms.Spec, usage kms.Usage, key []byte) []byte {
	m := make([]byte, 0, materialHeader+len(key))
	m = append(m, materialVersion, specCodes[spec], usageCodes[usage])
	return append(m, key...)
}

// decodeMaterial returns the key inside material, in the same memory, if it is
// one of the spec and usage.
func decodeMaterial(material []byte, spec kms.Spec, usage kms.Usage) ([]byte, error) {
	if len(material) <= materialHeader || len(material) > maxMaterial {
		return nil, errMaterial
	}
	if material[0] != materialVersion || material[1] != specCodes[spec] || material[2] != usageCodes[usage] {
		return nil, errMaterial
	}
	return material[materialHeader:], nil
}
