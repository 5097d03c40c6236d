package p11

import (
	"crypto/subtle"
	"encoding/binary"
	"math/bits"

	"github.com/sluice-kms/sluice/hsm"
)

// Vendors without SM4-GCM have SM4-ECB. GCM (SP 800-38D, 7) is made of it in
// one crossing: the token enciphers zero, for the hash key, and the counter
// blocks; masking and GHASH are done here. That shows this process the hash
// key, with which tags under the key can be forged, and never the key.

// gcmBlocks returns what the token has to encipher for a message of n bytes:
// zero, then the counter blocks from that of the tag on.
func gcmBlocks(nonce []byte, n int) []byte {
	blocks := 2 + (n+blockSize-1)/blockSize
	in := make([]byte, blocks*blockSize)
	for i := 1; i < blocks; i++ {
		block := in[i*blockSize:]
		copy(block, nonce)
		binary.BigEndian.PutUint32(block[nonceSize:], uint32(i))
	}
	return in
}

// gcmOverECB encrypts or decrypts by the bare cipher.
func (s *session) gcmOverECB(c *hsm.Call, key loadedKey, encrypt bool) error {
	length := len(c.Input)
	if !encrypt {
		length -= tagSize
	}
	in := gcmBlocks(c.Nonce, length)
	if len(in) > maxData {
		return badRequest(errSize)
	}
	out, err := s.call(&request{operation: opEncrypt, mechanism: s.conn.vendor.sm4ECB, key: key.object, input: in,
		room: len(in) + outputSlack}, len(in))
	if err != nil {
		return err
	}
	h, tagMask, stream := out[:blockSize], out[blockSize:2*blockSize], out[2*blockSize:]
	if !encrypt {
		tag := gcmTag(h, tagMask, c.AAD, c.Input[:length])
		if subtle.ConstantTimeCompare(tag[:], c.Input[length:]) != 1 {
			return badRequest(errTag)
		}
		c.Output = make([]byte, length)
		subtle.XORBytes(c.Output, c.Input[:length], stream)
		return nil
	}
	ciphertext := make([]byte, length, length+tagSize)
	subtle.XORBytes(ciphertext, c.Input, stream)
	tag := gcmTag(h, tagMask, c.AAD, ciphertext)
	c.Output = append(ciphertext, tag[:]...)
	return nil
}

// gcmTag is GHASH over additional data, ciphertext and their lengths, masked.
func gcmTag(h, mask, aad, ciphertext []byte) [tagSize]byte {
	g := ghash{key: readElement(h)}
	g.update(aad)
	g.update(ciphertext)
	var lengths [blockSize]byte
	binary.BigEndian.PutUint64(lengths[:], uint64(len(aad))*8)
	binary.BigEndian.PutUint64(lengths[8:], uint64(len(ciphertext))*8)
	g.update(lengths[:])
	tag := g.sum.bytes()
	subtle.XORBytes(tag[:], tag[:], mask)
	return tag
}

// element is one of GF(2^128): the coefficient of x^i is bit i of low, or bit
// i-64 of high. In a block the first bit is that of x^0 (SP 800-38D, 6.3).
type element struct{ low, high uint64 }

func readElement(block []byte) element {
	return element{bits.Reverse64(binary.BigEndian.Uint64(block)), bits.Reverse64(binary.BigEndian.Uint64(block[8:]))}
}

func (e element) bytes() (block [blockSize]byte) {
	binary.BigEndian.PutUint64(block[:], bits.Reverse64(e.low))
	binary.BigEndian.PutUint64(block[8:], bits.Reverse64(e.high))
	return block
}

// ghash computes GHASH (SP 800-38D, 6.4).
type ghash struct{ key, sum element }

// update takes data in, filled up with zeros to whole blocks.
func (g *ghash) update(data []byte) {
	for len(data) > 0 {
		var block [blockSize]byte
		data = data[copy(block[:], data):]
		e := readElement(block[:])
		g.sum = element{g.sum.low ^ e.low, g.sum.high ^ e.high}.times(g.key)
	}
}

// times multiplies modulo x^128 + x^7 + x^2 + x + 1, in a time that depends on
// nothing where multiplication of words takes one.
func (e element) times(f element) element {
	low0, low1 := carryless(e.low, f.low)
	high0, high1 := carryless(e.high, f.high)
	mid0, mid1 := carryless(e.low^e.high, f.low^f.high) // Karatsuba
	mid0 ^= low0 ^ high0
	mid1 ^= low1 ^ high1
	z0, z1, z2, z3 := low0, low1^mid0, high0^mid1, high1

	// x^128 is x^7 + x^2 + x + 1.
	z1 ^= z3 ^ z3<<1 ^ z3<<2 ^ z3<<7
	z2 ^= z3>>63 ^ z3>>62 ^ z3>>57
	z0 ^= z2 ^ z2<<1 ^ z2<<2 ^ z2<<7
	z1 ^= z2>>63 ^ z2>>62 ^ z2>>57
	return element{z0, z1}
}

// carryless multiplies polynomials over GF(2). The upper half of the product
// is the lower one of the reversed factors, reversed.
func carryless(x, y uint64) (low, high uint64) {
	return carrylessLow(x, y), bits.Reverse64(carrylessLow(bits.Reverse64(x), bits.Reverse64(y))) >> 1
}

// carrylessLow multiplies by integer multiplication: bits that lie four apart
// leave their sums room, of which the lowest bit counts (T. Pornin, "Constant-
// Time Mul", bearssl.org). A sum of 16, which needs more, is possible in the
// uppermost place only.
func carrylessLow(x, y uint64) uint64 {
	const m0, m1, m2, m3 = 0x1111111111111111, 0x2222222222222222, 0x4444444444444444, 0x8888888888888888
	x0, x1, x2, x3 := x&m0, x&m1, x&m2, x&m3
	y0, y1, y2, y3 := y&m0, y&m1, y&m2, y&m3
	return (x0*y0^x1*y3^x2*y2^x3*y1)&m0 | (x0*y1^x1*y0^x2*y3^x3*y2)&m1 |
		(x0*y2^x1*y1^x2*y0^x3*y3)&m2 | (x0*y3^x1*y2^x2*y1^x3*y0)&m3
}
