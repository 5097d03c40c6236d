package hsmtest

import (
	"crypto/ecdsa"
	"encoding/asn1"
	"errors"
	"math/big"

	"github.com/emmansun/gmsm/sm2"

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
