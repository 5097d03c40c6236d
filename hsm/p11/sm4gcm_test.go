package p11

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"testing"

	"pgregory.net/rapid"
)

// GCM made of the bare cipher is GCM: for any key, nonce, additional data and
// message the same as the standard library's, here with AES, whose block
// cipher it has too.
func TestGCMOfECBIsGCM(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := func(label string, low, high int) []byte {
			return rapid.SliceOfN(rapid.Byte(), low, high).Draw(t, label)
		}
		block, err := aes.NewCipher(b("key", 16, 16))
		if err != nil {
			t.Fatal(err)
		}
		aead, err := cipher.NewGCM(block)
		if err != nil {
			t.Fatal(err)
		}
		nonce, aad, plaintext := b("nonce", nonceSize, nonceSize), b("aad", 0, 70), b("plaintext", 0, 200)
		blocks := gcmBlocks(nonce, len(plaintext))
		for i := 0; i < len(blocks); i += blockSize {
			block.Encrypt(blocks[i:], blocks[i:])
		}
		want := aead.Seal(nil, nonce, plaintext, aad)
		ciphertext := bytes.Clone(plaintext)
		for i := range ciphertext {
			ciphertext[i] ^= blocks[2*blockSize+i]
		}
		tag := gcmTag(blocks[:blockSize], blocks[blockSize:2*blockSize], aad, ciphertext)
		if got := append(ciphertext, tag[:]...); !bytes.Equal(got, want) {
			t.Errorf("got  %x\nwant %x", got, want)
		}
	})
}

func TestCarrylessMultiplicationIsThatOfPolynomials(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x, y := rapid.Uint64().Draw(t, "x"), rapid.Uint64().Draw(t, "y")
		if rapid.Bool().Draw(t, "all ones") {
			x, y = ^uint64(0), ^uint64(0) // the longest sums
		}
		var low, high uint64
		for i := range 64 {
			if x>>i&1 == 1 {
				low ^= y << i
				high ^= y >> (64 - i)
			}
		}
		if gotLow, gotHigh := carryless(x, y); gotLow != low || gotHigh != high {
			t.Errorf("%x · %x = %x %x, want %x %x", x, y, gotHigh, gotLow, high, low)
		}
	})
}

func BenchmarkGCMTag(b *testing.B) {
	h, data := message(blockSize), message(1<<20)
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		gcmTag(h, h, nil, data)
	}
}
