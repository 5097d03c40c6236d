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

// sm2Ciphertext is a ciphertext taken apart (GB/T 32918.4, 6.1): C1 is an
// uncompressed point, C2 the masked plaintext, C3 the hash.
type sm2Ciphertext struct{ c1, c2, c3 []byte }

// parseSM2Ciphertext reads a ciphertext in one of the service's orders; ok is
// false when it is none.
func parseSM2Ciphertext(order kms.SM2Order, in []byte) (c sm2Ciphertext, ok bool) {
	if order == kms.SM2OrderASN1 {
		return parseSM2Cipher(in)
	}
	const c1Size = 1 + 2*sm2Size
	if len(in) < c1Size+sm3.Size {
		return sm2Ciphertext{}, false
	}
	c.c1 = in[:c1Size]
	if rest := in[c1Size:]; order == kms.SM2OrderC1C2C3 {
		n := len(rest) - sm3.Size
		c.c2, c.c3 = rest[:n], rest[n:]
	} else {
		c.c3, c.c2 = rest[:sm3.Size], rest[sm3.Size:]
	}
	return c, curves[kms.SpecSM2].contains(c.c1)
}

// parseSM2Cipher reads SM2Cipher of GM/T 0009-2012, section 7.2:
//
//	SEQUENCE { x INTEGER, y INTEGER, c3 OCTET STRING, c2 OCTET STRING }
func parseSM2Cipher(in []byte) (c sm2Ciphertext, ok bool) {
	input := cryptobyte.String(in)
	var sequence, c2, c3 cryptobyte.String
	var x, y []byte
	if !input.ReadASN1(&sequence, asn1.SEQUENCE) || !input.Empty() ||
		!sequence.ReadASN1Integer(&x) || !sequence.ReadASN1Integer(&y) ||
		!sequence.ReadASN1(&c3, asn1.OCTET_STRING) || !sequence.ReadASN1(&c2, asn1.OCTET_STRING) || !sequence.Empty() ||
		len(x) > sm2Size || len(y) > sm2Size || len(c3) != sm3.Size {
		return sm2Ciphertext{}, false
	}
	c = sm2Ciphertext{c1: make([]byte, 1+2*sm2Size), c2: c2, c3: c3}
	c.c1[0] = uncompressed
	copy(c.c1[1+sm2Size-len(x):], x)
	copy(c.c1[1+2*sm2Size-len(y):], y)
	return c, curves[kms.SpecSM2].contains(c.c1)
}

// encode writes a ciphertext as the vendor has it.
func (d *SM2Decrypt) encode(c sm2Ciphertext) []byte {
	c1 := c.c1
	if !d.Prefix {
		c1 = c1[1:]
	}
	switch kms.SM2Order(d.Order) {
	case kms.SM2OrderASN1:
		x, y := trimInteger(c1[:sm2Size]), trimInteger(c1[sm2Size:])
		var b cryptobyte.Builder
		b.AddASN1(asn1.SEQUENCE, func(b *cryptobyte.Builder) {
			b.AddBytes(appendInteger(appendInteger(nil, x), y))
			b.AddASN1OctetString(c.c3)
			b.AddASN1OctetString(c.c2)
		})
		return b.BytesOrPanic() // fails above 4 GiB
	case kms.SM2OrderC1C2C3:
		return slices.Concat(c1, c.c2, c.c3)
	}
	return slices.Concat(c1, c.c3, c.c2)
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
	parts, ok := parseSM2Ciphertext(c.Order, c.Input)
	if !ok {
		return badRequest(errCiphertext)
	}
	plaintext, err := s.call(&request{operation: opDecrypt, mechanism: v.sm2Decrypt, key: key.object,
		input: v.profile.SM2.Decrypt.encode(parts), room: len(parts.c2) + sm2CipherOverhead + outputSlack}, len(parts.c2))
	if err != nil {
		return err
	}
	c.Output = bytes.Clone(plaintext)
	return nil
}
