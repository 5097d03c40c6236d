package soft

import (
	"bytes"
	"testing"

	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/kms"
)

// encodePublic writes a parsed public key anew; nil for RSA, whose parser
// does the same comparison itself.
func encodePublic(t *testing.T, spec kms.Spec, pub any) []byte {
	t.Helper()
	switch k := pub.(type) {
	case ecdsaPublic:
		point, err := k.public.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		return marshalPoint(spec, point)
	case sm2Public:
		return marshalPoint(spec, sm2Point(k.public))
	case secp256k1Public:
		return marshalPoint(spec, k.public.SerializeUncompressed())
	case ed25519Public:
		return marshalPoint(spec, k)
	}
	return nil
}

// FuzzPublicKey: what is accepted is the one encoding of its key.
func FuzzPublicKey(f *testing.F) {
	var specs []kms.SpecInfo
	for _, info := range kms.Specs() {
		if info.Symmetric() || info.Family == kms.FamilyRSA && info.Bits > 2048 {
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
		if parts, ok := parseSM2(order, ciphertext); ok {
			again, err := parts.marshal(order)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(again, ciphertext) {
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
		if info.Family == kms.FamilyRSA && info.Bits > 2048 {
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
