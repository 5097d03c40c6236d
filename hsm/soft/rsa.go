package soft

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/x509"
	"hash"

	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/kms"
)

// pssOptions fixes the salt's length to that of the hash (RFC 8017, section
// 9.1), to sign and to verify.
var pssOptions = &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash}

// rsaSigningKey signs with PSS and PKCS #1 v1.5 (RFC 8017, section 8).
type rsaSigningKey struct{ private *rsa.PrivateKey }

// rsaDecryptionKey decrypts OAEP (RFC 8017, section 7.1). It is a type of its
// own so that a key for one usage has no method of the other.
type rsaDecryptionKey struct{ private *rsa.PrivateKey }

func newRSAKey(info *kms.SpecInfo, usage kms.Usage, raw []byte) (privateKey, error) {
	private, err := parseRSA(info, raw)
	if err != nil {
		return nil, err
	}
	if usage == kms.UsageEncryptDecrypt {
		return rsaDecryptionKey{private}, nil
	}
	return rsaSigningKey{private}, nil
}

// parseRSA reads a PKCS #8 key of the spec in its one encoding.
func parseRSA(info *kms.SpecInfo, raw []byte) (*rsa.PrivateKey, error) {
	parsed, err := x509.ParsePKCS8PrivateKey(raw)
	if err != nil {
		return nil, errMaterial
	}
	private, ok := parsed.(*rsa.PrivateKey)
	if !ok || private.N.BitLen() != info.Bits {
		return nil, errMaterial
	}
	// The parser lets bytes pass that follow the key.
	canonical, err := x509.MarshalPKCS8PrivateKey(private)
	defer clear(canonical)
	if err != nil || subtle.ConstantTimeCompare(canonical, raw) != 1 {
		return nil, errMaterial
	}
	return private, nil
}

func (k rsaSigningKey) sign(c *hsm.Call) ([]byte, error) {
	h := cryptoHash(c.Algorithm.Hash())
	var sig []byte
	var err error
	if pss(c.Algorithm) {
		sig, err = rsa.SignPSS(rand.Reader, k.private, h, inputDigest(c), pssOptions)
	} else {
		sig, err = rsa.SignPKCS1v15(rand.Reader, k.private, h, inputDigest(c))
	}
	if err != nil {
		return nil, failed("sign", err)
	}
	return sig, nil
}

func (k rsaDecryptionKey) decrypt(c *hsm.Call) ([]byte, error) {
	plaintext, err := rsa.DecryptOAEP(oaepHash(c.Algorithm), rand.Reader, k.private, c.Input, nil)
	if err != nil {
		return nil, errDecryption
	}
	return plaintext, nil
}

// rsaPublic is an RSA public key, for either usage.
type rsaPublic struct{ public *rsa.PublicKey }

func (k rsaPublic) verify(c *hsm.Call) bool {
	h := cryptoHash(c.Algorithm.Hash())
	if pss(c.Algorithm) {
		return rsa.VerifyPSS(k.public, h, inputDigest(c), c.Signature, pssOptions) == nil
	}
	return rsa.VerifyPKCS1v15(k.public, h, inputDigest(c), c.Signature) == nil
}

func (k rsaPublic) encryptTo(c *hsm.Call) ([]byte, error) {
	h := oaepHash(c.Algorithm)
	if len(c.Input) > k.public.Size()-2*h.Size()-2 {
		return nil, errTooLong
	}
	ciphertext, err := rsa.EncryptOAEP(h, rand.Reader, k.public, c.Input, nil)
	if err != nil {
		return nil, errPublicKey // of the key only: an exponent that is even, for one
	}
	return ciphertext, nil
}

func pss(a kms.Algorithm) bool {
	switch a {
	case kms.AlgRSAPSSSHA256, kms.AlgRSAPSSSHA384, kms.AlgRSAPSSSHA512:
		return true
	}
	return false
}

// oaepHash returns the hash of OAEP, which is also that of its MGF1. SHA-1 is
// no weakness there: OAEP needs no collision resistance.
func oaepHash(a kms.Algorithm) hash.Hash {
	if a == kms.AlgRSAOAEPSHA1 {
		return sha1.New()
	}
	return sha256.New()
}
