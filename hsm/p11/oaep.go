package p11

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"
)

// emptyLabelHash is lHash of RFC 8017, 7.1.2 for the empty label.
var emptyLabelHash = sha256.Sum256(nil)

// decodeOAEPSHA256 is step 3 of RSAES-OAEP-DECRYPT (RFC 8017, 7.1.2) with
// SHA-256 as hash and in MGF1, for tokens that offer OAEP with SHA-1 only and
// the raw private operation. em has the length of the modulus and is
// overwritten; the message is a part of it. Which check failed shows neither
// in the result nor in the time (Manger, CRYPTO 2001); the length of a valid
// message does.
func decodeOAEPSHA256(em []byte) (message []byte, ok bool) {
	const h = sha256.Size
	if len(em) < 2*h+2 {
		return nil, false
	}
	seed, db := em[1:1+h], em[1+h:]
	xorMGF1(seed, db)
	xorMGF1(db, seed)

	good := subtle.ConstantTimeByteEq(em[0], 0)
	good &= subtle.ConstantTimeCompare(db[:h], emptyLabelHash[:])
	// After lHash: zeros, a one, the message.
	rest := db[h:]
	looking, index := 1, 0
	for i, b := range rest {
		isOne := subtle.ConstantTimeByteEq(b, 1)
		isZero := subtle.ConstantTimeByteEq(b, 0)
		index = subtle.ConstantTimeSelect(looking&isOne, i, index)
		looking = subtle.ConstantTimeSelect(isOne, 0, looking)
		good = subtle.ConstantTimeSelect(looking&^isZero, 0, good)
	}
	good &= 1 ^ looking
	if good != 1 {
		return nil, false
	}
	return rest[index+1:], true
}

// xorMGF1 masks out with MGF1-SHA-256 of seed (RFC 8017, B.2.1).
func xorMGF1(out, seed []byte) {
	var input [maxMGFSeed + 4]byte
	n := copy(input[:maxMGFSeed], seed)
	defer clear(input[:])
	for counter := uint32(0); len(out) > 0; counter++ {
		binary.BigEndian.PutUint32(input[n:], counter)
		mask := sha256.Sum256(input[:n+4])
		done := subtle.XORBytes(out, out, mask[:])
		out = out[done:]
	}
}

// maxMGFSeed is the longest seed in bytes: the data block of an RSA modulus of
// 4096 bits, the largest that Sluice has.
const maxMGFSeed = 4096/8 - 1 - sha256.Size
