package hsmtest

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/kms"
)

func (s *suite) testAgree(t *testing.T, c *caller, k *key, alg kms.Algorithm) {
	call := hsm.Call{Verb: kms.VerbAgree, Algorithm: alg, Spec: k.spec, Handle: k.handle}
	agrees := func(t testing.TB, peer *judgeKey) {
		t.Helper()
		call := call
		call.Peer = peer.public
		want, err := peer.agree(k.public)
		if err != nil {
			t.Fatalf("judge: %v", err)
		}
		if got := c.must(t, call); !bytes.Equal(got, want) {
			t.Errorf("the secret is %d bytes of something else, want %d bytes", len(got), len(want))
		}
	}
	canary := mustJudgeKey(t, k.spec)
	c.canary = func(t testing.TB) { t.Helper(); agrees(t, canary) }
	for range 5 {
		agrees(t, mustJudgeKey(t, k.spec))
	}
	t.Run("LeadingZerosAreKept", func(t *testing.T) { agrees(t, judgeWithZeros(t, k)) })
	t.Run("WithItself", func(t *testing.T) {
		call := call
		call.Peer = k.public
		c.must(t, call)
	})
	t.Run("BadPeersAreRefused", func(t *testing.T) {
		for name, peer := range badPeers(t, canary.public, k.spec) {
			call := call
			call.Peer = peer
			c.refused(t, "a peer: "+name, call, hsm.ClassRequest)
		}
	})
	other := s.anotherKey(t, k)
	theirs := call
	theirs.Handle, theirs.Peer = other.handle, canary.public
	call.Peer = canary.public
	if bytes.Equal(c.must(t, theirs), c.must(t, call)) {
		t.Error("two keys agree on one secret")
	}
}

func mustJudgeKey(t testing.TB, spec kms.Spec) *judgeKey {
	t.Helper()
	k, err := newJudgeKey(spec)
	if err != nil {
		t.Fatalf("judge's key: %v", err)
	}
	return k
}

// judgeWithZeros looks for a key whose secret with k begins with a zero byte,
// as one in 256 does: libraries of numbers drop it.
func judgeWithZeros(t *testing.T, k *key) *judgeKey {
	t.Helper()
	for range 10_000 {
		peer := mustJudgeKey(t, k.spec)
		secret, err := peer.agree(k.public)
		if err != nil {
			t.Fatalf("judge: %v", err)
		}
		if secret[0] == 0 {
			return peer
		}
	}
	t.Fatal("no secret begins with a zero byte")
	return nil
}

// badPeers spoils the public key of a peer. An uncompressed point is at its
// end.
func badPeers(t *testing.T, good []byte, spec kms.Spec) map[string][]byte {
	t.Helper()
	size := 2 * ((spec.Info().Bits + 7) / 8)
	head, point := good[:len(good)-size-1], good[len(good)-size:]
	with := func(form byte, coordinates []byte) []byte {
		return append(append(bytes.Clone(head), form), coordinates...)
	}
	offCurve := bytes.Clone(point)
	offCurve[size-1] ^= 1
	// The same x, and y = 0: where the curve has no such point, a small
	// subgroup of another curve, whose secrets give the key away bit by bit.
	noY := append(bytes.Clone(point[:size/2]), make([]byte, size/2)...)
	bad := map[string][]byte{
		"none": nil, "truncated": good[:len(good)-1], "extended": append(bytes.Clone(good), 0),
		"off the curve": with(4, offCurve), "y is 0": with(4, noY),
		"the point at infinity":        with(4, make([]byte, size)),
		"above the field":              with(4, bytes.Repeat([]byte{0xff}, size)),
		"compressed in the same room":  with(2+point[size-1]&1, point),
		"hybrid":                       with(6+point[size-1]&1, point),
		"a point without its envelope": append([]byte{4}, point...),
		"large":                        make([]byte, large),
	}
	for _, other := range []kms.Spec{kms.SpecP256, kms.SpecP384, kms.SpecSecp256k1, kms.SpecSM2, kms.SpecEd25519, kms.SpecMLKEM768} {
		if other != spec {
			bad[fmt.Sprintf("of a %s key", other)] = mustJudgeKey(t, other).public
		}
	}
	return bad
}
