package wycheproof

import (
	"bytes"
	"encoding/asn1"
	"slices"
	"testing"

	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/kms"
)

type ecdhGroup struct {
	Tests []struct {
		vector
		Public, Private, Shared hexBytes
	}
}

// ecCurve is what a key of a curve is encoded with.
type ecCurve struct {
	spec kms.Spec
	size int // of a scalar and a coordinate, bytes
	oid  asn1.ObjectIdentifier
}

var (
	p256      = ecCurve{kms.SpecP256, 32, asn1.ObjectIdentifier{1, 2, 840, 10045, 3, 1, 7}}
	p384      = ecCurve{kms.SpecP384, 48, asn1.ObjectIdentifier{1, 3, 132, 0, 34}}
	p521      = ecCurve{kms.SpecP521, 66, asn1.ObjectIdentifier{1, 3, 132, 0, 35}}
	secp256k1 = ecCurve{kms.SpecSecp256k1, 32, asn1.ObjectIdentifier{1, 3, 132, 0, 10}}
)

type ecAlgorithm struct{ Algorithm, Curve asn1.ObjectIdentifier }

func (c ecCurve) algorithm() ecAlgorithm {
	return ecAlgorithm{asn1.ObjectIdentifier{1, 2, 840, 10045, 2, 1}, c.oid}
}

// pkcs8 encodes a private key, given as a number.
func (c ecCurve) pkcs8(t *testing.T, number []byte) []byte {
	t.Helper()
	number = bytes.TrimLeft(number, "\x00")
	scalar := append(make([]byte, c.size-len(number)), number...)
	inner, err := asn1.Marshal(struct {
		Version int
		Scalar  []byte
	}{1, scalar})
	if err != nil {
		t.Fatal(err)
	}
	der, err := asn1.Marshal(struct {
		Version   int
		Algorithm ecAlgorithm
		Private   []byte
	}{0, c.algorithm(), inner})
	if err != nil {
		t.Fatal(err)
	}
	return der
}

// spki puts a point, well-formed or not, into a SubjectPublicKeyInfo.
func (c ecCurve) spki(t *testing.T, point []byte) []byte {
	t.Helper()
	der, err := asn1.Marshal(struct {
		Algorithm ecAlgorithm
		Public    asn1.BitString
	}{c.algorithm(), asn1.BitString{Bytes: point, BitLength: 8 * len(point)}})
	if err != nil {
		t.Fatal(err)
	}
	return der
}

func TestECDH(t *testing.T) {
	for _, f := range []struct {
		file  string
		curve ecCurve
		bare  bool // the public key is a point alone
		run   int
	}{
		{"ecdh_secp256r1", p256, false, 612}, {"ecdh_secp256r1_ecpoint", p256, true, 355},
		{"ecdh_secp384r1", p384, false, 1047}, {"ecdh_secp384r1_ecpoint", p384, true, 790},
		{"ecdh_secp521r1", p521, false, 916}, {"ecdh_secp521r1_ecpoint", p521, true, 661},
		{"ecdh_secp256k1", secp256k1, false, 752},
	} {
		t.Run(f.file, func(t *testing.T) {
			vectors := read[ecdhGroup](t, f.file)
			each(t, f.curve.spec.Info().Family, func(t *testing.T, p *provider) {
				if f.curve.spec == kms.SpecSecp256k1 && p.name != "soft" {
					return // p11 imports no keys on that curve
				}
				c := count(t, f.file)
				for _, g := range vectors.Groups {
					for _, v := range g.Tests {
						c.run++
						k, err := p.load(f.curve.spec, kms.UsageKeyAgreement, f.curve.pkcs8(t, v.Private))
						if err != nil {
							c.wrong(&v.vector, "%v", err)
							continue
						}
						peer := []byte(v.Public)
						if f.bare {
							peer = f.curve.spki(t, peer)
						}
						secret, err := k.do(hsm.Call{Verb: kms.VerbAgree, Algorithm: kms.AlgECDH, Peer: peer})
						switch {
						// Compressed points are not offered: one key has one encoding.
						case v.valid() && slices.Contains(v.Flags, "CompressedPoint"):
							if !refused(err) {
								c.wrong(&v.vector, "%x, %v", secret, err)
							}
						case v.valid() && err != nil, v.invalid() && !refused(err),
							err == nil && !bytes.Equal(secret, v.Shared):
							c.wrong(&v.vector, "%x, %v", secret, err)
						}
						k.unload(t)
					}
				}
				c.want(vectors.Count, f.run)
			})
		})
	}
}
