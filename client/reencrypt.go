package client

import "context"

// ReencryptInput is the input of Reencrypt.
type ReencryptInput struct {
	Ciphertext []byte `json:"ciphertext"`
	SourceKey  string `json:"source_key"`   // id or name of the key that decrypts; it may be the same
	AAD        []byte `json:"aad,omitzero"` // what was given to Encrypt
	// DestinationAAD is the additional data of the new ciphertext; nil is AAD.
	DestinationAAD []byte `json:"destination_aad,omitzero"`
	// What Decrypt takes beside; zero values are its defaults.
	SourceAlgorithm Algorithm `json:"source_algorithm,omitzero"`
	SourceVersion   uint32    `json:"source_version,omitzero"`
	SourceOrder     SM2Order  `json:"source_order,omitzero"`
	SourceIV        []byte    `json:"source_iv,omitzero"`
	// Sums of the fields above, for the service to check; nil is none. See CRC32C.
	CiphertextCRC32C     *uint32 `json:"ciphertext_crc32c,omitzero"`
	AADCRC32C            *uint32 `json:"aad_crc32c,omitzero"`
	DestinationAADCRC32C *uint32 `json:"destination_aad_crc32c,omitzero"`
}

// ReencryptOutput is the output of Reencrypt.
type ReencryptOutput struct {
	Ciphertext                   []byte    `json:"ciphertext"`
	SourceVersion                uint32    `json:"source_version"` // which decrypted
	Algorithm                    Algorithm `json:"algorithm"`
	Version                      uint32    `json:"version"` // which encrypted
	CiphertextCRC32C             uint32    `json:"ciphertext_crc32c"`
	VerifiedCiphertextCRC32C     bool      `json:"verified_ciphertext_crc32c,omitzero"`
	VerifiedAADCRC32C            bool      `json:"verified_aad_crc32c,omitzero"`
	VerifiedDestinationAADCRC32C bool      `json:"verified_destination_aad_crc32c,omitzero"`
	Meta
}

// Reencrypt decrypts a ciphertext with in.SourceKey and encrypts it with key,
// a symmetric one, whose newest version it then names. The plaintext does not
// leave the service.
func (c *Client) Reencrypt(ctx context.Context, key string, in ReencryptInput) (*ReencryptOutput, error) {
	return use[ReencryptOutput](ctx, c, key, in, "reencrypt")
}
