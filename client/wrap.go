package client

import "context"

// WrapInput is the input of Wrap.
type WrapInput struct {
	Plaintext []byte `json:"plaintext"` // 1 to MaxWrap bytes
}

// WrapOutput is the output of Wrap.
type WrapOutput struct {
	Wrapped   []byte    `json:"wrapped"`
	Algorithm Algorithm `json:"algorithm"`
	Version   uint32    `json:"version"` // Unwrap has to be told it, once the key was rotated
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
}

// UnwrapOutput is the output of Unwrap.
type UnwrapOutput struct {
	Plaintext []byte    `json:"plaintext"`
	Algorithm Algorithm `json:"algorithm"`
	Version   uint32    `json:"version"`
	Meta
}

// Unwrap is the inverse of Wrap. Whatever is wrong with what was wrapped, the
// error is ErrDecryptionFailed.
func (c *Client) Unwrap(ctx context.Context, key string, in UnwrapInput) (*UnwrapOutput, error) {
	return use[UnwrapOutput](ctx, c, key, in, "unwrap")
}
