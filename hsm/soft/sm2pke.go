//lint:file-ignore SA1019 the curve of SM2 has no other API: crypto/ecdh and PublicKey.Bytes know the NIST curves only

package soft

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/subtle"
	"slices"

	"github.com/emmansun/gmsm/sm2"
	"github.com/emmansun/gmsm/sm3"
	"golang.org/x/crypto/cryptobyte"
	"golang.org/x/crypto/cryptobyte/asn1"

	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/kms"
)

// sm2Ciphertext is an SM2 ciphertext taken apart: C1 is an uncompressed point,
// C2 the masked plaintext, C3 the hash (GB/T 32918.4, section 6.1).
type sm2Ciphertext struct{ c1, c2, c3 []byte }

const sm2C1Size = 1 + 2*sm2Size

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

// parseSM2 takes a ciphertext apart in the order it is said to have; ok is
// false when it has not.
func parseSM2(order kms.SM2Order, in []byte) (c sm2Ciphertext, ok bool) {
	if order == kms.SM2OrderASN1 {
		return parseSM2ASN1(in)
	}
	if len(in) < sm2C1Size+sm3.Size || in[0] != pointUncompressed {
		return sm2Ciphertext{}, false
	}
	c.c1 = in[:sm2C1Size]
	if rest := in[sm2C1Size:]; order == kms.SM2OrderC1C2C3 {
		n := len(rest) - sm3.Size
		c.c2, c.c3 = rest[:n], rest[n:]
	} else {
		c.c3, c.c2 = rest[:sm3.Size], rest[sm3.Size:]
	}
	return c, true
}

// parseSM2ASN1 reads SM2Cipher of GM/T 0009-2012, section 7.2:
//
//	SEQUENCE { x INTEGER, y INTEGER, c3 OCTET STRING, c2 OCTET STRING }
func parseSM2ASN1(in []byte) (c sm2Ciphertext, ok bool) {
	input := cryptobyte.String(in)
	var seq, c2, c3 cryptobyte.String
	var x, y []byte
	if !input.ReadASN1(&seq, asn1.SEQUENCE) || !input.Empty() ||
		!seq.ReadASN1Integer(&x) || !seq.ReadASN1Integer(&y) ||
		!seq.ReadASN1(&c3, asn1.OCTET_STRING) || !seq.ReadASN1(&c2, asn1.OCTET_STRING) || !seq.Empty() {
		return sm2Ciphertext{}, false
	}
	if len(x) > sm2Size || len(y) > sm2Size || len(c3) != sm3.Size {
		return sm2Ciphertext{}, false
	}
	c1 := make([]byte, sm2C1Size)
	c1[0] = pointUncompressed
	copy(c1[1+sm2Size-len(x):], x)
	copy(c1[sm2C1Size-len(y):], y)
	return sm2Ciphertext{c1, c2, c3}, true
}

func (c sm2Ciphertext) marshal(order kms.SM2Order) ([]byte, error) {
	switch order {
	case kms.SM2OrderASN1:
		var b cryptobyte.Builder
		b.AddASN1(asn1.SEQUENCE, func(b *cryptobyte.Builder) {
			addInteger(b, c.c1[1:1+sm2Size])
			addInteger(b, c.c1[1+sm2Size:])
			b.AddASN1OctetString(c.c3)
			b.AddASN1OctetString(c.c2)
		})
		out, err := b.Bytes()
		if err != nil {
			return nil, failed("encrypt", err)
		}
		return out, nil
	case kms.SM2OrderC1C2C3:
		return slices.Concat(c.c1, c.c2, c.c3), nil
	}
	return slices.Concat(c.c1, c.c3, c.c2), nil
}

// addInteger adds an unsigned big-endian integer.
func addInteger(b *cryptobyte.Builder, x []byte) {
	for len(x) > 1 && x[0] == 0 {
		x = x[1:]
	}
	b.AddASN1(asn1.INTEGER, func(b *cryptobyte.Builder) {
		if x[0]&0x80 != 0 {
			b.AddUint8(0)
		}
		b.AddBytes(x)
	})
}

func (k sm2DecryptionKey) decrypt(c *hsm.Call) ([]byte, error) {
	order, err := layout(c.Order)
	if err != nil {
		return nil, err
	}
	parts, ok := parseSM2(order, c.Input)
	if !ok {
		return nil, errDecryption
	}
	if len(parts.c2) == 0 {
		return k.decryptNothing(parts)
	}
	plaintext, err := sm2.Decrypt(k.private, slices.Concat(parts.c1, parts.c3, parts.c2))
	if err != nil {
		return nil, errDecryption
	}
	return plaintext, nil
}

// decryptNothing checks the ciphertext of the empty plaintext, which the
// library refuses. In GB/T 32918.4, section 7.1 the mask is empty then, which
// leaves C3 = SM3(x2 ‖ y2) to check.
func (k sm2DecryptionKey) decryptNothing(parts sm2Ciphertext) ([]byte, error) {
	point, err := sm2.NewPublicKey(parts.c1) // checks that it is on the curve
	if err != nil {
		return nil, errDecryption
	}
	shared := sharedPoint(point, k.private)
	defer clear(shared)
	if subtle.ConstantTimeCompare(hashSM2(shared, nil), parts.c3) != 1 {
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
			return parts.marshal(order)
		}
	}
}

// encryptWith is GB/T 32918.4, section 6.1 with the ephemeral key as k; ok is
// false when the mask came out all zero (step A5), one time in 256 for a
// plaintext of one byte, and another ephemeral key is needed. The library's
// Encrypt draws one too, but multiplies what it computed from the first one
// instead of the public key, so that nobody can decrypt the result.
func (k sm2Public) encryptWith(ephemeral *sm2.PrivateKey, plaintext []byte) (c sm2Ciphertext, ok bool) {
	shared := sharedPoint(k.public, ephemeral)
	defer clear(shared)
	c = sm2Ciphertext{c1: sm2Point(&ephemeral.PublicKey), c3: hashSM2(shared, plaintext)}
	if len(plaintext) == 0 {
		return c, true // the mask is empty; the library has no such case
	}
	c.c2 = sm3.Kdf(shared, len(plaintext))
	if allZero(c.c2) {
		return sm2Ciphertext{}, false
	}
	subtle.XORBytes(c.c2, c.c2, plaintext)
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
