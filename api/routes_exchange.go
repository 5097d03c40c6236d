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
		define(on("shared-secret", kms.OpSharedSecret, useErrors, "Compute an ECDH shared secret",
			"Of the key and the public key of another party on the same curve (SP 800-56A, 5.7.1.2)."), sharedSecret),
		define(on("derive", kms.OpDerive, useErrors, "Derive bytes from a key",
			"The same for the same key version, context and length."), derive),
		define(on("encapsulate", kms.OpEncapsulate, useErrors, "Make a shared secret for the holder of a key",
			"ML-KEM (FIPS 203)."), encapsulate),
		define(on("decapsulate", kms.OpDecapsulate, openErrors, "Recover a shared secret",
			"ML-KEM (FIPS 203). Only a ciphertext of the wrong length is an error."), decapsulate),
	}
}

func reencrypt(c *call, in *ReencryptRequest) (*ReencryptResponse, error) {
	if err := verifyChecksums(checksum{"ciphertext", in.Ciphertext, in.CiphertextCRC32C}, checksum{"aad", in.AAD, in.AADCRC32C},
		checksum{"destination_aad", in.DestinationAAD, in.DestinationAADCRC32C}); err != nil {
		return nil, err
	}
	out, err := c.service.Reencrypt(c.context, &c.ticket, c.object(0), kms.ReencryptInput{
		Ciphertext: in.Ciphertext, SourceKey: in.SourceKey, AAD: in.AAD, DestinationAAD: in.DestinationAAD,
		SourceAlgorithm: in.SourceAlgorithm, SourceVersion: in.SourceVersion, SourceOrder: in.SourceOrder, SourceIV: in.SourceIV,
	})
	if err := c.carriedOut(err); err != nil {
		return nil, err
	}
	return &ReencryptResponse{
		Ciphertext: out.Ciphertext, SourceVersion: out.SourceVersion, Algorithm: c.ticket.Algorithm, Version: out.Version,
		CiphertextCRC32C:         crc32c(out.Ciphertext),
		VerifiedCiphertextCRC32C: in.CiphertextCRC32C != nil, VerifiedAADCRC32C: in.AADCRC32C != nil,
		VerifiedDestinationAADCRC32C: in.DestinationAADCRC32C != nil,
		Meta:                         c.meta(),
	}, nil
}

func wrap(c *call, in *WrapRequest) (*WrapResponse, error) {
	defer clear(in.Plaintext)
	if err := verifyChecksums(checksum{"plaintext", in.Plaintext, in.PlaintextCRC32C}); err != nil {
		return nil, err
	}
	out, version, err := c.service.Wrap(c.context, &c.ticket, c.object(0), in.Plaintext)
	if err := c.carriedOut(err); err != nil {
		return nil, err
	}
	return &WrapResponse{
		Wrapped: out, Algorithm: c.ticket.Algorithm, Version: version,
		WrappedCRC32C:           crc32c(out),
		VerifiedPlaintextCRC32C: in.PlaintextCRC32C != nil,
		Meta:                    c.meta(),
	}, nil
}

func unwrap(c *call, in *UnwrapRequest) (*UnwrapResponse, error) {
	if err := verifyChecksums(checksum{"wrapped", in.Wrapped, in.WrappedCRC32C}); err != nil {
		return nil, err
	}
	out, version, err := c.service.Unwrap(c.context, &c.ticket, c.object(0), in.Wrapped, in.Version)
	if err := c.carriedOut(err); err != nil {
		return nil, err
	}
	return &UnwrapResponse{
		Plaintext: out, Algorithm: c.ticket.Algorithm, Version: version,
		PlaintextCRC32C:       crc32c(out),
		VerifiedWrappedCRC32C: in.WrappedCRC32C != nil,
		Meta:                  c.meta(),
	}, nil
}

func sharedSecret(c *call, in *SharedSecretRequest) (*SharedSecretResponse, error) {
	out, err := c.service.SharedSecret(c.context, &c.ticket, c.object(0), in.PublicKey, in.Version)
	if err := c.carriedOut(err); err != nil {
		return nil, err
	}
	return &SharedSecretResponse{out, c.ticket.Algorithm, c.ticket.Version, c.meta()}, nil
}

func derive(c *call, in *DeriveRequest) (*DeriveResponse, error) {
	out, err := c.service.Derive(c.context, &c.ticket, c.object(0), kms.DeriveInput{
		Context: in.Context, Length: *in.Bytes, Algorithm: in.Algorithm, Version: in.Version,
	})
	if err := c.carriedOut(err); err != nil {
		return nil, err
	}
	return &DeriveResponse{out, c.ticket.Algorithm, c.ticket.Version, c.meta()}, nil
}

func encapsulate(c *call, in *EncapsulateRequest) (*EncapsulateResponse, error) {
	out, err := c.service.Encapsulate(c.context, &c.ticket, c.object(0), in.Version)
	if err := c.carriedOut(err); err != nil {
		return nil, err
	}
	return &EncapsulateResponse{
		Secret: out.Secret, Ciphertext: out.Ciphertext, Algorithm: c.ticket.Algorithm, Version: out.Version,
		CiphertextCRC32C: crc32c(out.Ciphertext),
		Meta:             c.meta(),
	}, nil
}

func decapsulate(c *call, in *DecapsulateRequest) (*DecapsulateResponse, error) {
	if err := verifyChecksums(checksum{"ciphertext", in.Ciphertext, in.CiphertextCRC32C}); err != nil {
		return nil, err
	}
	out, err := c.service.Decapsulate(c.context, &c.ticket, c.object(0), in.Ciphertext, in.Version)
	if err := c.carriedOut(err); err != nil {
		return nil, err
	}
	return &DecapsulateResponse{
		Secret: out, Algorithm: c.ticket.Algorithm, Version: c.ticket.Version,
		VerifiedCiphertextCRC32C: in.CiphertextCRC32C != nil,
		Meta:                     c.meta(),
	}, nil
}
