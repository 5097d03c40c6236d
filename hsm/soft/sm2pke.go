//lint:file-ignore SA1019 the curve of SM2 has no other API: crypto/ecdh and PublicKey.Bytes know the NIST curves only

package soft

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/subtle"
	"slices"

	"github.com/emmansun/gmsm/sm2"
	"github.com/emmansun/gmsm/sm3"

	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/kms"
)

// layout returns the order that a call means, or errOrder.
func layout(o kms.SM2Order) (kms.SM2Order, error) {
	switch o {
	case "":
		return kms.SM2OrderC1C3C2, nil
	case kms.SM2OrderC1C3C2, kms.SM2OrderC1C2C3, kms.SM2OrderASN1:
		return o, nil
	}
	return "", errOrder
}

func (k sm2DecryptionKey) decrypt(c *hsm.Call) ([]byte, error) {
	order, err := layout(c.Order)
	if err != nil {
		return nil, err
	}
	parts, ok := hsm.ParseSM2Ciphertext(order, c.Input)
	if !ok {
		return nil, errDecryption
	}
	if len(parts.C2) == 0 {
		return k.decryptNothing(parts)
	}
	plaintext, err := sm2.Decrypt(k.private, slices.Concat(parts.C1, parts.C3, parts.C2))
	if err != nil {
		return nil, errDecryption
	}
	return plaintext, nil
}

// decryptNothing checks the ciphertext of the empty plaintext, which the
// library refuses. In GB/T 32918.4, section 7.1 the mask is empty then, which
// leaves C3 = SM3(x2 ‖ y2) to check.
func (k sm2DecryptionKey) decryptNothing(parts hsm.SM2Ciphertext) ([]byte, error) {
	point, err := sm2.NewPublicKey(parts.C1) // checks that it is on the curve
	if err != nil {
		return nil, errDecryption
	}
	shared := sharedPoint(point, k.private)
	defer clear(shared)
	if subtle.ConstantTimeCompare(hashSM2(shared, nil), parts.C3) != 1 {
		return nil, errDecryption
	}
	return []byte{}, nil
}

// sharedPoint returns x2 ‖ y2, the point that both sides compute. The
// library's ECDH gives x2 only; its curve multiplies in constant time behind
// the deprecated interface too.
//
//nolint:staticcheck // see above
func sharedPoint(point *ecdsa.PublicKey, private *sm2.PrivateKey) []byte {
	scalar := sm2Scalar(private)
	defer clear(scalar)
	x2, y2 := point.Curve.ScalarMult(point.X, point.Y, scalar)
	return sm2Point(&ecdsa.PublicKey{Curve: point.Curve, X: x2, Y: y2})[1:]
}

// hashSM2 returns C3 = SM3(x2 ‖ plaintext ‖ y2).
func hashSM2(shared, plaintext []byte) []byte {
	h := sm3.New()
	h.Write(shared[:sm2Size])
	h.Write(plaintext)
	h.Write(shared[sm2Size:])
	return h.Sum(nil)
}

func (k sm2Public) encryptTo(c *hsm.Call) ([]byte, error) {
	order, err := layout(c.Order)
	if err != nil {
		return nil, err
	}
	for {
		ephemeral, err := sm2.GenerateKey(rand.Reader)
		if err != nil {
			return nil, failed("encrypt", err)
		}
		if parts, ok := k.encryptWith(ephemeral, c.Input); ok {
			return parts.Encode(order), nil
		}
	}
}

// encryptWith is GB/T 32918.4, section 6.1 with the ephemeral key as k; ok is
// false when the mask came out all zero (step A5), one time in 256 for a
// plaintext of one byte, and another ephemeral key is needed. The library's
// Encrypt draws one too, but multiplies what it computed from the first one
// instead of the public key, so that nobody can decrypt the result.
func (k sm2Public) encryptWith(ephemeral *sm2.PrivateKey, plaintext []byte) (c hsm.SM2Ciphertext, ok bool) {
	shared := sharedPoint(k.public, ephemeral)
	defer clear(shared)
	c = hsm.SM2Ciphertext{C1: sm2Point(&ephemeral.PublicKey), C3: hashSM2(shared, plaintext)}
	if len(plaintext) == 0 {
		return c, true // the mask is empty; the library has no such case
	}
	c.C2 = sm3.Kdf(shared, len(plaintext))
	if allZero(c.C2) {
		return hsm.SM2Ciphertext{}, false
	}
	subtle.XORBytes(c.C2, c.C2, plaintext)
	return c, true
}

// allZero takes a time that tells how long the run of zeros at the start is:
// of a mask that is thrown away if it matters.
func allZero(b []byte) bool {
	for _, x := range b {
		if x != 0 {
			return false
		}
	}
	return true
}
