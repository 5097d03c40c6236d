package hsmtest

import (
	"bytes"
	"crypto/hkdf"
	"encoding/binary"
	"fmt"
	"slices"
	"testing"

	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/kms"
)

func (s *suite) testDerive(t *testing.T, c *caller, k *key, alg kms.Algorithm) {
	call := hsm.Call{Verb: kms.VerbDerive, Algorithm: alg, Spec: k.spec, Handle: k.handle, Length: 32}
	derive := func(t testing.TB, context []byte, length int) []byte {
		t.Helper()
		call := call
		call.Input, call.Length = context, length
		got := c.must(t, call)
		if len(got) != length {
			t.Fatalf("asked for %d bytes, got %d", length, len(got))
		}
		return got
	}
	want := derive(t, []byte("canary"), 32)
	c.canary = func(t testing.TB) {
		t.Helper()
		if !bytes.Equal(derive(t, []byte("canary"), 32), want) {
			t.Error("after a refusal the session derives something else")
		}
	}
	seen := map[string]string{}
	for name, context := range map[string][]byte{
		"none": nil, "one zero": {0}, "two zeros": {0, 0}, "text": []byte("context"), "longest": randomBytes(kms.MaxDeriveContext),
	} {
		longest := derive(t, context, kms.MaxDerived)
		// Both constructions give blocks one after another.
		for _, n := range []int{kms.MinDerived, 31, 32, 33, 48, 64, 65, 255, kms.MaxDerived - 1} {
			if !bytes.Equal(derive(t, context, n), longest[:n]) {
				t.Errorf("context %q: %d bytes are not the first of %d", name, n, kms.MaxDerived)
			}
		}
		if raw := s.clear(t, k); raw != nil && !bytes.Equal(longest, judgeDerive(t, alg, raw, context, kms.MaxDerived)) {
			t.Errorf("context %q: the judge derives something else", name)
		}
		if before, ok := seen[string(longest[:32])]; ok {
			t.Errorf("contexts %q and %q give the same", before, name)
		}
		seen[string(longest[:32])] = name
	}
	for _, n := range []int{-1, 0, 1, kms.MinDerived - 1, kms.MaxDerived + 1, 1 << 30} {
		call := call
		call.Length = n
		c.refused(t, fmt.Sprintf("%d derived bytes", n), call, hsm.ClassRequest)
	}
	tooLong := call
	tooLong.Input = make([]byte, kms.MaxDeriveContext+1)
	c.refused(t, "a long context", tooLong, hsm.ClassRequest)
	theirs := call
	theirs.Handle, theirs.Input = s.anotherKey(t, k).handle, []byte("canary")
	if bytes.Equal(c.must(t, theirs), want) {
		t.Error("two keys derive the same")
	}
}

var hkdfHashes = map[kms.Algorithm]kms.Digest{
	kms.AlgHKDFSHA256: kms.DigestSHA256, kms.AlgHKDFSHA384: kms.DigestSHA384, kms.AlgHKDFSHA512: kms.DigestSHA512,
}

func judgeDerive(t *testing.T, alg kms.Algorithm, raw, context []byte, length int) []byte {
	t.Helper()
	if alg == kms.AlgSM3KDF {
		// GB/T 32918.4, section 5.4.3, with Z = key ‖ context.
		var out []byte
		for ct := uint32(1); len(out) < length; ct++ {
			out = append(out, digestOf(kms.DigestSM3, binary.BigEndian.AppendUint32(slices.Concat(raw, context), ct))...)
		}
		return out[:length]
	}
	out, err := hkdf.Expand(hashOf(hkdfHashes[alg]), raw, string(context), length)
	if err != nil {
		t.Fatalf("judge: %v", err)
	}
	return out
}
