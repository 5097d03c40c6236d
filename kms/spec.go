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

	SpecMLKEM512  Spec = "ML_KEM_512"
	SpecMLKEM768  Spec = "ML_KEM_768"
	SpecMLKEM1024 Spec = "ML_KEM_1024"

	SpecMLDSA44 Spec = "ML_DSA_44"
	SpecMLDSA65 Spec = "ML_DSA_65"
	SpecMLDSA87 Spec = "ML_DSA_87"

	// The parameter sets of FIPS 205, table 2: S has the smaller signatures,
	// F signs some twenty times faster.
	SpecSLHDSASHA2128S  Spec = "SLH_DSA_SHA2_128S"
	SpecSLHDSASHA2128F  Spec = "SLH_DSA_SHA2_128F"
	SpecSLHDSASHA2192S  Spec = "SLH_DSA_SHA2_192S"
	SpecSLHDSASHA2192F  Spec = "SLH_DSA_SHA2_192F"
	SpecSLHDSASHA2256S  Spec = "SLH_DSA_SHA2_256S"
	SpecSLHDSASHA2256F  Spec = "SLH_DSA_SHA2_256F"
	SpecSLHDSASHAKE128S Spec = "SLH_DSA_SHAKE_128S"
	SpecSLHDSASHAKE128F Spec = "SLH_DSA_SHAKE_128F"
	SpecSLHDSASHAKE192S Spec = "SLH_DSA_SHAKE_192S"
	SpecSLHDSASHAKE192F Spec = "SLH_DSA_SHAKE_192F"
	SpecSLHDSASHAKE256S Spec = "SLH_DSA_SHAKE_256S"
	SpecSLHDSASHAKE256F Spec = "SLH_DSA_SHAKE_256F"
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
	FamilyMLKEM     Family = "ML_KEM"  // FIPS 203
	FamilyMLDSA     Family = "ML_DSA"  // FIPS 204
	FamilySLHDSA    Family = "SLH_DSA" // FIPS 205
)

// Algorithm names one way of using a key; the spellings are AWS's where AWS
// has one.
type Algorithm string

// The algorithms.
const (
	AlgAESGCM Algorithm = "AES_GCM"
	AlgSM4GCM Algorithm = "SM4_GCM"

	// CBC (SP 800-38A, 6.2) with the padding of PKCS #7 (RFC 5652, 6.3), for
	// what older systems have encrypted and expect. The nonce is the IV of 16
	// bytes; there is no additional data and nothing is authenticated, so
	// whoever learns whether a ciphertext decrypts learns plaintext. To
	// encrypt, the service must draw the IV: a caller who chooses it has the
	// bare block cipher, and with that can open and forge what the same key
	// protects by GCM.
	AlgAESCBC Algorithm = "AES_CBC_PKCS7"
	AlgSM4CBC Algorithm = "SM4_CBC_PKCS7"

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
	AlgMLDSA          Algorithm = "ML_DSA_SHAKE_256" // hedged, empty context
	AlgSLHDSA         Algorithm = "SLH_DSA"          // pure, hedged, empty context

	AlgHMACSHA224 Algorithm = "HMAC_SHA_224"
	AlgHMACSHA256 Algorithm = "HMAC_SHA_256"
	AlgHMACSHA384 Algorithm = "HMAC_SHA_384"
	AlgHMACSHA512 Algorithm = "HMAC_SHA_512"
	AlgHMACSM3    Algorithm = "HMAC_SM3"

	// AlgECDH is SP 800-56A, 5.7.1.2 without a key derivation: the secret is
	// the x-coordinate.
	AlgECDH Algorithm = "ECDH"

	// The second half of HKDF (RFC 5869, 2.3) with the key as PRK and the
	// caller's context as info.
	AlgHKDFSHA256 Algorithm = "HKDF_EXPAND_SHA_256"
	AlgHKDFSHA384 Algorithm = "HKDF_EXPAND_SHA_384"
	AlgHKDFSHA512 Algorithm = "HKDF_EXPAND_SHA_512"
	// AlgSM3KDF is the KDF of GB/T 32918.4, 5.4.3 over key ‖ context; the key's
	// length is fixed, so the two cannot run into each other.
	AlgSM3KDF Algorithm = "SM3_KDF"

	AlgAESKWP Algorithm = "AES_KWP" // RFC 5649

	AlgMLKEM Algorithm = "ML_KEM"
)

// MaxDeriveContext bounds the context of a derivation in bytes. It is hashed
// once for every block of output, so the longest output takes as much hashing
// as a MAC of 1 MiB.
const MaxDeriveContext = 4096

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
	// Bits is the key size in bits: the modulus, the field or the secret; for
	// ML-KEM, ML-DSA and SLH-DSA the strength that the parameter set claims
	// (FIPS 203, table 2; FIPS 204, table 1; FIPS 205, table 2).
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

func usage(u Usage, algs ...Algorithm) UsageAlgorithms { return UsageAlgorithms{u, algs} }

var (
	aesUsages = []UsageAlgorithms{
		usage(UsageEncryptDecrypt, AlgAESGCM, AlgAESCBC),
		usage(UsageWrapUnwrap, AlgAESKWP),
	}
	// SM4 wraps nothing: no standard says how.
	sm4Usages = []UsageAlgorithms{usage(UsageEncryptDecrypt, AlgSM4GCM, AlgSM4CBC)}
	rsaUsages = []UsageAlgorithms{
		usage(UsageSignVerify,
			AlgRSAPSSSHA256, AlgRSAPSSSHA384, AlgRSAPSSSHA512,
			AlgRSAPKCS1SHA256, AlgRSAPKCS1SHA384, AlgRSAPKCS1SHA512),
		usage(UsageEncryptDecrypt, AlgRSAOAEPSHA256, AlgRSAOAEPSHA1),
	}
	ed25519Usages = []UsageAlgorithms{usage(UsageSignVerify, AlgEd25519)}
	sm2Usages     = []UsageAlgorithms{
		usage(UsageSignVerify, AlgSM2DSA),
		usage(UsageEncryptDecrypt, AlgSM2PKE),
		usage(UsageKeyAgreement, AlgECDH),
	}
	mlkemUsages  = []UsageAlgorithms{usage(UsageEncapsulateDecapsulate, AlgMLKEM)}
	mldsaUsages  = []UsageAlgorithms{usage(UsageSignVerify, AlgMLDSA)}
	slhdsaUsages = []UsageAlgorithms{usage(UsageSignVerify, AlgSLHDSA)}
)

func ecUsages(ecdsa Algorithm) []UsageAlgorithms {
	return []UsageAlgorithms{usage(UsageSignVerify, ecdsa), usage(UsageKeyAgreement, AlgECDH)}
}

func hmacUsages(mac Algorithm, derive ...Algorithm) []UsageAlgorithms {
	usages := []UsageAlgorithms{usage(UsageGenerateVerifyMAC, mac)}
	if len(derive) > 0 {
		usages = append(usages, usage(UsageDerive, derive...))
	}
	return usages
}

var specs = []SpecInfo{
	{SpecAES128, FamilyAES, 128, aesUsages},
	{SpecAES192, FamilyAES, 192, aesUsages},
	{SpecAES256, FamilyAES, 256, aesUsages},
	{SpecSM4, FamilySM4, 128, sm4Usages},
	{SpecRSA2048, FamilyRSA, 2048, rsaUsages},
	{SpecRSA3072, FamilyRSA, 3072, rsaUsages},
	{SpecRSA4096, FamilyRSA, 4096, rsaUsages},
	{SpecP256, FamilyEC, 256, ecUsages(AlgECDSASHA256)},
	{SpecP384, FamilyEC, 384, ecUsages(AlgECDSASHA384)},
	{SpecP521, FamilyEC, 521, ecUsages(AlgECDSASHA512)},
	{SpecSecp256k1, FamilySecp256k1, 256, ecUsages(AlgECDSASHA256)},
	{SpecEd25519, FamilyEd25519, 255, ed25519Usages},
	{SpecSM2, FamilySM2, 256, sm2Usages},
	// An HMAC secret is as long as the hash output, rounded up to a multiple
	// of 8 bytes, which is what a token can wrap without changing it.
	{SpecHMAC224, FamilyHMAC, 256, hmacUsages(AlgHMACSHA224)},
	{SpecHMAC256, FamilyHMAC, 256, hmacUsages(AlgHMACSHA256, AlgHKDFSHA256)},
	{SpecHMAC384, FamilyHMAC, 384, hmacUsages(AlgHMACSHA384, AlgHKDFSHA384)},
	{SpecHMAC512, FamilyHMAC, 512, hmacUsages(AlgHMACSHA512, AlgHKDFSHA512)},
	{SpecHMACSM3, FamilyHMACSM3, 256, hmacUsages(AlgHMACSM3, AlgSM3KDF)},
	{SpecMLKEM512, FamilyMLKEM, 128, mlkemUsages},
	{SpecMLKEM768, FamilyMLKEM, 192, mlkemUsages},
	{SpecMLKEM1024, FamilyMLKEM, 256, mlkemUsages},
	{SpecMLDSA44, FamilyMLDSA, 128, mldsaUsages},
	{SpecMLDSA65, FamilyMLDSA, 192, mldsaUsages},
	{SpecMLDSA87, FamilyMLDSA, 256, mldsaUsages},
	{SpecSLHDSASHA2128S, FamilySLHDSA, 128, slhdsaUsages},
	{SpecSLHDSASHA2128F, FamilySLHDSA, 128, slhdsaUsages},
	{SpecSLHDSASHA2192S, FamilySLHDSA, 192, slhdsaUsages},
	{SpecSLHDSASHA2192F, FamilySLHDSA, 192, slhdsaUsages},
	{SpecSLHDSASHA2256S, FamilySLHDSA, 256, slhdsaUsages},
	{SpecSLHDSASHA2256F, FamilySLHDSA, 256, slhdsaUsages},
	{SpecSLHDSASHAKE128S, FamilySLHDSA, 128, slhdsaUsages},
	{SpecSLHDSASHAKE128F, FamilySLHDSA, 128, slhdsaUsages},
	{SpecSLHDSASHAKE192S, FamilySLHDSA, 192, slhdsaUsages},
	{SpecSLHDSASHAKE192F, FamilySLHDSA, 192, slhdsaUsages},
	{SpecSLHDSASHAKE256S, FamilySLHDSA, 256, slhdsaUsages},
	{SpecSLHDSASHAKE256F, FamilySLHDSA, 256, slhdsaUsages},
}

var specIndex = func() map[Spec]*SpecInfo {
	m := make(map[Spec]*SpecInfo, len(specs))
	for i := range specs {
		m[specs[i].Spec] = &specs[i]
	}
	return m
}()

// Specs returns the table of specs in the order in which it is documented.
// The caller must not change it.
func Specs() []SpecInfo { return specs }

// Info returns the spec's row, or nil for an unknown spec.
func (s Spec) Info() *SpecInfo { return specIndex[s] }

// Supports tells whether the spec offers the algorithm for the usage.
func (s Spec) Supports(u Usage, a Algorithm) bool {
	info := s.Info()
	return info != nil && slices.Contains(info.Algorithms(u), a)
}

// Hash returns the hash that the algorithm applies to a message before the
// private operation, or "" when it takes the message whole (Ed25519, ML-DSA,
// SLH-DSA) or has no such hash (encryption, HMAC). SM2DSA hashes with SM3 over
// the message and the signer's identity (GB/T 32918.2, 6.1).
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

// muSize is the length of ML-DSA's message representative µ in bytes (FIPS
// 204, 6.2).
const muSize = 64

// PrehashSize is the length in bytes of what the algorithm signs in place of a
// message: the digest of Hash, or for ML-DSA µ, which binds the public key and
// the context too (FIPS 204, algorithm 7, line 6). 0 when the algorithm takes
// nothing but messages.
func (a Algorithm) PrehashSize() int {
	if a == AlgMLDSA {
		return muSize
	}
	return a.Hash().Size()
}
