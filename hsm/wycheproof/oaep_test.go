package wycheproof

import (
	"bytes"
	"testing"

	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/kms"
)

type oaepGroup struct {
	KeySize    int      `json:"keySize"`
	SHA        string   `json:"sha"`
	MGFSHA     string   `json:"mgfSha"`
	PrivateKey hexBytes `json:"privateKeyPkcs8"`
	Private    struct {
		Exponent hexBytes `json:"publicExponent"`
	} `json:"privateKey"`
	Tests []struct {
		vector
		Msg, CT, Label hexBytes
	}
}

func TestOAEP(t *testing.T) {
	specs := map[int]kms.Spec{2048: kms.SpecRSA2048, 3072: kms.SpecRSA3072, 4096: kms.SpecRSA4096}
	algs := map[string]kms.Algorithm{"SHA-1": kms.AlgRSAOAEPSHA1, "SHA-256": kms.AlgRSAOAEPSHA256}
	for _, f := range []struct {
		file string
		run  int
	}{
		{"rsa_oaep_2048_sha1_mgf1sha1", 29}, {"rsa_oaep_2048_sha256_mgf1sha256", 29},
		{"rsa_oaep_3072_sha256_mgf1sha256", 29}, {"rsa_oaep_4096_sha256_mgf1sha256", 29}, {"rsa_oaep_misc", 18},
	} {
		t.Run(f.file, func(t *testing.T) {
			vectors := read[oaepGroup](t, f.file)
			each(t, kms.FamilyRSA, func(t *testing.T, p *provider) {
				c := count(t, f.file)
				for _, g := range vectors.Groups {
					alg, spec := algs[g.SHA], specs[g.KeySize]
					// One hash throughout; 65537 is the exponent of every key.
					if alg == "" || spec == "" || g.SHA != g.MGFSHA || !bytes.Equal(g.Private.Exponent, []byte{1, 0, 1}) {
						c.outside += len(g.Tests)
						continue
					}
					k, err := p.load(spec, kms.UsageEncryptDecrypt, g.PrivateKey)
					if err != nil {
						t.Errorf("the key of vector %d: %v", g.Tests[0].ID, err)
						continue
					}
					for _, v := range g.Tests {
						if len(v.Label) > 0 { // the product's is empty
							c.outside++
							continue
						}
						c.run++
						got, err := k.do(hsm.Call{Verb: kms.VerbDecrypt, Algorithm: alg, Input: v.CT})
						if v.valid() && (err != nil || !bytes.Equal(got, v.Msg)) || v.invalid() && !refused(err) {
							c.wrong(&v.vector, "%x, %v", got, err)
						}
					}
					k.unload(t)
				}
				c.want(vectors.Count, f.run)
			})
		})
	}
}
