package kms

import (
	"bytes"
	"testing"
	"uuid"
)

func sampleEnvelope() []byte {
	b := appendEnvelopeHeader(nil, AlgSM4GCM, uuid.MustParse("0190b2f0-7a2b-7c3d-8e4f-5a6b7c8d9e0f"), 7, bytes.Repeat([]byte{9}, nonceSize))
	return append(b, make([]byte, commitmentSize+tagSize+3)...)
}

func TestEnvelopeNamesKeyVersionAndAlgorithm(t *testing.T) {
	e, ok := ParseEnvelope(sampleEnvelope())
	if !ok || e.Algorithm != AlgSM4GCM || e.Version != 7 || e.Key != uuid.MustParse("0190b2f0-7a2b-7c3d-8e4f-5a6b7c8d9e0f") {
		t.Errorf("parsed %+v, %v", e, ok)
	}
	if len(e.Nonce) != nonceSize || len(e.Sealed) != commitmentSize+tagSize+3 {
		t.Errorf("nonce of %d, sealed of %d bytes", len(e.Nonce), len(e.Sealed))
	}
}

func TestEveryAlgorithmByteIsKnownOrRefused(t *testing.T) {
	for code := range 256 {
		b := sampleEnvelope()
		b[4] = byte(code)
		if e, ok := ParseEnvelope(b); ok != (code == 1 || code == 2) || ok && envelopeCode(e.Algorithm) != byte(code) {
			t.Errorf("code %d: %+v, %v", code, e, ok)
		}
	}
}

// Two different pairs of header and AAD must never give the same additional
// data.
func TestAdditionalDataIsUnambiguous(t *testing.T) {
	header := sampleEnvelope()[:headerSize]
	seen := map[string]bool{}
	for _, aad := range [][]byte{nil, {0}, {0, 0, 0, 0}, {0, 0, 0, 1, 0}, []byte("a"), []byte("aa")} {
		s := string(envelopeAAD(header, aad))
		if seen[s] {
			t.Errorf("AAD %v collides", aad)
		}
		seen[s] = true
	}
}

func FuzzEnvelope(f *testing.F) {
	f.Add(sampleEnvelope())
	f.Add([]byte("SLC1"))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		e, ok := ParseEnvelope(b)
		if !ok {
			return
		}
		again := append(appendEnvelopeHeader(nil, e.Algorithm, e.Key, e.Version, e.Nonce), e.Sealed...)
		if !bytes.Equal(again, b) {
			t.Errorf("an envelope has two spellings: %x and %x", b, again)
		}
	})
}
