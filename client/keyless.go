package client

import (
	"context"
	"net/http"
)

// RandomOutput is the output of Random.
type RandomOutput struct {
	Random []byte `json:"random"`
	Charge
}

// Random returns 1 to MaxRandom random bytes from an HSM.
func (c *Client) Random(ctx context.Context, bytes int) (*RandomOutput, error) {
	return invoke[RandomOutput](ctx, c, call{method: http.MethodPost, path: []string{"v1", "random"},
		in: struct {
			Bytes int `json:"bytes"`
		}{bytes}})
}

// DigestOutput is the output of Digest.
type DigestOutput struct {
	Digest    []byte       `json:"digest"`
	Algorithm HashFunction `json:"algorithm"`
	Charge
}

// Digest returns the digest of data, which may be empty.
func (c *Client) Digest(ctx context.Context, algorithm HashFunction, data []byte) (*DigestOutput, error) {
	return invoke[DigestOutput](ctx, c, call{method: http.MethodPost, path: []string{"v1", "digest"},
		in: struct {
			Algorithm HashFunction `json:"algorithm"`
			Data      []byte       `json:"data"`
		}{algorithm, data}})
}
