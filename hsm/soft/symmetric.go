package soft

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"hash"

	"github.com/emmansun/gmsm/sm3"
	"github.com/emmansun/gmsm/sm4"

	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/kms"
)

// aeadKey is an AES or SM4 key, used in GCM (SP 800-38D, RFC 8998).
type aeadKey struct {
	secret   []byte // in the slab
	newBlock func(key []byte) (cipher.Block, error)
}

func newAEADKey(info *kms.SpecInfo, raw, slot []byte) (privateKey, error) {
	secret, err := copySecret(info, raw, slot)
	if err != nil {
		return nil, err
	}
	k := &aeadKey{secret: secret, newBlock: aes.NewCipher}
	if info.Family == kms.FamilySM4 {
		k.newBlock = sm4.NewCipher
	}
	return k, nil
}

func (k *aeadKey) aead() (cipher.AEAD, error) {
	block, err := k.newBlock(k.secret)
	if err != nil {
		return nil, failed("expand key", err)
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return nil, failed("expand key", err)
	}
	return aead, nil
}

func (k *aeadKey) encrypt(c *hsm.Call) ([]byte, error) {
	aead, err := k.aead()
	if err != nil {
		return nil, err
	}
	return aead.Seal(nil, c.Nonce, c.Input, c.AAD), nil
}

func (k *aeadKey) decrypt(c *hsm.Call) ([]byte, error) {
	aead, err := k.aead()
	if err != nil {
		return nil, err
	}
	plaintext, err := aead.Open(nil, c.Nonce, c.Input, c.AAD)
	if err != nil {
		return nil, errDecryption
	}
	return plaintext, nil
}

// hmacKey is a key of HMAC (RFC 2104).
type hmacKey struct {
	secret  []byte // in the slab
	newHash func() hash.Hash
}

func newHMACKey(info *kms.SpecInfo, raw, slot []byte) (privateKey, error) {
	secret, err := copySecret(info, raw, slot)
	if err != nil {
		return nil, err
	}
	return &hmacKey{secret: secret, newHash: hmacHash(info.Spec)}, nil
}

// hmacHash returns the hash function of an HMAC key.
func hmacHash(spec kms.Spec) func() hash.Hash {
	switch spec {
	case kms.SpecHMAC224:
		return newHash(kms.DigestSHA224)
	case kms.SpecHMAC256:
		return newHash(kms.DigestSHA256)
	case kms.SpecHMAC384:
		return newHash(kms.DigestSHA384)
	case kms.SpecHMAC512:
		return newHash(kms.DigestSHA512)
	}
	return sm3.New
}

func (k *hmacKey) mac(c *hsm.Call) []byte {
	h := hmac.New(k.newHash, k.secret)
	h.Write(c.Input)
	return h.Sum(nil)
}
