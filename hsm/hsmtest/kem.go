package hsmtest

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/kms"
)

// kemSecret is the length of a shared secret of ML-KEM and kemCiphertext that
// of an encapsulation, in bytes (FIPS 203, table 3).
const kemSecret = 32

var kemCiphertext = map[kms.Spec]int{kms.SpecMLKEM512: 768, kms.SpecMLKEM768: 1088, kms.SpecMLKEM1024: 1568}

func (s *suite) testDecapsulate(t *testing.T, c *caller, k *key, alg kms.Algorithm) {
	call := hsm.Call{Verb: kms.VerbDecapsulate, Algorithm: alg, Spec: k.spec, Handle: k.handle}
	decapsulate := func(t testing.TB, ciphertext []byte) []byte {
		t.Helper()
		call := call
		call.Input = ciphertext
		secret := c.must(t, call)
		if len(secret) != kemSecret {
			t.Fatalf("the secret has %d bytes, want %d", len(secret), kemSecret)
		}
		return secret
	}
	encapsulate := func(t testing.TB) (secret, ciphertext []byte) {
		t.Helper()
		secret, ciphertext, err := judgeEncapsulate(k.spec, k.public)
		if err != nil {
			t.Fatalf("judge: %v", err)
		}
		return secret, ciphertext
	}
	secret, ciphertext := encapsulate(t)
	c.canary = func(t testing.TB) {
		t.Helper()
		if !bytes.Equal(decapsulate(t, ciphertext), secret) {
			t.Error("another secret comes out than was encapsulated")
		}
	}
	for range 5 {
		if secret, ciphertext := encapsulate(t); !bytes.Equal(decapsulate(t, ciphertext), secret) {
			t.Error("another secret comes out than was encapsulated")
		}
	}
	t.Run("ImplicitRejection", func(t *testing.T) {
		seen := map[string]string{string(secret): "the encapsulation"}
		wrong := map[string][]byte{"zeros": make([]byte, len(ciphertext)), "random": randomBytes(len(ciphertext))}
		for _, i := range []int{0, len(ciphertext) / 2, len(ciphertext) - 1} {
			b := bytes.Clone(ciphertext)
			b[i] ^= 1
			wrong[fmt.Sprintf("byte %d changed", i)] = b
		}
		for name, ciphertext := range wrong {
			got := decapsulate(t, ciphertext)
			if before, ok := seen[string(got)]; ok {
				t.Errorf("%s gives the secret of %s", name, before)
			}
			seen[string(got)] = name
			if !bytes.Equal(decapsulate(t, ciphertext), got) {
				t.Errorf("%s gives another secret each time", name)
			}
		}
		c.canary(t)
	})
	for _, n := range []int{0, 1, len(ciphertext) - 1, len(ciphertext) + 1, large} {
		call := call
		call.Input = make([]byte, n)
		c.refused(t, fmt.Sprintf("a ciphertext of %d bytes", n), call, contentClasses...)
	}
	if bytes.Equal(func() []byte {
		call := call
		call.Handle, call.Input = s.anotherKey(t, k).handle, ciphertext
		return c.must(t, call)
	}(), secret) {
		t.Error("another key recovers the secret")
	}
}

// testEncapsulate runs the public half of ML-KEM.
func testEncapsulate(t *testing.T, c *caller, k *judgeKey, alg kms.Algorithm) {
	call := hsm.Call{Verb: kms.VerbEncapsulate, Algorithm: alg, Spec: k.spec, PublicKey: k.public}
	encapsulates := func(t testing.TB) []byte {
		t.Helper()
		done, err := c.do(t, call)
		if err != nil {
			t.Fatalf("encapsulate: %v", err)
		}
		want, err := k.decapsulate(done.Output)
		if err != nil || !bytes.Equal(done.Secret, want) {
			t.Errorf("the judge recovers another secret: %v", err)
		}
		return done.Secret
	}
	c.canary = func(t testing.TB) { t.Helper(); encapsulates(t) }
	if bytes.Equal(encapsulates(t), encapsulates(t)) {
		t.Error("one secret was made twice")
	}
	withInput := call
	withInput.Input = []byte("ignored?")
	c.refused(t, "encapsulation of an input", withInput, hsm.ClassRequest)
	// A coefficient of 4095, above the modulus 3329 (FIPS 203, section 7.2).
	unreduced := call
	unreduced.PublicKey = bytes.Clone(k.public)
	octets := unreduced.PublicKey[len(k.public)-kemPublic(k.spec):]
	octets[0], octets[1] = 0xff, octets[1]|0x0f
	c.refused(t, "an encapsulation key that is not reduced", unreduced, hsm.ClassRequest)
}

// kemPublic is the length of an encapsulation key in bytes (FIPS 203, table 3).
func kemPublic(spec kms.Spec) int {
	return map[kms.Spec]int{kms.SpecMLKEM512: 800, kms.SpecMLKEM768: 1184, kms.SpecMLKEM1024: 1568}[spec]
}
