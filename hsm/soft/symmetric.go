package soft

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"hash"
	"slices"

	"github.com/emmansun/gmsm/sm3"
	"github.com/emmansun/gmsm/sm4"

	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/kms"
)

// cipherKey is an AES or SM4 key that encrypts: by GCM (SP 800-38D, RFC 8998)
// or, see cbc.go, by CBC.
type cipherKey struct{ blockKey }

// blockKey is the key of a block cipher.
type blockKey struct {
	secret   []byte // in the slab
	newBlock func(key []byte) (cipher.Block, error)
}

func newCipherKey(info *kms.SpecInfo, usage kms.Usage, raw, slot []byte) (privateKey, error) {
	secret, err := copySecret(info.Bits/8, raw, slot)
	if err != nil {
		return nil, err
	}
	k := blockKey{secret: secret, newBlock: aes.NewCipher}
	if info.Family == kms.FamilySM4 {
		k.newBlock = sm4.NewCipher
	}
	if usage == kms.UsageWrapUnwrap {
		return &wrapKey{k}, nil
	}
	return &cipherKey{k}, nil
}

func (k *blockKey) block() (cipher.Block, error) {
	block, err := k.newBlock(k.secret)
	if err != nil {
		return nil, failed("expand key", err)
	}
	return block, nil
}

func (k *blockKey) aead() (cipher.AEAD, error) {
	block, err := k.block()
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return nil, failed("expand key", err)
	}
	return aead, nil
}

func (k *cipherKey) encrypt(c *hsm.Call) ([]byte, error) {
	if isCBC(c.Algorithm) {
		return k.encryptCBC(c)
	}
	aead, err := k.aead()
	if err != nil {
		return nil, err
	}
	return aead.Seal(nil, c.Nonce, c.Input, c.AAD), nil
}

func (k *cipherKey) decrypt(c *hsm.Call) ([]byte, error) {
	if isCBC(c.Algorithm) {
		return k.decryptCBC(c)
	}
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

// hmacKey is a key of HMAC (RFC 2104). deriveKey is a type of its own so that
// no key has the methods of two usages: what HKDF computes is HMACs.
type hmacKey struct {
	secret  []byte // in the slab
	newHash func() hash.Hash
}

type deriveKey hmacKey

func newHMACKey(info *kms.SpecInfo, usage kms.Usage, raw, slot []byte) (privateKey, error) {
	secret, err := copySecret(info.Bits/8, raw, slot)
	if err != nil {
		return nil, err
	}
	k := &hmacKey{secret: secret, newHash: hmacHash(info.Spec)}
	if usage == kms.UsageDerive {
		return (*deriveKey)(k), nil
	}
	return k, nil
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

func (k *deriveKey) derive(c *hsm.Call) ([]byte, error) {
	if c.Algorithm == kms.AlgSM3KDF {
		z := slices.Concat(k.secret, c.Input)
		defer clear(z)
		return sm3.Kdf(z, c.Length), nil
	}
	out, err := hkdf.Expand(k.newHash, k.secret, string(c.Input), c.Length)
	if err != nil {
		return nil, failed("derive", err)
	}
	return out, nil
}
