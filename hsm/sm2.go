package hsm

import (
	"math/big"
	"slices"

	"golang.org/x/crypto/cryptobyte"
	"golang.org/x/crypto/cryptobyte/asn1"

	"github.com/sluice-kms/sluice/kms"
)

// SM2Ciphertext is an SM2 ciphertext taken apart (GB/T 32918.4, 6.1): C1 is an
// uncompressed point of 65 bytes, C2 the masked plaintext, C3 the hash of 32.
type SM2Ciphertext struct{ C1, C2, C3 []byte }

const (
	sm2Size   = 32 // bytes of a coordinate
	sm2C1Size = 1 + 2*sm2Size
	sm3Size   = 32
	// sm2Uncompressed begins an uncompressed point (SEC 1, 2.3.3).
	sm2Uncompressed = 4
)

// ParseSM2Ciphertext takes a ciphertext apart in the order it is said to have,
// C1C3C2 if it is said to have none; ok is false when it has not. That C1 is on
// the curve is the caller's to check. The parts share the memory of in, but for
// C1 of the order ASN1.
func ParseSM2Ciphertext(order kms.SM2Order, in []byte) (c SM2Ciphertext, ok bool) {
	if order == kms.SM2OrderASN1 {
		return parseSM2Cipher(in)
	}
	if len(in) < sm2C1Size+sm3Size || in[0] != sm2Uncompressed {
		return SM2Ciphertext{}, false
	}
	c.C1 = in[:sm2C1Size]
	if rest := in[sm2C1Size:]; order == kms.SM2OrderC1C2C3 {
		n := len(rest) - sm3Size
		c.C2, c.C3 = rest[:n], rest[n:]
	} else {
		c.C3, c.C2 = rest[:sm3Size], rest[sm3Size:]
	}
	return c, true
}

// parseSM2Cipher reads SM2Cipher of GM/T 0009-2012, section 7.2:
//
//	SEQUENCE { x INTEGER, y INTEGER, c3 OCTET STRING, c2 OCTET STRING }
func parseSM2Cipher(in []byte) (c SM2Ciphertext, ok bool) {
	input := cryptobyte.String(in)
	var sequence, c2, c3 cryptobyte.String
	var x, y []byte
	if !input.ReadASN1(&sequence, asn1.SEQUENCE) || !input.Empty() ||
		!sequence.ReadASN1Integer(&x) || !sequence.ReadASN1Integer(&y) ||
		!sequence.ReadASN1(&c3, asn1.OCTET_STRING) || !sequence.ReadASN1(&c2, asn1.OCTET_STRING) || !sequence.Empty() ||
		len(x) > sm2Size || len(y) > sm2Size || len(c3) != sm3Size {
		return SM2Ciphertext{}, false
	}
	c = SM2Ciphertext{C1: make([]byte, sm2C1Size), C2: c2, C3: c3}
	c.C1[0] = sm2Uncompressed
	copy(c.C1[1+sm2Size-len(x):], x)
	copy(c.C1[sm2C1Size-len(y):], y)
	return c, true
}

// Encode writes the ciphertext in an order, C1C3C2 if none is named. It panics
// above 4 GiB, which no ciphertext reaches.
func (c SM2Ciphertext) Encode(order kms.SM2Order) []byte {
	switch order {
	case kms.SM2OrderASN1:
		var b cryptobyte.Builder
		b.AddASN1(asn1.SEQUENCE, func(b *cryptobyte.Builder) {
			b.AddASN1BigInt(new(big.Int).SetBytes(c.C1[1 : 1+sm2Size]))
			b.AddASN1BigInt(new(big.Int).SetBytes(c.C1[1+sm2Size:]))
			b.AddASN1OctetString(c.C3)
			b.AddASN1OctetString(c.C2)
		})
		return b.BytesOrPanic()
	case kms.SM2OrderC1C2C3:
		return slices.Concat(c.C1, c.C2, c.C3)
	}
	return slices.Concat(c.C1, c.C3, c.C2)
}
