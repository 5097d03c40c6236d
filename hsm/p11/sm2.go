package p11

import (
	"bytes"
	"slices"

	"github.com/emmansun/gmsm/sm2"
	"github.com/emmansun/gmsm/sm3"
	"golang.org/x/crypto/cryptobyte"
	"golang.org/x/crypto/cryptobyte/asn1"

	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/kms"
)

const (
	// sm2Size is the length of an SM2 scalar and of a coordinate in bytes.
	sm2Size = 32
	// maxSM2Signature is the longest signature in DER in bytes: two integers of
	// 33 in a sequence.
	maxSM2Signature = 2 + 2*(2+33)
)

// signSM2 signs the digest that the caller brings, or SM3(ZA ‖ message)
// (GB/T 32918.2, 6.1): hashed here for a mechanism that takes digests, with
// the public key from the call, and otherwise in the token.
func (s *session) signSM2(c *hsm.Call, key loadedKey) error {
	v := &s.conn.vendor
	if v.sm2Sign == nil {
		return unsupported("C_SignInit")
	}
	r := &request{operation: opSign, mechanism: v.sm2Sign, key: key.object, room: maxSM2Signature + outputSlack}
	if err := v.sm2Input(c, r); err != nil {
		return err
	}
	o, err := s.run(r)
	if err != nil {
		return err
	}
	var ok bool
	if c.Output, ok = v.sm2Signature(o.output); !ok {
		return driverError(hsm.ClassAmbiguous, "C_Sign", "the signature is not in the profile's encoding")
	}
	return nil
}

// sm2Input checks what is to be signed and puts it into the request.
func (v *vendor) sm2Input(c *hsm.Call, r *request) error {
	sign := &v.profile.SM2.Sign
	switch {
	case c.Prehashed && len(c.Input) != sm3.Size:
		return badRequest(errDigest)
	case c.Prehashed && c.UserID != nil:
		return badRequest(errUserID)
	case !c.Prehashed && (len(c.UserID) < 1 || len(c.UserID) > kms.MaxUserID):
		return badRequest(errUserID)
	case sign.Input == signDigest && c.Prehashed:
		r.input = c.Input
		return nil
	case sign.Input == signDigest:
		e, err := sm2Digest(c)
		r.input = e
		return err
	case c.Prehashed, sign.UserID == userIDDefault && string(c.UserID) != kms.DefaultUserID:
		return unsupported("C_SignInit")
	case len(c.Input)+len(c.UserID) > maxData:
		return badRequest(errSize)
	}
	r.input = c.Input
	if sign.UserID == userIDParameter {
		r.aad = c.UserID
	}
	return nil
}

// sm2Digest hashes the user id, the public key and the message. The library's
// CalculateZA would give half of it and keep every user id for ever.
func sm2Digest(c *hsm.Call) ([]byte, error) {
	point, ok := curves[kms.SpecSM2].parsePublicKeyInfo(c.PublicKey)
	if !ok {
		return nil, badRequest(errPublicKey)
	}
	public, err := sm2.NewPublicKey(point)
	if err != nil {
		return nil, badRequest(errPublicKey)
	}
	e, err := sm2.CalculateSM2Hash(public, c.Input, c.UserID)
	if err != nil {
		return nil, badRequest(errUserID)
	}
	return e, nil
}

// sm2Signature turns a vendor's signature into one in DER.
func (v *vendor) sm2Signature(signature []byte) (der []byte, ok bool) {
	if v.profile.SM2.Sign.Encoding == signatureRS {
		if len(signature) != 2*sm2Size {
			return nil, false
		}
		return encodeECDSASignature(signature), true
	}
	in := cryptobyte.String(signature)
	var sequence cryptobyte.String
	var r, s []byte
	ok = in.ReadASN1(&sequence, asn1.SEQUENCE) && in.Empty() && sequence.ReadASN1Integer(&r) && sequence.ReadASN1Integer(&s) &&
		sequence.Empty() && len(r) <= sm2Size && len(s) <= sm2Size
	return bytes.Clone(signature), ok
}

// encode writes a ciphertext as the vendor has it.
func (d *SM2Decrypt) encode(c hsm.SM2Ciphertext) []byte {
	order := kms.SM2Order(d.Order)
	out := c.Encode(order)
	if d.Prefix || order == kms.SM2OrderASN1 {
		return out
	}
	return out[1:]
}

// sm2CipherOverhead is what a ciphertext has beside C2, in bytes, in its
// longest encoding: two integers of 33, C3, and heads for lengths of four
// bytes.
const sm2CipherOverhead = 6 + 2*(2+33) + 2 + sm3.Size + 6

// decryptSM2 takes the ciphertext apart, checks that C1 is on the curve,
// whether or not the token does (points of another curve give the key away),
// and hands it over as the vendor has it.
func (s *session) decryptSM2(c *hsm.Call, key loadedKey) error {
	v := &s.conn.vendor
	switch {
	case v.sm2Decrypt == nil:
		return unsupported("C_DecryptInit")
	case !slices.Contains([]kms.SM2Order{"", kms.SM2OrderC1C3C2, kms.SM2OrderC1C2C3, kms.SM2OrderASN1}, c.Order):
		return badRequest(errOrder)
	case len(c.Input) > maxData-sm2CipherOverhead:
		return badRequest(errSize)
	}
	parts, ok := hsm.ParseSM2Ciphertext(c.Order, c.Input)
	if !ok || !curves[kms.SpecSM2].contains(parts.C1) {
		return badRequest(errCiphertext)
	}
	plaintext, err := s.call(&request{operation: opDecrypt, mechanism: v.sm2Decrypt, key: key.object,
		input: v.profile.SM2.Decrypt.encode(parts), room: len(parts.C2) + sm2CipherOverhead + outputSlack}, len(parts.C2))
	if err != nil {
		return err
	}
	c.Output = bytes.Clone(plaintext)
	return nil
}
