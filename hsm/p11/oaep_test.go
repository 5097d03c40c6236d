package p11

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"fmt"
	"math/big"
	"testing"
)

// encodeOAEP returns EM of RSAES-OAEP with SHA-256 by taking Go's encryption
// apart with the private key.
func encodeOAEP(t *testing.T, key *rsa.PrivateKey, plaintext []byte) []byte {
	t.Helper()
	c, err := rsa.EncryptOAEP(sha256.New(), rand.Reader, &key.PublicKey, plaintext, nil)
	if err != nil {
		t.Fatal(err)
	}
	return rawDecrypt(key, c)
}

func rawDecrypt(key *rsa.PrivateKey, ciphertext []byte) []byte {
	m := new(big.Int).Exp(new(big.Int).SetBytes(ciphertext), key.D, key.N)
	return m.FillBytes(make([]byte, key.Size()))
}

func TestOAEPDecodingGivesTheMessage(t *testing.T) {
	for _, bits := range []int{2048, 3072} {
		key, err := rsa.GenerateKey(rand.Reader, bits)
		if err != nil {
			t.Fatal(err)
		}
		for _, size := range []int{0, 1, 32, bits/8 - 66} {
			t.Run(fmt.Sprintf("%d bits/%d bytes", bits, size), func(t *testing.T) {
				message, ok := decodeOAEPSHA256(encodeOAEP(t, key, message(size)))
				if !ok || len(message) != size || !bytes.Equal(message, bytes.Repeat([]byte("m"), size)) {
					t.Errorf("ok %t, %d bytes", ok, len(message))
				}
			})
		}
	}
}

// Every byte of the encoding is protected: by the first byte's being zero, by
// the hash of the label, by the padding, or, for the rest, by nothing but the
// masks, under which a change garbles the message.
func TestOAEPDecodingRefusesWhatIsNoEncoding(t *testing.T) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	em := encodeOAEP(t, key, []byte("message"))
	for _, i := range []int{0, 1, 32, 33, 64} { // first byte, seed, lHash
		bad := bytes.Clone(em)
		bad[i] ^= 0x80
		if _, ok := decodeOAEPSHA256(bad); ok {
			t.Errorf("byte %d changed: accepted", i)
		}
	}
	sha1Label, err := rsa.EncryptOAEP(sha256.New(), rand.Reader, &key.PublicKey, []byte("message"), []byte("label"))
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := decodeOAEPSHA256(rawDecrypt(key, sha1Label)); ok {
		t.Error("an encoding with a label was accepted")
	}
	for name, em := range map[string][]byte{"empty": nil, "too short": make([]byte, 65), "zeros": make([]byte, 256)} {
		if _, ok := decodeOAEPSHA256(em); ok {
			t.Errorf("%s: accepted", name)
		}
	}
}

// The padding must be zeros up to a one: other bytes, and none at all, are
// refused though first byte and label are right.
func TestOAEPDecodingChecksThePadding(t *testing.T) {
	for name, rest := range map[string]string{
		"no one":              "\x00\x00\x00\x00",
		"another byte first":  "\x02\x01m",
		"another byte inside": "\x00\x02\x01m",
		"message is a one":    "\x00\x01\x01",
		"right":               "\x00\x00\x01m",
	} {
		t.Run(name, func(t *testing.T) {
			db := append(emptyLabelHash[:len(emptyLabelHash):len(emptyLabelHash)], rest...)
			seed := make([]byte, sha256.Size)
			xorMGF1(db, seed)
			xorMGF1(seed, db)
			_, ok := decodeOAEPSHA256(append(append([]byte{0}, seed...), db...))
			if want := name == "right" || name == "message is a one"; ok != want {
				t.Errorf("accepted: %t", ok)
			}
		})
	}
}
