package hsmtest

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/subtle"
	"fmt"
	"slices"
	"testing"

	"github.com/emmansun/gmsm/sm4"

	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/kms"
)

// Lengths of AES-GCM and SM4-GCM in Sluice, in bytes (SP 800-38D, section
// 8.2.2 and RFC 8998, section 3.1).
const (
	nonceSize = 12
	tagSize   = 16
)

// contentClasses are those of a failure that the content of an input caused:
// some modules answer a wrong tag with a code that says nothing.
var contentClasses = []hsm.Class{hsm.ClassRequest, hsm.ClassAmbiguous}

func (s *suite) testAEAD(t *testing.T, c *caller, k *key, alg kms.Algorithm) {
	enc := hsm.Call{Verb: kms.VerbEncrypt, Algorithm: alg, Spec: k.spec, Handle: k.handle}
	s.setCanary(c, enc)
	sizes := map[string]int{"empty": 0, "1": 1, "15": 15, "16": 16, "17": 17, "255": 255, "1MiB": large}
	for name, size := range sizes {
		for _, aadSize := range []int{0, 1, 33, 5000} {
			t.Run(fmt.Sprintf("RoundTrip/%s/aad=%d", name, aadSize), func(t *testing.T) {
				call := enc
				call.Nonce, call.AAD, call.Input = randomBytes(nonceSize), randomBytes(aadSize), randomBytes(size)
				s.aeadRoundTrip(t, c, k, call)
			})
		}
	}
	t.Run("NonceAndKeystream", func(t *testing.T) { testKeystream(t, c, enc) })
	t.Run("TamperingIsFound", func(t *testing.T) { s.testTampering(t, c, k, enc) })
	t.Run("NonceLengths", func(t *testing.T) { testNonceLengths(t, c, enc) })
}

// setCanary lets c encrypt and decrypt after every refusal.
func (s *suite) setCanary(c *caller, enc hsm.Call) {
	c.canary = func(t testing.TB) {
		t.Helper()
		call := enc
		call.Verb, call.Nonce, call.Input = kms.VerbEncrypt, randomBytes(nonceSize), []byte("canary")
		call.Input = c.must(t, call)
		call.Verb = kms.VerbDecrypt
		if got := c.must(t, call); string(got) != "canary" {
			t.Error("after a refusal the session decrypts wrongly")
		}
	}
}

func (s *suite) aeadRoundTrip(t *testing.T, c *caller, k *key, call hsm.Call) {
	plaintext := call.Input
	ciphertext := c.must(t, call)
	if len(ciphertext) != len(plaintext)+tagSize {
		t.Fatalf("a plaintext of %d bytes became %d bytes, want %d more", len(plaintext), len(ciphertext), tagSize)
	}
	if again := c.must(t, call); !bytes.Equal(again, ciphertext) {
		t.Error("the same call gave another ciphertext: the nonce or the key is not the given one")
	}
	if raw := s.clear(t, k); raw != nil {
		aead := judgeAEAD(t, call.Algorithm, raw)
		if want := aead.Seal(nil, call.Nonce, plaintext, call.AAD); !bytes.Equal(ciphertext, want) {
			t.Error("the judge's ciphertext differs")
		}
	}
	call.Verb, call.Input = kms.VerbDecrypt, ciphertext
	if got := c.must(t, call); !bytes.Equal(got, plaintext) {
		t.Error("the ciphertext decrypts to something else")
	}
}

func judgeBlock(t *testing.T, alg kms.Algorithm, raw []byte) cipher.Block {
	t.Helper()
	newBlock := aes.NewCipher
	if alg == kms.AlgSM4GCM || alg == kms.AlgSM4CBC {
		newBlock = sm4.NewCipher
	}
	block, err := newBlock(raw)
	if err != nil {
		t.Fatalf("the clear key: %v", err)
	}
	return block
}

func judgeAEAD(t *testing.T, alg kms.Algorithm, raw []byte) cipher.AEAD {
	t.Helper()
	aead, err := cipher.NewGCM(judgeBlock(t, alg, raw))
	if err != nil {
		t.Fatal(err)
	}
	return aead
}

// testKeystream checks what CTR mode under the given nonce implies.
func testKeystream(t *testing.T, c *caller, enc hsm.Call) {
	const size = 100
	encrypt := func(nonce, aad, plaintext []byte) (body, tag []byte) {
		t.Helper()
		call := enc
		call.Nonce, call.AAD, call.Input = nonce, aad, plaintext
		out := c.must(t, call)
		if len(out) != size+tagSize {
			t.Fatalf("the ciphertext has %d bytes, want %d", len(out), size+tagSize)
		}
		return out[:size], out[size:]
	}
	xor := func(a, b []byte) []byte {
		x := make([]byte, size)
		subtle.XORBytes(x, a, b)
		return x
	}
	p1, p2, n1, n2 := randomBytes(size), randomBytes(size), randomBytes(nonceSize), randomBytes(nonceSize)
	c1, _ := encrypt(n1, nil, p1)
	c2, _ := encrypt(n1, nil, p2)
	if !bytes.Equal(xor(c1, c2), xor(p1, p2)) {
		t.Error("two ciphertexts under one nonce do not differ as their plaintexts: the nonce is not used")
	}
	c3, tag3 := encrypt(n2, nil, p2)
	if bytes.Equal(c3, c2) {
		t.Error("the keystream does not depend on the nonce")
	}
	c4, tag4 := encrypt(n2, []byte("more"), p2)
	if bytes.Equal(tag3, tag4) || !bytes.Equal(c3, c4) {
		t.Error("additional data must change the tag and nothing else")
	}
}

func (s *suite) testTampering(t *testing.T, c *caller, k *key, enc hsm.Call) {
	enc.Nonce, enc.AAD, enc.Input = randomBytes(nonceSize), []byte("context"), randomBytes(64)
	ciphertext := c.must(t, enc)
	dec := enc
	dec.Verb = kms.VerbDecrypt
	flip := func(b []byte, i int) []byte {
		b = bytes.Clone(b)
		b[i] ^= 1
		return b
	}
	cases := map[string]func(call *hsm.Call){
		"first byte":           func(c *hsm.Call) { c.Input = flip(ciphertext, 0) },
		"last plaintext byte":  func(c *hsm.Call) { c.Input = flip(ciphertext, 63) },
		"first tag byte":       func(c *hsm.Call) { c.Input = flip(ciphertext, 64) },
		"last tag byte":        func(c *hsm.Call) { c.Input = flip(ciphertext, 79) },
		"truncated":            func(c *hsm.Call) { c.Input = ciphertext[:79] },
		"extended":             func(c *hsm.Call) { c.Input = append(bytes.Clone(ciphertext), 0) },
		"tag alone":            func(c *hsm.Call) { c.Input = ciphertext[64:] },
		"short of a tag":       func(c *hsm.Call) { c.Input = ciphertext[:tagSize-1] },
		"empty":                func(c *hsm.Call) { c.Input = nil },
		"large":                func(c *hsm.Call) { c.Input = make([]byte, large) },
		"another nonce":        func(c *hsm.Call) { c.Nonce = flip(enc.Nonce, 11) },
		"other data":           func(c *hsm.Call) { c.AAD = flip(enc.AAD, 0) },
		"no additional data":   func(c *hsm.Call) { c.AAD = nil },
		"more additional data": func(c *hsm.Call) { c.AAD = append(bytes.Clone(enc.AAD), 0) },
	}
	for name, change := range cases {
		call := dec
		call.Input = ciphertext
		change(&call)
		c.refused(t, name, call, contentClasses...)
	}
	other := s.anotherKey(t, k)
	call := dec
	call.Handle, call.Input = other.handle, ciphertext
	c.refused(t, "another key", call, contentClasses...)
}

func testNonceLengths(t *testing.T, c *caller, enc hsm.Call) {
	for _, n := range []int{0, 1, 11, 13, 16} {
		call := enc
		call.Nonce, call.Input = make([]byte, n), make([]byte, 32)
		c.refused(t, fmt.Sprintf("encryption with a nonce of %d bytes", n), call, hsm.ClassRequest)
		call.Verb = kms.VerbDecrypt
		c.refused(t, fmt.Sprintf("decryption with a nonce of %d bytes", n), call, hsm.ClassRequest)
	}
}

// testDecrypt runs the private half of public-key encryption.
func (s *suite) testDecrypt(t *testing.T, c *caller, k *key, alg kms.Algorithm) {
	for _, order := range ordersFor(alg) {
		t.Run(string(order), func(t *testing.T) { s.testDecryptOrder(t, c, k, alg, order) })
	}
}

// ordersFor returns the ciphertext layouts of an algorithm.
func ordersFor(alg kms.Algorithm) []kms.SM2Order {
	if alg == kms.AlgSM2PKE {
		return []kms.SM2Order{kms.SM2OrderC1C3C2, kms.SM2OrderC1C2C3, kms.SM2OrderASN1}
	}
	return []kms.SM2Order{""}
}

// plaintextSizes returns lengths that fit the algorithm, and one too long for
// it or 0 when there is no bound.
func plaintextSizes(spec kms.Spec, alg kms.Algorithm) (fit []int, tooLong int) {
	hash := 0
	switch alg {
	case kms.AlgRSAOAEPSHA1:
		hash = 20
	case kms.AlgRSAOAEPSHA256:
		hash = 32
	default:
		return []int{0, 1, 2, 16, 31, 32, 33, 1000, large}, 0
	}
	most := spec.Info().Bits/8 - 2*hash - 2 // RFC 8017, section 7.1.1
	return []int{0, 1, 32, most}, most + 1
}

func (s *suite) testDecryptOrder(t *testing.T, c *caller, k *key, alg kms.Algorithm, order kms.SM2Order) {
	dec := hsm.Call{Verb: kms.VerbDecrypt, Algorithm: alg, Spec: k.spec, Handle: k.handle, Order: order}
	encrypt := func(t testing.TB, plaintext []byte) []byte {
		t.Helper()
		ciphertext, err := encryptTo(k.spec, alg, order, k.public, plaintext)
		if err != nil {
			t.Fatalf("judge encrypts %d bytes: %v", len(plaintext), err)
		}
		return ciphertext
	}
	decrypts := func(t testing.TB, ciphertext, plaintext []byte) {
		t.Helper()
		call := dec
		call.Input = ciphertext
		if got := c.must(t, call); !bytes.Equal(got, plaintext) {
			t.Errorf("the ciphertext of %d bytes decrypts to something else", len(plaintext))
		}
	}
	canary := encrypt(t, []byte("canary"))
	c.canary = func(t testing.TB) { t.Helper(); decrypts(t, canary, []byte("canary")) }
	sizes, _ := plaintextSizes(k.spec, alg)
	for _, n := range sizes {
		plaintext := randomBytes(n)
		decrypts(t, encrypt(t, plaintext), plaintext)
	}
	good := encrypt(t, []byte("a plaintext of some length"))
	for name, ciphertext := range map[string][]byte{
		"empty": nil, "one byte": {4}, "zeros": make([]byte, len(good)), "truncated": good[:len(good)-1],
		"extended": append(bytes.Clone(good), 0), "large": bytes.Repeat([]byte{0x30}, large),
	} {
		call := dec
		call.Input = ciphertext
		c.refused(t, name, call, contentClasses...)
	}
	for i := 0; i < len(good); i += 7 {
		call := dec
		call.Input = bytes.Clone(good)
		call.Input[i] ^= 1
		c.refused(t, fmt.Sprintf("byte %d changed", i), call, contentClasses...)
	}
	s.testOtherOrders(t, c, dec, order, good)
	if other := s.anotherKey(t, k); other != nil {
		call := dec
		call.Handle, call.Input = other.handle, good
		c.refused(t, "another key", call, contentClasses...)
	}
}

// testOtherOrders: a ciphertext is read in the order that the call names.
func (s *suite) testOtherOrders(t *testing.T, c *caller, dec hsm.Call, order kms.SM2Order, ciphertext []byte) {
	others := slices.DeleteFunc(ordersFor(dec.Algorithm), func(o kms.SM2Order) bool { return o == order })
	if dec.Algorithm == kms.AlgSM2PKE {
		unknown := dec
		unknown.Order, unknown.Input = "C2C1C3", ciphertext
		c.refused(t, "an unknown order", unknown, hsm.ClassRequest)
	}
	for _, other := range others {
		call := dec
		call.Order, call.Input = other, ciphertext
		c.refused(t, fmt.Sprintf("a ciphertext of order %s read as %s", order, other), call, contentClasses...)
	}
}
