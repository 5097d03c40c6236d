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
	if err := verifyChecksums(checksum{"plaintext", in.Plaintext, in.PlaintextCRC32C}, checksum{"aad", in.AAD, in.AADCRC32C}); err != nil {
		return nil, err
	}
	out, err := c.service.Encrypt(c.context, &c.ticket, c.object(0), kms.EncryptInput{
		Plaintext: in.Plaintext, AAD: in.AAD, Algorithm: in.Algorithm, Version: in.Version, Order: in.Order,
	})
	if err := c.carriedOut(err); err != nil {
		return nil, err
	}
	return &EncryptResponse{
		Ciphertext: out.Ciphertext, Algorithm: c.ticket.Algorithm, Version: out.Version,
		CiphertextCRC32C:        crc32c(out.Ciphertext),
		VerifiedPlaintextCRC32C: in.PlaintextCRC32C != nil, VerifiedAADCRC32C: in.AADCRC32C != nil,
		Meta: c.meta(),
	}, nil
}

func decrypt(c *call, in *DecryptRequest) (*DecryptResponse, error) {
	if err := verifyChecksums(checksum{"ciphertext", in.Ciphertext, in.CiphertextCRC32C}, checksum{"aad", in.AAD, in.AADCRC32C}); err != nil {
		return nil, err
	}
	out, err := c.service.Decrypt(c.context, &c.ticket, c.object(0), kms.DecryptInput{
		Ciphertext: in.Ciphertext, AAD: in.AAD, Algorithm: in.Algorithm, Version: in.Version, Order: in.Order, IV: in.IV,
	})
	if err := c.carriedOut(err); err != nil {
		return nil, err
	}
	return &DecryptResponse{
		Plaintext: out.Plaintext, Algorithm: c.ticket.Algorithm, Version: out.Version,
		PlaintextCRC32C:          crc32c(out.Plaintext),
		VerifiedCiphertextCRC32C: in.CiphertextCRC32C != nil, VerifiedAADCRC32C: in.AADCRC32C != nil,
		Meta: c.meta(),
	}, nil
}

func sign(c *call, in *SignRequest) (*SignResponse, error) {
	defer clear(in.Message)
	if err := verifyChecksums(checksum{"message", in.Message, in.MessageCRC32C}, checksum{"digest", in.Digest, in.DigestCRC32C}); err != nil {
		return nil, err
	}
	out, err := c.service.Sign(c.context, &c.ticket, c.object(0), kms.SignInput{
		Message: in.Message, Digest: in.Digest, Algorithm: in.Algorithm, UserID: in.UserID,
		Version: in.Version, Format: in.Format,
	})
	if err := c.carriedOut(err); err != nil {
		return nil, err
	}
	return &SignResponse{
		Signature: out.Signature, Algorithm: out.Algorithm, Version: out.Version,
		SignatureCRC32C:       crc32c(out.Signature),
		VerifiedMessageCRC32C: in.MessageCRC32C != nil, VerifiedDigestCRC32C: in.DigestCRC32C != nil,
		Meta: c.meta(),
	}, nil
}

func verify(c *call, in *VerifyRequest) (*VerifyResponse, error) {
	defer clear(in.Message)
	if err := verifyChecksums(checksum{"message", in.Message, in.MessageCRC32C}, checksum{"digest", in.Digest, in.DigestCRC32C},
		checksum{"signature", in.Signature, in.SignatureCRC32C}); err != nil {
		return nil, err
	}
	out, err := c.service.Verify(c.context, &c.ticket, c.object(0), kms.VerifyInput{
		SignInput: kms.SignInput{
			Message: in.Message, Digest: in.Digest, Algorithm: in.Algorithm, UserID: in.UserID,
			Version: in.Version, Format: in.Format,
		},
		Signature: in.Signature,
	})
	if err := c.carriedOut(err); err != nil {
		return nil, err
	}
	return &VerifyResponse{
		Valid: out.Valid, Algorithm: out.Algorithm, Version: out.Version,
		VerifiedMessageCRC32C: in.MessageCRC32C != nil, VerifiedDigestCRC32C: in.DigestCRC32C != nil,
		VerifiedSignatureCRC32C: in.SignatureCRC32C != nil,
		Meta:                    c.meta(),
	}, nil
}

func mac(c *call, in *MACRequest) (*MACResponse, error) {
	defer clear(in.Message)
	if err := verifyChecksums(checksum{"message", in.Message, in.MessageCRC32C}); err != nil {
		return nil, err
	}
	out, err := c.service.MAC(c.context, &c.ticket, c.object(0), kms.MACInput{
		Message: in.Message, Algorithm: in.Algorithm, Version: in.Version,
	})
	if err := c.carriedOut(err); err != nil {
		return nil, err
	}
	return &MACResponse{
		MAC: out.MAC, Algorithm: out.Algorithm, Version: out.Version,
		MACCRC32C:             crc32c(out.MAC),
		VerifiedMessageCRC32C: in.MessageCRC32C != nil,
		Meta:                  c.meta(),
	}, nil
}

func verifyMAC(c *call, in *VerifyMACRequest) (*VerifyMACResponse, error) {
	defer clear(in.Message)
	if err := verifyChecksums(checksum{"message", in.Message, in.MessageCRC32C}, checksum{"mac", in.MAC, in.MACCRC32C}); err != nil {
		return nil, err
	}
	out, err := c.service.VerifyMAC(c.context, &c.ticket, c.object(0), kms.VerifyMACInput{
		MACInput: kms.MACInput{Message: in.Message, Algorithm: in.Algorithm, Version: in.Version},
		MAC:      in.MAC,
	})
	if err := c.carriedOut(err); err != nil {
		return nil, err
	}
	return &VerifyMACResponse{
		Valid: out.Valid, Algorithm: out.Algorithm, Version: out.Version,
		VerifiedMessageCRC32C: in.MessageCRC32C != nil, VerifiedMACCRC32C: in.MACCRC32C != nil,
		Meta: c.meta(),
	}, nil
}

func dataKey(c *call, in *DataKeyRequest) (*DataKeyResponse, error) {
	out, err := c.makeDataKey(in)
	if err != nil {
		return nil, err
	}
	return &DataKeyResponse{
		Plaintext: out.Plaintext, Ciphertext: out.Ciphertext, Algorithm: c.ticket.Algorithm, Version: out.Version,
		PlaintextCRC32C: crc32c(out.Plaintext), CiphertextCRC32C: crc32c(out.Ciphertext),
		VerifiedAADCRC32C: in.AADCRC32C != nil,
		Meta:              c.meta(),
	}, nil
}

func wrappedDataKey(c *call, in *DataKeyRequest) (*WrappedDataKeyResponse, error) {
	out, err := c.makeDataKey(in)
	if err != nil {
		return nil, err
	}
	clear(out.Plaintext)
	return &WrappedDataKeyResponse{
		Ciphertext: out.Ciphertext, Algorithm: c.ticket.Algorithm, Version: out.Version,
		CiphertextCRC32C:  crc32c(out.Ciphertext),
		VerifiedAADCRC32C: in.AADCRC32C != nil,
		Meta:              c.meta(),
	}, nil
}

// dataKeyBytes is the length of data keys that are asked for by spec.
var dataKeyBytes = map[kms.Spec]int{kms.SpecAES128: 16, kms.SpecAES256: 32, kms.SpecSM4: 16}

func (c *call) makeDataKey(in *DataKeyRequest) (*kms.DataKeyOutput, error) {
	if err := verifyChecksums(checksum{"aad", in.AAD, in.AADCRC32C}); err != nil {
		return nil, err
	}
	length, known := dataKeyBytes[in.Spec]
	switch {
	case (in.Bytes == nil) == (in.Spec == ""):
		return nil, kms.Errorf(kms.KindInvalidArgument, "give either bytes or spec")
	case in.Bytes != nil:
		length = *in.Bytes
	case !known:
		return nil, kms.Errorf(kms.KindInvalidArgument, "spec: must be AES_128, AES_256 or SM4")
	}
	out, err := c.service.DataKey(c.context, &c.ticket, c.object(0), kms.DataKeyInput{Length: length, AAD: in.AAD})
	return out, c.carriedOut(err)
}

func random(c *call, in *RandomRequest) (*RandomResponse, error) {
	out, err := c.service.Random(c.context, &c.ticket, *in.Bytes)
	if err := c.carriedOut(err); err != nil {
		return nil, err
	}
	return &RandomResponse{out, c.charge()}, nil
}

func digest(c *call, in *DigestRequest) (*DigestResponse, error) {
	defer clear(in.Data)
	out, err := c.service.Digest(c.context, &c.ticket, in.Algorithm, in.Data)
	if err := c.carriedOut(err); err != nil {
		return nil, err
	}
	return &DigestResponse{out, in.Algorithm, c.charge()}, nil
}
