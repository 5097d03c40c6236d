package soft

import (
	"bytes"
	"crypto"
	"crypto/mldsa"
	"crypto/mlkem"
	"crypto/rand"
	"testing"

	gmmldsa "github.com/emmansun/gmsm/mldsa"
	gmmlkem "github.com/emmansun/gmsm/mlkem"

	"github.com/sluice-kms/sluice/kms"
)

// The standard library and gmsm have no code in common for these; a mistake in
// one would have to be made in both.

func randomSeed(n int) []byte {
	seed := make([]byte, n)
	rand.Read(seed)
	return seed
}

// TestTwoImplementationsOfMLKEMAgree: from one seed both make one key, recover
// each other's secrets, and reject with one secret.
func TestTwoImplementationsOfMLKEMAgree(t *testing.T) {
	type decapsulator interface {
		Decapsulate([]byte) ([]byte, error)
	}
	for range 20 {
		seed := randomSeed(mlkem.SeedSize)
		std768, err768 := mlkem.NewDecapsulationKey768(seed)
		std1024, err1024 := mlkem.NewDecapsulationKey1024(seed)
		gm768, gmErr768 := gmmlkem.NewDecapsulationKeyFromSeed768(seed)
		gm1024, gmErr1024 := gmmlkem.NewDecapsulationKeyFromSeed1024(seed)
		for _, err := range []error{err768, err1024, gmErr768, gmErr1024} {
			if err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(std768.EncapsulationKey().Bytes(), gm768.EncapsulationKey().Bytes()) ||
			!bytes.Equal(std1024.EncapsulationKey().Bytes(), gm1024.EncapsulationKey().Bytes()) {
			t.Fatal("one seed gives two keys")
		}
		check := func(what string, secret, ciphertext []byte, err error, keys ...decapsulator) {
			t.Helper()
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			for _, k := range keys {
				got, err := k.Decapsulate(ciphertext)
				if err != nil || secret != nil && !bytes.Equal(got, secret) {
					t.Errorf("%s: another secret is recovered: %v", what, err)
				}
				secret = got
			}
		}
		secret, ciphertext := std768.EncapsulationKey().Encapsulate()
		check("768, of the standard library", secret, ciphertext, nil, std768, gm768)
		secret, ciphertext, err := gm768.EncapsulationKey().Encapsulate(rand.Reader)
		check("768, of gmsm", secret, ciphertext, err, std768, gm768)
		secret, ciphertext = std1024.EncapsulationKey().Encapsulate()
		check("1024, of the standard library", secret, ciphertext, nil, std1024, gm1024)
		secret, ciphertext, err = gm1024.EncapsulationKey().Encapsulate(rand.Reader)
		check("1024, of gmsm", secret, ciphertext, err, std1024, gm1024)
		check("768, rejected", nil, randomSeed(mlkem.CiphertextSize768), nil, std768, gm768)
		check("1024, rejected", nil, randomSeed(mlkem.CiphertextSize1024), nil, std1024, gm1024)
	}
}

// TestTwoImplementationsOfMLDSAAgree: from one seed both make one key and
// accept each other's signatures, and no other.
func TestTwoImplementationsOfMLDSAAgree(t *testing.T) {
	type verifier interface {
		Bytes() []byte
		VerifyWithOptions(sig, message []byte, opts crypto.SignerOpts) bool
	}
	message, other := []byte("a message"), []byte("another")
	for spec, newKey := range map[kms.Spec]func([]byte) (crypto.Signer, error){
		kms.SpecMLDSA44: func(b []byte) (crypto.Signer, error) { return gmmldsa.NewKey44(b) },
		kms.SpecMLDSA65: func(b []byte) (crypto.Signer, error) { return gmmldsa.NewKey65(b) },
		kms.SpecMLDSA87: func(b []byte) (crypto.Signer, error) { return gmmldsa.NewKey87(b) },
	} {
		for range 5 {
			seed := randomSeed(mldsa.PrivateKeySize)
			std, err := mldsa.NewPrivateKey(mldsaSets[spec], seed)
			if err != nil {
				t.Fatal(err)
			}
			gm, err := newKey(seed)
			if err != nil {
				t.Fatal(err)
			}
			public := gm.Public().(verifier)
			if !bytes.Equal(std.PublicKey().Bytes(), public.Bytes()) {
				t.Fatalf("%s: one seed gives two keys", spec)
			}
			sig, err := std.Sign(nil, message, crypto.Hash(0))
			if err != nil {
				t.Fatal(err)
			}
			if !public.VerifyWithOptions(sig, message, nil) || public.VerifyWithOptions(sig, other, nil) {
				t.Errorf("%s: gmsm judges the standard library's signature wrongly", spec)
			}
			if sig, err = gm.Sign(rand.Reader, message, crypto.Hash(0)); err != nil {
				t.Fatal(err)
			}
			if mldsa.Verify(std.PublicKey(), message, sig, nil) != nil || mldsa.Verify(std.PublicKey(), other, sig, nil) == nil {
				t.Errorf("%s: the standard library judges gmsm's signature wrongly", spec)
			}
		}
	}
}
