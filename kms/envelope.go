package kms

import (
	"encoding/binary"
	"uuid"
)

// The ciphertext envelope of symmetric encryption, format SLC1:
//
//	"SLC1" | algorithm u8 | key id 16 | version u32be | nonce 12 | ciphertext | tag 16
//
// The additional data of the AEAD is the header (everything before the
// ciphertext), then u32be length of the caller's AAD, then that AAD, so no
// byte of the envelope can change unnoticed and no split of AAD and header is
// ambiguous. What is encrypted is 32 zero bytes and then the plaintext: GCM
// alone does not commit to its key, and a ciphertext that opens under two
// keys would have to hold the zeros under both (Albertini et al., "How to
// Abuse and Fix Authenticated Encryption Without Key Commitment", USENIX
// Security 2022, section 5.3: the padding fix).
const (
	envelopeMagic  = "SLC1"
	nonceSize      = 12
	tagSize        = 16
	commitmentSize = 32
	headerSize     = len(envelopeMagic) + 1 + 16 + 4 + nonceSize

	// EnvelopeOverhead is by how much a ciphertext is longer than its
	// plaintext, in bytes.
	EnvelopeOverhead = headerSize + commitmentSize + tagSize
)

// Envelope is a parsed ciphertext. The slices alias the parsed bytes.
type Envelope struct {
	Algorithm Algorithm
	Key       uuid.UUID
	Version   uint32
	Nonce     []byte
	Sealed    []byte // ciphertext with tag
	header    []byte
}

// envelopeAlgorithms maps the algorithm byte, from 1, to the algorithm.
var envelopeAlgorithms = [...]Algorithm{1: AlgAESGCM, 2: AlgSM4GCM}

func envelopeCode(a Algorithm) byte {
	for code, alg := range envelopeAlgorithms {
		if alg == a && code > 0 {
			return byte(code)
		}
	}
	return 0
}

// ParseEnvelope splits a ciphertext. It reports false for anything that
// Encrypt cannot have produced.
func ParseEnvelope(b []byte) (Envelope, bool) {
	if len(b) < EnvelopeOverhead || string(b[:len(envelopeMagic)]) != envelopeMagic {
		return Envelope{}, false
	}
	code := b[4]
	if code == 0 || int(code) >= len(envelopeAlgorithms) {
		return Envelope{}, false
	}
	return Envelope{
		Algorithm: envelopeAlgorithms[code],
		Key:       uuid.UUID(b[5:21]),
		Version:   binary.BigEndian.Uint32(b[21:25]),
		Nonce:     b[25:headerSize],
		Sealed:    b[headerSize:],
		header:    b[:headerSize],
	}, true
}

// appendEnvelopeHeader appends the header of a new envelope to b.
func appendEnvelopeHeader(b []byte, a Algorithm, key uuid.UUID, version uint32, nonce []byte) []byte {
	b = append(b, envelopeMagic...)
	b = append(b, envelopeCode(a))
	b = append(b, key[:]...)
	b = binary.BigEndian.AppendUint32(b, version)
	return append(b, nonce...)
}

// envelopeAAD is the additional data of the AEAD for a header and the
// caller's AAD.
func envelopeAAD(header, aad []byte) []byte {
	b := make([]byte, 0, len(header)+4+len(aad))
	b = append(b, header...)
	b = binary.BigEndian.AppendUint32(b, uint32(len(aad)))
	return append(b, aad...)
}
