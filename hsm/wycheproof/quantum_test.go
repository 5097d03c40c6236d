package wycheproof

import (
	"encoding/asn1"
	"testing"

	"github.com/sluice-kms/sluice/kms"
)

// quantumSets are the parameter sets with the last two arcs of their object
// identifiers under 2.16.840.1.101.3.4.
var quantumSets = map[kms.Spec][2]int{
	kms.SpecMLKEM512: {4, 1}, kms.SpecMLKEM768: {4, 2}, kms.SpecMLKEM1024: {4, 3},
	kms.SpecMLDSA44: {3, 17}, kms.SpecMLDSA65: {3, 18}, kms.SpecMLDSA87: {3, 19},
}

type quantumAlgorithm struct{ Algorithm asn1.ObjectIdentifier }

func newQuantumAlgorithm(spec kms.Spec) quantumAlgorithm {
	arcs := quantumSets[spec]
	return quantumAlgorithm{asn1.ObjectIdentifier{2, 16, 840, 1, 101, 3, 4, arcs[0], arcs[1]}}
}

// seedPKCS8 encodes a private key by its seed (RFC 9935 and 9881, section 6).
func seedPKCS8(t *testing.T, spec kms.Spec, seed []byte) []byte {
	t.Helper()
	return quantumPKCS8(t, spec, asn1.RawValue{Class: asn1.ClassContextSpecific, Tag: 0, Bytes: seed})
}

// expandedPKCS8 encodes it without.
func expandedPKCS8(t *testing.T, spec kms.Spec, key []byte) []byte {
	t.Helper()
	return quantumPKCS8(t, spec, asn1.RawValue{Class: asn1.ClassUniversal, Tag: asn1.TagOctetString, Bytes: key})
}

func quantumPKCS8(t *testing.T, spec kms.Spec, key asn1.RawValue) []byte {
	t.Helper()
	inner, err := asn1.Marshal(key)
	if err != nil {
		t.Fatal(err)
	}
	der, err := asn1.Marshal(struct {
		Version   int
		Algorithm quantumAlgorithm
		Private   []byte
	}{0, newQuantumAlgorithm(spec), inner})
	if err != nil {
		t.Fatal(err)
	}
	return der
}

func quantumSPKI(t *testing.T, spec kms.Spec, octets []byte) []byte {
	t.Helper()
	der, err := asn1.Marshal(struct {
		Algorithm quantumAlgorithm
		Public    asn1.BitString
	}{newQuantumAlgorithm(spec), asn1.BitString{Bytes: octets, BitLength: 8 * len(octets)}})
	if err != nil {
		t.Fatal(err)
	}
	return der
}
