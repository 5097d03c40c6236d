package client

import (
	"crypto/aes"
	"encoding/hex"
	"testing"
)

// TestKeyWrapIsRFC5649 has the test vectors of RFC 5649, section 6.
func TestKeyWrapIsRFC5649(t *testing.T) {
	kek, _ := hex.DecodeString("5840df6e29b02af1ab493b705bf16ea1ae8338f4dcc176a8")
	for _, v := range []struct{ name, key, want string }{
		{"20 bytes", "c37b7e6492584340bed12207808941155068f738", "138bdeaa9b8fa7fc61f97742e72248ee5ae6ae5360d1ae6a5f54f373fa543b6a"},
		{"7 bytes", "466f7250617369", "afbeb0f07dfbf5419200f2ccb50bb24f"},
	} {
		t.Run(v.name, func(t *testing.T) {
			c, err := aes.NewCipher(kek)
			if err != nil {
				t.Fatal(err)
			}
			key, err := hex.DecodeString(v.key)
			if err != nil {
				t.Fatal(err)
			}
			if got := hex.EncodeToString(keyWrap(c, key)); got != v.want {
				t.Errorf("%s, want %s", got, v.want)
			}
		})
	}
}
