package soft_test

import (
	"bytes"
	"crypto/sha512"
	"encoding/asn1"
	"encoding/hex"
	"math/big"
	"slices"
	"testing"

	"github.com/emmansun/gmsm/sm4"

	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/kms"
)

func unhex(s string) []byte {
	b, err := hex.DecodeString(s)
	if err != nil {
		panic(err)
	}
	return b
}

// engine is an opened token with one session.
type engine struct {
	t       testing.TB
	token   hsm.Token
	session hsm.Session
}

func newEngine(t *testing.T) *engine {
	t.Helper()
	token := open(t)
	session, err := token.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := token.Close(); err != nil {
			t.Error(err)
		}
	})
	return &engine{t, token, session}
}

// do runs a call that must succeed.
func (e *engine) do(c hsm.Call) hsm.Call {
	e.t.Helper()
	if err := e.session.Do(&c); err != nil {
		e.t.Fatalf("verb %d %s: %v", c.Verb, c.Algorithm, err)
	}
	return c
}

// generate makes a key and loads it.
func (e *engine) generate(spec kms.Spec, usage kms.Usage) (hsm.Generated, hsm.Handle) {
	e.t.Helper()
	g, err := e.token.Generate(spec, usage)
	if err != nil {
		e.t.Fatal(err)
	}
	return g, e.load(g.Material, spec, usage)
}

func (e *engine) load(material []byte, spec kms.Spec, usage kms.Usage) hsm.Handle {
	e.t.Helper()
	h, err := e.token.Load(material, spec, usage)
	if err != nil {
		e.t.Fatalf("Load(%s): %v", spec, err)
	}
	return h
}

// loadRaw loads a key that a standard prints.
func (e *engine) loadRaw(spec kms.Spec, usage kms.Usage, raw []byte) hsm.Handle {
	e.t.Helper()
	g, err := e.token.Generate(spec, usage)
	if err != nil {
		e.t.Fatal(err)
	}
	return e.load(slices.Concat(g.Material[:materialHeader], raw), spec, usage)
}

// TestSM3Vectors: GB/T 32905-2016, appendix A.
func TestSM3Vectors(t *testing.T) {
	e := newEngine(t)
	for message, want := range map[string]string{
		"abc": "66c7f0f462eeedd9d1f2d46bdc10e4e24167c4875cf2f7a2297da02b8f4ba8e0",
		"abcdabcdabcdabcdabcdabcdabcdabcdabcdabcdabcdabcdabcdabcdabcdabcd": "debe9ff92275b8a138604889c18e5a4d6fdb70e5387e5765293dcba39c0c5732",
	} {
		got := e.do(hsm.Call{Verb: kms.VerbDigest, Digest: kms.DigestSM3, Input: []byte(message)}).Output
		if !bytes.Equal(got, unhex(want)) {
			t.Errorf("SM3(%q) = %x, want %s", message, got, want)
		}
	}
}

// TestSM4Vectors: GB/T 32907-2016, appendix A, on the block cipher that the
// engine runs GCM with.
func TestSM4Vectors(t *testing.T) {
	key := unhex("0123456789abcdeffedcba9876543210")
	block, err := sm4.NewCipher(key)
	if err != nil {
		t.Fatal(err)
	}
	state := bytes.Clone(key)
	block.Encrypt(state, state)
	if want := unhex("681edf34d206965e86b3e94f536e4246"); !bytes.Equal(state, want) {
		t.Errorf("once: %x, want %x", state, want)
	}
	if testing.Short() {
		return
	}
	for range 1_000_000 - 1 {
		block.Encrypt(state, state)
	}
	if want := unhex("595298c7c6fd271f0402f804c33d3f66"); !bytes.Equal(state, want) {
		t.Errorf("1,000,000 times: %x, want %x", state, want)
	}
}

// TestSM4GCMVector: RFC 8998, appendix A.1.
func TestSM4GCMVector(t *testing.T) {
	e := newEngine(t)
	call := hsm.Call{
		Verb: kms.VerbEncrypt, Algorithm: kms.AlgSM4GCM, Spec: kms.SpecSM4,
		Handle: e.loadRaw(kms.SpecSM4, kms.UsageEncryptDecrypt, unhex("0123456789abcdeffedcba9876543210")),
		Nonce:  unhex("00001234567800000000abcd"),
		AAD:    unhex("feedfacedeadbeeffeedfacedeadbeefabaddad2"),
		Input: unhex("aaaaaaaaaaaaaaaabbbbbbbbbbbbbbbbccccccccccccccccdddddddddddddddd" +
			"eeeeeeeeeeeeeeeeffffffffffffffffeeeeeeeeeeeeeeeeaaaaaaaaaaaaaaaa"),
	}
	want := unhex("17f399f08c67d5ee19d0dc9969c4bb7d5fd46fd3756489069157b282bb200735" +
		"d82710ca5c22f0ccfa7cbf93d496ac15a56834cbcf98c397b4024a2691233b8d" +
		"83de3541e4c2b58177e065a9bf7b62ec")
	plaintext := call.Input
	if got := e.do(call).Output; !bytes.Equal(got, want) {
		t.Errorf("encryption: %x, want %x", got, want)
	}
	call.Verb, call.Input = kms.VerbDecrypt, want
	if got := e.do(call).Output; !bytes.Equal(got, plaintext) {
		t.Errorf("decryption: %x, want %x", got, plaintext)
	}
}

// The key pair of GB/T 32918.5-2017, appendix A.2.
var (
	standardScalar = unhex("3945208f7b2144b13f36e38ac6d39f95889393692860b51a42fb81ef4df7c5b8")
	standardPublic = unhex("3059301306072a8648ce3d020106082a811ccf5501822d034200" +
		"0409f9df311e5421a150dd7d161e4bc5c672179fad1833fc076bb08ff356f35020" +
		"ccea490ce26775a52dc6ea718cc1aa600aed05fbf35e084a6632f6072da9ad13")
)

// TestSM2SignatureVector: GB/T 32918.5-2017, appendix A.2: the printed
// signature holds for the message under the user id, and for the printed e.
func TestSM2SignatureVector(t *testing.T) {
	e := newEngine(t)
	r := new(big.Int).SetBytes(unhex("f5a03b0648d2c4630eeac513e1bb81a15944da3827d5b74143ac7eaceee720b3"))
	s := new(big.Int).SetBytes(unhex("b1b6aa29df212fd8763182bc0d421ca1bb9038fd1f7f42d4840b69c485bbc1aa"))
	sig, err := asn1.Marshal(struct{ R, S *big.Int }{r, s})
	if err != nil {
		t.Fatal(err)
	}
	call := hsm.Call{Verb: kms.VerbVerify, Algorithm: kms.AlgSM2DSA, Spec: kms.SpecSM2, PublicKey: standardPublic,
		Signature: sig, Input: []byte("message digest"), UserID: []byte("1234567812345678")}
	if !e.do(call).Valid {
		t.Error("the signature over the message is refused")
	}
	digest := call
	digest.UserID, digest.Prehashed = nil, true
	digest.Input = unhex("f0b43e94ba45accaace692ed534382eb17e6ab5a19ce7b31f4486fdfc0d28640")
	if !e.do(digest).Valid {
		t.Error("the signature over e is refused")
	}
	// The printed scalar belongs to the printed point.
	call.Verb, call.Handle = kms.VerbSign, e.loadRaw(kms.SpecSM2, kms.UsageSignVerify, standardScalar)
	call.Signature = e.do(call).Output
	call.Verb = kms.VerbVerify
	if !e.do(call).Valid {
		t.Error("a signature with the printed scalar does not verify under the printed point")
	}
}

// TestSM2DecryptionVector: GB/T 32918.5-2017, appendix A.3 (C1, C3, C2 and
// the plaintext), in every order.
func TestSM2DecryptionVector(t *testing.T) {
	e := newEngine(t)
	x := unhex("04ebfc718e8d1798620432268e77feb6415e2ede0e073c0f4f640ecd2e149a73")
	y := unhex("e858f9d81e5430a57b36daab8f950a3c64e6ee6a63094d99283aff767e124df0")
	c3 := unhex("59983c18f809e262923c53aec295d30383b54e39d609d160afcb1908d0bd8766")
	c2 := unhex("21886ca989ca9c7d58087307ca93092d651efa")
	inASN1, err := asn1.Marshal(struct {
		X, Y   *big.Int
		C3, C2 []byte
	}{new(big.Int).SetBytes(x), new(big.Int).SetBytes(y), c3, c2})
	if err != nil {
		t.Fatal(err)
	}
	h := e.loadRaw(kms.SpecSM2, kms.UsageEncryptDecrypt, standardScalar)
	for order, ciphertext := range map[kms.SM2Order][]byte{
		kms.SM2OrderC1C3C2: slices.Concat([]byte{4}, x, y, c3, c2),
		kms.SM2OrderC1C2C3: slices.Concat([]byte{4}, x, y, c2, c3),
		kms.SM2OrderASN1:   inASN1,
	} {
		got := e.do(hsm.Call{Verb: kms.VerbDecrypt, Algorithm: kms.AlgSM2PKE, Spec: kms.SpecSM2, Handle: h, Order: order, Input: ciphertext}).Output
		if string(got) != "encryption standard" {
			t.Errorf("order %s: %q", order, got)
		}
	}
}

// TestEd25519Vectors: RFC 8032, section 7.1.
func TestEd25519Vectors(t *testing.T) {
	e := newEngine(t)
	for _, v := range []struct{ name, seed, public, message, signature string }{
		{"test 1", "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
			"d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a", "",
			"e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b"},
		{"test 2", "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
			"3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c", "72",
			"92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"},
		{"test 3", "c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
			"fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025", "af82",
			"6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a"},
	} {
		h := e.loadRaw(kms.SpecEd25519, kms.UsageSignVerify, unhex(v.seed))
		call := hsm.Call{Verb: kms.VerbSign, Algorithm: kms.AlgEd25519, Spec: kms.SpecEd25519, Handle: h, Input: unhex(v.message)}
		got := e.do(call).Output
		if !bytes.Equal(got, unhex(v.signature)) {
			t.Errorf("%s: %x", v.name, got)
		}
		call.Verb, call.Signature = kms.VerbVerify, got
		call.PublicKey = slices.Concat(unhex("302a300506032b6570032100"), unhex(v.public))
		if !e.do(call).Valid {
			t.Errorf("%s: the signature is refused", v.name)
		}
	}
}

// TestHMACVectors: RFC 4231, sections 4.2, 4.3 and 4.7. HMAC pads a key with
// zeros to the hash's block and hashes a longer one first (RFC 2104, section
// 2), so the RFC's keys have an equal of each spec's length.
func TestHMACVectors(t *testing.T) {
	e := newEngine(t)
	vectors := []struct {
		name         string
		key, message []byte
		macs         map[kms.Spec]string
	}{
		{"case 1", bytes.Repeat([]byte{0x0b}, 20), []byte("Hi There"), map[kms.Spec]string{
			kms.SpecHMAC224: "896fb1128abbdf196832107cd49df33f47b4b1169912ba4f53684b22",
			kms.SpecHMAC256: "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7",
			kms.SpecHMAC384: "afd03944d84895626b0825f4ab46907f15f9dadbe4101ec682aa034c7cebc59cfaea9ea9076ede7f4af152e8b2fa9cb6",
			kms.SpecHMAC512: "87aa7cdea5ef619d4ff0b4241a1d6cb02379f4e2ce4ec2787ad0b30545e17cdedaa833b7d6b8a702038b274eaea3f4e4be9d914eeb61f1702e696c203a126854"}},
		{"case 2", []byte("Jefe"), []byte("what do ya want for nothing?"), map[kms.Spec]string{
			kms.SpecHMAC224: "a30e01098bc6dbbf45690f3a7e9e6d0f8bbea2a39e6148008fd05e44",
			kms.SpecHMAC256: "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
			kms.SpecHMAC384: "af45d2e376484031617f78d2b58a6b1b9c7ef464f5a01b47e42ec3736322445e8e2240ca5e69e2c78b3239ecfab21649",
			kms.SpecHMAC512: "164b7a7bfcf819e2e395fbe73b56e0a387bd64222e831fd610270cd7ea2505549758bf75c05a994a6d034f65f8f0e6fdcaeab1a34d4a6b4b636e070a38bce737"}},
		{"case 6", bytes.Repeat([]byte{0xaa}, 131), []byte("Test Using Larger Than Block-Size Key - Hash Key First"), map[kms.Spec]string{
			kms.SpecHMAC224: "95e9a0db962095adaebe9b2d6f0dbce2d499f112f2d2b7273fa6870e",
			kms.SpecHMAC256: "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54",
			kms.SpecHMAC384: "4ece084485813e9088d2c63a041bc5b44f9ef1012a2b588f3cd11f05033ac4c60c2ef6ab4030fe8296248df163f44952",
			kms.SpecHMAC512: "80b24263c7c1a3ebb71493c1dd7be8b49b46d1f41b4aeec1121b013783f8f3526b56d037e05f2598bd0fd2215d6a1e5295e64f73f63f0aec8b915a985d786598"}},
	}
	digests := map[kms.Spec]kms.Digest{kms.SpecHMAC224: kms.DigestSHA224, kms.SpecHMAC256: kms.DigestSHA256,
		kms.SpecHMAC384: kms.DigestSHA384, kms.SpecHMAC512: kms.DigestSHA512}
	for _, v := range vectors {
		for spec, want := range v.macs {
			key := v.key
			if len(key) > sha512.BlockSize { // 131 bytes: longer than any block
				key = e.do(hsm.Call{Verb: kms.VerbDigest, Digest: digests[spec], Input: key}).Output
			}
			raw := make([]byte, spec.Info().Bits/8)
			copy(raw, key)
			h := e.loadRaw(spec, kms.UsageGenerateVerifyMAC, raw)
			got := e.do(hsm.Call{Verb: kms.VerbMAC, Algorithm: spec.Info().Usages[0].Algorithms[0], Spec: spec, Handle: h, Input: v.message}).Output
			if !bytes.Equal(got, unhex(want)) {
				t.Errorf("%s, %s: %x, want %s", v.name, spec, got, want)
			}
		}
	}
}
