package soft

import (
	"crypto/rand"

	"github.com/decred/dcrd/dcrec/secp256k1/v4"
	"github.com/decred/dcrd/dcrec/secp256k1/v4/ecdsa"

	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/kms"
)

// secp256k1Key signs with ECDSA on secp256k1 (SEC 1, section 4.1; SEC 2,
// section 2.4.1).
//
// The library's multiplication of the base point and its inversion modulo the
// order take a time that depends on the scalar. A few bits of the nonces of
// many signatures give the key away, so neither ever sees a secret scalar:
// kG is computed as (k-b)G + bG and 1/k as b/(kb), each with a fresh random b.
// Every scalar handed to them is uniformly distributed whatever k is. Addition
// and multiplication of scalars take constant time in the library.
type secp256k1Key struct {
	scalar []byte // in the slab
}

const secp256k1Size = 32 // bytes of a scalar

func newSecp256k1Key(usage kms.Usage, raw, slot []byte) (privateKey, error) {
	var d secp256k1.ModNScalar
	defer d.Zero()
	if len(raw) != secp256k1Size {
		return nil, errMaterial
	}
	if overflow := d.SetByteSlice(raw); overflow || d.IsZero() {
		return nil, errMaterial
	}
	scalar := slot[:copy(slot, raw)]
	if usage == kms.UsageKeyAgreement {
		return &secp256k1AgreementKey{scalar}, nil
	}
	return &secp256k1Key{scalar}, nil
}

// generateSecp256k1 returns a new scalar.
func generateSecp256k1() []byte {
	d := randomScalar()
	defer d.Zero()
	raw := make([]byte, secp256k1Size)
	d.PutBytesUnchecked(raw)
	return raw
}

// secp256k1Point returns the uncompressed point of a scalar.
func secp256k1Point(raw []byte) ([]byte, error) {
	var d secp256k1.ModNScalar
	defer d.Zero()
	if overflow := d.SetByteSlice(raw); len(raw) != secp256k1Size || overflow || d.IsZero() {
		return nil, errMaterial
	}
	q := baseMult(&d)
	return secp256k1.NewPublicKey(&q.X, &q.Y).SerializeUncompressed(), nil
}

// sign makes a signature with s in the lower half of the order, as BIP 146
// wants it and everybody else accepts it.
func (k *secp256k1Key) sign(c *hsm.Call) ([]byte, error) {
	var d secp256k1.ModNScalar
	d.SetByteSlice(k.scalar)
	defer d.Zero()
	digest := inputDigest(c)
	var e secp256k1.ModNScalar
	e.SetByteSlice(digest) // reduced modulo the order
	for {
		if sig := k.attempt(&d, &e, digest); sig != nil {
			return sig.Serialize(), nil
		}
	}
}

// attempt makes a signature with one nonce; nil, once in 2²⁵⁵, when r or s is
// zero. The nonce is that of RFC 6979 with 32 random bytes as additional data
// (section 3.6): it stays secret if the random bytes are bad, and differs each
// time, which thwarts faults.
func (k *secp256k1Key) attempt(d, e *secp256k1.ModNScalar, digest []byte) *ecdsa.Signature {
	var extra [32]byte
	rand.Read(extra[:]) // never fails
	nonce := secp256k1.NonceRFC6979(k.scalar, digest, extra[:], nil, 0)
	defer nonce.Zero()

	point := baseMult(nonce)
	var r secp256k1.ModNScalar
	r.SetBytes(point.X.Bytes()) // reduced modulo the order
	if r.IsZero() {
		return nil
	}
	inverse := invert(nonce)
	defer inverse.Zero()
	s := new(secp256k1.ModNScalar).Mul2(d, &r).Add(e).Mul(inverse)
	if s.IsZero() {
		return nil
	}
	return ecdsa.NewSignature(&r, s)
}

// baseMult returns kG in affine coordinates without showing k to the library's
// variable-time multiplication.
func baseMult(k *secp256k1.ModNScalar) *secp256k1.JacobianPoint {
	return blindMult(k, secp256k1.ScalarBaseMultNonConst)
}

// blindMult computes the multiple of mult's point by k as the sum of two
// multiples, by scalars that tell nothing of k.
func blindMult(k *secp256k1.ModNScalar, mult func(*secp256k1.ModNScalar, *secp256k1.JacobianPoint)) *secp256k1.JacobianPoint {
	blind := randomScalar()
	rest := new(secp256k1.ModNScalar).NegateVal(blind).Add(k)
	defer blind.Zero()
	defer rest.Zero()
	var p1, p2, sum secp256k1.JacobianPoint
	mult(blind, &p1)
	mult(rest, &p2)
	secp256k1.AddNonConst(&p1, &p2, &sum)
	sum.ToAffine()
	return &sum
}

// invert returns 1/k without showing k to the library's variable-time
// inversion.
func invert(k *secp256k1.ModNScalar) *secp256k1.ModNScalar {
	blind := randomScalar()
	defer blind.Zero()
	inverse := new(secp256k1.ModNScalar).Mul2(k, blind).InverseNonConst()
	return inverse.Mul(blind)
}

// randomScalar returns a scalar from 1 to the order less one (FIPS 186-5,
// appendix A.2.2: by rejection).
func randomScalar() *secp256k1.ModNScalar {
	var b [secp256k1Size]byte
	defer clear(b[:])
	for {
		rand.Read(b[:]) // never fails
		k := new(secp256k1.ModNScalar)
		if overflow := k.SetBytes(&b); overflow == 0 && !k.IsZero() {
			return k
		}
	}
}

type secp256k1Public struct{ public *secp256k1.PublicKey }

// verify accepts both halves of s, as ECDSA does.
func (k secp256k1Public) verify(c *hsm.Call) bool {
	sig, err := ecdsa.ParseDERSignature(c.Signature)
	return err == nil && sig.Verify(inputDigest(c), k.public)
}
