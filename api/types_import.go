package api

import (
	"time"

	"github.com/sluice-kms/sluice/kms"
)

// ImportParametersRequest is the body of import-parameters.
type ImportParametersRequest struct {
	Wrapping kms.ImportWrapping `json:"wrapping" api:"required" doc:"How the key is going to travel. RSA_AES_KEY_WRAP_SHA_256: an AES-256 key by RSAES-OAEP with SHA-256 (also in MGF1), then the key under it by RFC 5649. SM2PKE: SM2 encryption, C1C3C2. SM2_ENVELOPED_KEY: the SM2EnvelopedKey of GB/T 35276, for SM2 keys"`
}

// ImportParametersResponse is its answer.
type ImportParametersResponse struct {
	Wrapping  kms.ImportWrapping `json:"wrapping"`
	PublicKey string             `json:"public_key" doc:"The key to wrap for: SubjectPublicKeyInfo in PEM"`
	Token     Bytes              `json:"token" doc:"Goes with the wrapped key, as it is. It works for this tenant and this wrapping only"`
	ExpiresAt time.Time          `json:"expires_at" doc:"Until when the token works"`
	Charge
}

// ImportKeyRequest is the body of import-key: what create-key takes, and the
// material.
type ImportKeyRequest struct {
	CreateKeyRequest
	Wrapping   kms.ImportWrapping `json:"wrapping" api:"required" doc:"That of the import parameters"`
	Token      Bytes              `json:"token" api:"required" doc:"That of the import parameters" maxlen:"MaxImportToken" example:"AAAA"`
	WrappedKey Bytes              `json:"wrapped_key" api:"required" doc:"Wrapped for the public key of the import parameters: the bytes of a symmetric key, the PKCS #8 in DER of any other, or an SM2EnvelopedKey" maxlen:"MaxImportKey" example:"AAAA"`
}
