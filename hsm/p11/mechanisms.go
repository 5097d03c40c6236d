package p11

import (
	"crypto/sha256"
	"crypto/sha512"

	"github.com/miekg/pkcs11"

	"github.com/sluice-kms/sluice/kms"
)

// digestInfoPrefix is the DER of DigestInfo up to the digest (RFC 8017, 9.2,
// note 1), for EMSA-PKCS1-v1_5.
var digestInfoPrefix = map[kms.Digest][]byte{
	kms.DigestSHA256: {0x30, 0x31, 0x30, 0x0d, 0x06, 0x09, 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x01, 0x05, 0x00, 0x04, 0x20},
	kms.DigestSHA384: {0x30, 0x41, 0x30, 0x0d, 0x06, 0x09, 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x02, 0x05, 0x00, 0x04, 0x30},
	kms.DigestSHA512: {0x30, 0x51, 0x30, 0x0d, 0x06, 0x09, 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x03, 0x05, 0x00, 0x04, 0x40},
}

// maxEncodedDigest is the longest DigestInfo in bytes.
const maxEncodedDigest = 19 + sha512.Size

func pssMechanism(hash, mgf uint, size int) *mechanism {
	return &mechanism{id: pkcs11.CKM_RSA_PKCS_PSS, parameter: pss, hash: hash, mgf: mgf, salt: size}
}

// signMechanisms: every one takes a digest, so that a message of any length
// is hashed here and does not travel to the token. CKM_RSA_PKCS takes it as
// DigestInfo.
var signMechanisms = map[kms.Algorithm]*mechanism{
	kms.AlgRSAPSSSHA256:   pssMechanism(pkcs11.CKM_SHA256, pkcs11.CKG_MGF1_SHA256, sha256.Size),
	kms.AlgRSAPSSSHA384:   pssMechanism(pkcs11.CKM_SHA384, pkcs11.CKG_MGF1_SHA384, sha512.Size384),
	kms.AlgRSAPSSSHA512:   pssMechanism(pkcs11.CKM_SHA512, pkcs11.CKG_MGF1_SHA512, sha512.Size),
	kms.AlgRSAPKCS1SHA256: {id: pkcs11.CKM_RSA_PKCS},
	kms.AlgRSAPKCS1SHA384: {id: pkcs11.CKM_RSA_PKCS},
	kms.AlgRSAPKCS1SHA512: {id: pkcs11.CKM_RSA_PKCS},
	kms.AlgECDSASHA256:    {id: pkcs11.CKM_ECDSA},
	kms.AlgECDSASHA384:    {id: pkcs11.CKM_ECDSA},
	kms.AlgECDSASHA512:    {id: pkcs11.CKM_ECDSA},
}

// macMechanisms with the lengths of their MACs in bytes.
var macMechanisms = map[kms.Algorithm]struct {
	*mechanism
	size int
}{
	kms.AlgHMACSHA224: {&mechanism{id: pkcs11.CKM_SHA224_HMAC}, sha256.Size224},
	kms.AlgHMACSHA256: {&mechanism{id: pkcs11.CKM_SHA256_HMAC}, sha256.Size},
	kms.AlgHMACSHA384: {&mechanism{id: pkcs11.CKM_SHA384_HMAC}, sha512.Size384},
	kms.AlgHMACSHA512: {&mechanism{id: pkcs11.CKM_SHA512_HMAC}, sha512.Size},
}

var (
	gcmMechanism        = &mechanism{id: pkcs11.CKM_AES_GCM, parameter: gcm}
	cbcMechanism        = &mechanism{id: pkcs11.CKM_AES_CBC, parameter: cbc}
	oaepSHA1Mechanism   = &mechanism{id: pkcs11.CKM_RSA_PKCS_OAEP, parameter: oaep, hash: pkcs11.CKM_SHA_1, mgf: pkcs11.CKG_MGF1_SHA1}
	oaepSHA256Mechanism = &mechanism{id: pkcs11.CKM_RSA_PKCS_OAEP, parameter: oaep, hash: pkcs11.CKM_SHA256, mgf: pkcs11.CKG_MGF1_SHA256}
	rawRSAMechanism     = &mechanism{id: pkcs11.CKM_RSA_X_509}
)

// tagSize is the length of GCM tags in bytes; the C layer asks for as much.
const tagSize = 16

// appendDigest appends the message's digest, nothing for an unknown name.
func appendDigest(b []byte, name kms.Digest, message []byte) []byte {
	switch name {
	case kms.DigestSHA256:
		d := sha256.Sum256(message)
		return append(b, d[:]...)
	case kms.DigestSHA384:
		d := sha512.Sum384(message)
		return append(b, d[:]...)
	case kms.DigestSHA512:
		d := sha512.Sum512(message)
		return append(b, d[:]...)
	}
	return b
}

// families that a token with these mechanisms can generate, wrap, unwrap and
// use. Only a self-test knows better: secp256k1 has no mechanism of its own.
func (c *connection) families() []kms.Family {
	var families []kms.Family
	if c.offers(pkcs11.CKM_AES_KEY_GEN, pkcs11.CKM_AES_GCM) {
		families = append(families, kms.FamilyAES)
	}
	if c.offers(pkcs11.CKM_RSA_PKCS_KEY_PAIR_GEN, pkcs11.CKM_RSA_PKCS, pkcs11.CKM_RSA_PKCS_PSS, pkcs11.CKM_RSA_PKCS_OAEP) {
		families = append(families, kms.FamilyRSA)
	}
	if c.offers(pkcs11.CKM_EC_KEY_PAIR_GEN, pkcs11.CKM_ECDSA) {
		families = append(families, kms.FamilyEC, kms.FamilySecp256k1)
	}
	if c.offers(pkcs11.CKM_GENERIC_SECRET_KEY_GEN, pkcs11.CKM_SHA224_HMAC, pkcs11.CKM_SHA256_HMAC,
		pkcs11.CKM_SHA384_HMAC, pkcs11.CKM_SHA512_HMAC) {
		families = append(families, kms.FamilyHMAC)
	}
	return append(families, c.vendorFamilies()...)
}
