package client

import (
	"context"
	"net/http"
	"time"
)

// ImportWrapping is how a key travels to the service.
type ImportWrapping string

// The ways. ImportRSAAES is an AES-256 key by RSAES-OAEP with SHA-256, then the
// key under it by RFC 5649 (PKCS #11 v2.40, 2.1.21); ImportSM2 is SM2
// encryption, C1C3C2; ImportSM2Enveloped is the SM2EnvelopedKey of GB/T
// 35276-2017, 7.4, for SM2 keys.
const (
	ImportRSAAES       ImportWrapping = "RSA_AES_KEY_WRAP_SHA_256"
	ImportSM2          ImportWrapping = "SM2PKE"
	ImportSM2Enveloped ImportWrapping = "SM2_ENVELOPED_KEY"
)

// ImportParameters are what a key is wrapped for.
type ImportParameters struct {
	Wrapping  ImportWrapping `json:"wrapping"`
	PublicKey string         `json:"public_key"` // SubjectPublicKeyInfo, PEM
	// Token goes with the wrapped key, as it is. It is no secret, and works
	// for this tenant and this wrapping only.
	Token     []byte    `json:"token"`
	ExpiresAt time.Time `json:"expires_at"`
	Charge
}

type importParametersInput struct {
	Wrapping ImportWrapping `json:"wrapping"`
}

// ImportParameters gets what a key is wrapped for to be imported; see WrapKey
// and ImportKey. It serves any number of keys until it expires.
func (c *Client) ImportParameters(ctx context.Context, wrapping ImportWrapping) (*ImportParameters, error) {
	return invoke[ImportParameters](ctx, c, call{
		method: http.MethodPost, path: []string{"v1", "import-parameters"}, in: importParametersInput{wrapping}, prepares: true})
}

// ImportKeyInput is the input of ImportKey: what CreateKey takes, and the
// material.
type ImportKeyInput struct {
	CreateKeyInput
	Wrapping   ImportWrapping `json:"wrapping"`    // of the parameters
	Token      []byte         `json:"token"`       // of the parameters
	WrappedKey []byte         `json:"wrapped_key"` // for the public key of the parameters
}

// ImportKey makes a key of material from outside. The material passes through
// the memory of the service, and the key's origin says so for good. Whatever is
// wrong with the token or the material gives the same ErrInvalidArgument; only
// a token that has expired is told.
func (c *Client) ImportKey(ctx context.Context, in ImportKeyInput) (*KeyOutput, error) {
	return invoke[KeyOutput](ctx, c, call{method: http.MethodPost, path: []string{"v1", "import"}, in: in, changes: true})
}
