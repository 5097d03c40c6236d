//lint:file-ignore SA1019 the curve of SM2 has no other API: crypto/ecdh and PublicKey.Bytes know the NIST curves only

package hsmtest

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/subtle"
	"encoding/asn1"
	"errors"
	"math/big"
	"slices"

	"github.com/emmansun/gmsm/sm2"
	"github.com/emmansun/gmsm/sm3"

	"github.com/sluice-kms/sluice/kms"
)

// sm2Ciphertext is SM2Cipher of GM/T 0009-2012, section 7.2.
type sm2Ciphertext struct {
	X, Y   *big.Int
	C3, C2 []byte
}

// splitSM2 takes an SM2 ciphertext apart by the layout that its order names:
// an uncompressed C1 of 65 bytes and a C3 of 32, or the ASN.1 form.
func splitSM2(order kms.SM2Order, ciphertext []byte) (c1 *ecdsa.PublicKey, c2, c3 []byte, err error) {
	if order == kms.SM2OrderASN1 {
		var parts sm2Ciphertext
		rest, err := asn1.Unmarshal(ciphertext, &parts)
		if err != nil {
			return nil, nil, nil, err
		}
		if len(rest) != 0 || len(parts.C3) != 32 {
			return nil, nil, nil, errors.New("not an SM2Cipher")
		}
		return &ecdsa.PublicKey{Curve: sm2.P256(), X: parts.X, Y: parts.Y}, parts.C2, parts.C3, nil
	}
	if len(ciphertext) < 65+32 {
		return nil, nil, nil, errors.New("too short")
	}
	c1, err = sm2.ParseUncompressedPublicKey(ciphertext[:65])
	if err != nil {
		return nil, nil, nil, err
	}
	rest := ciphertext[65:]
	if order == kms.SM2OrderC1C2C3 {
		n := len(rest) - 32
		return c1, rest[:n], rest[n:], nil
	}
	return c1, rest[32:], rest[:32], nil
}

// sm2Size is the length of a coordinate in bytes.
const sm2Size = 32

// encryptSM2 is GB/T 32918.4, section 6.1, written out: the library's own
// refuses the empty plaintext, and ciphertexts of its short ones are wrong
// when it has to draw a second ephemeral key.
func encryptSM2(pub *ecdsa.PublicKey, order kms.SM2Order, plaintext []byte) ([]byte, error) {
	for {
		ephemeral, err := sm2.GenerateKey(rand.Reader)
		if err != nil {
			return nil, err
		}
		x2, y2 := sharedSM2(pub, ephemeral)
		c2 := sm3.Kdf(slices.Concat(x2, y2), len(plaintext))
		if len(c2) > 0 && bytes.Equal(c2, make([]byte, len(c2))) {
			continue
		}
		subtle.XORBytes(c2, c2, plaintext)
		c3 := digestOf(kms.DigestSM3, slices.Concat(x2, plaintext, y2))
		c1 := slices.Concat([]byte{4}, fixed(ephemeral.X), fixed(ephemeral.Y))
		switch order {
		case kms.SM2OrderASN1:
			return asn1.Marshal(sm2Ciphertext{ephemeral.X, ephemeral.Y, c3, c2})
		case kms.SM2OrderC1C2C3:
			return slices.Concat(c1, c2, c3), nil
		}
		return slices.Concat(c1, c3, c2), nil
	}
}

// decryptSM2 decrypts with the library but for the empty plaintext, which it
// refuses.
func decryptSM2(priv *sm2.PrivateKey, order kms.SM2Order, ciphertext []byte) ([]byte, error) {
	c1, c2, c3, err := splitSM2(order, ciphertext)
	if err != nil {
		return nil, err
	}
	if len(c2) > 0 {
		return sm2.Decrypt(priv, slices.Concat([]byte{4}, fixed(c1.X), fixed(c1.Y), c3, c2))
	}
	x2, y2 := sharedSM2(c1, priv)
	if !bytes.Equal(digestOf(kms.DigestSM3, slices.Concat(x2, y2)), c3) {
		return nil, errors.New("C3 of the empty plaintext is wrong")
	}
	return nil, nil
}

// sharedSM2 returns the coordinates of the point that both sides compute.
//
//nolint:staticcheck // the library's ECDH gives one coordinate only
func sharedSM2(point *ecdsa.PublicKey, priv *sm2.PrivateKey) (x2, y2 []byte) {
	x, y := point.Curve.ScalarMult(point.X, point.Y, priv.D.Bytes())
	return fixed(x), fixed(y)
}

// fixed returns a coordinate in its full length.
func fixed(x *big.Int) []byte { return x.FillBytes(make([]byte, sm2Size)) }
