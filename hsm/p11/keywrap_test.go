package p11

import (
	"bytes"
	"crypto/aes"
	"encoding/binary"
	"encoding/hex"
	"testing"
)

// keyWrap is RFC 5649, section 4.1, written from the RFC to check what the
// tokens do.
func keyWrap(t *testing.T, kek, key []byte) []byte {
	t.Helper()
	block, err := aes.NewCipher(kek)
	if err != nil {
		t.Fatal(err)
	}
	a := binary.BigEndian.AppendUint32([]byte{0xA6, 0x59, 0x59, 0xA6}, uint32(len(key)))
	padded := append(bytes.Clone(key), make([]byte, -len(key)&7)...)
	n := len(padded) / 8
	var b [16]byte
	if n == 1 {
		copy(b[:8], a)
		copy(b[8:], padded)
		block.Encrypt(b[:], b[:])
		return b[:]
	}
	for j := range 6 {
		for i := 1; i <= n; i++ {
			copy(b[:8], a)
			copy(b[8:], padded[8*(i-1):])
			block.Encrypt(b[:], b[:])
			a = binary.BigEndian.AppendUint64(nil, binary.BigEndian.Uint64(b[:8])^uint64(n*j+i))
			copy(padded[8*(i-1):], b[8:])
		}
	}
	return append(a, padded...)
}

func unhex(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// The vectors are those of RFC 5649, section 6.
func TestTheKnownAnswerIsRFC5649s(t *testing.T) {
	kek := unhex(t, "5840df6e29b02af1ab493b705bf16ea1ae8338f4dcc176a8")
	for _, c := range []struct{ name, key, wrapped string }{
		{"20 bytes", "c37b7e6492584340bed12207808941155068f738",
			"138bdeaa9b8fa7fc61f97742e72248ee5ae6ae5360d1ae6a5f54f373fa543b6a"},
		{"7 bytes", "466f7250617369", "afbeb0f07dfbf5419200f2ccb50bb24f"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := keyWrap(t, kek, unhex(t, c.key)); !bytes.Equal(got, unhex(t, c.wrapped)) {
				t.Errorf("got %x", got)
			}
		})
	}
	if got := keyWrap(t, wrapTestKey[:], checkKey[:]); !bytes.Equal(got, wrapTestAnswer) {
		t.Errorf("wrapTestAnswer is not the wrapped check key; want %x", got)
	}
}
