package p11

import (
	"bytes"
	"crypto/subtle"
	"slices"

	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/kms"
)

// blockSize is that of AES and of SM4 in bytes.
const blockSize = 16

// encryptCBC pads here (RFC 5652, 6.3) and encrypts by bare CBC, so that
// padding is made and checked in one way, whatever the module.
func (s *session) encryptCBC(c *hsm.Call, key loadedKey) error {
	n := blockSize - len(c.Input)%blockSize
	r, err := s.cbcRequest(opEncrypt, c, key, len(c.Input)+n)
	if err != nil {
		return err
	}
	r.input = slices.Concat(c.Input, bytes.Repeat([]byte{byte(n)}, n))
	defer clear(r.input)
	ciphertext, err := s.call(&r, len(r.input))
	if err != nil {
		return err
	}
	c.Output = bytes.Clone(ciphertext)
	return nil
}

func (s *session) decryptCBC(c *hsm.Call, key loadedKey) error {
	if len(c.Input) == 0 || len(c.Input)%blockSize != 0 {
		return badRequest(errPadding)
	}
	r, err := s.cbcRequest(opDecrypt, c, key, len(c.Input))
	if err != nil {
		return err
	}
	r.input = c.Input
	padded, err := s.call(&r, len(c.Input))
	if err != nil {
		return err
	}
	n, ok := unpad(padded)
	if !ok {
		return badRequest(errPadding)
	}
	c.Output = bytes.Clone(padded[:n])
	return nil
}

// cbcRequest checks the call; length is that of the ciphertext.
func (s *session) cbcRequest(op operation, c *hsm.Call, key loadedKey, length int) (request, error) {
	mech := cbcMechanism
	if c.Algorithm == kms.AlgSM4CBC {
		mech = s.conn.vendor.sm4CBC
	}
	switch {
	case mech == nil:
		return request{}, unsupported("Session.Do")
	case len(c.Nonce) != ivSize:
		return request{}, badRequest(errNonce)
	case len(c.AAD) != 0:
		return request{}, badRequest(errAAD)
	case length > maxData:
		return request{}, badRequest(errSize)
	}
	return request{operation: op, mechanism: mech, key: key.object, nonce: c.Nonce, room: length + outputSlack}, nil
}

// unpad returns the length of a padded plaintext, one block at least, without
// its padding. Its time does not tell what is wrong with the padding: that a
// ciphertext does not decrypt the caller learns, why he does not.
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
