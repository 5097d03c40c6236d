package soft_test

import (
	"bytes"
	"encoding/hex"
	"slices"
	"testing"

	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/kms"
)

// pkcs8 writes key.pem as PKCS #8 in DER and returns it.
func (o *openssl) pkcs8() []byte {
	o.t.Helper()
	o.run("pkcs8", "-topk8", "-nocrypt", "-in", "@key.pem", "-outform", "DER", "-out", "@key.der")
	return o.read("key.der")
}

// TestOpenSSLKeysAreImported: keys of OpenSSL's, as it writes them, with which
// it accepts what the engine signs.
func TestOpenSSLKeysAreImported(t *testing.T) {
	for _, j := range signatureJudgements {
		t.Run(string(j.spec)+"/"+string(j.alg), func(t *testing.T) {
			o, e := newOpenSSL(t), newEngine(t)
			o.genkey(j.genkey)
			g, err := e.token.(hsm.Importer).Import(j.spec, kms.UsageSignVerify, o.pkcs8())
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(g.PublicKey, o.read("public.der")) {
				t.Error("the public half is another one")
			}
			call := j.call()
			call.Verb, call.Handle = kms.VerbSign, e.load(g.Material, j.spec, kms.UsageSignVerify)
			o.write("message", call.Input)
			o.write("signature", e.do(call).Output)
			if err := j.verify(o); err != nil {
				t.Errorf("OpenSSL refuses the signature: %v", err)
			}
		})
	}
}

func TestOpenSSLAgreesOnSecrets(t *testing.T) {
	for _, j := range signatureJudgements {
		if !j.spec.Supports(kms.UsageKeyAgreement, kms.AlgECDH) || j.spec == kms.SpecSM2 { // which it cannot
			continue
		}
		t.Run(string(j.spec), func(t *testing.T) {
			o, e := newOpenSSL(t), newEngine(t)
			o.genkey(j.genkey)
			peer := o.read("public.der")
			g, h := e.generate(j.spec, kms.UsageKeyAgreement)
			o.write("ours.der", g.PublicKey)
			o.run("pkey", "-pubin", "-inform", "DER", "-in", "@ours.der", "-out", "@ours.pem")
			o.run("pkeyutl", "-derive", "-inkey", "@key.pem", "-peerkey", "@ours.pem", "-out", "@secret")
			got := e.do(hsm.Call{Verb: kms.VerbAgree, Algorithm: kms.AlgECDH, Spec: j.spec, Handle: h, Peer: peer}).Output
			if !bytes.Equal(got, o.read("secret")) {
				t.Error("the secrets differ")
			}
		})
	}
}

// TestOpenSSLAgreesOnCiphers: CBC in both directions and key wrapping.
func TestOpenSSLAgreesOnCiphers(t *testing.T) {
	for _, j := range []struct {
		name  string
		spec  kms.Spec
		usage kms.Usage
		alg   kms.Algorithm
	}{
		{"aes-128-cbc", kms.SpecAES128, kms.UsageEncryptDecrypt, kms.AlgAESCBC},
		{"aes-256-cbc", kms.SpecAES256, kms.UsageEncryptDecrypt, kms.AlgAESCBC},
		{"sm4-cbc", kms.SpecSM4, kms.UsageEncryptDecrypt, kms.AlgSM4CBC},
		{"id-aes128-wrap-pad", kms.SpecAES128, kms.UsageWrapUnwrap, kms.AlgAESKWP},
		{"id-aes256-wrap-pad", kms.SpecAES256, kms.UsageWrapUnwrap, kms.AlgAESKWP},
	} {
		t.Run(j.name, func(t *testing.T) {
			o, e := newOpenSSL(t), newEngine(t)
			raw := randomBytes(j.spec.Info().Bits / 8)
			forward := hsm.Call{Verb: kms.VerbEncrypt, Algorithm: j.alg, Spec: j.spec, Handle: e.loadRaw(j.spec, j.usage, raw),
				Nonce: randomBytes(16)}
			back := forward
			back.Verb = kms.VerbDecrypt
			iv := forward.Nonce
			if j.usage == kms.UsageWrapUnwrap {
				forward.Verb, forward.Nonce = kms.VerbWrap, nil
				back.Verb, back.Nonce = kms.VerbUnwrap, nil
				iv = unhex("a65959a6")
			}
			enc := []string{"enc", "-" + j.name, "-K", hex.EncodeToString(raw), "-iv", hex.EncodeToString(iv)}
			for _, n := range []int{1, 8, 15, 16, 17, 1000} {
				plaintext := randomBytes(n)
				o.write("plaintext", plaintext)
				o.run(slices.Concat(enc, []string{"-in", "@plaintext", "-out", "@ciphertext"})...)
				call := forward
				call.Input = plaintext
				if got := e.do(call).Output; !bytes.Equal(got, o.read("ciphertext")) {
					t.Errorf("%d bytes: the ciphertexts differ", n)
				}
				call = back
				call.Input = o.read("ciphertext")
				if got := e.do(call).Output; !bytes.Equal(got, plaintext) {
					t.Errorf("%d bytes: the ciphertext decrypts to something else", n)
				}
			}
		})
	}
}
