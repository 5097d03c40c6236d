package soft_test

import (
	"bytes"
	"encoding/base64"
	"testing"

	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/kms"
)

// TestKeyWrapVectors: RFC 5649, section 6.
func TestKeyWrapVectors(t *testing.T) {
	e := newEngine(t)
	h := e.loadRaw(kms.SpecAES192, kms.UsageWrapUnwrap, unhex("5840df6e29b02af1ab493b705bf16ea1ae8338f4dcc176a8"))
	for _, v := range []struct{ key, wrapped string }{
		{"c37b7e6492584340bed12207808941155068f738", "138bdeaa9b8fa7fc61f97742e72248ee5ae6ae5360d1ae6a5f54f373fa543b6a"},
		{"466f7250617369", "afbeb0f07dfbf5419200f2ccb50bb24f"},
	} {
		call := hsm.Call{Verb: kms.VerbWrap, Algorithm: kms.AlgAESKWP, Spec: kms.SpecAES192, Handle: h, Input: unhex(v.key)}
		if got := e.do(call).Output; !bytes.Equal(got, unhex(v.wrapped)) {
			t.Errorf("wrapped %s: %x, want %s", v.key, got, v.wrapped)
		}
		call.Verb, call.Input = kms.VerbUnwrap, unhex(v.wrapped)
		if got := e.do(call).Output; !bytes.Equal(got, unhex(v.key)) {
			t.Errorf("unwrapped %s: %x, want %s", v.wrapped, got, v.key)
		}
	}
}

// TestHKDFVectors: RFC 5869, appendix A, with PRK as the key.
func TestHKDFVectors(t *testing.T) {
	e := newEngine(t)
	info := make([]byte, 0x50)
	for i := range info {
		info[i] = 0xb0 + byte(i)
	}
	for _, v := range []struct {
		name, prk string
		info      []byte
		okm       string
	}{
		{"A.1", "077709362c2e32df0ddc3f0dc47bba6390b6c73bb50f9c3122ec844ad7c2b3e5", unhex("f0f1f2f3f4f5f6f7f8f9"),
			"3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865"},
		{"A.2", "06a6b88c5853361a06104c9ceb35b45cef760014904671014a193f40c15fc244", info,
			"b11e398dc80327a1c8e7f78c596a49344f012eda2d4efad8a050cc4c19afa97c59045a99cac7827271cb41c65e590e09" +
				"da3275600c2f09b8367793a9aca3db71cc30c58179ec3e87c14c01d5c1f3434f1d87"},
		{"A.3", "19ef24a32c717b167f33a91d6f648bdf96596776afdb6377ac434c1c293ccb04", nil,
			"8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8"},
	} {
		h := e.loadRaw(kms.SpecHMAC256, kms.UsageDerive, unhex(v.prk))
		okm := unhex(v.okm)
		got := e.do(hsm.Call{Verb: kms.VerbDerive, Algorithm: kms.AlgHKDFSHA256, Spec: kms.SpecHMAC256, Handle: h,
			Input: v.info, Length: len(okm)}).Output
		if !bytes.Equal(got, okm) {
			t.Errorf("%s: %x, want %x", v.name, got, okm)
		}
	}
}

// TestCBCVector: SP 800-38A, F.2.1, of which the padding's block is not part.
func TestCBCVector(t *testing.T) {
	e := newEngine(t)
	h := e.loadRaw(kms.SpecAES128, kms.UsageEncryptDecrypt, unhex("2b7e151628aed2a6abf7158809cf4f3c"))
	want := unhex("7649abac8119b246cee98e9b12e9197d5086cb9b507219ee95db113a917678b2" +
		"73bed6b8e3c1743b7116e69e222295163ff1caa1681fac09120eca307586e1a7")
	got := e.do(hsm.Call{Verb: kms.VerbEncrypt, Algorithm: kms.AlgAESCBC, Spec: kms.SpecAES128, Handle: h,
		Nonce: unhex("000102030405060708090a0b0c0d0e0f"),
		Input: unhex("6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51" +
			"30c81c46a35ce411e5fbc1191a0a52eff69f2445df4f9b17ad2b417be66c3710")}).Output
	if !bytes.HasPrefix(got, want) || len(got) != len(want)+16 {
		t.Errorf("%x, want %x and a block", got, want)
	}
}

// TestECDHVector: RFC 5903, section 8.1.
func TestECDHVector(t *testing.T) {
	e := newEngine(t)
	h := e.loadRaw(kms.SpecP256, kms.UsageKeyAgreement, unhex("c88f01f510d9ac3f70a292daa2316de544e9aab8afe84049c62a9c57862d1433"))
	peer := unhex("3059301306072a8648ce3d020106082a8648ce3d03010703420004" +
		"d12dfb5289c8d4f81208b70270398c342296970a0bccb74c736fc7554494bf63" +
		"56fbf3ca366cc23e8157854c13c58d6aac23f046ada30f8353e74f33039872ab")
	want := unhex("d6840f6b42f6edafd13116e0e12565202fef8e9ece7dce03812464d04b9442de")
	got := e.do(hsm.Call{Verb: kms.VerbAgree, Algorithm: kms.AlgECDH, Spec: kms.SpecP256, Handle: h, Peer: peer}).Output
	if !bytes.Equal(got, want) {
		t.Errorf("%x, want %x", got, want)
	}
}

// TestSLHDSAKeyVector: RFC 9909, appendices C.1 and C.2: a private key and its
// public half.
func TestSLHDSAKeyVector(t *testing.T) {
	decode := func(s string) []byte {
		b, err := base64.StdEncoding.DecodeString(s)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	private := decode("MFICAQAwCwYJYIZIAWUDBAMUBECiJjvKRYYINlIxYASVI9YhZ3+tkNUetgZ6Mn4N" +
		"HmSlASuBCex3fKpOHwJMz8+Ul9mRgFCSgPQlavKwevgCibSU")
	public := decode("MDAwCwYJYIZIAWUDBAMUAyEAK4EJ7Hd8qk4fAkzPz5SX2ZGAUJKA9CVq8rB6+AKJtJQ=")
	g, err := newEngine(t).token.(hsm.Importer).Import(kms.SpecSLHDSASHA2128S, kms.UsageSignVerify, private)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(g.PublicKey, public) {
		t.Errorf("public key %x, want %x", g.PublicKey, public)
	}
}
