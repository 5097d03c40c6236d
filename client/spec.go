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
	// MaxRandom is how many random bytes one call gives.
	MaxRandom = 1024
)
