package client

import "context"

// MACInput is the input of MAC.
type MACInput struct {
	Message   []byte    `json:"message"`            // may be empty
	Algorithm Algorithm `json:"algorithm,omitzero"` // "": the key's default
	Version   uint32    `json:"version,omitzero"`   // 0: the primary version
	// MessageCRC32C is the sum of Message, for the service to check; nil is none. See
	// CRC32C.
	MessageCRC32C *uint32 `json:"message_crc32c,omitzero"`
}

// MACOutput is the output of MAC.
type MACOutput struct {
	MAC                   []byte    `json:"mac"`
	Algorithm             Algorithm `json:"algorithm"`
	Version               uint32    `json:"version"`
	MACCRC32C             uint32    `json:"mac_crc32c"`
	VerifiedMessageCRC32C bool      `json:"verified_message_crc32c,omitzero"`
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
	// MACCRC32C is the sum of MAC, for the service to check; nil is none. See
	// CRC32C.
	MACCRC32C *uint32 `json:"mac_crc32c,omitzero"`
}

// VerifyMACOutput is the output of VerifyMAC.
type VerifyMACOutput struct {
	Valid                 bool      `json:"valid"`
	Algorithm             Algorithm `json:"algorithm"`
	Version               uint32    `json:"version"`
	VerifiedMessageCRC32C bool      `json:"verified_message_crc32c,omitzero"`
	VerifiedMACCRC32C     bool      `json:"verified_mac_crc32c,omitzero"`
	Meta
}

// VerifyMAC tells whether a code is that of a message. One that is not is no
// error: look at Valid.
func (c *Client) VerifyMAC(ctx context.Context, key string, in VerifyMACInput) (*VerifyMACOutput, error) {
	return use[VerifyMACOutput](ctx, c, key, in, "verify-mac")
}
