package api

import (
	"net/http"

	"github.com/sluice-kms/sluice/kms"
)

func operationRoutes() []Route {
	const group = "Operations"
	on := func(name, path string, op kms.Op, errors []kms.Kind, summary, description string) Route {
		return Route{Name: name, Group: group, Method: http.MethodPost, Path: "/v1/keys/{key}/" + path, Op: op,
			Errors: errors, Summary: summary, Description: description}
	}
	return []Route{
		define(on("encrypt", "encrypt", kms.OpEncrypt, sealErrors, "Encrypt",
			"Symmetric keys use the newest version and give an envelope that names key and version; others give the algorithm's standard ciphertext."), encrypt),
		define(on("decrypt", "decrypt", kms.OpDecrypt, openErrors, "Decrypt",
			"Whatever is wrong with a ciphertext, the answer is decryption_failed."), decrypt),
		define(on("sign", "sign", kms.OpSign, useErrors, "Sign a message or a digest", ""), sign),
		define(on("verify", "verify", kms.OpVerify, useErrors, "Verify a signature",
			"A signature that is not valid is an answer, not an error."), verify),
		define(on("mac", "mac", kms.OpMAC, useErrors, "Compute a message authentication code", ""), mac),
		define(on("verify-mac", "verify-mac", kms.OpVerifyMAC, useErrors, "Verify a message authentication code", ""), verifyMAC),
		define(on("data-key", "datakey", kms.OpDataKey, sealErrors, "Make a data key",
			"Returns a random key for use outside, in the clear and encrypted under the key."), dataKey),
		define(on("wrapped-data-key", "datakey/wrapped", kms.OpDataKey, sealErrors, "Make a data key, encrypted only",
			"As datakey, for those who will decrypt it elsewhere or later."), wrappedDataKey),
	}
}

func keylessRoutes() []Route {
	const group = "Keyless operations"
	errors := []kms.Kind{kms.KindInvalidArgument}
	return []Route{
		define(Route{Name: "random", Group: group, Method: http.MethodPost, Path: "/v1/random", Op: kms.OpRandom,
			Errors: errors, Summary: "Get random bytes", Description: "From an HSM of the tenant's domain."}, random),
		define(Route{Name: "digest", Group: group, Method: http.MethodPost, Path: "/v1/digest", Op: kms.OpDigest,
			Errors: errors, Summary: "Compute a digest"}, digest),
	}
}

func encrypt(c *call, in *EncryptRequest) (*EncryptResponse, error) {
	defer clear(in.Plaintext)
	out, err := c.service.Encrypt(c.context, &c.ticket, c.object(0), kms.EncryptInput{
		Plaintext: in.Plaintext, AAD: in.AAD, Algorithm: in.Algorithm, Version: in.Version, Order: in.Order,
	})
	if err != nil {
		return nil, err
	}
	return &EncryptResponse{out.Ciphertext, c.ticket.Algorithm, out.Version, c.meta()}, nil
}

func decrypt(c *call, in *DecryptRequest) (*DecryptResponse, error) {
	out, err := c.service.Decrypt(c.context, &c.ticket, c.object(0), kms.DecryptInput{
		Ciphertext: in.Ciphertext, AAD: in.AAD, Algorithm: in.Algorithm, Version: in.Version, Order: in.Order, IV: in.IV,
	})
	if err != nil {
		return nil, err
	}
	return &DecryptResponse{out.Plaintext, c.ticket.Algorithm, out.Version, c.meta()}, nil
}

func sign(c *call, in *SignRequest) (*SignResponse, error) {
	defer clear(in.Message)
	out, err := c.service.Sign(c.context, &c.ticket, c.object(0), kms.SignInput{
		Message: in.Message, Digest: in.Digest, Algorithm: in.Algorithm, UserID: in.UserID,
		Version: in.Version, Format: in.Format,
	})
	if err != nil {
		return nil, err
	}
	return &SignResponse{out.Signature, out.Algorithm, out.Version, c.meta()}, nil
}

func verify(c *call, in *VerifyRequest) (*VerifyResponse, error) {
	defer clear(in.Message)
	out, err := c.service.Verify(c.context, &c.ticket, c.object(0), kms.VerifyInput{
		SignInput: kms.SignInput{
			Message: in.Message, Digest: in.Digest, Algorithm: in.Algorithm, UserID: in.UserID,
			Version: in.Version, Format: in.Format,
		},
		Signature: in.Signature,
	})
	if err != nil {
		return nil, err
	}
	return &VerifyResponse{out.Valid, out.Algorithm, out.Version, c.meta()}, nil
}

func mac(c *call, in *MACRequest) (*MACResponse, error) {
	defer clear(in.Message)
	out, err := c.service.MAC(c.context, &c.ticket, c.object(0), kms.MACInput{
		Message: in.Message, Algorithm: in.Algorithm, Version: in.Version,
	})
	if err != nil {
		return nil, err
	}
	return &MACResponse{out.MAC, out.Algorithm, out.Version, c.meta()}, nil
}

func verifyMAC(c *call, in *VerifyMACRequest) (*VerifyMACResponse, error) {
	defer clear(in.Message)
	out, err := c.service.VerifyMAC(c.context, &c.ticket, c.object(0), kms.VerifyMACInput{
		MACInput: kms.MACInput{Message: in.Message, Algorithm: in.Algorithm, Version: in.Version},
		MAC:      in.MAC,
	})
	if err != nil {
		return nil, err
	}
	return &VerifyMACResponse{out.Valid, out.Algorithm, out.Version, c.meta()}, nil
}

func dataKey(c *call, in *DataKeyRequest) (*DataKeyResponse, error) {
	out, err := c.makeDataKey(in)
	if err != nil {
		return nil, err
	}
	return &DataKeyResponse{out.Plaintext, out.Ciphertext, c.ticket.Algorithm, out.Version, c.meta()}, nil
}

func wrappedDataKey(c *call, in *DataKeyRequest) (*WrappedDataKeyResponse, error) {
	out, err := c.makeDataKey(in)
	if err != nil {
		return nil, err
	}
	clear(out.Plaintext)
	return &WrappedDataKeyResponse{out.Ciphertext, c.ticket.Algorithm, out.Version, c.meta()}, nil
}

// dataKeyBytes is the length of data keys that are asked for by spec.
var dataKeyBytes = map[kms.Spec]int{kms.SpecAES128: 16, kms.SpecAES256: 32, kms.SpecSM4: 16}

func (c *call) makeDataKey(in *DataKeyRequest) (*kms.DataKeyOutput, error) {
	length, known := dataKeyBytes[in.Spec]
	switch {
	case (in.Bytes == nil) == (in.Spec == ""):
		return nil, kms.Errorf(kms.KindInvalidArgument, "give either bytes or spec")
	case in.Bytes != nil:
		length = *in.Bytes
	case !known:
		return nil, kms.Errorf(kms.KindInvalidArgument, "spec: must be AES_128, AES_256 or SM4")
	}
	return c.service.DataKey(c.context, &c.ticket, c.object(0), kms.DataKeyInput{Length: length, AAD: in.AAD})
}

func random(c *call, in *RandomRequest) (*RandomResponse, error) {
	out, err := c.service.Random(c.context, &c.ticket, *in.Bytes)
	if err != nil {
		return nil, err
	}
	return &RandomResponse{out, c.charge()}, nil
}

func digest(c *call, in *DigestRequest) (*DigestResponse, error) {
	defer clear(in.Data)
	out, err := c.service.Digest(c.context, &c.ticket, in.Algorithm, in.Data)
	if err != nil {
		return nil, err
	}
	return &DigestResponse{out, in.Algorithm, c.charge()}, nil
}
