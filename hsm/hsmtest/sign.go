package hsmtest

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"testing"

	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/kms"
)

// large is the length of the long inputs: above any buffer that a driver
// would set aside beforehand.
const large = 1 << 20

// Lengths of an SM2 user id: its length in bits goes into two bytes
// (GB/T 32918.2, section 5.5).
const maxUserID = 8191

// defaultUserID is the one that GM/T 0009-2012, section 10 fixes.
var defaultUserID = []byte("1234567812345678")

// userIDFor returns the user id that a signature over a message takes.
func userIDFor(alg kms.Algorithm) []byte {
	if alg == kms.AlgSM2DSA {
		return defaultUserID
	}
	return nil
}

// randomBytes returns n random bytes.
func randomBytes(n int) []byte {
	b := make([]byte, n)
	rand.Read(b)
	return b
}

func testPublicHalf(t *testing.T, k *key) {
	if k.spec.Info().Symmetric() {
		if k.public != nil {
			t.Errorf("a symmetric key came with a public key of %d bytes", len(k.public))
		}
		return
	}
	if _, err := parsePublic(k.spec, k.public); err != nil {
		t.Errorf("the public key is not a SubjectPublicKeyInfo of %s: %v", k.spec, err)
	}
}

func (s *suite) testSign(t *testing.T, c *caller, k *key, alg kms.Algorithm) {
	call := hsm.Call{Verb: kms.VerbSign, Algorithm: alg, Spec: k.spec, Handle: k.handle, PublicKey: k.public, UserID: userIDFor(alg)}
	checked := func(t testing.TB, call hsm.Call) []byte {
		t.Helper()
		sig := c.must(t, call)
		wantSignature(t, k, call, sig)
		return sig
	}
	c.canary = func(t testing.TB) {
		call.Input = []byte("canary")
		checked(t, call)
	}
	for name, message := range map[string][]byte{"empty": {}, "short": []byte("a message"), "1MiB": randomBytes(large)} {
		t.Run("Message/"+name, func(t *testing.T) {
			call := call
			call.Input = message
			if len(message) == 0 && alg == kms.AlgSLHDSA {
				c.refused(t, "an empty message for SLH_DSA", call, hsm.ClassRequest)
				return
			}
			sig := checked(t, call)
			other := signed{message: append(bytes.Clone(message), 0), userID: call.UserID}
			if ok, err := judgeSignature(k.spec, alg, k.public, other, sig); err != nil || ok {
				t.Errorf("the signature holds for another message (%v, %v)", ok, err)
			}
		})
	}
	t.Run("Digest", func(t *testing.T) { testSignDigest(t, c, call, checked) })
	t.Run("AnotherKeySignsForItselfOnly", func(t *testing.T) {
		other := s.anotherKey(t, k)
		if other == nil {
			return
		}
		call := call
		call.Input, call.Handle, call.PublicKey = []byte("a message"), other.handle, other.public
		sig := c.must(t, call)
		wantSignature(t, other, call, sig)
		if ok, _ := judgeSignature(k.spec, alg, k.public, signed{message: call.Input, userID: call.UserID}, sig); ok {
			t.Error("the first key's public half accepts the second key's signature")
		}
	})
	if alg == kms.AlgMLDSA {
		t.Run("Mu", func(t *testing.T) { testMu(t, c, k, call) })
	}
	if alg == kms.AlgSM2DSA {
		t.Run("UserID", func(t *testing.T) { testUserID(t, c, k, call, checked) })
	}
}

// wantSignature fails unless sig is the key's signature over the call's input.
func wantSignature(t testing.TB, k *key, call hsm.Call, sig []byte) {
	t.Helper()
	in := signed{message: call.Input, prehashed: call.Prehashed, userID: call.UserID}
	ok, err := judgeSignature(k.spec, call.Algorithm, k.public, in, sig)
	if err != nil {
		t.Fatalf("judge: %v", err)
	}
	if !ok {
		t.Errorf("%s: the signature over %d bytes (prehashed %v) does not verify", call.Algorithm, len(call.Input), call.Prehashed)
	}
}

func testSignDigest(t *testing.T, c *caller, call hsm.Call, checked func(testing.TB, hsm.Call) []byte) {
	call.Prehashed, call.UserID = true, nil
	n := call.Algorithm.PrehashSize()
	if n == 0 {
		for _, size := range []int{0, 32, 64} {
			call.Input = randomBytes(size)
			c.refused(t, fmt.Sprintf("a digest of %d bytes for %s, which takes messages only", size, call.Algorithm), call, hsm.ClassRequest)
		}
		return
	}
	if call.Algorithm != kms.AlgMLDSA { // see testMu
		call.Input = randomBytes(n)
		checked(t, call)
		call.Input = make([]byte, n) // the integer zero is a digest like any other
		checked(t, call)
	}
	for _, size := range []int{0, 1, n - 1, n + 1, 2 * n} {
		call.Input = randomBytes(size)
		c.refused(t, fmt.Sprintf("a digest of %d bytes for %s", size, call.Algorithm), call, hsm.ClassRequest)
	}
}

// testMu signs ML-DSA's message representative in place of a message; the
// signature must be one over the message.
func testMu(t *testing.T, c *caller, k *key, call hsm.Call) {
	for _, message := range []string{"", "a message"} {
		mu, err := judgeMu(k.spec, k.public, []byte(message))
		if err != nil {
			t.Fatalf("judge: %v", err)
		}
		call.Prehashed, call.Input = true, mu
		sig := c.must(t, call)
		call.Prehashed, call.Input = false, []byte(message)
		wantSignature(t, k, call, sig)
	}
}

func testUserID(t *testing.T, c *caller, k *key, call hsm.Call, checked func(testing.TB, hsm.Call) []byte) {
	call.Input = []byte("a message")
	for _, n := range []int{1, 16, maxUserID} {
		call.UserID = bytes.Repeat([]byte{'u'}, n)
		sig := checked(t, call)
		other := signed{message: call.Input, userID: bytes.Repeat([]byte{'v'}, n)}
		if ok, _ := judgeSignature(k.spec, call.Algorithm, k.public, other, sig); ok {
			t.Errorf("the signature of a user id of %d bytes holds for another id", n)
		}
	}
	call.UserID = nil
	c.refused(t, "a message without a user id", call, hsm.ClassRequest)
	call.UserID = make([]byte, maxUserID+1)
	c.refused(t, "a user id of 8192 bytes", call, hsm.ClassRequest)
	call.UserID, call.Input, call.Prehashed = defaultUserID, randomBytes(32), true
	c.refused(t, "a digest with a user id", call, hsm.ClassRequest)
}
