package soft

import (
	"crypto/cipher"
	"crypto/subtle"
	"encoding/binary"

	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/kms"
)

// wrapKey is an AES key that wraps by RFC 5649.
type wrapKey struct{ blockKey }

// semiblock is the unit of the wrapping, in bytes (RFC 3394, section 2).
const semiblock = 8

// kwpPrefix is the first half of the initial value of RFC 5649, section 3; the
// second is the length of what is wrapped.
const kwpPrefix = 0xA65959A6

// wrap is RFC 5649, section 4.1.
func (k *wrapKey) wrap(c *hsm.Call) ([]byte, error) {
	if len(c.Input) < 1 || len(c.Input) > kms.MaxWrap {
		return nil, errWrapLength
	}
	block, err := k.block()
	if err != nil {
		return nil, err
	}
	padded := (len(c.Input) + semiblock - 1) / semiblock * semiblock
	out := make([]byte, semiblock+padded)
	binary.BigEndian.PutUint32(out, kwpPrefix)
	binary.BigEndian.PutUint32(out[4:], uint32(len(c.Input)))
	copy(out[semiblock:], c.Input)
	if padded == semiblock {
		block.Encrypt(out, out)
	} else {
		wrapRounds(block, out)
	}
	return out, nil
}

// unwrap is RFC 5649, section 4.2. Its checks are made together, so that
// neither error nor time tells which one failed.
func (k *wrapKey) unwrap(c *hsm.Call) ([]byte, error) {
	if len(c.Input) < 2*semiblock || len(c.Input) > semiblock+kms.MaxWrap || len(c.Input)%semiblock != 0 {
		return nil, errDecryption
	}
	block, err := k.block()
	if err != nil {
		return nil, err
	}
	buf := append([]byte(nil), c.Input...)
	if len(buf) == 2*semiblock {
		block.Decrypt(buf, buf)
	} else {
		unwrapRounds(block, buf)
	}
	n, ok := checkUnwrapped(buf)
	if !ok {
		clear(buf)
		return nil, errDecryption
	}
	return buf[semiblock : semiblock+n], nil
}

// checkUnwrapped checks the initial value and the padding before the bytes
// that were wrapped, and returns their number.
func checkUnwrapped(buf []byte) (length int, ok bool) {
	prefix := binary.BigEndian.Uint32(buf)
	stated := binary.BigEndian.Uint32(buf[4:])
	most := len(buf) - semiblock
	good := subtle.ConstantTimeEq(int32(prefix^kwpPrefix), 0)
	// A length beyond 31 bits turns negative on no platform and is too long on
	// all.
	n := int(stated & 0x7fffffff)
	good &= subtle.ConstantTimeEq(int32(stated>>31), 0)
	good &= subtle.ConstantTimeLessOrEq(most-semiblock+1, n) & subtle.ConstantTimeLessOrEq(n, most)
	for i, b := range buf[len(buf)-semiblock:] {
		padding := subtle.ConstantTimeLessOrEq(n, most-semiblock+i)
		good &= subtle.ConstantTimeByteEq(b, 0) | (1 ^ padding)
	}
	return n, good == 1
}

// wrapRounds is the index-based wrapping of RFC 3394, section 2.2.1, in place:
// A, then the semiblocks R[1] to R[n].
func wrapRounds(block cipher.Block, buf []byte) {
	n := len(buf)/semiblock - 1
	var b [2 * semiblock]byte
	defer clear(b[:])
	copy(b[:], buf[:semiblock])
	for j := range 6 {
		for i := 1; i <= n; i++ {
			r := buf[i*semiblock : (i+1)*semiblock]
			copy(b[semiblock:], r)
			block.Encrypt(b[:], b[:])
			copy(r, b[semiblock:])
			xorCounter(&b, n*j+i)
		}
	}
	copy(buf, b[:semiblock])
}

// unwrapRounds is its inverse (RFC 3394, section 2.2.2).
func unwrapRounds(block cipher.Block, buf []byte) {
	n := len(buf)/semiblock - 1
	var b [2 * semiblock]byte
	defer clear(b[:])
	copy(b[:], buf[:semiblock])
	for j := 5; j >= 0; j-- {
		for i := n; i >= 1; i-- {
			r := buf[i*semiblock : (i+1)*semiblock]
			xorCounter(&b, n*j+i)
			copy(b[semiblock:], r)
			block.Decrypt(b[:], b[:])
			copy(r, b[semiblock:])
		}
	}
	copy(buf, b[:semiblock])
}

func xorCounter(b *[2 * semiblock]byte, t int) {
	binary.BigEndian.PutUint64(b[:], binary.BigEndian.Uint64(b[:])^uint64(t))
}
