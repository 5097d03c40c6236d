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
	call := hsm.Call{Verb: kms.VerbSign, Algorithm: alg, Spec: k.spec, Handle: k.handle, UserID: userIDFor(alg)}
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
		call.Input, call.Handle = []byte("a message"), other.handle
		sig := c.must(t, call)
		wantSignature(t, other, call, sig)
		if ok, _ := judgeSignature(k.spec, alg, k.public, signed{message: call.Input, userID: call.UserID}, sig); ok {
			t.Error("the first key's public half accepts the second key's signature")
		}
	})
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
	n := call.Algorithm.Hash().Size()
	if n == 0 {
		for _, size := range []int{0, 32, 64} {
			call.Input = randomBytes(size)
			c.refused(t, fmt.Sprintf("a digest of %d bytes for %s, which takes messages only", size, call.Algorithm), call, hsm.ClassRequest)
		}
		return
	}
	call.Input = randomBytes(n)
	checked(t, call)
	call.Input = make([]byte, n) // the integer zero is a digest like any other
	checked(t, call)
	for _, size := range []int{0, 1, n - 1, n + 1, 2 * n} {
		call.Input = randomBytes(size)
		c.refused(t, fmt.Sprintf("a digest of %d bytes for %s", size, call.Algorithm), call, hsm.ClassRequest)
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

// testOtherUses tries every verb with every algorithm that the key is not for.
func (s *suite) testOtherUses(t *testing.T, k *key) {
	c := s.caller(t)
	verbs := map[kms.Verb]kms.Usage{
		kms.VerbSign:    kms.UsageSignVerify,
		kms.VerbDecrypt: kms.UsageEncryptDecrypt,
		kms.VerbMAC:     kms.UsageGenerateVerifyMAC,
	}
	if k.spec.Info().Symmetric() {
		verbs[kms.VerbEncrypt] = kms.UsageEncryptDecrypt
	}
	tried := make(map[string]bool)
	for _, other := range kms.Specs() {
		for _, u := range other.Usages {
			for _, alg := range u.Algorithms {
				for verb, usage := range verbs {
					what := fmt.Sprintf("verb %d with %s on a %s key for %s", verb, alg, k.spec, k.usage)
					if tried[what] || usage == k.usage && k.spec.Supports(usage, alg) {
						continue
					}
					tried[what] = true
					call := hsm.Call{Verb: verb, Algorithm: alg, Spec: k.spec, Handle: k.handle,
						Input: []byte("sixteen bytes ok"), UserID: userIDFor(alg)}
					if alg == kms.AlgAESGCM || alg == kms.AlgSM4GCM {
						call.Nonce = make([]byte, 12)
					}
					c.refused(t, what, call, hsm.ClassRequest, hsm.ClassUnsupported)
				}
			}
		}
	}
	c.refused(t, "an unknown algorithm", hsm.Call{Verb: kms.VerbSign, Algorithm: "NONE", Spec: k.spec, Handle: k.handle},
		hsm.ClassRequest, hsm.ClassUnsupported)
	c.refused(t, "an unknown verb", hsm.Call{Verb: 255, Spec: k.spec, Handle: k.handle},
		hsm.ClassRequest, hsm.ClassUnsupported)
}
