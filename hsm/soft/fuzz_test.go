package soft

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/x509"
	"strings"
	"testing"

	"golang.org/x/crypto/cryptobyte"
	"golang.org/x/crypto/cryptobyte/asn1"

	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/kms"
)

// encodePublic writes a parsed public key anew; nil for RSA, whose parser
// does the same comparison itself, and for ML-KEM, whose keys are not kept.
func encodePublic(t *testing.T, spec kms.Spec, pub any) []byte {
	t.Helper()
	switch k := pub.(type) {
	case ecdsaPublic:
		point, err := k.public.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		return marshalPublic(spec, point)
	case sm2Public:
		return marshalPublic(spec, sm2Point(k.public))
	case secp256k1Public:
		return marshalPublic(spec, k.public.SerializeUncompressed())
	case ed25519Public:
		return marshalPublic(spec, k)
	case mldsaPublic:
		return marshalPublic(spec, k.public.Bytes())
	case slhdsaPublic:
		return marshalPublic(spec, k.public.Bytes())
	}
	return nil
}

// FuzzPublicKey: what is accepted is the one encoding of its key.
func FuzzPublicKey(f *testing.F) {
	var specs []kms.SpecInfo
	for _, info := range kms.Specs() {
		if info.Symmetric() || slow(&info) {
			continue
		}
		_, public, err := generate(&info)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(uint8(len(specs)), public)
		specs = append(specs, info)
	}
	f.Fuzz(func(t *testing.T, which uint8, der []byte) {
		info := &specs[int(which)%len(specs)]
		pub, err := parsePublicKey(info, der)
		if err != nil {
			return
		}
		if again := encodePublic(t, info.Spec, pub); again != nil && !bytes.Equal(again, der) {
			t.Errorf("%s: %x was read as %x", info.Spec, der, again)
		}
	})
}

// FuzzSM2Ciphertext: what is taken apart is put together the same.
func FuzzSM2Ciphertext(f *testing.F) {
	orders := []kms.SM2Order{kms.SM2OrderC1C3C2, kms.SM2OrderC1C2C3, kms.SM2OrderASN1}
	key, err := newSM2Key(kms.UsageEncryptDecrypt, bytes.Repeat([]byte{7}, sm2Size))
	if err != nil {
		f.Fatal(err)
	}
	public := sm2Public{&key.(sm2DecryptionKey).private.PublicKey}
	for i, order := range orders {
		for _, plaintext := range []string{"", "m", "a longer plaintext than the hash's 32 bytes"} {
			ciphertext, err := public.encryptTo(&hsm.Call{Order: order, Input: []byte(plaintext)})
			if err != nil {
				f.Fatal(err)
			}
			f.Add(uint8(i), ciphertext)
		}
	}
	f.Fuzz(func(t *testing.T, which uint8, ciphertext []byte) {
		order := orders[int(which)%len(orders)]
		if parts, ok := hsm.ParseSM2Ciphertext(order, ciphertext); ok {
			if again := parts.Encode(order); !bytes.Equal(again, ciphertext) {
				t.Errorf("%s: %x was read as %x", order, ciphertext, again)
			}
		}
		plaintext, err := key.(sm2DecryptionKey).decrypt(&hsm.Call{Order: order, Input: ciphertext})
		if err != nil && (err != error(errDecryption) || plaintext != nil) {
			t.Errorf("%s: %x: %q, %v", order, ciphertext, plaintext, err)
		}
	})
}

// FuzzMaterial: a row of the database never does worse than not load.
func FuzzMaterial(f *testing.F) {
	token, err := Open()
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { token.Close() })
	specs := kms.Specs()
	for i, info := range specs {
		if slow(&info) {
			continue
		}
		g, err := token.Generate(info.Spec, info.Usages[0].Usage)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(uint8(i), g.Material)
	}
	f.Fuzz(func(t *testing.T, which uint8, material []byte) {
		info := specs[int(which)%len(specs)]
		h, err := token.Load(material, info.Spec, info.Usages[0].Usage)
		if err != nil {
			if hsm.ClassOf(err) != hsm.ClassRequest {
				t.Errorf("%s: %v", info.Spec, err)
			}
			return
		}
		if err := token.Unload(h); err != nil {
			t.Error(err)
		}
	})
}

// slow tells whether making a key takes long.
func slow(info *kms.SpecInfo) bool {
	return info.Family == kms.FamilyRSA && info.Bits > 2048 ||
		info.Family == kms.FamilySLHDSA && strings.HasSuffix(string(info.Spec), "S")
}

// FuzzImport: what is imported is a key that can be loaded and used, and what
// it says of its public half is true.
func FuzzImport(f *testing.F) {
	token, err := Open()
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { token.Close() })
	specs := kms.Specs()
	for i, info := range specs {
		for _, seed := range importSeeds(f, &info) {
			f.Add(uint8(i), seed)
		}
	}
	f.Fuzz(func(t *testing.T, which uint8, key []byte) {
		info := specs[int(which)%len(specs)]
		usage := info.Usages[0].Usage
		g, err := token.Import(info.Spec, usage, key)
		if err != nil {
			if hsm.ClassOf(err) != hsm.ClassRequest {
				t.Errorf("%s: %v", info.Spec, err)
			}
			return
		}
		raw, err := decodeMaterial(g.Material, info.Spec, usage)
		if err != nil {
			t.Fatal(err)
		}
		if public, err := publicHalf(&info, raw); err != nil || !bytes.Equal(public, g.PublicKey) {
			t.Errorf("%s: the public half is another key's: %v", info.Spec, err)
		}
		h, err := token.Load(g.Material, info.Spec, usage)
		if err != nil {
			t.Fatal(err)
		}
		if err := token.Unload(h); err != nil {
			t.Error(err)
		}
	})
}

// importSeeds are a key as the standard library or OpenSSL would write it.
func importSeeds(f *testing.F, info *kms.SpecInfo) [][]byte {
	switch info.Spec {
	case kms.SpecAES256:
		return [][]byte{make([]byte, 32)}
	case kms.SpecP256:
		private, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), bytes.Repeat([]byte{1}, 32))
		if err != nil {
			f.Fatal(err)
		}
		der, err := x509.MarshalPKCS8PrivateKey(private)
		if err != nil {
			f.Fatal(err)
		}
		return [][]byte{der}
	case kms.SpecEd25519:
		der, err := x509.MarshalPKCS8PrivateKey(ed25519.NewKeyFromSeed(make([]byte, 32)))
		if err != nil {
			f.Fatal(err)
		}
		return [][]byte{der}
	case kms.SpecMLKEM512:
		seed := make([]byte, 64)
		expanded, err := expandSeed(info.Spec, seed)
		if err != nil {
			f.Fatal(err)
		}
		return [][]byte{encodeSeed(f, info.Spec, seed, nil), encodeSeed(f, info.Spec, seed, expanded)}
	}
	return nil
}

// encodeSeed writes a key of ML-KEM or ML-DSA: its seed, or seed and expanded
// form.
func encodeSeed(f testing.TB, spec kms.Spec, seed, expanded []byte) []byte {
	f.Helper()
	var b cryptobyte.Builder
	b.AddASN1(asn1.SEQUENCE, func(b *cryptobyte.Builder) {
		b.AddASN1Int64(0)
		b.AddBytes([]byte(publicFormats[spec].algorithm))
		b.AddASN1(asn1.OCTET_STRING, func(b *cryptobyte.Builder) {
			if expanded == nil {
				b.AddASN1(asn1.Tag(0).ContextSpecific(), func(b *cryptobyte.Builder) { b.AddBytes(seed) })
				return
			}
			b.AddASN1(asn1.SEQUENCE, func(b *cryptobyte.Builder) {
				b.AddASN1OctetString(seed)
				b.AddASN1OctetString(expanded)
			})
		})
	})
	der, err := b.Bytes()
	if err != nil {
		f.Fatal(err)
	}
	return der
}
