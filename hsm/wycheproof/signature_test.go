package wycheproof

import (
	"bytes"
	"testing"

	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/kms"
)

// signatureGroup is a public key with signatures; the fields after it are
// RSA's.
type signatureGroup struct {
	PublicKey hexBytes `json:"publicKeyDer"`
	KeySize   int      `json:"keySize"`
	SHA       string   `json:"sha"`
	MGF       string   `json:"mgf"`
	MGFSHA    string   `json:"mgfSha"`
	SaltSize  int      `json:"sLen"`
	Tests     []struct {
		vector
		Msg, Sig hexBytes
	}
}

// verify holds the engine, which verifies for all nodes, to a signature.
func verify(c *tally, v *vector, call hsm.Call) {
	c.t.Helper()
	c.run++
	call.Verb = kms.VerbVerify
	if err := engine(c.t).session.Do(&call); err != nil {
		c.wrong(v, "%v", err)
		return
	}
	if v.valid() && !call.Valid || v.invalid() && call.Valid {
		c.wrong(v, "valid: %t", call.Valid)
	}
}

func TestRSASignatures(t *testing.T) {
	specs := map[int]kms.Spec{2048: kms.SpecRSA2048, 3072: kms.SpecRSA3072, 4096: kms.SpecRSA4096}
	pkcs1 := map[string]kms.Algorithm{"SHA-256": kms.AlgRSAPKCS1SHA256, "SHA-384": kms.AlgRSAPKCS1SHA384, "SHA-512": kms.AlgRSAPKCS1SHA512}
	pss := map[string]kms.Algorithm{"SHA-256": kms.AlgRSAPSSSHA256, "SHA-384": kms.AlgRSAPSSSHA384, "SHA-512": kms.AlgRSAPSSSHA512}
	for _, f := range []struct {
		file string
		run  int
	}{
		{"rsa_signature_2048_sha256", 259}, {"rsa_signature_2048_sha384", 258}, {"rsa_signature_2048_sha512", 259},
		{"rsa_signature_3072_sha256", 259}, {"rsa_signature_3072_sha384", 259}, {"rsa_signature_3072_sha512", 260},
		{"rsa_signature_4096_sha256", 258}, {"rsa_signature_4096_sha384", 259}, {"rsa_signature_4096_sha512", 259},
		{"rsa_pss_2048_sha256_mgf1_32", 108}, {"rsa_pss_2048_sha384_mgf1_48", 141}, {"rsa_pss_3072_sha256_mgf1_32", 108},
		{"rsa_pss_4096_sha256_mgf1_32", 108}, {"rsa_pss_4096_sha384_mgf1_48", 141}, {"rsa_pss_4096_sha512_mgf1_64", 179},
		{"rsa_pss_misc", 3},
	} {
		t.Run(f.file, func(t *testing.T) {
			vectors := read[signatureGroup](t, f.file)
			c := count(t, f.file)
			for _, g := range vectors.Groups {
				alg := pkcs1[g.SHA]
				if g.MGF != "" {
					alg = pss[g.SHA]
				}
				// One hash throughout, and a salt of its length.
				offered := alg != "" && specs[g.KeySize] != "" && (g.MGF == "" ||
					g.MGF == "MGF1" && g.MGFSHA == g.SHA && g.SaltSize == alg.Hash().Size())
				for _, v := range g.Tests {
					if !offered {
						c.outside++
						continue
					}
					verify(c, &v.vector, hsm.Call{Algorithm: alg, Spec: specs[g.KeySize], PublicKey: g.PublicKey, Input: v.Msg, Signature: v.Sig})
				}
			}
			c.want(vectors.Count, f.run)
		})
	}
}

func TestEd25519(t *testing.T) {
	const file = "ed25519"
	vectors := read[signatureGroup](t, file)
	c := count(t, file)
	for _, g := range vectors.Groups {
		for _, v := range g.Tests {
			verify(c, &v.vector, hsm.Call{Algorithm: kms.AlgEd25519, Spec: kms.SpecEd25519, PublicKey: g.PublicKey, Input: v.Msg, Signature: v.Sig})
		}
	}
	c.want(vectors.Count, 151)
}

type mldsaGroup struct {
	PublicKey    hexBytes `json:"publicKey"`
	PublicKeyDER hexBytes `json:"publicKeyDer"`
	Seed         hexBytes `json:"privateSeed"`
	PrivateKey   hexBytes `json:"privateKeyPkcs8"` // not in every group
	Tests        []struct {
		vector
		Msg *hexBytes
		Mu  hexBytes
		Ctx hexBytes
		Sig hexBytes
	}
}

var mldsaSpecs = map[string]kms.Spec{"44": kms.SpecMLDSA44, "65": kms.SpecMLDSA65, "87": kms.SpecMLDSA87}

// TestMLDSAVerification: the product's context is the empty one, so a
// signature with another is not valid, whatever the vector says.
func TestMLDSAVerification(t *testing.T) {
	for set, run := range map[string]int{"44": 180, "65": 210, "87": 241} {
		t.Run(set, func(t *testing.T) {
			file := "mldsa_" + set + "_verify"
			vectors := read[mldsaGroup](t, file)
			c := count(t, file)
			for _, g := range vectors.Groups {
				for _, v := range g.Tests {
					if v.Msg == nil {
						c.outside++
						continue
					}
					c.run++
					call := hsm.Call{Verb: kms.VerbVerify, Algorithm: kms.AlgMLDSA, Spec: mldsaSpecs[set],
						PublicKey: g.PublicKeyDER, Input: *v.Msg, Signature: v.Sig}
					err := engine(t).session.Do(&call)
					want := v.valid() && len(v.Ctx) == 0
					if call.Valid != want || want && err != nil || err != nil && !refused(err) {
						c.wrong(&v.vector, "valid: %t, %v", call.Valid, err)
					}
				}
			}
			c.want(vectors.Count, run)
		})
	}
}

// TestMLDSASigning: signatures are random, so what the engine signs is
// verified, and the vector's own signature with the vector's key.
func TestMLDSASigning(t *testing.T) {
	for set, run := range map[string]int{"44": 74, "65": 84, "87": 75} {
		t.Run(set, func(t *testing.T) {
			file := "mldsa_" + set + "_sign_seed"
			spec := mldsaSpecs[set]
			vectors := read[mldsaGroup](t, file)
			c := count(t, file)
			for _, g := range vectors.Groups {
				encoded := seedPKCS8(t, spec, g.Seed)
				if len(g.PrivateKey) > 0 && !bytes.Equal(encoded, g.PrivateKey) {
					t.Errorf("vector %d: the key is encoded otherwise", g.Tests[0].ID)
				}
				k, err := engine(t).load(spec, kms.UsageSignVerify, encoded)
				for _, v := range g.Tests {
					if v.Msg == nil || len(v.Ctx) > 0 {
						c.outside++
						continue
					}
					c.run++
					if v.invalid() {
						if !refused(err) {
							c.wrong(&v.vector, "the key is imported: %v", err)
						}
						continue
					}
					if err != nil || !bytes.Equal(k.public, quantumSPKI(t, spec, g.PublicKey)) {
						c.wrong(&v.vector, "the key is another one: %v", err)
						continue
					}
					valid := func(sig []byte) bool {
						call := hsm.Call{Verb: kms.VerbVerify, Algorithm: kms.AlgMLDSA, Spec: spec, PublicKey: k.public, Input: *v.Msg, Signature: sig}
						return k.session.Do(&call) == nil && call.Valid
					}
					if !valid(v.Sig) {
						c.wrong(&v.vector, "the signature is refused")
					}
					sig, err := k.do(hsm.Call{Verb: kms.VerbSign, Algorithm: kms.AlgMLDSA, Input: *v.Msg})
					if err != nil || !valid(sig) {
						c.wrong(&v.vector, "signing the message: %v", err)
					}
					sig, err = k.do(hsm.Call{Verb: kms.VerbSign, Algorithm: kms.AlgMLDSA, Input: v.Mu, Prehashed: true})
					if err != nil || !valid(sig) {
						c.wrong(&v.vector, "signing its representative: %v", err)
					}
				}
				if err == nil {
					k.unload(t)
				}
			}
			c.want(vectors.Count, run)
		})
	}
}
