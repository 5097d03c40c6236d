package api

import (
	"net/http"
	"slices"

	"github.com/sluice-kms/sluice/kms"
)

// exchangeRoutes are operations with keys by which secrets come and go.
func exchangeRoutes() []Route {
	on := func(name string, op kms.Op, errors []kms.Kind, summary, description string) Route {
		return Route{Name: name, Group: "Operations", Method: http.MethodPost, Path: "/v1/keys/{key}/" + name, Op: op,
			Errors: errors, Summary: summary, Description: description}
	}
	return []Route{
		define(on("reencrypt", kms.OpReencrypt, slices.Concat(openErrors, sealErrors), "Encrypt anew what another key encrypted",
			"Decrypts with source_key and encrypts with the key of the path, which is symmetric. It needs decrypt on the one "+
				"and encrypt on the other; the plaintext does not leave the service."), reencrypt),
		define(on("wrap", kms.OpWrap, useErrors, "Wrap bytes of the caller",
			"By RFC 5649, for systems that speak it. For anything else encrypt is the better choice, which binds context."), wrap),
		define(on("unwrap", kms.OpUnwrap, openErrors, "Unwrap what wrap gave",
			"Whatever is wrong with what was wrapped, the answer is decryption_failed."), unwrap),
		define(on("shared-secret", kms.OpSharedSecret, useErrors, "Compute an ECDH shared secret", ""), sharedSecret),
		define(on("derive", kms.OpDerive, useErrors, "Derive bytes from a key",
			"The same for the same key version, context and length."), derive),
		define(on("encapsulate", kms.OpEncapsulate, useErrors, "Make a shared secret for the holder of a key",
			"ML-KEM (FIPS 203)."), encapsulate),
		define(on("decapsulate", kms.OpDecapsulate, openErrors, "Recover a shared secret", ""), decapsulate),
	}
}

func reencrypt(c *call, in *ReencryptRequest) (*ReencryptResponse, error) {
	out, err := c.service.Reencrypt(c.context, &c.ticket, c.object(0), kms.ReencryptInput{
		Ciphertext: in.Ciphertext, SourceKey: in.SourceKey, AAD: in.AAD, DestinationAAD: in.DestinationAAD,
		SourceAlgorithm: in.SourceAlgorithm, SourceVersion: in.SourceVersion, SourceOrder: in.SourceOrder, SourceIV: in.SourceIV,
	})
	if err != nil {
		return nil, err
	}
	return &ReencryptResponse{out.Ciphertext, out.SourceVersion, c.ticket.Algorithm, out.Version, c.meta()}, nil
}

func wrap(c *call, in *WrapRequest) (*WrapResponse, error) {
	defer clear(in.Plaintext)
	out, version, err := c.service.Wrap(c.context, &c.ticket, c.object(0), in.Plaintext)
	if err != nil {
		return nil, err
	}
	return &WrapResponse{out, c.ticket.Algorithm, version, c.meta()}, nil
}

func unwrap(c *call, in *UnwrapRequest) (*UnwrapResponse, error) {
	out, version, err := c.service.Unwrap(c.context, &c.ticket, c.object(0), in.Wrapped, in.Version)
	if err != nil {
		return nil, err
	}
	return &UnwrapResponse{out, c.ticket.Algorithm, version, c.meta()}, nil
}

func sharedSecret(c *call, in *SharedSecretRequest) (*SharedSecretResponse, error) {
	out, err := c.service.SharedSecret(c.context, &c.ticket, c.object(0), in.PublicKey, in.Version)
	if err != nil {
		return nil, err
	}
	return &SharedSecretResponse{out, c.ticket.Algorithm, c.ticket.Version, c.meta()}, nil
}

func derive(c *call, in *DeriveRequest) (*DeriveResponse, error) {
	out, err := c.service.Derive(c.context, &c.ticket, c.object(0), kms.DeriveInput{
		Context: in.Context, Length: *in.Bytes, Algorithm: in.Algorithm, Version: in.Version,
	})
	if err != nil {
		return nil, err
	}
	return &DeriveResponse{out, c.ticket.Algorithm, c.ticket.Version, c.meta()}, nil
}

func encapsulate(c *call, in *EncapsulateRequest) (*EncapsulateResponse, error) {
	out, err := c.service.Encapsulate(c.context, &c.ticket, c.object(0), in.Version)
	if err != nil {
		return nil, err
	}
	return &EncapsulateResponse{out.Secret, out.Ciphertext, c.ticket.Algorithm, out.Version, c.meta()}, nil
}

func decapsulate(c *call, in *DecapsulateRequest) (*DecapsulateResponse, error) {
	out, err := c.service.Decapsulate(c.context, &c.ticket, c.object(0), in.Ciphertext, in.Version)
	if err != nil {
		return nil, err
	}
	return &DecapsulateResponse{out, c.ticket.Algorithm, c.ticket.Version, c.meta()}, nil
}
