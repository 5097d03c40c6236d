package client

import "context"

// MACInput is the input of MAC.
type MACInput struct {
	Message   []byte    `json:"message"`            // may be empty
	Algorithm Algorithm `json:"algorithm,omitzero"` // "": the key's default
	Version   uint32    `json:"version,omitzero"`   // 0: the primary version
}

// MACOutput is the output of MAC.
type MACOutput struct {
	MAC       []byte    `json:"mac"`
	Algorithm Algorithm `json:"algorithm"`
	Version   uint32    `json:"version"`
	Meta
}

// MAC computes the message authentication code of a message with a key, named
// by its id or name.
func (c *Client) MAC(ctx context.Context, key string, in MACInput) (*MACOutput, error) {
	return use[MACOutput](ctx, c, key, in, "mac")
}

// VerifyMACInput is the input of VerifyMAC.
type VerifyMACInput struct {
	MACInput
	MAC []byte `json:"mac"`
}

// VerifyMACOutput is the output of VerifyMAC.
type VerifyMACOutput struct {
	Valid     bool      `json:"valid"`
	Algorithm Algorithm `json:"algorithm"`
	Version   uint32    `json:"version"`
	Meta
}

// VerifyMAC tells whether a code is that of a message. One that is not is no
// error: look at Valid.
func (c *Client) VerifyMAC(ctx context.Context, key string, in VerifyMACInput) (*VerifyMACOutput, error) {
	return use[VerifyMACOutput](ctx, c, key, in, "verify-mac")
}
