package hsmtest

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/sha512"
	"hash"
	"testing"

	"github.com/emmansun/gmsm/sm3"

	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/kms"
)

var macHashes = map[kms.Algorithm]func() hash.Hash{
	kms.AlgHMACSHA224: sha256.New224,
	kms.AlgHMACSHA256: sha256.New,
	kms.AlgHMACSHA384: sha512.New384,
	kms.AlgHMACSHA512: sha512.New,
	kms.AlgHMACSM3:    sm3.New,
}

func (s *suite) testMAC(t *testing.T, c *caller, k *key, alg kms.Algorithm) {
	call := hsm.Call{Verb: kms.VerbMAC, Algorithm: alg, Spec: k.spec, Handle: k.handle}
	newHash := macHashes[alg]
	seen := make(map[string]string)
	inputs := map[string][]byte{"empty": {}, "zero byte": {0}, "short": []byte("a message"), "1MiB": randomBytes(large)}
	for name, message := range inputs {
		call.Input = message
		mac := c.must(t, call)
		if want := newHash().Size(); len(mac) != want {
			t.Fatalf("%s: the MAC has %d bytes, want %d", name, len(mac), want)
		}
		if !bytes.Equal(mac, c.must(t, call)) {
			t.Errorf("%s: the MAC of one message came out differently", name)
		}
		if raw := s.clear(t, k); raw != nil && !bytes.Equal(mac, judgeMAC(alg, raw, message)) {
			t.Errorf("%s: the judge's MAC differs", name)
		}
		if before, ok := seen[string(mac)]; ok {
			t.Errorf("messages %q and %q have one MAC", before, name)
		}
		seen[string(mac)] = name
	}
	call.Input = inputs["short"]
	want := c.must(t, call)
	c.canary = func(t testing.TB) {
		t.Helper()
		if got := c.must(t, call); !bytes.Equal(got, want) {
			t.Error("after a refusal the session computes another MAC")
		}
	}
	prehashed := call
	prehashed.Prehashed, prehashed.Input = true, randomBytes(newHash().Size())
	c.refused(t, "a digest", prehashed, hsm.ClassRequest)
	other := s.anotherKey(t, k)
	theirs := call
	theirs.Handle = other.handle
	if bytes.Equal(c.must(t, theirs), want) {
		t.Error("two keys give one MAC")
	}
}

func judgeMAC(alg kms.Algorithm, raw, message []byte) []byte {
	h := hmac.New(macHashes[alg], raw)
	h.Write(message)
	return h.Sum(nil)
}
