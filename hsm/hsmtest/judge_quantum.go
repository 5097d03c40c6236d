package hsmtest

import (
	"encoding/asn1"
	"errors"

	"github.com/sluice-kms/sluice/kms"
)

// quantumOID returns the object identifier of a spec's keys and signatures:
// those of NIST's Computer Security Objects Register, 2.16.840.1.101.3.4.3 for
// signatures and .4 for key encapsulation.
func quantumOID(spec kms.Spec) asn1.ObjectIdentifier {
	arc, first := 3, 17
	var specs []kms.Spec
	switch spec.Info().Family {
	case kms.FamilyMLKEM:
		arc, first = 4, 1
		specs = []kms.Spec{kms.SpecMLKEM512, kms.SpecMLKEM768, kms.SpecMLKEM1024}
	case kms.FamilyMLDSA:
		specs = []kms.Spec{kms.SpecMLDSA44, kms.SpecMLDSA65, kms.SpecMLDSA87}
	default:
		first = 20
		specs = []kms.Spec{
			kms.SpecSLHDSASHA2128S, kms.SpecSLHDSASHA2128F, kms.SpecSLHDSASHA2192S,
			kms.SpecSLHDSASHA2192F, kms.SpecSLHDSASHA2256S, kms.SpecSLHDSASHA2256F,
			kms.SpecSLHDSASHAKE128S, kms.SpecSLHDSASHAKE128F, kms.SpecSLHDSASHAKE192S,
			kms.SpecSLHDSASHAKE192F, kms.SpecSLHDSASHAKE256S, kms.SpecSLHDSASHAKE256F,
		}
	}
	for i, s := range specs {
		if s == spec {
			return asn1.ObjectIdentifier{2, 16, 840, 1, 101, 3, 4, arc, first + i}
		}
	}
	return nil
}

// quantumKey is a public key of ML-KEM, ML-DSA or SLH-DSA.
type quantumKey struct {
	spec   kms.Spec
	octets []byte
}

type quantumSPKI struct {
	Algorithm struct{ Algorithm asn1.ObjectIdentifier }
	PublicKey asn1.BitString
}

func parseQuantum(spec kms.Spec, der []byte) (quantumKey, error) {
	var spki quantumSPKI
	rest, err := asn1.Unmarshal(der, &spki)
	if err != nil {
		return quantumKey{}, err
	}
	if len(rest) != 0 || !spki.Algorithm.Algorithm.Equal(quantumOID(spec)) {
		return quantumKey{}, errors.New("not a key of the spec")
	}
	return quantumKey{spec, spki.PublicKey.RightAlign()}, nil
}

func marshalQuantum(spec kms.Spec, octets []byte) ([]byte, error) {
	var spki quantumSPKI
	spki.Algorithm.Algorithm = quantumOID(spec)
	spki.PublicKey = asn1.BitString{Bytes: octets, BitLength: 8 * len(octets)}
	return asn1.Marshal(spki)
}

// quantumSeed is a private key of theirs as its seeds.
type quantumSeed struct {
	spec kms.Spec
	seed []byte
}

func newQuantumKey(spec kms.Spec) (*judgeKey, error) {
	k := quantumSeed{spec: spec}
	switch info := spec.Info(); info.Family {
	case kms.FamilyMLKEM:
		k.seed = randomBytes(64)
	case kms.FamilyMLDSA:
		k.seed = randomBytes(32)
	default:
		k.seed = randomBytes(3 * info.Bits / 8)
	}
	octets, err := k.public()
	if err != nil {
		return nil, err
	}
	public, err := marshalQuantum(spec, octets)
	return &judgeKey{spec: spec, private: k, public: public}, err
}

// encoder is what the libraries' public keys have in common.
type encoder interface{ Bytes() []byte }

// public returns the octets of the public key.
func (k quantumSeed) public() ([]byte, error) {
	var public encoder
	var err error
	switch k.spec.Info().Family {
	case kms.FamilyMLKEM:
		_, public, err = k.decapsulator()
	case kms.FamilyMLDSA:
		_, public, err = k.mldsaSigner()
	default:
		_, public, err = k.slhdsaSigner()
	}
	if err != nil {
		return nil, err
	}
	return public.Bytes(), nil
}

// sign signs a message, hedged, with an empty context.
func (k quantumSeed) sign(message []byte) ([]byte, error) {
	if k.spec.Info().Family == kms.FamilyMLDSA {
		return k.signMLDSA(message)
	}
	return k.signSLHDSA(message)
}
