package soft

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"math/big"
	"runtime"
	"slices"
	"testing"

	"github.com/decred/dcrd/dcrec/secp256k1/v4"
	"github.com/emmansun/gmsm/sm2"

	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/kms"
)

// TestFieldsThatWouldBeIgnoredAreRefused: whoever sets a field believes that
// it counts.
func TestFieldsThatWouldBeIgnoredAreRefused(t *testing.T) {
	token := openToken(t)
	s := openSession(t, token)
	sign := func(spec kms.Spec, alg kms.Algorithm) hsm.Call {
		h, err := token.Load(newMaterial(t, token, spec, kms.UsageSignVerify), spec, kms.UsageSignVerify)
		if err != nil {
			t.Fatal(err)
		}
		return hsm.Call{Verb: kms.VerbSign, Algorithm: alg, Spec: spec, Handle: h, Input: []byte("m")}
	}
	ecdsaCall := sign(kms.SpecP256, kms.AlgECDSASHA256)
	private := func(spec kms.Spec, usage kms.Usage) hsm.Call {
		g, err := token.Generate(spec, usage)
		if err != nil {
			t.Fatal(err)
		}
		h, err := token.Load(g.Material, spec, usage)
		if err != nil {
			t.Fatal(err)
		}
		info := spec.Info()
		call, _ := privateCall(info, kms.UsageAlgorithms{Usage: usage, Algorithms: info.Algorithms(usage)}, h, g.PublicKey)
		return call
	}
	ecdhCall, hkdfCall := private(kms.SpecP256, kms.UsageKeyAgreement), private(kms.SpecHMAC256, kms.UsageDerive)
	cbcCall := private(kms.SpecAES256, kms.UsageEncryptDecrypt)
	cbcCall.Algorithm, cbcCall.Nonce = kms.AlgAESCBC, make([]byte, blockSize)
	g, err := token.Generate(kms.SpecRSA2048, kms.UsageEncryptDecrypt)
	if err != nil {
		t.Fatal(err)
	}
	oaep := hsm.Call{Verb: kms.VerbEncrypt, Algorithm: kms.AlgRSAOAEPSHA256, Spec: kms.SpecRSA2048, PublicKey: g.PublicKey, Input: []byte("m")}
	for name, c := range map[string]struct {
		call   hsm.Call
		change func(*hsm.Call)
	}{
		"user id with ECDSA":             {ecdsaCall, func(c *hsm.Call) { c.UserID = []byte("u") }},
		"nonce with ECDSA":               {ecdsaCall, func(c *hsm.Call) { c.Nonce = make([]byte, nonceSize) }},
		"additional data with ECDSA":     {ecdsaCall, func(c *hsm.Call) { c.AAD = []byte("a") }},
		"order with ECDSA":               {ecdsaCall, func(c *hsm.Call) { c.Order = kms.SM2OrderASN1 }},
		"additional data with RSA-OAEP":  {oaep, func(c *hsm.Call) { c.AAD = []byte("a") }},
		"nonce with RSA-OAEP":            {oaep, func(c *hsm.Call) { c.Nonce = make([]byte, nonceSize) }},
		"a digest to encrypt":            {oaep, func(c *hsm.Call) { c.Prehashed, c.Input = true, make([]byte, 32) }},
		"length with ECDSA":              {ecdsaCall, func(c *hsm.Call) { c.Length = 64 }},
		"peer with ECDSA":                {ecdsaCall, func(c *hsm.Call) { c.Peer = []byte("p") }},
		"message with ECDH":              {ecdhCall, func(c *hsm.Call) { c.Input = []byte("m") }},
		"length with ECDH":               {ecdhCall, func(c *hsm.Call) { c.Length = 32 }},
		"peer with HKDF":                 {hkdfCall, func(c *hsm.Call) { c.Peer = ecdhCall.Peer }},
		"additional data with HKDF":      {hkdfCall, func(c *hsm.Call) { c.AAD = []byte("a") }},
		"additional data with CBC":       {cbcCall, func(c *hsm.Call) { c.AAD = []byte("a") }},
		"nonce of GCM with CBC":          {cbcCall, func(c *hsm.Call) { c.Nonce = make([]byte, nonceSize) }},
		"handle's spec is not the named": {ecdsaCall, func(c *hsm.Call) { c.Spec = kms.SpecP384 }},
	} {
		good, bad := c.call, c.call
		if err := s.Do(&good); err != nil {
			t.Fatalf("%s: without it: %v", name, err)
		}
		c.change(&bad)
		if err := s.Do(&bad); err == nil || hsm.ClassOf(err) != hsm.ClassRequest {
			t.Errorf("%s: error %v, want class request", name, err)
		}
	}
}

// TestDecryptionFailuresAreOneError: nothing tells a wrong key from a wrong
// tag, padding or layout.
func TestDecryptionFailuresAreOneError(t *testing.T) {
	token := openToken(t)
	s := openSession(t, token)
	for _, spec := range []kms.Spec{kms.SpecAES256, kms.SpecSM4, kms.SpecRSA2048, kms.SpecSM2} {
		h, err := token.Load(newMaterial(t, token, spec, kms.UsageEncryptDecrypt), spec, kms.UsageEncryptDecrypt)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range []int{0, 1, 15, 16, 64, 96, 97, 98, 256, 257, 5000} {
			for _, first := range []byte{0, 2, 4, 6, 0x30} {
				for _, alg := range spec.Info().Algorithms(kms.UsageEncryptDecrypt) {
					call := hsm.Call{Verb: kms.VerbDecrypt, Algorithm: alg, Spec: spec, Handle: h, Input: bytes.Repeat([]byte{first}, n)}
					switch {
					case isCBC(alg) && n > 0 && n%blockSize == 0:
						continue // one in 256 decrypts; hsmtest forges the padding
					case isCBC(alg):
						call.Nonce = make([]byte, blockSize)
					case spec.Info().Symmetric():
						call.Nonce = make([]byte, nonceSize)
					}
					if alg == kms.AlgSM2PKE {
						call.Order = []kms.SM2Order{kms.SM2OrderC1C3C2, kms.SM2OrderC1C2C3, kms.SM2OrderASN1}[n%3]
					}
					if err := s.Do(&call); !errors.Is(err, errDecryption) {
						t.Errorf("%s, %d bytes of %#x: %v", alg, n, first, err)
					}
				}
			}
		}
	}
}

// TestUnwrappingFailuresAreOneError: as above, for the verbs that open what is
// not a ciphertext of encryption.
func TestUnwrappingFailuresAreOneError(t *testing.T) {
	token := openToken(t)
	s := openSession(t, token)
	for _, c := range []struct {
		spec  kms.Spec
		usage kms.Usage
		verb  kms.Verb
		alg   kms.Algorithm
		sizes []int
	}{
		{kms.SpecAES256, kms.UsageWrapUnwrap, kms.VerbUnwrap, kms.AlgAESKWP, []int{0, 1, 8, 15, 16, 17, 24, 40, 4104, 4112}},
		{kms.SpecMLKEM768, kms.UsageEncapsulateDecapsulate, kms.VerbDecapsulate, kms.AlgMLKEM, []int{0, 1, 1087, 1089, 5000}},
	} {
		h, err := token.Load(newMaterial(t, token, c.spec, c.usage), c.spec, c.usage)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range c.sizes {
			call := hsm.Call{Verb: c.verb, Algorithm: c.alg, Spec: c.spec, Handle: h, Input: make([]byte, n)}
			if err := s.Do(&call); !errors.Is(err, errDecryption) {
				t.Errorf("%s, %d bytes: %v", c.alg, n, err)
			}
		}
	}
}

// heapGrowth returns how much live heap n more runs of f leave behind.
func heapGrowth(n int, f func(i int)) int64 {
	live := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC() // the first one queues clean-ups, whose work the second frees
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	for i := range n / 10 {
		f(i)
	}
	before := live()
	for i := range n {
		f(n + i)
	}
	return live() - before
}

// maxGrowth is far above the noise of the runtime and far below what is kept
// if one call in ten keeps anything.
const maxGrowth = 1 << 20

func TestUserIDsLeaveMemoryFlat(t *testing.T) {
	token := openToken(t)
	s := openSession(t, token)
	g, err := token.Generate(kms.SpecSM2, kms.UsageSignVerify)
	if err != nil {
		t.Fatal(err)
	}
	h, err := token.Load(g.Material, kms.SpecSM2, kms.UsageSignVerify)
	if err != nil {
		t.Fatal(err)
	}
	grown := heapGrowth(2000, func(i int) {
		id := fmt.Appendf(make([]byte, 0, maxUserID), "%0*d", maxUserID, i)
		call := hsm.Call{Verb: kms.VerbSign, Algorithm: kms.AlgSM2DSA, Spec: kms.SpecSM2, Handle: h, Input: []byte("m"), UserID: id}
		if err := s.Do(&call); err != nil {
			t.Fatal(err)
		}
		call = hsm.Call{Verb: kms.VerbVerify, Algorithm: kms.AlgSM2DSA, Spec: kms.SpecSM2, PublicKey: g.PublicKey, Input: []byte("m"), UserID: id, Signature: call.Output}
		if err := s.Do(&call); err != nil || !call.Valid {
			t.Fatal(call.Valid, err)
		}
	})
	if grown > maxGrowth {
		t.Errorf("2,000 user ids of %d bytes left %d bytes", maxUserID, grown)
	}
}

func TestPublicKeysLeaveMemoryFlat(t *testing.T) {
	s := openSession(t, openToken(t))
	for _, spec := range []kms.Spec{kms.SpecP256, kms.SpecSM2, kms.SpecSecp256k1, kms.SpecEd25519} {
		info := spec.Info()
		alg := info.Algorithms(kms.UsageSignVerify)[0]
		grown := heapGrowth(3000, func(int) {
			_, public, err := generate(info)
			if err != nil {
				t.Fatal(err)
			}
			call := hsm.Call{Verb: kms.VerbVerify, Algorithm: alg, Spec: spec, PublicKey: public, Input: []byte("m"), Signature: make([]byte, 64)}
			if alg == kms.AlgSM2DSA {
				call.UserID = []byte("u")
			}
			if err := s.Do(&call); err != nil || call.Valid {
				t.Fatal(call.Valid, err)
			}
		})
		if grown > maxGrowth {
			t.Errorf("%s: 3,000 public keys left %d bytes", spec, grown)
		}
	}
}

func TestBadTagLeavesMemoryFlat(t *testing.T) {
	token := openToken(t)
	s := openSession(t, token)
	for _, spec := range []kms.Spec{kms.SpecAES256, kms.SpecSM4} {
		h, err := token.Load(newMaterial(t, token, spec, kms.UsageEncryptDecrypt), spec, kms.UsageEncryptDecrypt)
		if err != nil {
			t.Fatal(err)
		}
		grown := heapGrowth(500, func(int) {
			call := hsm.Call{Verb: kms.VerbDecrypt, Algorithm: spec.Info().Algorithms(kms.UsageEncryptDecrypt)[0], Spec: spec,
				Handle: h, Nonce: make([]byte, nonceSize), Input: make([]byte, 256<<10)}
			if err := s.Do(&call); !errors.Is(err, errDecryption) {
				t.Fatal(err)
			}
		})
		if grown > maxGrowth {
			t.Errorf("%s: 500 bad tags of 256 KiB left %d bytes", spec, grown)
		}
	}
}

// TestPublicKeyEncodingIsStrict: one key has one encoding.
func TestPublicKeyEncodingIsStrict(t *testing.T) {
	spki := func(spec kms.Spec) []byte {
		_, public, err := generate(spec.Info())
		if err != nil {
			t.Fatal(err)
		}
		return public
	}
	rsaKey, p256, sm2Key, secp := spki(kms.SpecRSA2048), spki(kms.SpecP256), spki(kms.SpecSM2), spki(kms.SpecSecp256k1)
	withPoint := func(der []byte, point ...byte) []byte {
		return slices.Concat(der[:len(der)-65], point)
	}
	// A byte after the exponent, inside of the BIT STRING: every length around
	// it grows by one.
	inside := append(bytes.Clone(rsaKey), 0)
	inside[3]++
	inside[22]++
	for name, c := range map[string]struct {
		spec kms.Spec
		der  []byte
	}{
		"RSA: a byte inside the key":       {kms.SpecRSA2048, inside},
		"RSA: of another length":           {kms.SpecRSA3072, rsaKey},
		"P-256: read as SM2":               {kms.SpecSM2, p256},
		"SM2: read as P-256":               {kms.SpecP256, sm2Key},
		"P-256: compressed":                {kms.SpecP256, withPoint(p256, slices.Concat([]byte{2 + p256[len(p256)-1]&1}, p256[len(p256)-64:len(p256)-32])...)},
		"P-256: the point at infinity":     {kms.SpecP256, withPoint(p256, 0)},
		"P-256: infinity padded":           {kms.SpecP256, withPoint(p256, make([]byte, 65)...)},
		"P-256: zeros":                     {kms.SpecP256, withPoint(p256, append([]byte{4}, make([]byte, 64)...)...)},
		"SM2: coordinates above the field": {kms.SpecSM2, withPoint(sm2Key, append([]byte{4}, bytes.Repeat([]byte{0xff}, 64)...)...)},
		"secp256k1: hybrid":                {kms.SpecSecp256k1, withPoint(secp, append([]byte{6 + secp[len(secp)-1]&1}, secp[len(secp)-64:]...)...)},
		"secp256k1: above the field":       {kms.SpecSecp256k1, withPoint(secp, append([]byte{4}, bytes.Repeat([]byte{0xff}, 64)...)...)},
	} {
		if _, err := parsePublicKey(c.spec.Info(), c.der); !errors.Is(err, errPublicKey) {
			t.Errorf("%s: error %v", name, err)
		}
	}
	for spec, der := range map[kms.Spec][]byte{kms.SpecRSA2048: rsaKey, kms.SpecP256: p256, kms.SpecSM2: sm2Key, kms.SpecSecp256k1: secp} {
		if _, err := parsePublicKey(spec.Info(), der); err != nil {
			t.Errorf("%s: a good key is refused: %v", spec, err)
		}
	}
}

// TestSM2CiphertextIsStrict: what the library would read all the same.
func TestSM2CiphertextIsStrict(t *testing.T) {
	priv, err := sm2.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	key := sm2DecryptionKey{priv}
	compressed, err := sm2.Encrypt(rand.Reader, &priv.PublicKey, []byte("m"), sm2.NewPlainEncrypterOpts(sm2.MarshalCompressed, sm2.C1C3C2))
	if err != nil {
		t.Fatal(err)
	}
	inASN1, err := sm2.EncryptASN1(rand.Reader, &priv.PublicKey, []byte("m"))
	if err != nil {
		t.Fatal(err)
	}
	trailing := append(bytes.Clone(inASN1), 0)
	trailing[1]++
	empty, err := sm2Public{&priv.PublicKey}.encryptTo(&hsm.Call{})
	if err != nil {
		t.Fatal(err)
	}
	otherHash := bytes.Clone(empty)
	otherHash[len(otherHash)-1] ^= 1
	offCurve := bytes.Clone(empty)
	offCurve[40] ^= 1
	for name, c := range map[string]struct {
		order kms.SM2Order
		in    []byte
	}{
		"compressed C1":                   {kms.SM2OrderC1C3C2, compressed},
		"ASN.1 under a plain order":       {kms.SM2OrderC1C3C2, inASN1},
		"ASN.1 with a byte inside":        {kms.SM2OrderASN1, trailing},
		"empty plaintext, another hash":   {kms.SM2OrderC1C3C2, otherHash},
		"empty plaintext, C1 off curve":   {kms.SM2OrderC1C3C2, offCurve},
		"empty plaintext, C1 at infinity": {kms.SM2OrderC1C3C2, append([]byte{4}, make([]byte, 96)...)},
	} {
		if _, err := key.decrypt(&hsm.Call{Order: c.order, Input: c.in}); !errors.Is(err, errDecryption) {
			t.Errorf("%s: error %v", name, err)
		}
	}
	if out, err := key.decrypt(&hsm.Call{Input: empty}); err != nil || len(out) != 0 {
		t.Errorf("the empty plaintext: %q, %v", out, err)
	}
}

// TestShortSM2PlaintextsAlwaysDecrypt: the mask of one byte is zero one time in
// 256, where gmsm v0.44.0 makes a ciphertext that nobody can decrypt. The
// chance to miss that here is 10⁻⁵.
func TestShortSM2PlaintextsAlwaysDecrypt(t *testing.T) {
	priv, err := sm2.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3000 {
		plaintext := []byte{byte(i)}
		ciphertext, err := sm2Public{&priv.PublicKey}.encryptTo(&hsm.Call{Input: plaintext})
		if err != nil {
			t.Fatal(err)
		}
		got, err := sm2DecryptionKey{priv}.decrypt(&hsm.Call{Input: ciphertext})
		if err != nil || !bytes.Equal(got, plaintext) {
			t.Fatalf("ciphertext %d of one byte: %v", i, err)
		}
	}
}

// TestBlindingChangesNoResult compares the blinded operations with the
// library's own, at the ends of the range too.
func TestBlindingChangesNoResult(t *testing.T) {
	one := new(secp256k1.ModNScalar).SetInt(1)
	scalars := []*secp256k1.ModNScalar{one, new(secp256k1.ModNScalar).SetInt(2), new(secp256k1.ModNScalar).NegateVal(one)}
	for range 50 {
		scalars = append(scalars, randomScalar())
	}
	for _, k := range scalars {
		var want secp256k1.JacobianPoint
		secp256k1.ScalarBaseMultNonConst(k, &want)
		want.ToAffine()
		if got := baseMult(k); !got.X.Equals(&want.X) || !got.Y.Equals(&want.Y) {
			t.Errorf("baseMult(%v) is wrong", k)
		}
		if product := new(secp256k1.ModNScalar).Mul2(k, invert(k)); !product.Equals(one) {
			t.Errorf("invert(%v) is wrong", k)
		}
	}
}

func TestSecp256k1ScalarsOutOfRangeAreRefused(t *testing.T) {
	order := secp256k1.Params().N
	for name, d := range map[string]*big.Int{"zero": new(big.Int), "the order": order, "above the order": new(big.Int).Add(order, big.NewInt(1))} {
		if _, err := newSecp256k1Key(kms.UsageSignVerify, d.FillBytes(make([]byte, secp256k1Size)), make([]byte, slotSize)); !errors.Is(err, errMaterial) {
			t.Errorf("%s: error %v", name, err)
		}
	}
	if _, err := newSecp256k1Key(kms.UsageSignVerify, new(big.Int).Sub(order, big.NewInt(1)).FillBytes(make([]byte, secp256k1Size)), make([]byte, slotSize)); err != nil {
		t.Errorf("the order less one: %v", err)
	}
}

// TestEveryCodeIsItsOwn: codes are stored.
func TestEveryCodeIsItsOwn(t *testing.T) {
	seen := make(map[byte]kms.Spec)
	for _, info := range kms.Specs() {
		code, ok := specCodes[info.Spec]
		if !ok || code == 0 {
			t.Errorf("%s has no code", info.Spec)
		}
		if other, ok := seen[code]; ok {
			t.Errorf("%s and %s have one code", info.Spec, other)
		}
		seen[code] = info.Spec
		for _, u := range info.Usages {
			if usageCodes[u.Usage] == 0 {
				t.Errorf("%s has no code", u.Usage)
			}
		}
	}
}
