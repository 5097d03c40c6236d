package soft_test

import (
	"bytes"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/kms"
	"github.com/sluice-kms/sluice/required"
)

// require skips a test whose outside part is missing, unless SLUICE_REQUIRE,
// a comma list, names the part: then it fails.
func require(t *testing.T, part string, err error) {
	t.Helper()
	required.Part(t, part, err)
}

// openssl is the outside judge, run in a folder of its own.
type openssl struct {
	t    *testing.T
	path string
	dir  string
}

func newOpenSSL(t *testing.T) *openssl {
	t.Helper()
	path, err := exec.LookPath("openssl")
	require(t, "openssl", err)
	return &openssl{t, path, t.TempDir()}
}

// run runs the command, which must succeed, and returns its output. In args
// "@name" stands for the path of a file.
func (o *openssl) run(args ...string) []byte {
	o.t.Helper()
	out, err := o.try(args...)
	if err != nil {
		o.t.Fatalf("openssl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

func (o *openssl) try(args ...string) ([]byte, error) {
	args = slices.Clone(args)
	for i, a := range args {
		if name, ok := strings.CutPrefix(a, "@"); ok {
			args[i] = filepath.Join(o.dir, name)
		}
	}
	return exec.CommandContext(o.t.Context(), o.path, args...).CombinedOutput()
}

func (o *openssl) write(name string, data []byte) {
	o.t.Helper()
	if err := os.WriteFile(filepath.Join(o.dir, name), data, 0o600); err != nil {
		o.t.Fatal(err)
	}
}

func (o *openssl) read(name string) []byte {
	o.t.Helper()
	data, err := os.ReadFile(filepath.Join(o.dir, name))
	if err != nil {
		o.t.Fatal(err)
	}
	return data
}

// signatureJudgement is how OpenSSL is asked about one algorithm: by pkeyutl,
// or by dgst where pkeyutl takes digests only.
type signatureJudgement struct {
	spec    kms.Spec
	alg     kms.Algorithm
	genkey  []string
	options []string // of pkeyutl -rawin
	dgst    []string // instead
}

const exampleUserID = "tenant@example.com"

var signatureJudgements = []signatureJudgement{
	{spec: kms.SpecSM2, alg: kms.AlgSM2DSA, genkey: []string{"EC", "-pkeyopt", "ec_paramgen_curve:SM2"},
		options: []string{"-digest", "sm3", "-pkeyopt", "distid:" + exampleUserID}},
	{spec: kms.SpecEd25519, alg: kms.AlgEd25519, genkey: []string{"ED25519"}, options: []string{}},
	{spec: kms.SpecSecp256k1, alg: kms.AlgECDSASHA256, genkey: []string{"EC", "-pkeyopt", "ec_paramgen_curve:secp256k1"}, dgst: []string{"-sha256"}},
	{spec: kms.SpecP256, alg: kms.AlgECDSASHA256, genkey: []string{"EC", "-pkeyopt", "ec_paramgen_curve:P-256"}, dgst: []string{"-sha256"}},
	{spec: kms.SpecP384, alg: kms.AlgECDSASHA384, genkey: []string{"EC", "-pkeyopt", "ec_paramgen_curve:P-384"}, dgst: []string{"-sha384"}},
	{spec: kms.SpecP521, alg: kms.AlgECDSASHA512, genkey: []string{"EC", "-pkeyopt", "ec_paramgen_curve:P-521"}, dgst: []string{"-sha512"}},
	{spec: kms.SpecRSA2048, alg: kms.AlgRSAPSSSHA256, genkey: []string{"RSA", "-pkeyopt", "rsa_keygen_bits:2048"},
		dgst: []string{"-sha256", "-sigopt", "rsa_padding_mode:pss", "-sigopt", "rsa_pss_saltlen:32"}},
	{spec: kms.SpecRSA2048, alg: kms.AlgRSAPKCS1SHA512, genkey: []string{"RSA", "-pkeyopt", "rsa_keygen_bits:2048"}, dgst: []string{"-sha512"}},
}

// sign and verify run with key.pem or public.der, message and signature.
func (j signatureJudgement) sign(o *openssl) {
	o.t.Helper()
	if j.dgst != nil {
		o.run(slices.Concat([]string{"dgst"}, j.dgst, []string{"-sign", "@key.pem", "-out", "@signature", "@message"})...)
		return
	}
	o.run(slices.Concat([]string{"pkeyutl", "-sign", "-inkey", "@key.pem", "-rawin", "-in", "@message", "-out", "@signature"}, j.options)...)
}

func (j signatureJudgement) verify(o *openssl) error {
	o.run("pkey", "-pubin", "-inform", "DER", "-in", "@public.der", "-out", "@public.pem")
	var err error
	if j.dgst != nil {
		_, err = o.try(slices.Concat([]string{"dgst"}, j.dgst, []string{"-verify", "@public.pem", "-signature", "@signature", "@message"})...)
	} else {
		_, err = o.try(slices.Concat([]string{"pkeyutl", "-verify", "-pubin", "-inkey", "@public.pem", "-rawin", "-in", "@message", "-sigfile", "@signature"}, j.options)...)
	}
	return err
}

func (j signatureJudgement) call() hsm.Call {
	call := hsm.Call{Algorithm: j.alg, Spec: j.spec, Input: []byte("to be judged from outside")}
	if j.alg == kms.AlgSM2DSA {
		call.UserID = []byte(exampleUserID)
	}
	return call
}

func TestOpenSSLAcceptsSignatures(t *testing.T) {
	for _, j := range signatureJudgements {
		t.Run(string(j.spec)+"/"+string(j.alg), func(t *testing.T) {
			o, e := newOpenSSL(t), newEngine(t)
			g, h := e.generate(j.spec, kms.UsageSignVerify)
			call := j.call()
			call.Verb, call.Handle = kms.VerbSign, h
			o.write("public.der", g.PublicKey)
			o.write("message", call.Input)
			o.write("signature", e.do(call).Output)
			if err := j.verify(o); err != nil {
				t.Errorf("OpenSSL refuses the signature: %v", err)
			}
			o.write("message", []byte("something else"))
			if j.verify(o) == nil {
				t.Error("OpenSSL accepts the signature for another message: it judges nothing")
			}
		})
	}
}

func TestOpenSSLSignaturesAreAccepted(t *testing.T) {
	for _, j := range signatureJudgements {
		t.Run(string(j.spec)+"/"+string(j.alg), func(t *testing.T) {
			o, e := newOpenSSL(t), newEngine(t)
			o.genkey(j.genkey)
			call := j.call()
			o.write("message", call.Input)
			j.sign(o)
			call.Verb, call.PublicKey, call.Signature = kms.VerbVerify, o.read("public.der"), o.read("signature")
			if !e.do(call).Valid {
				t.Error("the signature is refused")
			}
		})
	}
}

// genkey makes key.pem and public.der.
func (o *openssl) genkey(algorithm []string) {
	o.t.Helper()
	o.run(slices.Concat([]string{"genpkey", "-out", "@key.pem", "-algorithm"}, algorithm)...)
	o.run("pkey", "-in", "@key.pem", "-pubout", "-outform", "DER", "-out", "@public.der")
}

var encryptionJudgements = []struct {
	spec    kms.Spec
	alg     kms.Algorithm
	order   kms.SM2Order
	genkey  []string
	options []string
}{
	{kms.SpecSM2, kms.AlgSM2PKE, kms.SM2OrderASN1, []string{"EC", "-pkeyopt", "ec_paramgen_curve:SM2"}, nil},
	{kms.SpecRSA2048, kms.AlgRSAOAEPSHA256, "", []string{"RSA", "-pkeyopt", "rsa_keygen_bits:2048"},
		[]string{"-pkeyopt", "rsa_padding_mode:oaep", "-pkeyopt", "rsa_oaep_md:sha256", "-pkeyopt", "rsa_mgf1_md:sha256"}},
	{kms.SpecRSA2048, kms.AlgRSAOAEPSHA1, "", []string{"RSA", "-pkeyopt", "rsa_keygen_bits:2048"},
		[]string{"-pkeyopt", "rsa_padding_mode:oaep"}},
}

func TestOpenSSLCiphertextsDecrypt(t *testing.T) {
	for _, j := range encryptionJudgements {
		t.Run(string(j.alg), func(t *testing.T) {
			o, e := newOpenSSL(t), newEngine(t)
			g, h := e.generate(j.spec, kms.UsageEncryptDecrypt)
			plaintext := []byte("for the engine's eyes only")
			o.write("public.der", g.PublicKey)
			o.write("plaintext", plaintext)
			o.run("pkey", "-pubin", "-inform", "DER", "-in", "@public.der", "-out", "@public.pem")
			o.run(slices.Concat([]string{"pkeyutl", "-encrypt", "-pubin", "-inkey", "@public.pem", "-in", "@plaintext", "-out", "@ciphertext"}, j.options)...)
			got := e.do(hsm.Call{Verb: kms.VerbDecrypt, Algorithm: j.alg, Spec: j.spec, Handle: h, Order: j.order, Input: o.read("ciphertext")}).Output
			if !bytes.Equal(got, plaintext) {
				t.Error("the ciphertext decrypts to something else")
			}
		})
	}
}

func TestOpenSSLDecryptsCiphertexts(t *testing.T) {
	for _, j := range encryptionJudgements {
		t.Run(string(j.alg), func(t *testing.T) {
			o, e := newOpenSSL(t), newEngine(t)
			o.genkey(j.genkey)
			plaintext := []byte("for OpenSSL's eyes only")
			o.write("ciphertext", e.do(hsm.Call{Verb: kms.VerbEncrypt, Algorithm: j.alg, Spec: j.spec,
				PublicKey: o.read("public.der"), Order: j.order, Input: plaintext}).Output)
			o.run(slices.Concat([]string{"pkeyutl", "-decrypt", "-inkey", "@key.pem", "-in", "@ciphertext", "-out", "@plaintext"}, j.options)...)
			if !bytes.Equal(o.read("plaintext"), plaintext) {
				t.Error("OpenSSL decrypts to something else")
			}
		})
	}
}

func TestOpenSSLAgreesOnHMACSM3(t *testing.T) {
	o, e := newOpenSSL(t), newEngine(t)
	raw := randomBytes(32)
	h := e.loadRaw(kms.SpecHMACSM3, kms.UsageGenerateVerifyMAC, raw)
	message := randomBytes(1000)
	o.write("message", message)
	o.run("mac", "-digest", "SM3", "-macopt", "hexkey:"+hex.EncodeToString(raw), "-binary", "-in", "@message", "-out", "@mac", "HMAC")
	got := e.do(hsm.Call{Verb: kms.VerbMAC, Algorithm: kms.AlgHMACSM3, Spec: kms.SpecHMACSM3, Handle: h, Input: message}).Output
	if !bytes.Equal(got, o.read("mac")) {
		t.Error("the MACs differ")
	}
}
