package hsmtest

import (
	"bytes"
	"crypto/rsa"
	"fmt"
	"strings"
	"testing"

	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/kms"
)

// testPublicKeys runs the verbs that take a public key with keys that the
// token never saw.
func (s *suite) testPublicKeys(t *testing.T) {
	for _, spec := range s.opts.Specs {
		info := spec.Info()
		if info.Symmetric() {
			continue
		}
		t.Run(string(spec), func(t *testing.T) {
			k, err := newJudgeKey(spec)
			if err != nil {
				t.Fatalf("judge's key: %v", err)
			}
			c := s.caller(t)
			for _, alg := range info.Algorithms(kms.UsageSignVerify) {
				t.Run("Verify/"+string(alg), func(t *testing.T) { testVerify(t, c, k, alg) })
			}
			for _, alg := range info.Algorithms(kms.UsageEncryptDecrypt) {
				t.Run("Encrypt/"+string(alg), func(t *testing.T) { testPublicEncrypt(t, c, k, alg) })
			}
			for _, alg := range info.Algorithms(kms.UsageEncapsulateDecapsulate) {
				t.Run("Encapsulate/"+string(alg), func(t *testing.T) { testEncapsulate(t, c, k, alg) })
			}
			t.Run("MalformedPublicKeyIsRefused", func(t *testing.T) { testMalformedPublic(t, c, k) })
		})
	}
}

func testVerify(t *testing.T, c *caller, k *judgeKey, alg kms.Algorithm) {
	valid := func(t testing.TB, call hsm.Call) bool {
		t.Helper()
		done, err := c.do(t, call)
		if err != nil {
			t.Fatalf("verify: %v", err)
		}
		if len(done.Output) != 0 {
			t.Errorf("verify left %d bytes of output", len(done.Output))
		}
		return done.Valid
	}
	sign := func(in signed, salt int) []byte {
		t.Helper()
		sig, err := k.sign(alg, in, salt)
		if err != nil {
			t.Fatalf("judge signs: %v", err)
		}
		return sig
	}
	call := hsm.Call{Verb: kms.VerbVerify, Algorithm: alg, Spec: k.spec, PublicKey: k.public, UserID: userIDFor(alg)}
	messages := map[string][]byte{"empty": {}, "short": []byte("a message"), "1MiB": randomBytes(large)}
	if alg == kms.AlgSLHDSA {
		delete(messages, "empty")
		c.refused(t, "an empty message for SLH_DSA", call, hsm.ClassRequest)
	}
	for name, message := range messages {
		call.Input = message
		call.Signature = sign(signed{message: message, userID: call.UserID}, rsa.PSSSaltLengthEqualsHash)
		if !valid(t, call) {
			t.Errorf("%s: a good signature is refused", name)
		}
	}
	call.Input = []byte("a message")
	good := sign(signed{message: call.Input, userID: call.UserID}, rsa.PSSSaltLengthEqualsHash)
	call.Signature = good
	canary := call
	c.canary = func(t testing.TB) {
		t.Helper()
		if !valid(t, canary) {
			t.Error("after a refusal the session refuses a good signature")
		}
	}
	other := call
	other.Input = []byte("a messagf")
	if valid(t, other) {
		t.Error("a signature is accepted for another message")
	}
	for _, sig := range badSignatures(good) {
		call.Signature = sig
		if valid(t, call) {
			t.Errorf("a malformed signature of %d bytes is accepted", len(sig))
		}
	}
	call.Signature = good
	if strings.Contains(string(alg), "_PSS_") {
		n := alg.Hash().Size()
		for _, salt := range []int{n - 1, n + 1, rsa.PSSSaltLengthAuto} { // Auto: as long as fits
			call.Signature = sign(signed{message: call.Input}, salt)
			if valid(t, call) {
				t.Errorf("PSS is accepted with a salt length of %d where the hash has %d bytes", salt, n)
			}
		}
		call.Signature = good
	}
	testVerifyDigest(t, c, call, sign, valid)
	if alg == kms.AlgSM2DSA {
		call.UserID = []byte("another")
		if valid(t, call) {
			t.Error("a signature is accepted for another user id")
		}
		call.UserID = nil
		c.refused(t, "a message without a user id", call, hsm.ClassRequest)
		call.UserID = make([]byte, maxUserID+1)
		c.refused(t, "a user id of 8192 bytes", call, hsm.ClassRequest)
	}
}

// badSignatures spoils a signature in the ways of a careless or hostile client.
func badSignatures(good []byte) [][]byte {
	bad := [][]byte{nil, {0}, {0x30, 0}, {0x30, 6, 2, 1, 0, 2, 1, 0}, make([]byte, len(good)), good[:len(good)-1],
		append(bytes.Clone(good), 0), append([]byte{0}, good...), make([]byte, large)}
	for i := 0; i < len(good); i += max(11, len(good)/50) {
		b := bytes.Clone(good)
		b[i] ^= 1
		bad = append(bad, b)
	}
	return bad
}

func testVerifyDigest(t *testing.T, c *caller, call hsm.Call, sign func(signed, int) []byte, valid func(testing.TB, hsm.Call) bool) {
	n := call.Algorithm.Hash().Size() // 0 for ML-DSA too: µ takes the public key to verify
	call.Prehashed, call.UserID = true, nil
	if n == 0 {
		call.Input = randomBytes(64)
		c.refused(t, "a digest for an algorithm that takes messages only", call, hsm.ClassRequest)
		return
	}
	call.Input = randomBytes(n)
	call.Signature = sign(signed{message: call.Input, prehashed: true}, rsa.PSSSaltLengthEqualsHash)
	if !valid(t, call) {
		t.Error("a good signature over a digest is refused")
	}
	call.Input = bytes.Clone(call.Input)
	call.Input[0] ^= 0x80
	if valid(t, call) {
		t.Error("a signature is accepted for another digest")
	}
	for _, size := range []int{0, n - 1, n + 1} {
		call.Input = make([]byte, size)
		c.refused(t, fmt.Sprintf("a digest of %d bytes", size), call, hsm.ClassRequest)
	}
	if call.Algorithm == kms.AlgSM2DSA {
		call.Input, call.UserID = make([]byte, n), defaultUserID
		c.refused(t, "a digest with a user id", call, hsm.ClassRequest)
	}
}

func testPublicEncrypt(t *testing.T, c *caller, k *judgeKey, alg kms.Algorithm) {
	for _, order := range ordersFor(alg) {
		call := hsm.Call{Verb: kms.VerbEncrypt, Algorithm: alg, Spec: k.spec, PublicKey: k.public, Order: order}
		encrypts := func(t testing.TB, plaintext []byte) {
			t.Helper()
			call := call
			call.Input = plaintext
			got, err := k.decrypt(alg, order, c.must(t, call))
			if err != nil || !bytes.Equal(got, plaintext) {
				t.Errorf("order %q: the judge cannot decrypt the ciphertext of %d bytes: %v", order, len(plaintext), err)
			}
		}
		c.canary = func(t testing.TB) { t.Helper(); encrypts(t, []byte("canary")) }
		sizes, tooLong := plaintextSizes(k.spec, alg)
		for _, n := range sizes {
			encrypts(t, randomBytes(n))
		}
		call.Input = []byte("twice")
		if bytes.Equal(c.must(t, call), c.must(t, call)) {
			t.Error("one plaintext was encrypted to one ciphertext twice")
		}
		if tooLong > 0 {
			for _, n := range []int{tooLong, large} {
				call.Input = make([]byte, n)
				c.refused(t, fmt.Sprintf("a plaintext of %d bytes", n), call, hsm.ClassRequest)
			}
		}
	}
}

func testMalformedPublic(t *testing.T, c *caller, k *judgeKey) {
	wrongSpec := kms.SpecP256
	if k.spec == kms.SpecP256 {
		wrongSpec = kms.SpecP384
	}
	stranger, err := newJudgeKey(wrongSpec)
	if err != nil {
		t.Fatal(err)
	}
	offCurve := bytes.Clone(k.public)
	offCurve[len(offCurve)-1] ^= 1
	keys := map[string][]byte{
		"none": nil, "truncated": k.public[:len(k.public)-1], "extended": append(bytes.Clone(k.public), 0),
		"zeros": make([]byte, len(k.public)), "of another spec": stranger.public, "large": make([]byte, large),
	}
	switch k.spec.Info().Family {
	case kms.FamilyEC, kms.FamilySecp256k1, kms.FamilySM2:
		keys["off the curve"] = offCurve
	}
	c.canary = nil
	for name, public := range keys {
		for _, u := range k.spec.Info().Usages {
			call := hsm.Call{Verb: kms.VerbVerify, Algorithm: u.Algorithms[0], Spec: k.spec, PublicKey: public,
				Input: []byte("a message"), UserID: userIDFor(u.Algorithms[0]), Signature: make([]byte, 64)}
			switch u.Usage {
			case kms.UsageEncryptDecrypt:
				call.Verb, call.Signature = kms.VerbEncrypt, nil
			case kms.UsageEncapsulateDecapsulate:
				call.Verb, call.Signature, call.Input = kms.VerbEncapsulate, nil, nil
			case kms.UsageKeyAgreement:
				continue // see testAgree
			}
			c.refused(t, fmt.Sprintf("verb %d with a public key: %s", call.Verb, name), call, hsm.ClassRequest)
		}
	}
}

func (s *suite) testDigest(t *testing.T) {
	c := s.caller(t)
	for _, d := range []kms.Digest{kms.DigestSHA224, kms.DigestSHA256, kms.DigestSHA384, kms.DigestSHA512, kms.DigestSM3} {
		for _, n := range []int{0, 1, 63, 64, 65, 127, 128, 129, large} {
			message := randomBytes(n)
			got := c.must(t, hsm.Call{Verb: kms.VerbDigest, Digest: d, Input: message})
			if !bytes.Equal(got, digestOf(d, message)) {
				t.Errorf("%s of %d bytes is wrong", d, n)
			}
		}
	}
	for _, d := range []kms.Digest{"", "SHA_1", "MD5"} {
		c.refused(t, fmt.Sprintf("digest %q", d), hsm.Call{Verb: kms.VerbDigest, Digest: d}, hsm.ClassRequest)
	}
}

func (s *suite) testRandom(t *testing.T) {
	c := s.caller(t)
	seen := make(map[string]bool)
	for range 3 {
		for _, n := range []int{1, 16, 1024, 4096} {
			got := c.must(t, hsm.Call{Verb: kms.VerbRandom, Length: n})
			if len(got) != n {
				t.Fatalf("asked for %d random bytes, got %d", n, len(got))
			}
			if n >= 16 && seen[string(got[:16])] {
				t.Error("random bytes came twice")
			}
			if n >= 16 {
				seen[string(got[:16])] = true
			}
		}
	}
	for _, n := range []int{0, -1} {
		c.refused(t, fmt.Sprintf("%d random bytes", n), hsm.Call{Verb: kms.VerbRandom, Length: n}, hsm.ClassRequest)
	}
}
