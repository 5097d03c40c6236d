package soft

import (
	"bytes"
	"crypto/rand"
	"testing"

	"github.com/emmansun/gmsm/sm2"

	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/kms"
)

// envelope is an SM2 key in the envelope of GB/T 35276 as another
// implementation makes it, and the material of the key it is made for.
func envelope(t testing.TB, token *Token) (enveloped, material []byte, inside *sm2.PrivateKey) {
	t.Helper()
	receiver, err := token.Generate(kms.SpecSM2, kms.UsageEncryptDecrypt)
	if err != nil {
		t.Fatal(err)
	}
	octets := receiver.PublicKey[len(publicFormats[kms.SpecSM2].prefix):]
	public, err := sm2.NewPublicKey(octets)
	if err != nil {
		t.Fatal(err)
	}
	if inside, err = sm2.GenerateKey(rand.Reader); err != nil {
		t.Fatal(err)
	}
	if enveloped, err = sm2.MarshalEnvelopedPrivateKey(rand.Reader, public, inside); err != nil {
		t.Fatal(err)
	}
	return enveloped, receiver.Material, inside
}

func TestEnvelopedKeyIsImportedWithItsPublicKey(t *testing.T) {
	token := openToken(t)
	enveloped, material, inside := envelope(t, token)
	key, err := token.OpenEnveloped(material, enveloped)
	if err != nil {
		t.Fatal(err)
	}
	got, err := token.Import(kms.SpecSM2, kms.UsageSignVerify, key)
	if err != nil {
		t.Fatal(err)
	}
	if want := marshalPublic(kms.SpecSM2, sm2Point(&inside.PublicKey)); !bytes.Equal(got.PublicKey, want) {
		t.Errorf("public key %x, want %x", got.PublicKey, want)
	}
}

// TestChangedEnvelopeGivesNoKey flips a bit of each byte: what is inside is
// another key, which the public key in the envelope tells, or none.
func TestChangedEnvelopeGivesNoKey(t *testing.T) {
	token := openToken(t)
	enveloped, material, _ := envelope(t, token)
	for i := range enveloped {
		changed := bytes.Clone(enveloped)
		changed[i] ^= 1
		key, err := token.OpenEnveloped(material, changed)
		if err == nil {
			_, err = token.Import(kms.SpecSM2, kms.UsageSignVerify, key)
		}
		if hsm.ClassOf(err) != hsm.ClassRequest || err == nil {
			t.Errorf("byte %d changed: %v", i, err)
		}
	}
	for n := range enveloped {
		if _, err := token.OpenEnveloped(material, enveloped[:n]); err == nil || hsm.ClassOf(err) != hsm.ClassRequest {
			t.Errorf("cut to %d bytes: %v", n, err)
		}
	}
}

// FuzzEnvelope: whatever is in an envelope, it is opened or refused as a bad
// request, and what comes out of it has the public key that it stated.
func FuzzEnvelope(f *testing.F) {
	token, err := Open()
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { token.Close() })
	enveloped, material, _ := envelope(f, token)
	f.Add(enveloped)
	f.Add(enveloped[:len(enveloped)/2])
	f.Add(bytes.Repeat([]byte{0x30, 0x80}, maxEncoded/2)) // as deep as it is long
	f.Fuzz(func(t *testing.T, der []byte) {
		key, err := token.OpenEnveloped(material, der)
		if err == nil {
			_, err = token.Import(kms.SpecSM2, kms.UsageSignVerify, key)
		}
		if err != nil && hsm.ClassOf(err) != hsm.ClassRequest {
			t.Error(err)
		}
	})
}
