package wycheproof

import (
	"bytes"
	"slices"
	"testing"

	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/kms"
)

// aesSpecs by the size of the key in bits.
var aesSpecs = map[int]kms.Spec{128: kms.SpecAES128, 192: kms.SpecAES192, 256: kms.SpecAES256}

type aeadGroup struct {
	IVSize  int `json:"ivSize"`
	KeySize int `json:"keySize"`
	TagSize int `json:"tagSize"`
	Tests   []struct {
		vector
		Key, IV, AAD, Msg, CT, Tag hexBytes
	}
}

func TestGCM(t *testing.T) {
	for _, f := range []struct {
		file   string
		family kms.Family
		alg    kms.Algorithm
		spec   func(bits int) kms.Spec
		run    int
	}{
		{"aes_gcm", kms.FamilyAES, kms.AlgAESGCM, func(bits int) kms.Spec { return aesSpecs[bits] }, 197},
		{"sm4_gcm", kms.FamilySM4, kms.AlgSM4GCM, func(int) kms.Spec { return kms.SpecSM4 }, 65},
	} {
		t.Run(f.file, func(t *testing.T) {
			vectors := read[aeadGroup](t, f.file)
			each(t, f.family, func(t *testing.T, p *provider) {
				c := count(t, f.file)
				for _, g := range vectors.Groups {
					spec := f.spec(g.KeySize)
					for _, v := range g.Tests {
						// The product has one length of nonces and one of tags.
						if g.IVSize != 96 || g.TagSize != 128 || spec == "" {
							c.outside++
							continue
						}
						c.run++
						k, err := p.load(spec, kms.UsageEncryptDecrypt, v.Key)
						if err != nil {
							c.wrong(&v.vector, "%v", err)
							continue
						}
						call := hsm.Call{Algorithm: f.alg, Nonce: v.IV, AAD: v.AAD}
						oneWayAndBack(c, k, &v.vector, call, kms.VerbEncrypt, kms.VerbDecrypt, v.Msg, slices.Concat(v.CT, v.Tag))
						k.unload(t)
					}
				}
				c.want(vectors.Count, f.run)
			})
		})
	}
}

// oneWayAndBack holds an encryption and its inverse to a vector.
func oneWayAndBack(c *tally, k *loaded, v *vector, call hsm.Call, there, back kms.Verb, plaintext, ciphertext []byte) {
	c.t.Helper()
	call.Verb, call.Input = there, plaintext
	got, err := k.do(call)
	switch {
	case v.valid() && (err != nil || !bytes.Equal(got, ciphertext)):
		c.wrong(v, "gives %x, %v", got, err)
	case v.invalid() && err == nil && bytes.Equal(got, ciphertext):
		c.wrong(v, "is made")
	}
	call.Verb, call.Input = back, ciphertext
	got, err = k.do(call)
	switch {
	case v.invalid() && (err == nil || !refused(err)):
		c.wrong(v, "opens to %x, %v", got, err)
	case !v.invalid() && err == nil && !bytes.Equal(got, plaintext), v.valid() && err != nil:
		c.wrong(v, "opens to %x, %v", got, err)
	}
}

type cbcGroup struct {
	KeySize int `json:"keySize"`
	Tests   []struct {
		vector
		Key, IV, Msg, CT hexBytes
	}
}

// TestCBC: 141 of the vectors have bad padding, and one error.
func TestCBC(t *testing.T) {
	const file = "aes_cbc_pkcs5"
	vectors := read[cbcGroup](t, file)
	each(t, kms.FamilyAES, func(t *testing.T, p *provider) {
		c := count(t, file)
		errors := map[string]int{}
		for _, g := range vectors.Groups {
			for _, v := range g.Tests {
				c.run++
				k, err := p.load(aesSpecs[g.KeySize], kms.UsageEncryptDecrypt, v.Key)
				if err != nil {
					c.wrong(&v.vector, "%v", err)
					continue
				}
				call := hsm.Call{Algorithm: kms.AlgAESCBC, Nonce: v.IV}
				oneWayAndBack(c, k, &v.vector, call, kms.VerbEncrypt, kms.VerbDecrypt, v.Msg, v.CT)
				if v.invalid() {
					call.Verb, call.Input = kms.VerbDecrypt, v.CT
					_, err := k.do(call)
					if err != nil {
						errors[err.Error()]++
					}
				}
				k.unload(t)
			}
		}
		if len(errors) != 1 {
			t.Errorf("bad ciphertexts fail by %d errors: %v", len(errors), errors)
		}
		c.want(vectors.Count, 216)
	})
}

type wrapGroup struct {
	KeySize int `json:"keySize"`
	Tests   []struct {
		vector
		Key, Msg, CT hexBytes
	}
}

func TestKWP(t *testing.T) {
	const file = "aes_kwp"
	vectors := read[wrapGroup](t, file)
	each(t, kms.FamilyAES, func(t *testing.T, p *provider) {
		c := count(t, file)
		for _, g := range vectors.Groups {
			for _, v := range g.Tests {
				c.run++
				k, err := p.load(aesSpecs[g.KeySize], kms.UsageWrapUnwrap, v.Key)
				if err != nil {
					c.wrong(&v.vector, "%v", err)
					continue
				}
				oneWayAndBack(c, k, &v.vector, hsm.Call{Algorithm: kms.AlgAESKWP}, kms.VerbWrap, kms.VerbUnwrap, v.Msg, v.CT)
				k.unload(t)
			}
		}
		c.want(vectors.Count, 254)
	})
}
