package cli

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"strings"
	"testing"
)

func TestBase64IsToldFromBytes(t *testing.T) {
	envelope := append([]byte("SLC1\x01"), make([]byte, 100)...) // version and nonce hold zeros
	lines := base64.StdEncoding.EncodeToString(envelope)
	lines = lines[:76] + "\n" + lines[76:]
	for _, tc := range []struct {
		name string
		in   string
		want string
	}{
		{"bytes of an envelope", string(envelope), string(envelope)},
		{"base64 of an envelope", base64.StdEncoding.EncodeToString(envelope), string(envelope)},
		{"base64 with a line break at its end", base64.StdEncoding.EncodeToString(envelope) + "\r\n", string(envelope)},
		{"base64 in lines", lines, string(envelope)},
		{"DER", "\x30\x06\x02\x01\x01\x02\x01\x01", "\x30\x06\x02\x01\x01\x02\x01\x01"},
		{"nothing", "", ""},
		{"white space", "\n", "\n"},
		{"base64 cut short", "U0xDM", "U0xDM"},
		{"base64 with bits that mean nothing", "AB==", "AB=="},
	} {
		if got := string(binary([]byte(tc.in))); got != tc.want {
			t.Errorf("%s: got %q, want %q", tc.name, got, tc.want)
		}
	}
	for range 10_000 {
		mac := make([]byte, 28)
		rand.Read(mac)
		if !bytes.Equal(binary(mac), mac) {
			t.Fatalf("%x was taken for base64", mac)
		}
	}
}

func TestShownTextIsOneLineWithoutControls(t *testing.T) {
	hostile := "a\x1b]0;title\x07b\r\nc\td\u202Ee\x00\xff"
	got := printable(hostile)
	if strings.ContainsAny(got, "\x1b\x07\r\n\t\x00\u202E") || !strings.HasPrefix(got, "a") {
		t.Errorf("got %q", got)
	}
	if s := "orders/eu: ключ 密钥 (50 %)"; printable(s) != s {
		t.Errorf("got %q of what is harmless", printable(s))
	}
}
