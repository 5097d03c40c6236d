package client

import "context"

// WrapInput is the input of Wrap.
type WrapInput struct {
	Plaintext []byte `json:"plaintext"` // 1 to MaxWrap bytes
	// PlaintextCRC32C is the sum of Plaintext, for the service to check; nil is none. See
	// CRC32C.
	PlaintextCRC32C *uint32 `json:"plaintext_crc32c,omitzero"`
}

// WrapOutput is the output of Wrap.
type WrapOutput struct {
	Wrapped                 []byte    `json:"wrapped"`
	Algorithm               Algorithm `json:"algorithm"`
	Version                 uint32    `json:"version"` // Unwrap has to be told it, once the key was rotated
	WrappedCRC32C           uint32    `json:"wrapped_crc32c"`
	VerifiedPlaintextCRC32C bool      `json:"verified_plaintext_crc32c,omitzero"`
	Meta
}

// Wrap protects bytes under a key by RFC 5649, for systems that speak it. For
// anything else Encrypt is the better choice, which binds context.
func (c *Client) Wrap(ctx context.Context, key string, in WrapInput) (*WrapOutput, error) {
	return use[WrapOutput](ctx, c, key, in, "wrap")
}

// UnwrapInput is the input of Unwrap.
type UnwrapInput struct {
	Wrapped []byte `json:"wrapped"`
	Version uint32 `json:"version,omitzero"` // which wrapped; 0: the primary version
	// WrappedCRC32C is the sum of Wrapped, for the service to check; nil is none. See
	// CRC32C.
	WrappedCRC32C *uint32 `json:"wrapped_crc32c,omitzero"`
}

// UnwrapOutput is the output of Unwrap.
type UnwrapOutput struct {
	Plaintext             []byte    `json:"plaintext"`
	Algorithm             Algorithm `json:"algorithm"`
	Version               uint32    `json:"version"`
	PlaintextCRC32C       uint32    `json:"plaintext_crc32c"`
	VerifiedWrappedCRC32C bool      `json:"verified_wrapped_crc32c,omitzero"`
	Meta
}

// Unwrap is the inverse of Wrap. Whatever is wrong with what was wrapped, the
// error is ErrDecryptionFailed.
func (c *Client) Unwrap(ctx context.Context, key string, in UnwrapInput) (*UnwrapOutput, error) {
	return use[UnwrapOutput](ctx, c, key, in, "unwrap")
}
