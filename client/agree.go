package client

import "context"

// SharedSecretInput is the input of SharedSecret.
type SharedSecretInput struct {
	// PublicKey is the other party's, on the same curve: a
	// SubjectPublicKeyInfo in DER.
	PublicKey []byte `json:"public_key"`
	Version   uint32 `json:"version,omitzero"` // 0: the primary version
}

// SharedSecretOutput is the output of SharedSecret.
type SharedSecretOutput struct {
	Secret    []byte    `json:"secret"` // the x-coordinate, as long as the field
	Algorithm Algorithm `json:"algorithm"`
	Version   uint32    `json:"version"`
	Meta
}

// SharedSecret computes the ECDH shared secret of a key and another party's
// public key. Feed it to a key derivation function before you use it.
func (c *Client) SharedSecret(ctx context.Context, key string, in SharedSecretInput) (*SharedSecretOutput, error) {
	return use[SharedSecretOutput](ctx, c, key, in, "shared-secret")
}

// DeriveInput is the input of Derive.
type DeriveInput struct {
	// Context is what the bytes are for, at most MaxDeriveContext; other
	// contexts give independent bytes.
	Context   []byte    `json:"context,omitzero"`
	Bytes     int       `json:"bytes"`              // how many, MinDerived to MaxDerived
	Algorithm Algorithm `json:"algorithm,omitzero"` // "": the key's default
	Version   uint32    `json:"version,omitzero"`   // 0: the primary version
}

// DeriveOutput is the output of Derive.
type DeriveOutput struct {
	Derived   []byte    `json:"derived"`
	Algorithm Algorithm `json:"algorithm"`
	Version   uint32    `json:"version"` // name it to get the same bytes after a rotation
	Meta
}

// Derive computes bytes from a key: the same for the same version, context and
// length.
func (c *Client) Derive(ctx context.Context, key string, in DeriveInput) (*DeriveOutput, error) {
	return use[DeriveOutput](ctx, c, key, in, "derive")
}

// EncapsulateInput is the input of Encapsulate.
type EncapsulateInput struct {
	Version uint32 `json:"version,omitzero"` // 0: the primary version
}

// EncapsulateOutput is the output of Encapsulate.
type EncapsulateOutput struct {
	Secret           []byte    `json:"secret"`     // the shared secret
	Ciphertext       []byte    `json:"ciphertext"` // from which Decapsulate recovers it
	Algorithm        Algorithm `json:"algorithm"`
	Version          uint32    `json:"version"`
	CiphertextCRC32C uint32    `json:"ciphertext_crc32c"`
	Meta
}

// Encapsulate makes a shared secret for the holder of a key (FIPS 203).
func (c *Client) Encapsulate(ctx context.Context, key string, in EncapsulateInput) (*EncapsulateOutput, error) {
	return use[EncapsulateOutput](ctx, c, key, in, "encapsulate")
}

// DecapsulateInput is the input of Decapsulate.
type DecapsulateInput struct {
	Ciphertext []byte `json:"ciphertext"`
	Version    uint32 `json:"version,omitzero"` // that it was made for; 0: the primary version
	// CiphertextCRC32C is the sum of Ciphertext, for the service to check; nil is none. See
	// CRC32C.
	CiphertextCRC32C *uint32 `json:"ciphertext_crc32c,omitzero"`
}

// DecapsulateOutput is the output of Decapsulate.
type DecapsulateOutput struct {
	Secret                   []byte    `json:"secret"`
	Algorithm                Algorithm `json:"algorithm"`
	Version                  uint32    `json:"version"`
	VerifiedCiphertextCRC32C bool      `json:"verified_ciphertext_crc32c,omitzero"`
	Meta
}

// Decapsulate recovers a shared secret. A ciphertext that was changed gives
// another secret, not an error (implicit rejection, FIPS 203).
func (c *Client) Decapsulate(ctx context.Context, key string, in DecapsulateInput) (*DecapsulateOutput, error) {
	return use[DecapsulateOutput](ctx, c, key, in, "decapsulate")
}
