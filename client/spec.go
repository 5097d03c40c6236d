package client

// Spec names what a key is: its algorithm family and size.
type Spec string

// The key specs.
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
	// the memory of the service.
	ProtectionSealed Protection = "SEALED"
)

// Origin says how a key's material came to be.
type Origin string

// The origins. Imported material existed outside; what came via the process
// was in the memory of the service on its way into the HSM.
const (
	OriginGenerated       Origin = "GENERATED"
	OriginImportedProcess Origin = "IMPORTED_VIA_PROCESS"
)

// KeyState is the state of a key.
type KeyState string

// The key states.
const (
	KeyEnabled         KeyState = "ENABLED"
	KeyDisabled        KeyState = "DISABLED"
	KeyPendingDeletion KeyState = "PENDING_DELETION"
)

// VersionState is the state of one key version.
type VersionState string

// The version states.
const (
	VersionEnabled  VersionState = "ENABLED"
	VersionDisabled VersionState = "DISABLED"
	// VersionPendingDestruction versions cannot be used; at their date the
	// material is erased.
	VersionPendingDestruction VersionState = "PENDING_DESTRUCTION"
	// VersionDestroyed versions have no material any more; their public half
	// stays.
	VersionDestroyed VersionState = "DESTROYED"
)

// Algorithm names one way of using a key.
type Algorithm string

// The algorithms.
const (
	AlgAESGCM Algorithm = "AES_GCM"
	AlgSM4GCM Algorithm = "SM4_GCM"

	// CBC with the padding of PKCS #7 opens what older systems encrypted and
	// encrypts nothing; see DecryptInput.IV.
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
	AlgMLDSA          Algorithm = "ML_DSA_SHAKE_256" // FIPS 204
	AlgSLHDSA         Algorithm = "SLH_DSA"          // FIPS 205

	AlgHMACSHA224 Algorithm = "HMAC_SHA_224"
	AlgHMACSHA256 Algorithm = "HMAC_SHA_256"
	AlgHMACSHA384 Algorithm = "HMAC_SHA_384"
	AlgHMACSHA512 Algorithm = "HMAC_SHA_512"
	AlgHMACSM3    Algorithm = "HMAC_SM3"

	AlgECDH Algorithm = "ECDH" // SP 800-56A, 5.7.1.2; no key derivation

	// HKDF's expansion (RFC 5869, 2.3) and the KDF of GB/T 32918.4, 5.4.3.
	AlgHKDFSHA256 Algorithm = "HKDF_EXPAND_SHA_256"
	AlgHKDFSHA384 Algorithm = "HKDF_EXPAND_SHA_384"
	AlgHKDFSHA512 Algorithm = "HKDF_EXPAND_SHA_512"
	AlgSM3KDF     Algorithm = "SM3_KDF"

	AlgAESKWP Algorithm = "AES_KWP" // RFC 5649

	AlgMLKEM Algorithm = "ML_KEM" // FIPS 203
)

// SM2Order is the layout of an SM2 ciphertext.
type SM2Order string

// The orders. C1C3C2 is that of GB/T 32918.4 and the default.
const (
	SM2OrderC1C3C2 SM2Order = "C1C3C2"
	SM2OrderC1C2C3 SM2Order = "C1C2C3"
	SM2OrderASN1   SM2Order = "ASN1"
)

// SignatureFormat is how an ECDSA or SM2 signature is written.
type SignatureFormat string

// The formats. DER is SEQUENCE{r, s} (RFC 3279, 2.2.3) and the default; raw
// is r‖s, each as long as the curve's order.
const (
	FormatDER SignatureFormat = "der"
	FormatRaw SignatureFormat = "raw"
)

// HashFunction names a hash function of Digest.
type HashFunction string

// The hash functions.
const (
	HashSHA224 HashFunction = "SHA_224"
	HashSHA256 HashFunction = "SHA_256"
	HashSHA384 HashFunction = "SHA_384"
	HashSHA512 HashFunction = "SHA_512"
	HashSM3    HashFunction = "SM3"
)

// Sizes in bytes of what one operation takes and gives.
const (
	// MaxInput is the longest message, plaintext, ciphertext or additional
	// data. Sign more by its digest and encrypt more under a data key.
	MaxInput = 1<<20 + 4096
	// MinDataKey and MaxDataKey bound the length of a data key.
	MinDataKey = 16
	MaxDataKey = 1024
	// MaxWrap is the longest bytes that Wrap takes: keys, not data.
	MaxWrap = 4096
	// MinDerived and MaxDerived bound what Derive gives.
	MinDerived = 16
	MaxDerived = 8160
	// MaxDeriveContext is the longest context of Derive.
	MaxDeriveContext = 4096
	// MaxRandom is how many random bytes one call gives.
	MaxRandom = 1024
)
