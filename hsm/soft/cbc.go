package soft

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/subtle"

	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/kms"
)

// blockSize is that of AES and SM4, in bytes.
const blockSize = aes.BlockSize

func isCBC(a kms.Algorithm) bool { return a == kms.AlgAESCBC || a == kms.AlgSM4CBC }

// encryptCBC is SP 800-38A, section 6.2 with the padding of RFC 5652, section
// 6.3: n bytes of value n, from 1 to a whole block.
func (k *cipherKey) encryptCBC(c *hsm.Call) ([]byte, error) {
	block, err := k.block()
	if err != nil {
		return nil, err
	}
	n := blockSize - len(c.Input)%blockSize
	out := make([]byte, len(c.Input)+n)
	copy(out, c.Input)
	copy(out[len(c.Input):], bytes.Repeat([]byte{byte(n)}, n))
	cipher.NewCBCEncrypter(block, c.Nonce).CryptBlocks(out, out)
	return out, nil
}

func (k *cipherKey) decryptCBC(c *hsm.Call) ([]byte, error) {
	if len(c.Input) == 0 || len(c.Input)%blockSize != 0 {
		return nil, errDecryption
	}
	block, err := k.block()
	if err != nil {
		return nil, err
	}
	padded := make([]byte, len(c.Input))
	cipher.NewCBCDecrypter(block, c.Nonce).CryptBlocks(padded, c.Input)
	n, ok := unpad(padded)
	if !ok {
		clear(padded)
		return nil, errDecryption
	}
	return padded[:n], nil
}

// unpad returns the length of a padded plaintext of one block at least without
// its padding. The time it takes tells nothing of the padding, so that a
// caller learns from a decryption whether the padding is valid, which he has
// to, but not where it is wrong.
func unpad(padded []byte) (length int, ok bool) {
	last := padded[len(padded)-blockSize:]
	n := int(last[blockSize-1])
	good := subtle.ConstantTimeLessOrEq(1, n) & subtle.ConstantTimeLessOrEq(n, blockSize)
	for i, b := range last {
		inside := subtle.ConstantTimeLessOrEq(blockSize, n+i)
		good &= subtle.ConstantTimeByteEq(b, byte(n)) | (1 ^ inside)
	}
	return len(padded) - n, good == 1
}
