package p11

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/x509"
	"encoding/asn1"
	"hash"
	"testing"

	"github.com/decred/dcrd/dcrec/secp256k1/v4"
	secp256k1ecdsa "github.com/decred/dcrd/dcrec/secp256k1/v4/ecdsa"
	"github.com/miekg/pkcs11"

	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/kms"
)

// The lengths of messages to try: none, a block, the longest of the API.
var messageSizes = []int{0, 16, 1 << 20}

func message(n int) []byte {
	return bytes.Repeat([]byte("m"), n)
}

func load(t *testing.T, token *Token, g hsm.Generated, spec kms.Spec, usage kms.Usage) hsm.Handle {
	t.Helper()
	h, err := token.Load(g.Material, spec, usage)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := token.Unload(h); err != nil {
			t.Error(err)
		}
	})
	return h
}

func generate(t *testing.T, token *Token, spec kms.Spec, usage kms.Usage) hsm.Generated {
	t.Helper()
	g, err := token.Generate(spec, usage)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func do(t *testing.T, s *session, c hsm.Call) []byte {
	t.Helper()
	if err := s.Do(&c); err != nil {
		t.Fatal(err)
	}
	return c.Output
}

// What one token of a domain generates another uses, for every spec, usage and
// algorithm of the families that a token can hold, and the results are right
// by Go's own cryptography.
func TestAKeyMadeOnOneTokenWorksOnAnother(t *testing.T) {
	a, b := openMember(t, 0), openMember(t, 1)
	s := newSession(t, b)
	for _, info := range kms.Specs() {
		if keyTypeOf(info.Spec) == nil {
			continue
		}
		for _, ua := range info.Usages {
			t.Run(string(info.Spec)+"/"+string(ua.Usage), func(t *testing.T) {
				g := generate(t, a, info.Spec, ua.Usage)
				h := load(t, b, g, info.Spec, ua.Usage)
				for _, alg := range ua.Algorithms {
					for _, size := range messageSizes {
						c := hsm.Call{Algorithm: alg, Spec: info.Spec, Handle: h, Input: message(size)}
						useKey(t, s, &info, ua.Usage, c, g)
					}
				}
			})
		}
	}
}

func useKey(t *testing.T, s *session, info *kms.SpecInfo, usage kms.Usage, c hsm.Call, g hsm.Generated) {
	t.Helper()
	switch usage {
	case kms.UsageSignVerify:
		c.Verb = kms.VerbSign
		whole := do(t, s, c)
		verify(t, g.PublicKey, &c, whole)
		c.Input, c.Prehashed = appendDigest(nil, c.Algorithm.Hash(), c.Input), true
		verify(t, g.PublicKey, &c, do(t, s, c))
	case kms.UsageGenerateVerifyMAC:
		c.Verb = kms.VerbMAC
		checkMAC(t, s, c, g)
	case kms.UsageKeyAgreement:
		c.Verb, c.Input = kms.VerbAgree, nil
		checkAgreement(t, s, c, g)
	case kms.UsageDerive:
		c.Verb, c.Input, c.Length = kms.VerbDerive, c.Input[:min(len(c.Input), kms.MaxDeriveContext)], 100
		checkDerivation(t, s, c)
	case kms.UsageWrapUnwrap:
		c.Input = message(max(1, min(len(c.Input), kms.MaxWrap)))
		checkWrapping(t, s, c)
	case kms.UsageEncryptDecrypt:
		switch {
		case c.Algorithm == kms.AlgAESCBC:
			checkCBC(t, s, c)
		case info.Family == kms.FamilyAES:
			checkGCM(t, s, c)
		default:
			c.Verb = kms.VerbDecrypt
			checkOAEP(t, s, c, g)
		}
	}
}

// checkAgreement computes the secret with a key of Go's from either side.
func checkAgreement(t *testing.T, s *session, c hsm.Call, g hsm.Generated) {
	t.Helper()
	if c.Spec == kms.SpecSecp256k1 { // see hsmtest
		c.Peer = g.PublicKey
		if n := len(do(t, s, c)); n != 32 {
			t.Errorf("the secret has %d bytes", n)
		}
		return
	}
	private, err := curves[c.Spec].nist.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if c.Peer, err = x509.MarshalPKIXPublicKey(private.PublicKey()); err != nil {
		t.Fatal(err)
	}
	point, ok := curves[c.Spec].parsePublicKeyInfo(g.PublicKey)
	if !ok {
		t.Fatal("the public key is malformed")
	}
	public, err := private.Curve().NewPublicKey(point)
	if err != nil {
		t.Fatal(err)
	}
	want, err := private.ECDH(public)
	if err != nil {
		t.Fatal(err)
	}
	if got := do(t, s, c); !bytes.Equal(got, want) {
		t.Errorf("the secret is %x, want %x", got, want)
	}
}

func checkDerivation(t *testing.T, s *session, c hsm.Call) {
	t.Helper()
	first := do(t, s, c)
	if len(first) != c.Length || !bytes.Equal(first, do(t, s, c)) {
		t.Errorf("%s is not deterministic", c.Algorithm)
	}
	c.Input = append([]byte("x"), c.Input[:len(c.Input)/2]...)
	if bytes.Equal(first, do(t, s, c)) {
		t.Errorf("%s is the same for two contexts", c.Algorithm)
	}
}

func checkWrapping(t *testing.T, s *session, c hsm.Call) {
	t.Helper()
	plaintext := c.Input
	c.Verb = kms.VerbWrap
	wrapped := do(t, s, c)
	c.Verb, c.Input = kms.VerbUnwrap, wrapped
	if got := do(t, s, c); !bytes.Equal(got, plaintext) {
		t.Errorf("%d bytes do not come back", len(plaintext))
	}
	wrapped[0] ^= 1
	if err := s.Do(&c); err == nil {
		t.Error("unwrapped what was tampered with")
	}
}

func checkCBC(t *testing.T, s *session, c hsm.Call) {
	t.Helper()
	plaintext := c.Input
	c.Verb, c.Nonce = kms.VerbEncrypt, make([]byte, ivSize)
	rand.Read(c.Nonce)
	ciphertext := do(t, s, c)
	c.Verb, c.Input = kms.VerbDecrypt, ciphertext
	if got := do(t, s, c); !bytes.Equal(got, plaintext) {
		t.Errorf("%d bytes do not come back", len(plaintext))
	}
}

func verify(t *testing.T, spki []byte, c *hsm.Call, signature []byte) {
	t.Helper()
	digest := c.Input
	if !c.Prehashed {
		digest = appendDigest(nil, c.Algorithm.Hash(), c.Input)
	}
	hash := map[kms.Digest]crypto.Hash{kms.DigestSHA256: crypto.SHA256, kms.DigestSHA384: crypto.SHA384, kms.DigestSHA512: crypto.SHA512}[c.Algorithm.Hash()]
	var err error
	ok := true
	if c.Spec == kms.SpecSecp256k1 {
		ok = verifySecp256k1(t, spki, digest, signature)
	} else {
		key, perr := x509.ParsePKIXPublicKey(spki)
		if perr != nil {
			t.Fatal(perr)
		}
		switch key := key.(type) {
		case *ecdsa.PublicKey:
			ok = ecdsa.VerifyASN1(key, digest, signature)
		case *rsa.PublicKey:
			if signMechanisms[c.Algorithm].parameter == pss {
				err = rsa.VerifyPSS(key, hash, digest, signature, &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash})
			} else {
				err = rsa.VerifyPKCS1v15(key, hash, digest, signature)
			}
		}
	}
	if err != nil || !ok {
		t.Errorf("%s over %d bytes does not verify: %v", c.Algorithm, len(c.Input), err)
	}
}

func verifySecp256k1(t *testing.T, spki, digest, signature []byte) bool {
	t.Helper()
	var info struct {
		Algorithm struct{ Algorithm, Curve asn1.ObjectIdentifier }
		PublicKey asn1.BitString
	}
	if rest, err := asn1.Unmarshal(spki, &info); err != nil || len(rest) != 0 {
		t.Fatalf("public key: %v, %d bytes left", err, len(rest))
	}
	if !info.Algorithm.Curve.Equal(asn1.ObjectIdentifier{1, 3, 132, 0, 10}) {
		t.Errorf("curve %v", info.Algorithm.Curve)
	}
	key, err := secp256k1.ParsePubKey(info.PublicKey.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	sig, err := secp256k1ecdsa.ParseDERSignature(signature)
	if err != nil {
		t.Fatal(err)
	}
	return sig.Verify(digest, key)
}

// checkMAC cannot recompute the MAC, since nobody has the key: it compares
// two tokens, and two different messages.
func checkMAC(t *testing.T, s *session, c hsm.Call, g hsm.Generated) {
	t.Helper()
	first := do(t, s, c)
	if again := do(t, s, c); !bytes.Equal(first, again) {
		t.Errorf("%s over %d bytes is not deterministic", c.Algorithm, len(c.Input))
	}
	c.Input = append([]byte("other"), c.Input[:len(c.Input)/2]...)
	if other := do(t, s, c); bytes.Equal(first, other) {
		t.Errorf("%s is the same over two messages", c.Algorithm)
	}
	if size := macMechanisms[c.Algorithm].size; len(first) != size {
		t.Errorf("%s has %d bytes", c.Algorithm, len(first))
	}
}

func checkGCM(t *testing.T, s *session, c hsm.Call) {
	t.Helper()
	plaintext := c.Input
	for _, aad := range [][]byte{nil, []byte("additional data")} {
		c.Nonce, c.AAD = make([]byte, nonceSize), aad
		rand.Read(c.Nonce)
		c.Verb, c.Input = kms.VerbEncrypt, plaintext
		ciphertext := do(t, s, c)
		c.Verb, c.Input = kms.VerbDecrypt, ciphertext
		if got := do(t, s, c); !bytes.Equal(got, plaintext) || got == nil {
			t.Errorf("%d bytes do not come back", len(plaintext))
		}
		c.AAD = append(bytes.Clone(aad), 'x')
		if err := s.Do(&c); err == nil {
			t.Error("decrypted with other additional data")
		}
	}
}

func checkOAEP(t *testing.T, s *session, c hsm.Call, g hsm.Generated) {
	t.Helper()
	key, err := x509.ParsePKIXPublicKey(g.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	public := key.(*rsa.PublicKey)
	var h hash.Hash = sha256.New()
	if c.Algorithm == kms.AlgRSAOAEPSHA1 {
		h = sha1.New()
	}
	longest := public.Size() - 2*h.Size() - 2
	for _, size := range []int{0, 1, longest} {
		plaintext := message(size)
		if c.Input, err = rsa.EncryptOAEP(h, rand.Reader, public, plaintext, nil); err != nil {
			t.Fatal(err)
		}
		if got := do(t, s, c); !bytes.Equal(got, plaintext) || got == nil {
			t.Errorf("%s: %d bytes do not come back", c.Algorithm, size)
		}
	}
}

// The HMACs are those of the standard: SoftHSM takes a public secret, and Go
// computes the same.
func TestMACsAreHMAC(t *testing.T) {
	token := openMember(t, 0)
	s := newSession(t, token)
	for spec, c := range map[kms.Spec]struct {
		alg kms.Algorithm
		new func() hash.Hash
	}{
		kms.SpecHMAC224: {kms.AlgHMACSHA224, sha256.New224},
		kms.SpecHMAC256: {kms.AlgHMACSHA256, sha256.New},
		kms.SpecHMAC384: {kms.AlgHMACSHA384, sha512.New384},
		kms.SpecHMAC512: {kms.AlgHMACSHA512, sha512.New},
	} {
		t.Run(string(spec), func(t *testing.T) {
			secret := message(spec.Info().Bits / 8)
			h := load(t, token, hsm.Generated{Material: wrapPublic(t, token, secret)}, spec, kms.UsageGenerateVerifyMAC)
			for _, size := range messageSizes {
				got := do(t, s, hsm.Call{Verb: kms.VerbMAC, Algorithm: c.alg, Spec: spec, Handle: h, Input: message(size)})
				want := hmac.New(c.new, secret)
				want.Write(message(size))
				if !bytes.Equal(got, want.Sum(nil)) {
					t.Errorf("%d bytes: got %x", size, got)
				}
			}
		})
	}
}

func TestSealingKeysWorkOnEveryTokenOfTheDomain(t *testing.T) {
	a, b := openMember(t, 0), openMember(t, 1)
	material, err := a.GenerateSealingKey()
	if err != nil {
		t.Fatal(err)
	}
	c := hsm.Call{Verb: kms.VerbEncrypt, Algorithm: kms.AlgAESGCM, Spec: kms.SpecAES256,
		Nonce: make([]byte, nonceSize), Input: []byte("wrapped key"), AAD: []byte("tenant")}
	if c.Handle, err = a.LoadSealingKey(material); err != nil {
		t.Fatal(err)
	}
	sealed := do(t, newSession(t, a), c)
	if c.Handle, err = b.LoadSealingKey(material); err != nil {
		t.Fatal(err)
	}
	c.Verb, c.Input = kms.VerbDecrypt, sealed
	if got := do(t, newSession(t, b), c); string(got) != "wrapped key" {
		t.Errorf("got %q", got)
	}
	if _, err := a.Load(material, kms.SpecAES256, kms.UsageEncryptDecrypt); err == nil {
		t.Error("the key root unwrapped a sealing key")
	}
}

// wrapPublic wraps a public secret under the token's key root.
func wrapPublic(t *testing.T, token *Token, secret []byte) []byte {
	t.Helper()
	in := token.generator.objects()
	object, err := in.mod.ctx.CreateObject(in.session, []*pkcs11.Attribute{
		pkcs11.NewAttribute(pkcs11.CKA_CLASS, pkcs11.CKO_SECRET_KEY),
		pkcs11.NewAttribute(pkcs11.CKA_KEY_TYPE, pkcs11.CKK_GENERIC_SECRET),
		pkcs11.NewAttribute(pkcs11.CKA_EXTRACTABLE, true),
		pkcs11.NewAttribute(pkcs11.CKA_VALUE, secret),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer in.destroy(object)
	wrapped, err := token.generator.wrap(token.wrapping, token.roots[keyRoot], object)
	if err != nil {
		t.Fatal(err)
	}
	return wrapped
}
