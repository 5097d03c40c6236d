package kms

import "slices"

// Spec names what a key is: its algorithm family and size. The spellings are
// those of AWS KMS where AWS has one; SM4 and HMAC_SM3 follow Huawei KMS.
type Spec string

// The key specs that Sluice can create.
const (
	SpecAES128 Spec = "AES_128"
	SpecAES192 Spec = "AES_192"
	SpecAES256 Spec = "AES_256"
	SpecSM4    Spec = "SM4"

	SpecRSA2048 Spec = "RSA_2048"
	SpecRSA3072 Spec = "RSA_3072"
	SpecRSA4096 Spec = "RSA_4096"

	SpecP256      Spec = "ECC_NIST_P256"
	SpecP384      Spec = "ECC_NIST_P384"
	SpecP521      Spec = "ECC_NIST_P521"
	SpecSecp256k1 Spec = "ECC_SECG_P256K1"
	SpecEd25519   Spec = "ECC_NIST_EDWARDS25519"
	SpecSM2       Spec = "SM2"

	SpecHMAC224 Spec = "HMAC_224"
	SpecHMAC256 Spec = "HMAC_256"
	SpecHMAC384 Spec = "HMAC_384"
	SpecHMAC512 Spec = "HMAC_512"
	SpecHMACSM3 Spec = "HMAC_SM3"
)

// Usage is what a key may be used for. A key has exactly one and keeps it.
type Usage string

// The key usages.
const (
	UsageSignVerify        Usage = "SIGN_VERIFY"
	UsageEncryptDecrypt    Usage = "ENCRYPT_DECRYPT"
	UsageGenerateVerifyMAC Usage = "GENERATE_VERIFY_MAC"

	UsageKeyAgreement           Usage = "KEY_AGREEMENT"
	UsageDerive                 Usage = "DERIVE"
	UsageWrapUnwrap             Usage = "WRAP_UNWRAP"
	UsageEncapsulateDecapsulate Usage = "ENCAPSULATE_DECAPSULATE"
)

// Protection says where a key's material exists in the clear.
type Protection string

const (
	// ProtectionHSM material exists only inside HSM tokens.
	ProtectionHSM Protection = "HSM"
	// ProtectionSealed material is sealed by an HSM key at rest and used in
	// process memory.
	ProtectionSealed Protection = "SEALED"
)

// Family groups the specs that share mechanisms, wrapping rules and
// self-tests.
type Family string

// The algorithm families.
const (
	FamilyAES       Family = "AES"
	FamilySM4       Family = "SM4"
	FamilyRSA       Family = "RSA"
	FamilyEC        Family = "EC" // NIST P curves
	FamilySecp256k1 Family = "SECP256K1"
	FamilyEd25519   Family = "ED25519"
	FamilySM2       Family = "SM2"
	FamilyHMAC      Family = "HMAC" // HMAC with the SHA-2 hashes
	FamilyHMACSM3   Family = "HMAC_SM3"
)

// Algorithm names one way of using a key; the spellings are AWS's.
type Algorithm string

// The algorithms.
const (
	AlgAESGCM Algorithm = "AES_GCM"
	AlgSM4GCM Algorithm = "SM4_GCM"

	AlgRSAOAEPSHA1   Algorithm = "RSAES_OAEP_SHA_1"
	AlgRSAOAEPSHA256 Algorithm = "RSAES_OAEP_SHA_256"
	AlgSM2PKE        Algorithm = "SM2PKE"

	AlgRSAPSSSHA256   Algorithm = "RSASSA_PSS_SHA_256"
	AlgRSAPSSSHA384   Algorithm = "RSASSA_PSS_SHA_384"
	AlgRSAPSSSHA512   Algorithm = "RSASSA_PSS_SHA_512"
	AlgRSAPKCS1SHA256 Algorithm = "RSASSA_PKCS1_V1_5_SHA_256"
	AlgRSAPKCS1SHA384 Algorithm = "RSASSA_PKCS1_V1_5_SHA_384"
	AlgRSAPKCS1SHA512 Algorithm = "RSASSA_PKCS1_V1_5_SHA_512"
	AlgECDSASHA256    Algorithm = "ECDSA_SHA_256"
	AlgECDSASHA384    Algorithm = "ECDSA_SHA_384"
	AlgECDSASHA512    Algorithm = "ECDSA_SHA_512"
	AlgEd25519        Algorithm = "ED25519_SHA_512"
	AlgSM2DSA         Algorithm = "SM2DSA"

	AlgHMACSHA224 Algorithm = "HMAC_SHA_224"
	AlgHMACSHA256 Algorithm = "HMAC_SHA_256"
	AlgHMACSHA384 Algorithm = "HMAC_SHA_384"
	AlgHMACSHA512 Algorithm = "HMAC_SHA_512"
	AlgHMACSM3    Algorithm = "HMAC_SM3"
)

// Digest names a hash function of the digest operation.
type Digest string

// The hash functions.
const (
	DigestSHA224 Digest = "SHA_224"
	DigestSHA256 Digest = "SHA_256"
	DigestSHA384 Digest = "SHA_384"
	DigestSHA512 Digest = "SHA_512"
	DigestSM3    Digest = "SM3"
)

// Size is the length of the digest in bytes, 0 for an unknown name.
func (d Digest) Size() int {
	switch d {
	case DigestSHA224:
		return 28
	case DigestSHA256, DigestSM3:
		return 32
	case DigestSHA384:
		return 48
	case DigestSHA512:
		return 64
	}
	return 0
}

// SpecInfo is the row of a spec in the table of specs.
type SpecInfo struct {
	Spec   Spec
	Family Family
	// Bits is the key size in bits: the modulus, the field or the secret.
	Bits int
	// Usages lists what keys of the spec may be made for, the default first,
	// with the algorithms of each, the default first.
	Usages []UsageAlgorithms
}

// UsageAlgorithms is one usage and its algorithms, the default first.
type UsageAlgorithms struct {
	Usage      Usage
	Algorithms []Algorithm
}

// Symmetric tells whether keys of the spec have no public half.
func (i *SpecInfo) Symmetric() bool {
	switch i.Family {
	case FamilyAES, FamilySM4, FamilyHMAC, FamilyHMACSM3:
		return true
	}
	return false
}

// Algorithms returns the algorithms of a usage, the default first; nil when
// the spec does not offer the usage.
func (i *SpecInfo) Algorithms(u Usage) []Algorithm {
	for _, ua := range i.Usages {
		if ua.Usage == u {
			return ua.Algorithms
		}
	}
	return nil
}

var rsaUsages = []UsageAlgorithms{
	{UsageSignVerify, []Algorithm{
		AlgRSAPSSSHA256, AlgRSAPSSSHA384, AlgRSAPSSSHA512,
		AlgRSAPKCS1SHA256, AlgRSAPKCS1SHA384, AlgRSAPKCS1SHA512}},
	{UsageEncryptDecrypt, []Algorithm{AlgRSAOAEPSHA256, AlgRSAOAEPSHA1}},
}

func signing(algs ...Algorithm) []UsageAlgorithms {
	return []UsageAlgorithms{{UsageSignVerify, algs}}
}

func macing(alg Algorithm) []UsageAlgorithms {
	return []UsageAlgorithms{{UsageGenerateVerifyMAC, []Algorithm{alg}}}
}

func encrypting(alg Algorithm) []UsageAlgorithms {
	return []UsageAlgorithms{{UsageEncryptDecrypt, []Algorithm{alg}}}
}

var specs = []SpecInfo{
	{SpecAES128, FamilyAES, 128, encrypting(AlgAESGCM)},
	{SpecAES192, FamilyAES, 192, encrypting(AlgAESGCM)},
	{SpecAES256, FamilyAES, 256, encrypting(AlgAESGCM)},
	{SpecSM4, FamilySM4, 128, encrypting(AlgSM4GCM)},
	{SpecRSA2048, FamilyRSA, 2048, rsaUsages},
	{SpecRSA3072, FamilyRSA, 3072, rsaUsages},
	{SpecRSA4096, FamilyRSA, 4096, rsaUsages},
	{SpecP256, FamilyEC, 256, signing(AlgECDSASHA256)},
	{SpecP384, FamilyEC, 384, signing(AlgECDSASHA384)},
	{SpecP521, FamilyEC, 521, signing(AlgECDSASHA512)},
	{SpecSecp256k1, FamilySecp256k1, 256, signing(AlgECDSASHA256)},
	{SpecEd25519, FamilyEd25519, 255, signing(AlgEd25519)},
	{SpecSM2, FamilySM2, 256, []UsageAlgorithms{
		{UsageSignVerify, []Algorithm{AlgSM2DSA}},
		{UsageEncryptDecrypt, []Algorithm{AlgSM2PKE}}}},
	// An HMAC secret is as long as the hash output, rounded up to a multiple
	// of 8 bytes, which is what a token can wrap without changing it.
	{SpecHMAC224, FamilyHMAC, 256, macing(AlgHMACSHA224)},
	{SpecHMAC256, FamilyHMAC, 256, macing(AlgHMACSHA256)},
	{SpecHMAC384, FamilyHMAC, 384, macing(AlgHMACSHA384)},
	{SpecHMAC512, FamilyHMAC, 512, macing(AlgHMACSHA512)},
	{SpecHMACSM3, FamilyHMACSM3, 256, macing(AlgHMACSM3)},
}

// Specs returns the table of specs in the order in which it is documented.
// The caller must not change it.
func Specs() []SpecInfo { return specs }

// Info returns the spec's row, or nil for an unknown spec.
func (s Spec) Info() *SpecInfo {
	for i := range specs {
		if specs[i].Spec == s {
			return &specs[i]
		}
	}
	return nil
}

// Supports tells whether the spec offers the algorithm for the usage.
func (s Spec) Supports(u Usage, a Algorithm) bool {
	info := s.Info()
	return info != nil && slices.Contains(info.Algorithms(u), a)
}

// Hash returns the hash that the algorithm applies to a message before the
// private operation, or "" when it takes the message whole (Ed25519) or has
// no such hash (encryption, HMAC). SM2DSA hashes with SM3 over the message
// and the signer's identity (GB/T 32918.2, 6.1).
func (a Algorithm) Hash() Digest {
	switch a {
	case AlgRSAPSSSHA256, AlgRSAPKCS1SHA256, AlgECDSASHA256:
		return DigestSHA256
	case AlgRSAPSSSHA384, AlgRSAPKCS1SHA384, AlgECDSASHA384:
		return DigestSHA384
	case AlgRSAPSSSHA512, AlgRSAPKCS1SHA512, AlgECDSASHA512:
		return DigestSHA512
	case AlgSM2DSA:
		return DigestSM3
	}
	return ""
}
