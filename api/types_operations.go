package api

import "github.com/sluice-kms/sluice/kms"

// Meta is the part of every answer of an operation with a key.
type Meta struct {
	Charge
	Protection kms.Protection `json:"protection" doc:"Of the key that was used"`
}

// EncryptRequest is the body of encrypt.
type EncryptRequest struct {
	Plaintext       Bytes         `json:"plaintext" api:"required" doc:"May be empty; at most 1 MiB for symmetric keys, what the algorithm can take for others" maxlen:"MaxInput" example:"aGVsbG8="`
	AAD             Bytes         `json:"aad" doc:"Additional authenticated data, needed again to decrypt; symmetric keys only" maxlen:"MaxInput"`
	Algorithm       kms.Algorithm `json:"algorithm" doc:"Absent: the key's default"`
	Version         uint32        `json:"version" doc:"Asymmetric keys only; absent or 0: the primary version" min:"0"`
	Order           kms.SM2Order  `json:"order" doc:"SM2PKE only; absent: C1C3C2 (GB/T 32918.4)"`
	PlaintextCRC32C *uint32       `json:"plaintext_crc32c" doc:"CRC32C of plaintext, to be checked"`
	AADCRC32C       *uint32       `json:"aad_crc32c" doc:"CRC32C of aad, to be checked"`
}

// EncryptResponse is its answer.
type EncryptResponse struct {
	Ciphertext              Bytes         `json:"ciphertext" doc:"Symmetric keys: an envelope that names key and version. Others: the algorithm's standard ciphertext"`
	Algorithm               kms.Algorithm `json:"algorithm"`
	Version                 uint32        `json:"version" min:"1"`
	CiphertextCRC32C        uint32        `json:"ciphertext_crc32c" doc:"CRC32C of ciphertext"`
	VerifiedPlaintextCRC32C bool          `json:"verified_plaintext_crc32c,omitzero" doc:"plaintext_crc32c was given and is right"`
	VerifiedAADCRC32C       bool          `json:"verified_aad_crc32c,omitzero" doc:"aad_crc32c was given and is right"`
	Meta
}

// DecryptRequest is the body of decrypt.
type DecryptRequest struct {
	Ciphertext       Bytes         `json:"ciphertext" api:"required" maxlen:"MaxInput" example:"U0xDMQ=="`
	AAD              Bytes         `json:"aad" doc:"What was given to encrypt; symmetric keys only" maxlen:"MaxInput"`
	Algorithm        kms.Algorithm `json:"algorithm" doc:"Absent: the key's default. Those with CBC open what older systems encrypted, for credentials with the scope key:decrypt-legacy"`
	Version          uint32        `json:"version" doc:"Asymmetric keys and CBC only; absent or 0: the primary version" min:"0"`
	Order            kms.SM2Order  `json:"order" doc:"SM2PKE only; absent: C1C3C2 (GB/T 32918.4)"`
	IV               Bytes         `json:"iv" doc:"CBC only: the initialisation vector, 16 bytes" maxlen:"16"`
	CiphertextCRC32C *uint32       `json:"ciphertext_crc32c" doc:"CRC32C of ciphertext, to be checked"`
	AADCRC32C        *uint32       `json:"aad_crc32c" doc:"CRC32C of aad, to be checked"`
}

// DecryptResponse is its answer.
type DecryptResponse struct {
	Plaintext                Bytes         `json:"plaintext"`
	Algorithm                kms.Algorithm `json:"algorithm"`
	Version                  uint32        `json:"version" min:"1"`
	PlaintextCRC32C          uint32        `json:"plaintext_crc32c" doc:"CRC32C of plaintext"`
	VerifiedCiphertextCRC32C bool          `json:"verified_ciphertext_crc32c,omitzero" doc:"ciphertext_crc32c was given and is right"`
	VerifiedAADCRC32C        bool          `json:"verified_aad_crc32c,omitzero" doc:"aad_crc32c was given and is right"`
	Meta
}

// SignRequest is the body of sign.
type SignRequest struct {
	Message       Bytes               `json:"message" doc:"Exactly one of message and digest is given; an empty message is a message" maxlen:"MaxInput" example:"aGVsbG8="`
	Digest        Bytes               `json:"digest" doc:"The message's digest by the algorithm's hash function; for SM2DSA the digest over identity and message (GB/T 32918.2, 6.1); for ML_DSA_SHAKE_256 µ, 64 bytes (FIPS 204, 6.2)" maxlen:"64"`
	Algorithm     kms.Algorithm       `json:"algorithm" doc:"Absent: the key's default"`
	UserID        *string             `json:"user_id" doc:"SM2DSA with a message only: the signer's identity; absent: 1234567812345678 (GM/T 0009)" minlen:"1" maxlen:"MaxUserID"`
	Version       uint32              `json:"version" doc:"Absent or 0: the primary version" min:"0"`
	Format        kms.SignatureFormat `json:"format" doc:"ECDSA and SM2DSA only: der, the default, is SEQUENCE{r, s}; raw is r‖s, each as long as the curve's order"`
	MessageCRC32C *uint32             `json:"message_crc32c" doc:"CRC32C of message, to be checked"`
	DigestCRC32C  *uint32             `json:"digest_crc32c" doc:"CRC32C of digest, to be checked"`
}

// SignResponse is its answer.
type SignResponse struct {
	Signature             Bytes         `json:"signature"`
	Algorithm             kms.Algorithm `json:"algorithm"`
	Version               uint32        `json:"version" min:"1"`
	SignatureCRC32C       uint32        `json:"signature_crc32c" doc:"CRC32C of signature"`
	VerifiedMessageCRC32C bool          `json:"verified_message_crc32c,omitzero" doc:"message_crc32c was given and is right"`
	VerifiedDigestCRC32C  bool          `json:"verified_digest_crc32c,omitzero" doc:"digest_crc32c was given and is right"`
	Meta
}

// VerifyRequest is the body of verify.
type VerifyRequest struct {
	Message         Bytes               `json:"message" doc:"Exactly one of message and digest is given; an empty message is a message" maxlen:"MaxInput" example:"aGVsbG8="`
	Digest          Bytes               `json:"digest" doc:"As for sign" maxlen:"64"`
	Signature       Bytes               `json:"signature" api:"required" doc:"A malformed signature is one that is not valid" maxlen:"MaxInput" example:"MAA="`
	Algorithm       kms.Algorithm       `json:"algorithm" doc:"Absent: the key's default"`
	UserID          *string             `json:"user_id" doc:"As for sign" minlen:"1" maxlen:"MaxUserID"`
	Version         uint32              `json:"version" doc:"Absent or 0: the eight newest enabled versions are tried, the newest first" min:"0"`
	Format          kms.SignatureFormat `json:"format" doc:"As for sign"`
	MessageCRC32C   *uint32             `json:"message_crc32c" doc:"CRC32C of message, to be checked"`
	DigestCRC32C    *uint32             `json:"digest_crc32c" doc:"CRC32C of digest, to be checked"`
	SignatureCRC32C *uint32             `json:"signature_crc32c" doc:"CRC32C of signature, to be checked"`
}

// VerifyResponse is its answer.
type VerifyResponse struct {
	Valid                   bool          `json:"valid"`
	Algorithm               kms.Algorithm `json:"algorithm"`
	Version                 uint32        `json:"version,omitzero" doc:"The version under which the signature is valid; absent when it is not" min:"1"`
	VerifiedMessageCRC32C   bool          `json:"verified_message_crc32c,omitzero" doc:"message_crc32c was given and is right"`
	VerifiedDigestCRC32C    bool          `json:"verified_digest_crc32c,omitzero" doc:"digest_crc32c was given and is right"`
	VerifiedSignatureCRC32C bool          `json:"verified_signature_crc32c,omitzero" doc:"signature_crc32c was given and is right"`
	Meta
}

// MACRequest is the body of mac.
type MACRequest struct {
	Message       Bytes         `json:"message" api:"required" doc:"May be empty" maxlen:"MaxInput" example:"aGVsbG8="`
	Algorithm     kms.Algorithm `json:"algorithm" doc:"Absent: the key's default"`
	Version       uint32        `json:"version" doc:"Absent or 0: the primary version" min:"0"`
	MessageCRC32C *uint32       `json:"message_crc32c" doc:"CRC32C of message, to be checked"`
}

// MACResponse is its answer.
type MACResponse struct {
	MAC                   Bytes         `json:"mac"`
	Algorithm             kms.Algorithm `json:"algorithm"`
	Version               uint32        `json:"version" min:"1"`
	MACCRC32C             uint32        `json:"mac_crc32c" doc:"CRC32C of mac"`
	VerifiedMessageCRC32C bool          `json:"verified_message_crc32c,omitzero" doc:"message_crc32c was given and is right"`
	Meta
}

// VerifyMACRequest is the body of verify-mac.
type VerifyMACRequest struct {
	Message       Bytes         `json:"message" api:"required" doc:"May be empty" maxlen:"MaxInput" example:"aGVsbG8="`
	MAC           Bytes         `json:"mac" api:"required" maxlen:"MaxInput" example:"AA=="`
	Algorithm     kms.Algorithm `json:"algorithm" doc:"Absent: the key's default"`
	Version       uint32        `json:"version" doc:"Absent or 0: the primary version" min:"0"`
	MessageCRC32C *uint32       `json:"message_crc32c" doc:"CRC32C of message, to be checked"`
	MACCRC32C     *uint32       `json:"mac_crc32c" doc:"CRC32C of mac, to be checked"`
}

// VerifyMACResponse is its answer.
type VerifyMACResponse struct {
	Valid                 bool          `json:"valid"`
	Algorithm             kms.Algorithm `json:"algorithm"`
	Version               uint32        `json:"version" doc:"The version that was used" min:"1"`
	VerifiedMessageCRC32C bool          `json:"verified_message_crc32c,omitzero" doc:"message_crc32c was given and is right"`
	VerifiedMACCRC32C     bool          `json:"verified_mac_crc32c,omitzero" doc:"mac_crc32c was given and is right"`
	Meta
}

// DataKeyRequest is the body of datakey and datakey/wrapped.
type DataKeyRequest struct {
	Bytes     *int     `json:"bytes" doc:"Length in bytes. Exactly one of bytes and spec is given" min:"MinDataKey" max:"MaxDataKey" example:"32"`
	Spec      kms.Spec `json:"spec" doc:"AES_128 or SM4 for 16 bytes, AES_256 for 32"`
	AAD       Bytes    `json:"aad" doc:"Additional authenticated data, needed again to decrypt" maxlen:"MaxInput"`
	AADCRC32C *uint32  `json:"aad_crc32c" doc:"CRC32C of aad, to be checked"`
}

// DataKeyResponse is the answer of datakey.
type DataKeyResponse struct {
	Plaintext         Bytes         `json:"plaintext" doc:"The data key"`
	Ciphertext        Bytes         `json:"ciphertext" doc:"The data key encrypted; decrypt gives it back"`
	Algorithm         kms.Algorithm `json:"algorithm" doc:"By which it is encrypted"`
	Version           uint32        `json:"version" min:"1"`
	PlaintextCRC32C   uint32        `json:"plaintext_crc32c" doc:"CRC32C of plaintext"`
	CiphertextCRC32C  uint32        `json:"ciphertext_crc32c" doc:"CRC32C of ciphertext"`
	VerifiedAADCRC32C bool          `json:"verified_aad_crc32c,omitzero" doc:"aad_crc32c was given and is right"`
	Meta
}

// WrappedDataKeyResponse is the answer of datakey/wrapped.
type WrappedDataKeyResponse struct {
	Ciphertext        Bytes         `json:"ciphertext" doc:"The data key encrypted; decrypt gives it back"`
	Algorithm         kms.Algorithm `json:"algorithm" doc:"By which it is encrypted"`
	Version           uint32        `json:"version" min:"1"`
	CiphertextCRC32C  uint32        `json:"ciphertext_crc32c" doc:"CRC32C of ciphertext"`
	VerifiedAADCRC32C bool          `json:"verified_aad_crc32c,omitzero" doc:"aad_crc32c was given and is right"`
	Meta
}

// RandomRequest is the body of random.
type RandomRequest struct {
	Bytes *int `json:"bytes" api:"required" doc:"How many" min:"1" max:"MaxRandom" example:"32"`
}

// RandomResponse is its answer.
type RandomResponse struct {
	Random Bytes `json:"random"`
	Charge
}

// DigestRequest is the body of digest.
type DigestRequest struct {
	Algorithm kms.Digest `json:"algorithm" api:"required"`
	Data      Bytes      `json:"data" api:"required" doc:"May be empty" maxlen:"MaxInput" example:"aGVsbG8="`
}

// DigestResponse is its answer.
type DigestResponse struct {
	Digest    Bytes      `json:"digest"`
	Algorithm kms.Digest `json:"algorithm"`
	Charge
}
