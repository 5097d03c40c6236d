package p11

import (
	"bytes"

	"github.com/miekg/pkcs11"

	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/kms"
)

var ecdhMechanism = &mechanism{id: pkcs11.CKM_ECDH1_DERIVE}

// agree computes an ECDH secret, which is the caller's by the meaning of the
// operation: that it is an object of the token, with a value that can be read,
// between two calls of one crossing, gives nobody anything that the answer
// does not.
//
// The peer's point is checked here, on the curve and not at infinity (NIST SP
// 800-56A, 5.6.2.3.4), whether or not the token does: secrets with points of
// another curve give the key away.
func (s *session) agree(c *hsm.Call, key loadedKey) error {
	curve, mech := curves[key.spec], ecdhMechanism
	if key.spec == kms.SpecSM2 {
		mech = s.conn.vendor.sm2Agree
	}
	if mech == nil {
		return unsupported("C_DeriveKey")
	}
	point, ok := curve.parsePublicKeyInfo(c.Peer)
	if !ok {
		return badRequest(errPeer)
	}
	secret, err := s.call(&request{operation: opAgree, mechanism: mech, key: key.object,
		input: point, room: curve.fieldSize}, curve.fieldSize)
	if err != nil {
		return err
	}
	c.Output = bytes.Clone(secret)
	return nil
}

// deriveMACs are the MACs that HKDF-Expand consists of.
var deriveMACs = map[kms.Algorithm]kms.Algorithm{
	kms.AlgHKDFSHA256: kms.AlgHMACSHA256,
	kms.AlgHKDFSHA384: kms.AlgHMACSHA384,
	kms.AlgHKDFSHA512: kms.AlgHMACSHA512,
}

// derive is HKDF-Expand (RFC 5869, 2.3) by MACs of the token, so that its keys
// need no flag but that to sign; modules that know HKDF want them to derive,
// which would let whoever has the PIN make readable keys of them by any
// mechanism.
func (s *session) derive(c *hsm.Call, key loadedKey) error {
	mech, ok := macMechanisms[deriveMACs[c.Algorithm]]
	switch {
	case !ok:
		return &hsm.Error{Class: hsm.ClassUnsupported, Call: "C_SignInit"}
	case c.Length < kms.MinDerived || c.Length > kms.MaxDerived:
		return badRequest(errOutput)
	case len(c.Input) > kms.MaxDeriveContext:
		return badRequest(errSize)
	}
	// Room for the block before, the context, and the number of the block.
	input := make([]byte, mech.size+len(c.Input)+1)
	copy(input[mech.size:], c.Input)
	derived, err := s.call(&request{operation: opExpand, mechanism: mech.mechanism, key: key.object,
		input: input, room: c.Length, block: mech.size}, c.Length)
	if err != nil {
		return err
	}
	c.Output = bytes.Clone(derived)
	return nil
}
