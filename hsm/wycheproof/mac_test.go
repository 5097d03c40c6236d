package wycheproof

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/sha512"
	"hash"
	"testing"

	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/kms"
)

type macGroup struct {
	KeySize int `json:"keySize"`
	TagSize int `json:"tagSize"`
	Tests   []struct {
		vector
		Key, Msg, Tag hexBytes
	}
}

// TestHMAC: HMAC pads a key with zeros (RFC 2104, section 2), so a key shorter
// than the spec's has an equal of its size. A tag may be cut.
func TestHMAC(t *testing.T) {
	for _, f := range []struct {
		file string
		spec kms.Spec
		run  int
	}{
		{"hmac_sha224", kms.SpecHMAC224, 166},
		{"hmac_sha256", kms.SpecHMAC256, 168},
		{"hmac_sha384", kms.SpecHMAC384, 168},
		{"hmac_sha512", kms.SpecHMAC512, 168},
		{"hmac_sm3", kms.SpecHMACSM3, 168},
	} {
		t.Run(f.file, func(t *testing.T) {
			vectors := read[macGroup](t, f.file)
			each(t, f.spec.Info().Family, func(t *testing.T, p *provider) {
				c := count(t, f.file)
				for _, g := range vectors.Groups {
					for _, v := range g.Tests {
						size := f.spec.Info().Bits / 8
						if len(v.Key) > size {
							c.outside++
							continue
						}
						c.run++
						key := append(bytes.Clone(v.Key), make([]byte, size-len(v.Key))...)
						k, err := p.load(f.spec, kms.UsageGenerateVerifyMAC, key)
						if err != nil {
							c.wrong(&v.vector, "%v", err)
							continue
						}
						alg := f.spec.Info().Algorithms(kms.UsageGenerateVerifyMAC)[0]
						mac, err := k.do(hsm.Call{Verb: kms.VerbMAC, Algorithm: alg, Input: v.Msg})
						if err != nil || bytes.Equal(mac[:g.TagSize/8], v.Tag) != v.valid() {
							c.wrong(&v.vector, "the MAC is %x, %v", mac, err)
						}
						k.unload(t)
					}
				}
				c.want(vectors.Count, f.run)
			})
		})
	}
}

type hkdfGroup struct {
	Tests []struct {
		vector
		IKM, Salt, Info, OKM hexBytes
		Size                 int
	}
}

// TestHKDF extracts here and expands by the provider, which has the second
// half only.
func TestHKDF(t *testing.T) {
	for _, f := range []struct {
		file    string
		spec    kms.Spec
		alg     kms.Algorithm
		newHash func() hash.Hash
		run     int
	}{
		{"hkdf_sha256", kms.SpecHMAC256, kms.AlgHKDFSHA256, sha256.New, 86},
		{"hkdf_sha384", kms.SpecHMAC384, kms.AlgHKDFSHA384, sha512.New384, 80},
		{"hkdf_sha512", kms.SpecHMAC512, kms.AlgHKDFSHA512, sha512.New, 80},
	} {
		t.Run(f.file, func(t *testing.T) {
			vectors := read[hkdfGroup](t, f.file)
			each(t, kms.FamilyHMAC, func(t *testing.T, p *provider) {
				c := count(t, f.file)
				for _, g := range vectors.Groups {
					for _, v := range g.Tests {
						extract := hmac.New(f.newHash, v.Salt)
						extract.Write(v.IKM)
						k, err := p.load(f.spec, kms.UsageDerive, extract.Sum(nil))
						if err != nil {
							c.wrong(&v.vector, "%v", err)
							continue
						}
						okm, err := k.do(hsm.Call{Verb: kms.VerbDerive, Algorithm: f.alg, Input: v.Info, Length: v.Size})
						k.unload(t)
						if offered := v.Size >= kms.MinDerived && v.Size <= kms.MaxDerived; v.valid() && !offered {
							c.outside++
							if !refused(err) {
								c.wrong(&v.vector, "%d bytes: %v", v.Size, err)
							}
							continue
						}
						c.run++
						if v.valid() && (err != nil || !bytes.Equal(okm, v.OKM)) || v.invalid() && !refused(err) {
							c.wrong(&v.vector, "gives %x, %v", okm, err)
						}
					}
				}
				c.want(vectors.Count, f.run)
			})
		})
	}
}
