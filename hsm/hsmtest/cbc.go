package hsmtest

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/subtle"
	"fmt"
	"testing"

	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/kms"
)

// blockSize is that of AES and SM4, and ivSize the length of CBC's IV, in
// bytes.
const (
	blockSize = aes.BlockSize
	ivSize    = blockSize
)

func isCBC(alg kms.Algorithm) bool { return alg == kms.AlgAESCBC || alg == kms.AlgSM4CBC }

func (s *suite) testCBC(t *testing.T, c *caller, k *key, alg kms.Algorithm) {
	enc := hsm.Call{Verb: kms.VerbEncrypt, Algorithm: alg, Spec: k.spec, Handle: k.handle, Nonce: randomBytes(ivSize)}
	dec := enc
	dec.Verb = kms.VerbDecrypt
	c.canary = func(t testing.TB) {
		t.Helper()
		enc, dec := enc, dec
		enc.Input = []byte("canary")
		dec.Input = c.must(t, enc)
		if got := c.must(t, dec); string(got) != "canary" {
			t.Error("after a refusal the session decrypts wrongly")
		}
	}
	for _, size := range []int{0, 1, 15, 16, 17, 255, 256, large} {
		t.Run(fmt.Sprintf("RoundTrip/%d", size), func(t *testing.T) { s.cbcRoundTrip(t, c, k, enc, size) })
	}
	t.Run("Chaining", func(t *testing.T) { testChaining(t, c, enc) })
	t.Run("Padding", func(t *testing.T) { testPadding(t, c, enc) })
	t.Run("Lengths", func(t *testing.T) {
		for _, n := range []int{0, 1, 15, 17, 31} {
			dec := dec
			dec.Input = make([]byte, n)
			c.refused(t, fmt.Sprintf("a ciphertext of %d bytes", n), dec, contentClasses...)
		}
		for _, call := range []hsm.Call{enc, dec} {
			call.Input = make([]byte, 2*blockSize)
			for _, n := range []int{0, 8, 12, 15, 17} {
				call.Nonce = make([]byte, n)
				c.refused(t, fmt.Sprintf("an IV of %d bytes", n), call, hsm.ClassRequest)
			}
			call.Nonce, call.AAD = make([]byte, ivSize), []byte("context")
			c.refused(t, "additional data", call, hsm.ClassRequest)
		}
	})
}

func (s *suite) cbcRoundTrip(t *testing.T, c *caller, k *key, call hsm.Call, size int) {
	plaintext := randomBytes(size)
	call.Input = plaintext
	ciphertext := c.must(t, call)
	if want := (size/blockSize + 1) * blockSize; len(ciphertext) != want {
		t.Fatalf("a plaintext of %d bytes became %d bytes, want %d", size, len(ciphertext), want)
	}
	if raw := s.clear(t, k); raw != nil {
		if !bytes.Equal(ciphertext, judgeCBC(t, call, raw)) {
			t.Error("the judge's ciphertext differs")
		}
	}
	call.Verb, call.Input = kms.VerbDecrypt, ciphertext
	if got := c.must(t, call); !bytes.Equal(got, plaintext) {
		t.Error("the ciphertext decrypts to something else")
	}
}

// judgeCBC encrypts what the call encrypts.
func judgeCBC(t *testing.T, call hsm.Call, raw []byte) []byte {
	t.Helper()
	n := blockSize - len(call.Input)%blockSize
	padded := append(bytes.Clone(call.Input), bytes.Repeat([]byte{byte(n)}, n)...)
	cipher.NewCBCEncrypter(judgeBlock(t, call.Algorithm, raw), call.Nonce).CryptBlocks(padded, padded)
	return padded
}

// testChaining checks what SP 800-38A, section 6.2 implies: a change that goes
// into IV and first block alike changes nothing, and one of the IV alone
// everything; decrypting, the IV's change is the first block's.
func testChaining(t *testing.T, c *caller, enc hsm.Call) {
	enc.Input = randomBytes(3 * blockSize)
	ciphertext := c.must(t, enc)
	other, delta := enc, randomBytes(blockSize)
	other.Nonce, other.Input = bytes.Clone(enc.Nonce), bytes.Clone(enc.Input)
	subtle.XORBytes(other.Nonce, other.Nonce, delta)
	changed := c.must(t, other)
	for i := range 4 {
		if bytes.Equal(changed[i*blockSize:(i+1)*blockSize], ciphertext[i*blockSize:(i+1)*blockSize]) {
			t.Errorf("block %d does not depend on the IV", i)
		}
	}
	subtle.XORBytes(other.Input, other.Input, delta)
	if !bytes.Equal(c.must(t, other), ciphertext) {
		t.Error("a change of IV and first block alike changed the ciphertext")
	}
	dec := other
	dec.Verb, dec.Input = kms.VerbDecrypt, ciphertext
	if got := c.must(t, dec); !bytes.Equal(got, other.Input) {
		t.Error("another IV decrypts to something else than the first block changed")
	}
}

// testPadding gives the last block any padding, by a change of the ciphertext
// block before it. Only the sixteen of RFC 5652, section 6.3 are taken.
func testPadding(t *testing.T, c *caller, enc hsm.Call) {
	enc.Input = randomBytes(2 * blockSize)
	ciphertext := c.must(t, enc) // the third block holds nothing but padding
	dec := enc
	dec.Verb = kms.VerbDecrypt
	with := func(last []byte) hsm.Call {
		call := dec
		call.Input = bytes.Clone(ciphertext)
		before := call.Input[blockSize : 2*blockSize]
		subtle.XORBytes(before, before, bytes.Repeat([]byte{blockSize}, blockSize))
		subtle.XORBytes(before, before, last)
		return call
	}
	block := func(n int, value byte) []byte {
		return append(randomBytes(blockSize-n), bytes.Repeat([]byte{value}, n)...)
	}
	for n := 1; n <= blockSize; n++ {
		last := block(n, byte(n))
		got := c.must(t, with(last))
		if want := 3*blockSize - n; len(got) != want || !bytes.HasSuffix(got, last[:blockSize-n]) {
			t.Errorf("a padding of %d bytes leaves %d bytes, want %d", n, len(got), want)
		}
	}
	bad := map[string][]byte{
		"zeros": make([]byte, blockSize), "17": block(blockSize, 17), "32": block(blockSize, 32), "255": block(blockSize, 255),
	}
	for n := 2; n <= blockSize; n++ {
		for at := blockSize - n; at < blockSize-1; at += 3 {
			last := block(n, byte(n))
			last[at] ^= 0x80
			bad[fmt.Sprintf("%d bytes, one of them wrong, at %d", n, at)] = last
		}
	}
	var first error
	for name, last := range bad {
		_, err := c.do(t, with(last))
		wantClass(t, "padding of "+name, err, contentClasses...)
		if first == nil {
			first = err
		}
		if err != nil && err.Error() != first.Error() {
			t.Errorf("paddings fail by different errors: %v, %v", err, first)
		}
	}
	c.canary(t)
}
