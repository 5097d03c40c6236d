package client

import (
	"context"
	"encoding/json/jsontext"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
)

// SignInput is the input of Sign. Exactly one of Message and Digest is not
// nil; an empty message that is not nil is a message.
type SignInput struct {
	Message []byte `json:"message,omitzero"`
	// Digest is the message's digest by the algorithm's hash function; for
	// AlgSM2DSA that over identity and message (GB/T 32918.2, 6.1); for
	// AlgMLDSA µ, 64 bytes (FIPS 204, 6.2).
	Digest    []byte    `json:"digest,omitzero"`
	Algorithm Algorithm `json:"algorithm,omitzero"` // "": the key's default
	// UserID is the signer's identity, for AlgSM2DSA with a Message only; ""
	// is 1234567812345678 (GM/T 0009).
	UserID  string          `json:"user_id,omitzero"`
	Version uint32          `json:"version,omitzero"` // 0: the primary version
	Format  SignatureFormat `json:"format,omitzero"`  // ECDSA and SM2DSA only; "": FormatDER
	// Sums of the fields above, for the service to check; nil is none. See CRC32C.
	MessageCRC32C *uint32 `json:"message_crc32c,omitzero"`
	DigestCRC32C  *uint32 `json:"digest_crc32c,omitzero"`
}

// SignOutput is the output of Sign.
type SignOutput struct {
	Signature             []byte    `json:"signature"`
	Algorithm             Algorithm `json:"algorithm"`
	Version               uint32    `json:"version"`
	SignatureCRC32C       uint32    `json:"signature_crc32c"`
	VerifiedMessageCRC32C bool      `json:"verified_message_crc32c,omitzero"`
	VerifiedDigestCRC32C  bool      `json:"verified_digest_crc32c,omitzero"`
	Meta
}

// Sign signs a message or a digest with a key, named by its id or name.
func (c *Client) Sign(ctx context.Context, key string, in SignInput) (*SignOutput, error) {
	return use[SignOutput](ctx, c, key, in, "sign")
}

// VerifyInput is the input of Verify. Without a Version the eight newest
// enabled versions are tried, the newest first.
type VerifyInput struct {
	SignInput
	Signature []byte `json:"signature"`
	// SignatureCRC32C is the sum of Signature, for the service to check; nil is none. See
	// CRC32C.
	SignatureCRC32C *uint32 `json:"signature_crc32c,omitzero"`
}

// VerifyOutput is the output of Verify.
type VerifyOutput struct {
	Valid                   bool      `json:"valid"`
	Algorithm               Algorithm `json:"algorithm"`
	Version                 uint32    `json:"version,omitzero"` // of a valid signature
	VerifiedMessageCRC32C   bool      `json:"verified_message_crc32c,omitzero"`
	VerifiedDigestCRC32C    bool      `json:"verified_digest_crc32c,omitzero"`
	VerifiedSignatureCRC32C bool      `json:"verified_signature_crc32c,omitzero"`
	Meta
}

// Verify tells whether a signature is valid. One that is not, however
// malformed, is no error: look at Valid.
func (c *Client) Verify(ctx context.Context, key string, in VerifyInput) (*VerifyOutput, error) {
	return use[VerifyOutput](ctx, c, key, in, "verify")
}

// PublicKey is the public half of a key version.
type PublicKey struct {
	PEM string `json:"pem"` // SubjectPublicKeyInfo
	// JWK is the key as a JSON Web Key (RFC 7517); absent where no JWK form is
	// registered, as for SM2.
	JWK     jsontext.Value `json:"jwk,omitzero"`
	Spec    Spec           `json:"spec"`
	Usage   Usage          `json:"usage"`
	Version uint32         `json:"version"`
	Meta
}

// DER returns the SubjectPublicKeyInfo in DER, as x509.ParsePKIXPublicKey
// takes it for the curves that it knows.
func (p *PublicKey) DER() ([]byte, error) { return decodePEM(p.PEM, "PUBLIC KEY") }

func decodePEM(text, kind string) ([]byte, error) {
	block, _ := pem.Decode([]byte(text))
	if block == nil || block.Type != kind {
		return nil, fmt.Errorf("%w: it holds no %s in PEM", ErrBadAnswer, kind)
	}
	return block.Bytes, nil
}

// PublicKey returns the public half of a key version, 0 for the primary one.
// It works on disabled keys too.
func (c *Client) PublicKey(ctx context.Context, key string, version uint32) (*PublicKey, error) {
	k := call{method: http.MethodGet, path: []string{"v1", "keys", key, "public"}}
	if version != 0 {
		k.query = url.Values{"version": {strconv.FormatUint(uint64(version), 10)}}
	}
	return invoke[PublicKey](ctx, c, k)
}
