package hsmtest

import (
	"bytes"
	"crypto/cipher"
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/kms"
)

func (s *suite) testWrap(t *testing.T, c *caller, k *key, alg kms.Algorithm) {
	wrap := hsm.Call{Verb: kms.VerbWrap, Algorithm: alg, Spec: k.spec, Handle: k.handle}
	unwrap := wrap
	unwrap.Verb = kms.VerbUnwrap
	raw := s.clear(t, k)
	roundTrip := func(t testing.TB, plaintext []byte) []byte {
		t.Helper()
		wrap, unwrap := wrap, unwrap
		wrap.Input = plaintext
		wrapped := c.must(t, wrap)
		if want := (len(plaintext)+7)/8*8 + 8; len(wrapped) != want {
			t.Fatalf("%d bytes were wrapped into %d, want %d", len(plaintext), len(wrapped), want)
		}
		unwrap.Input = wrapped
		if got := c.must(t, unwrap); !bytes.Equal(got, plaintext) {
			t.Errorf("%d bytes do not come back", len(plaintext))
		}
		return wrapped
	}
	c.canary = func(t testing.TB) { t.Helper(); roundTrip(t, []byte("canary")) }
	for _, n := range []int{1, 7, 8, 9, 15, 16, 17, 24, 32, 100, 1000, kms.MaxWrap} {
		plaintext := randomBytes(n)
		wrapped := roundTrip(t, plaintext)
		if raw != nil && !bytes.Equal(wrapped, judgeWrap(judgeBlock(t, alg, raw), plaintext)) {
			t.Errorf("%d bytes: the judge wraps them into something else", n)
		}
	}
	for _, n := range []int{0, kms.MaxWrap + 1, large} {
		call := wrap
		call.Input = make([]byte, n)
		c.refused(t, fmt.Sprintf("wrapping %d bytes", n), call, hsm.ClassRequest)
	}
	for _, n := range []int{1, 20, 64} {
		s.testWrapTampering(t, c, k, unwrap, roundTrip(t, randomBytes(n)))
	}
	for _, n := range []int{0, 1, 8, 15, 17, 23, kms.MaxWrap + 16, large} {
		call := unwrap
		call.Input = make([]byte, n)
		c.refused(t, fmt.Sprintf("unwrapping %d bytes", n), call, contentClasses...)
	}
}

func (s *suite) testWrapTampering(t *testing.T, c *caller, k *key, unwrap hsm.Call, wrapped []byte) {
	refused := func(what string, call hsm.Call, input []byte) {
		t.Helper()
		call.Input = input
		c.refused(t, what, call, contentClasses...)
	}
	for i := range wrapped {
		bad := bytes.Clone(wrapped)
		bad[i] ^= 1
		refused(fmt.Sprintf("byte %d of %d changed", i, len(wrapped)), unwrap, bad)
	}
	refused("truncated", unwrap, wrapped[:len(wrapped)-8])
	refused("extended", unwrap, append(bytes.Clone(wrapped), make([]byte, 8)...))
	other := unwrap
	other.Handle = s.anotherKey(t, k).handle
	refused("another key", other, wrapped)
}

// judgeWrap is RFC 5649, section 4.1, with the rounds written as a list of
// semiblocks.
func judgeWrap(block cipher.Block, plaintext []byte) []byte {
	a := binary.BigEndian.AppendUint32([]byte{0xA6, 0x59, 0x59, 0xA6}, uint32(len(plaintext)))
	var r [][]byte
	for padded := append(bytes.Clone(plaintext), make([]byte, -len(plaintext)&7)...); len(padded) > 0; padded = padded[8:] {
		r = append(r, padded[:8])
	}
	b := make([]byte, 16)
	encrypt := func(left, right []byte) {
		copy(b, left)
		copy(b[8:], right)
		block.Encrypt(b, b)
	}
	if len(r) == 1 {
		encrypt(a, r[0])
		return b
	}
	for step := 0; step < 6*len(r); step++ {
		i := step % len(r)
		encrypt(a, r[i])
		a = binary.BigEndian.AppendUint64(nil, binary.BigEndian.Uint64(b)^uint64(step+1))
		r[i] = bytes.Clone(b[8:])
	}
	return append(a, bytes.Join(r, nil)...)
}
