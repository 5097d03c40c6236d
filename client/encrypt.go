package client

import (
	"context"
	"net/http"
)

// EncryptInput is the input of Encrypt.
type EncryptInput struct {
	Plaintext []byte `json:"plaintext"` // may be empty
	// AAD is additional authenticated data, needed again to decrypt; for
	// symmetric keys only. nil is none.
	AAD       []byte    `json:"aad,omitzero"`
	Algorithm Algorithm `json:"algorithm,omitzero"` // "": the key's default
	Version   uint32    `json:"version,omitzero"`   // asymmetric keys only; 0: the primary version
	Order     SM2Order  `json:"order,omitzero"`     // SM2PKE only; "": SM2OrderC1C3C2
	// Sums of the fields above, for the service to check; nil is none. See CRC32C.
	PlaintextCRC32C *uint32 `json:"plaintext_crc32c,omitzero"`
	AADCRC32C       *uint32 `json:"aad_crc32c,omitzero"`
}

// EncryptOutput is the output of Encrypt.
type EncryptOutput struct {
	// Ciphertext of a symmetric key is an envelope that names key and
	// version; of others it is the algorithm's standard ciphertext.
	Ciphertext              []byte    `json:"ciphertext"`
	Algorithm               Algorithm `json:"algorithm"`
	Version                 uint32    `json:"version"`
	CiphertextCRC32C        uint32    `json:"ciphertext_crc32c"`
	VerifiedPlaintextCRC32C bool      `json:"verified_plaintext_crc32c,omitzero"`
	VerifiedAADCRC32C       bool      `json:"verified_aad_crc32c,omitzero"`
	Meta
}

// Encrypt encrypts with a key, named by its id or name.
func (c *Client) Encrypt(ctx context.Context, key string, in EncryptInput) (*EncryptOutput, error) {
	return use[EncryptOutput](ctx, c, key, in, "encrypt")
}

// DecryptInput is the input of Decrypt.
type DecryptInput struct {
	Ciphertext []byte    `json:"ciphertext"`
	AAD        []byte    `json:"aad,omitzero"`       // what was given to Encrypt
	Algorithm  Algorithm `json:"algorithm,omitzero"` // "": the key's default
	Version    uint32    `json:"version,omitzero"`   // asymmetric keys and CBC only; 0: the primary version
	Order      SM2Order  `json:"order,omitzero"`     // SM2PKE only; "": SM2OrderC1C3C2
	// IV is the initialisation vector of CBC, 16 bytes. CBC opens what older
	// systems encrypted, for credentials with the scope key:decrypt-legacy.
	IV []byte `json:"iv,omitzero"`
	// Sums of the fields above, for the service to check; nil is none. See CRC32C.
	CiphertextCRC32C *uint32 `json:"ciphertext_crc32c,omitzero"`
	AADCRC32C        *uint32 `json:"aad_crc32c,omitzero"`
}

// DecryptOutput is the output of Decrypt.
type DecryptOutput struct {
	Plaintext                []byte    `json:"plaintext"`
	Algorithm                Algorithm `json:"algorithm"`
	Version                  uint32    `json:"version"`
	PlaintextCRC32C          uint32    `json:"plaintext_crc32c"`
	VerifiedCiphertextCRC32C bool      `json:"verified_ciphertext_crc32c,omitzero"`
	VerifiedAADCRC32C        bool      `json:"verified_aad_crc32c,omitzero"`
	Meta
}

// Decrypt is the inverse of Encrypt. Whatever is wrong with a ciphertext, the
// error is ErrDecryptionFailed.
func (c *Client) Decrypt(ctx context.Context, key string, in DecryptInput) (*DecryptOutput, error) {
	return use[DecryptOutput](ctx, c, key, in, "decrypt")
}

// DataKeyInput is the input of DataKey and DataKeyWrapped. Exactly one of
// Bytes and Spec is given.
type DataKeyInput struct {
	Bytes int    `json:"bytes,omitzero"` // length, MinDataKey to MaxDataKey
	Spec  Spec   `json:"spec,omitzero"`  // SpecAES128 or SpecSM4 for 16 bytes, SpecAES256 for 32
	AAD   []byte `json:"aad,omitzero"`   // needed again to decrypt; nil is none
	// AADCRC32C is the sum of AAD, for the service to check; nil is none. See
	// CRC32C.
	AADCRC32C *uint32 `json:"aad_crc32c,omitzero"`
}

// DataKeyOutput is the output of DataKey.
type DataKeyOutput struct {
	Plaintext         []byte    `json:"plaintext"`  // the data key
	Ciphertext        []byte    `json:"ciphertext"` // the data key encrypted; Decrypt gives it back
	Algorithm         Algorithm `json:"algorithm"`  // by which it is encrypted
	Version           uint32    `json:"version"`
	PlaintextCRC32C   uint32    `json:"plaintext_crc32c"`
	CiphertextCRC32C  uint32    `json:"ciphertext_crc32c"`
	VerifiedAADCRC32C bool      `json:"verified_aad_crc32c,omitzero"`
	Meta
}

// DataKey makes a random key for encrypting data locally, and encrypts it
// under a symmetric key of the service for keeping beside the data.
func (c *Client) DataKey(ctx context.Context, key string, in DataKeyInput) (*DataKeyOutput, error) {
	return use[DataKeyOutput](ctx, c, key, in, "datakey")
}

// WrappedDataKeyOutput is the output of DataKeyWrapped.
type WrappedDataKeyOutput struct {
	Ciphertext        []byte    `json:"ciphertext"` // the data key encrypted; Decrypt gives it back
	Algorithm         Algorithm `json:"algorithm"`  // by which it is encrypted
	Version           uint32    `json:"version"`
	CiphertextCRC32C  uint32    `json:"ciphertext_crc32c"`
	VerifiedAADCRC32C bool      `json:"verified_aad_crc32c,omitzero"`
	Meta
}

// DataKeyWrapped makes a data key without showing it, for whoever prepares
// storage that others will use.
func (c *Client) DataKeyWrapped(ctx context.Context, key string, in DataKeyInput) (*WrappedDataKeyOutput, error) {
	return use[WrappedDataKeyOutput](ctx, c, key, in, "datakey", "wrapped")
}

// use runs an operation with a key.
func use[T any](ctx context.Context, c *Client, key string, in any, verb ...string) (*T, error) {
	return invoke[T](ctx, c, call{method: http.MethodPost, path: append([]string{"v1", "keys", key}, verb...), in: in})
}
