package p11

import (
	"bytes"
	"crypto/subtle"
	"encoding/binary"

	"github.com/miekg/pkcs11"

	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/kms"
)

// Callers' bytes are wrapped by RFC 5649 with single blocks of CKM_AES_ECB, six
// for every eight bytes, in one crossing. A key that may wrap by the token's
// own mechanism may wrap keys of the token, and unwrap keys of whoever's making
// into it.

const (
	// semiblock is the unit of the wrapping in bytes (RFC 3394, 2).
	semiblock = 8
	// kwpPrefix is the first half of the initial value (RFC 5649, 3); the
	// second is the length of what is wrapped.
	kwpPrefix = 0xA65959A6
)

var ecbMechanism = &mechanism{id: pkcs11.CKM_AES_ECB}

func (s *session) wrapBytes(c *hsm.Call, key loadedKey) error {
	if len(c.Input) < 1 || len(c.Input) > kms.MaxWrap {
		return badRequest(errLength)
	}
	padded := make([]byte, semiblock+(len(c.Input)+semiblock-1)/semiblock*semiblock)
	defer clear(padded)
	binary.BigEndian.PutUint32(padded, kwpPrefix)
	binary.BigEndian.PutUint32(padded[4:], uint32(len(c.Input)))
	copy(padded[semiblock:], c.Input)
	wrapped, err := s.runKWP(opKWP, key, padded)
	if err != nil {
		return err
	}
	c.Output = bytes.Clone(wrapped)
	return nil
}

func (s *session) unwrapBytes(c *hsm.Call, key loadedKey) error {
	if len(c.Input) < 2*semiblock || len(c.Input) > semiblock+kms.MaxWrap || len(c.Input)%semiblock != 0 {
		return badRequest(errWrapped)
	}
	unwrapped, err := s.runKWP(opUnKWP, key, c.Input)
	if err != nil {
		return err
	}
	n, ok := checkUnwrapped(unwrapped)
	if !ok {
		return badRequest(errWrapped)
	}
	c.Output = bytes.Clone(unwrapped[semiblock : semiblock+n])
	return nil
}

func (s *session) runKWP(op operation, key loadedKey, input []byte) ([]byte, error) {
	return s.call(&request{operation: op, mechanism: ecbMechanism, key: key.object, input: input, room: len(input) + outputSlack}, len(input))
}

// checkUnwrapped checks initial value and padding (RFC 5649, 4.2) and returns
// the length of what was wrapped. All checks are made, in a time that does not
// tell which one failed.
func checkUnwrapped(b []byte) (length int, ok bool) {
	prefix, stated := binary.BigEndian.Uint32(b), binary.BigEndian.Uint32(b[4:])
	most := len(b) - semiblock
	n := int(stated & 0x7fffffff) // what ConstantTimeLessOrEq takes
	good := subtle.ConstantTimeEq(int32(prefix^kwpPrefix), 0) & subtle.ConstantTimeEq(int32(stated>>31), 0)
	good &= subtle.ConstantTimeLessOrEq(most-semiblock+1, n) & subtle.ConstantTimeLessOrEq(n, most)
	for i, x := range b[len(b)-semiblock:] {
		padding := subtle.ConstantTimeLessOrEq(n, most-semiblock+i)
		good &= subtle.ConstantTimeByteEq(x, 0) | (1 ^ padding)
	}
	return n, good == 1
}
