package api

import "github.com/sluice-kms/sluice/kms"

// ReencryptRequest is the body of reencrypt.
type ReencryptRequest struct {
	Ciphertext           Bytes         `json:"ciphertext" api:"required" maxlen:"MaxInput" example:"U0xDMQ=="`
	SourceKey            string        `json:"source_key" api:"required" doc:"Id or name of the key that decrypts; it may be the same" example:"payments/orders"`
	AAD                  Bytes         `json:"aad" doc:"What was given to encrypt; symmetric source keys only" maxlen:"MaxInput"`
	DestinationAAD       Bytes         `json:"destination_aad" doc:"Additional authenticated data of the new ciphertext. Absent: aad" maxlen:"MaxInput"`
	SourceAlgorithm      kms.Algorithm `json:"source_algorithm" doc:"Absent: the source key's default. As algorithm for decrypt"`
	SourceVersion        uint32        `json:"source_version" doc:"As version for decrypt" min:"0"`
	SourceOrder          kms.SM2Order  `json:"source_order" doc:"As order for decrypt"`
	SourceIV             Bytes         `json:"source_iv" doc:"As iv for decrypt" maxlen:"16"`
	CiphertextCRC32C     *uint32       `json:"ciphertext_crc32c" doc:"CRC32C of ciphertext, to be checked"`
	AADCRC32C            *uint32       `json:"aad_crc32c" doc:"CRC32C of aad, to be checked"`
	DestinationAADCRC32C *uint32       `json:"destination_aad_crc32c" doc:"CRC32C of destination_aad, to be checked"`
}

// ReencryptResponse is its answer.
type ReencryptResponse struct {
	Ciphertext                   Bytes         `json:"ciphertext" doc:"An envelope that names the key of the path and its newest version"`
	SourceVersion                uint32        `json:"source_version" doc:"The version that decrypted" min:"1"`
	Algorithm                    kms.Algorithm `json:"algorithm" doc:"By which it is encrypted now"`
	Version                      uint32        `json:"version" doc:"The version that encrypted" min:"1"`
	CiphertextCRC32C             uint32        `json:"ciphertext_crc32c" doc:"CRC32C of ciphertext"`
	VerifiedCiphertextCRC32C     bool          `json:"verified_ciphertext_crc32c,omitzero" doc:"ciphertext_crc32c was given and is right"`
	VerifiedAADCRC32C            bool          `json:"verified_aad_crc32c,omitzero" doc:"aad_crc32c was given and is right"`
	VerifiedDestinationAADCRC32C bool          `json:"verified_destination_aad_crc32c,omitzero" doc:"destination_aad_crc32c was given and is right"`
	Meta
}

// maxWrapped is the length in bytes of the longest result of wrap: RFC 5649
// pads to a multiple of 8 and adds 8.
const maxWrapped = kms.MaxWrap + 8

// WrapRequest is the body of wrap.
type WrapRequest struct {
	Plaintext       Bytes   `json:"plaintext" api:"required" doc:"The bytes to wrap, 1 to 4096: a key, not data" maxlen:"MaxWrap" example:"aGVsbG8="`
	PlaintextCRC32C *uint32 `json:"plaintext_crc32c" doc:"CRC32C of plaintext, to be checked"`
}

// WrapResponse is its answer.
type WrapResponse struct {
	Wrapped                 Bytes         `json:"wrapped" doc:"RFC 5649; it does not name its version"`
	Algorithm               kms.Algorithm `json:"algorithm"`
	Version                 uint32        `json:"version" min:"1"`
	WrappedCRC32C           uint32        `json:"wrapped_crc32c" doc:"CRC32C of wrapped"`
	VerifiedPlaintextCRC32C bool          `json:"verified_plaintext_crc32c,omitzero" doc:"plaintext_crc32c was given and is right"`
	Meta
}

// UnwrapRequest is the body of unwrap.
type UnwrapRequest struct {
	Wrapped       Bytes   `json:"wrapped" api:"required" maxlen:"MaxWrapped" example:"U0xDMQ=="`
	Version       uint32  `json:"version" doc:"The version that wrapped; absent or 0: the primary version" min:"0"`
	WrappedCRC32C *uint32 `json:"wrapped_crc32c" doc:"CRC32C of wrapped, to be checked"`
}

// UnwrapResponse is its answer.
type UnwrapResponse struct {
	Plaintext             Bytes         `json:"plaintext"`
	Algorithm             kms.Algorithm `json:"algorithm"`
	Version               uint32        `json:"version" min:"1"`
	PlaintextCRC32C       uint32        `json:"plaintext_crc32c" doc:"CRC32C of plaintext"`
	VerifiedWrappedCRC32C bool          `json:"verified_wrapped_crc32c,omitzero" doc:"wrapped_crc32c was given and is right"`
	Meta
}

// SharedSecretRequest is the body of shared-secret.
type SharedSecretRequest struct {
	PublicKey Bytes  `json:"public_key" api:"required" doc:"The other party's public key on the same curve: SubjectPublicKeyInfo in DER" example:"MAA="`
	Version   uint32 `json:"version" doc:"Absent or 0: the primary version" min:"0"`
}

// SharedSecretResponse is its answer.
type SharedSecretResponse struct {
	Secret    Bytes         `json:"secret" doc:"The x-coordinate as it is, as long as the field; feed it to a key derivation function"`
	Algorithm kms.Algorithm `json:"algorithm"`
	Version   uint32        `json:"version" min:"1"`
	Meta
}

// DeriveRequest is the body of derive.
type DeriveRequest struct {
	Context   Bytes         `json:"context" doc:"What the derived bytes are for; other contexts give independent bytes. Absent: empty" maxlen:"MaxDeriveContext"`
	Bytes     *int          `json:"bytes" api:"required" doc:"How many" min:"MinDerived" max:"MaxDerived" example:"32"`
	Algorithm kms.Algorithm `json:"algorithm" doc:"Absent: the key's default"`
	Version   uint32        `json:"version" doc:"Absent or 0: the primary version" min:"0"`
}

// DeriveResponse is its answer.
type DeriveResponse struct {
	Derived   Bytes         `json:"derived"`
	Algorithm kms.Algorithm `json:"algorithm"`
	Version   uint32        `json:"version" doc:"The version that was used: name it to get the same bytes after a rotation" min:"1"`
	Meta
}

// EncapsulateRequest is the body of encapsulate. It may be left out.
type EncapsulateRequest struct {
	Version uint32 `json:"version" doc:"Absent or 0: the primary version" min:"0"`
}

// EncapsulateResponse is its answer.
type EncapsulateResponse struct {
	Secret           Bytes         `json:"secret" doc:"The shared secret"`
	Ciphertext       Bytes         `json:"ciphertext" doc:"From which decapsulate recovers the secret"`
	Algorithm        kms.Algorithm `json:"algorithm"`
	Version          uint32        `json:"version" min:"1"`
	CiphertextCRC32C uint32        `json:"ciphertext_crc32c" doc:"CRC32C of ciphertext"`
	Meta
}

// DecapsulateRequest is the body of decapsulate.
type DecapsulateRequest struct {
	Ciphertext       Bytes   `json:"ciphertext" api:"required" example:"U0xDMQ=="`
	Version          uint32  `json:"version" doc:"The version that it was made for; absent or 0: the primary version" min:"0"`
	CiphertextCRC32C *uint32 `json:"ciphertext_crc32c" doc:"CRC32C of ciphertext, to be checked"`
}

// DecapsulateResponse is its answer.
type DecapsulateResponse struct {
	Secret                   Bytes         `json:"secret" doc:"The shared secret; a ciphertext that was changed gives another one, not an error (FIPS 203, implicit rejection)"`
	Algorithm                kms.Algorithm `json:"algorithm"`
	Version                  uint32        `json:"version" min:"1"`
	VerifiedCiphertextCRC32C bool          `json:"verified_ciphertext_crc32c,omitzero" doc:"ciphertext_crc32c was given and is right"`
	Meta
}
