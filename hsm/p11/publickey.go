package p11

import (
	"bytes"
	"crypto/ecdh"
	"crypto/rsa"
	"crypto/x509"
	"encoding/asn1"
	"errors"
	"math/big"
	"slices"

	"github.com/emmansun/gmsm/sm2"
	"github.com/miekg/pkcs11"

	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/kms"
)

// curve is what keys on an elliptic curve need to know of it.
type curve struct {
	oid       asn1.ObjectIdentifier
	params    []byte // CKA_EC_PARAMS: the DER of the curve's object identifier
	fieldSize int    // bytes
	nist      ecdh.Curve
	// prefix is what a SubjectPublicKeyInfo in DER (RFC 5480, 2) has before
	// the uncompressed point: with the length fixed, the whole syntax.
	prefix []byte
}

func newCurve(fieldSize int, nist ecdh.Curve, oid ...int) *curve {
	params, err := asn1.Marshal(asn1.ObjectIdentifier(oid))
	if err != nil {
		panic(err) // the constants below are well-formed
	}
	var info struct {
		Algorithm struct{ Algorithm, Curve asn1.ObjectIdentifier }
		PublicKey asn1.BitString
	}
	size := 1 + 2*fieldSize
	info.Algorithm.Algorithm, info.Algorithm.Curve = oidECPublicKey, oid
	info.PublicKey = asn1.BitString{Bytes: make([]byte, size), BitLength: 8 * size}
	der, err := asn1.Marshal(info)
	if err != nil {
		panic(err) // as above
	}
	return &curve{oid, params, fieldSize, nist, der[:len(der)-size]}
}

// oidECPublicKey is id-ecPublicKey (RFC 5480, 2.1.1).
var oidECPublicKey = asn1.ObjectIdentifier{1, 2, 840, 10045, 2, 1}

// The curves (RFC 5480, 2.1.1.1; SEC 2, A.2.1 for secp256k1; GM/T 0006 for SM2).
var curves = map[kms.Spec]*curve{
	kms.SpecP256:      newCurve(32, ecdh.P256(), 1, 2, 840, 10045, 3, 1, 7),
	kms.SpecP384:      newCurve(48, ecdh.P384(), 1, 3, 132, 0, 34),
	kms.SpecP521:      newCurve(66, ecdh.P521(), 1, 3, 132, 0, 35),
	kms.SpecSecp256k1: newCurve(32, nil, 1, 3, 132, 0, 10),
	kms.SpecSM2:       newCurve(sm2Size, nil, 1, 2, 156, 10197, 1, 301),
}

// publicKey reads the public half of a new key as SubjectPublicKeyInfo.
func (o objects) publicKey(object pkcs11.ObjectHandle, k *keyType) ([]byte, error) {
	der, err := o.encodePublicKey(object, k)
	if _, ok := errors.AsType[*hsm.Error](err); err != nil && !ok {
		// The token gave a public key that is none.
		return nil, &hsm.Error{Class: hsm.ClassAmbiguous, Call: "C_GetAttributeValue", Err: err}
	}
	return der, err
}

func (o objects) encodePublicKey(object pkcs11.ObjectHandle, k *keyType) ([]byte, error) {
	if k.curve != nil {
		values, err := o.attributes(object, pkcs11.CKA_EC_POINT)
		if err != nil {
			return nil, err
		}
		point, err := k.vendorPoint(values[0])
		if err != nil {
			return nil, err
		}
		return k.curve.publicKeyInfo(point)
	}
	key, err := o.rsaPublicKey(object)
	if err != nil {
		return nil, err
	}
	return x509.MarshalPKIXPublicKey(key)
}

func (o objects) rsaPublicKey(object pkcs11.ObjectHandle) (*rsa.PublicKey, error) {
	values, err := o.attributes(object, pkcs11.CKA_MODULUS, pkcs11.CKA_PUBLIC_EXPONENT)
	if err != nil {
		return nil, err
	}
	n, e := new(big.Int).SetBytes(values[0]), new(big.Int).SetBytes(values[1])
	if !e.IsInt64() || e.Int64() != rsaExponent {
		return nil, errors.New("the token chose a public exponent other than 65537")
	}
	return &rsa.PublicKey{N: n, E: rsaExponent}, nil
}

// vendorPoint returns the uncompressed point in a vendor's CKA_EC_POINT, which
// is in the form that the profile names and in no other; without a profile it
// returns what it is given.
func (k *keyType) vendorPoint(ecPoint []byte) ([]byte, error) {
	point, wrong := ecPoint, errors.New("CKA_EC_POINT is not in the profile's form")
	switch k.pointForm {
	case "":
		return ecPoint, nil
	case pointOctetString:
		if rest, err := asn1.Unmarshal(ecPoint, &point); err != nil || len(rest) != 0 {
			return nil, wrong
		}
	case pointCoordinates:
		point = append([]byte{uncompressed}, ecPoint...)
	}
	if len(point) != 1+2*k.curve.fieldSize {
		return nil, wrong
	}
	return point, nil
}

// encodePoint is its inverse.
func (k *keyType) encodePoint(point []byte) []byte {
	switch k.pointForm {
	case pointOctetString:
		return append([]byte{0x04, byte(len(point))}, point...) // DER: shorter than 128 bytes
	case pointCoordinates:
		point = point[1:]
	}
	return bytes.Clone(point)
}

// publicKeyInfo builds the SubjectPublicKeyInfo from CKA_EC_POINT.
func (c *curve) publicKeyInfo(ecPoint []byte) ([]byte, error) {
	point, err := c.point(ecPoint)
	if err != nil {
		return nil, err
	}
	if !c.contains(point) {
		return nil, errors.New("the point is not on the curve")
	}
	return slices.Concat(c.prefix, point), nil
}

// parsePublicKeyInfo returns the uncompressed point inside a
// SubjectPublicKeyInfo; ok is false when it is not one of a point on the
// curve.
func (c *curve) parsePublicKeyInfo(der []byte) (point []byte, ok bool) {
	point, ok = bytes.CutPrefix(der, c.prefix)
	return point, ok && len(point) == 1+2*c.fieldSize && c.contains(point)
}

// contains tells whether a point of the right length is uncompressed, on the
// curve, and thus not the one at infinity.
func (c *curve) contains(point []byte) bool {
	if point[0] != uncompressed {
		return false
	}
	switch c {
	case curves[kms.SpecSecp256k1]:
		return onSecp256k1(point)
	case curves[kms.SpecSM2]:
		_, err := sm2.NewPublicKey(point)
		return err == nil
	}
	_, err := c.nist.NewPublicKey(point)
	return err == nil
}

// uncompressed begins an uncompressed point (SEC 1, 2.3.3).
const uncompressed = 4

// point unpacks CKA_EC_POINT: an uncompressed point in a DER OCTET STRING
// (PKCS#11 v2.40, 2.3.3) or, in some modules, bare. Only the length tells the
// two apart, since a point may begin as an OCTET STRING does.
func (c *curve) point(ecPoint []byte) ([]byte, error) {
	size := 1 + 2*c.fieldSize
	point := ecPoint
	if len(point) != size {
		rest, err := asn1.Unmarshal(ecPoint, &point)
		if err != nil || len(rest) != 0 || len(point) != size {
			return nil, errors.New("the point's length is not the curve's")
		}
	}
	if point[0] != uncompressed {
		return nil, errors.New("the point is not in uncompressed form")
	}
	return point, nil
}

// secp256k1P is the prime of the field (SEC 2, 2.4.1).
var secp256k1P = new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), 256), big.NewInt(1<<32+977))

// onSecp256k1 tells whether y² = x³ + 7 holds for the uncompressed point.
func onSecp256k1(point []byte) bool {
	x, y := new(big.Int).SetBytes(point[1:33]), new(big.Int).SetBytes(point[33:65])
	if x.Cmp(secp256k1P) >= 0 || y.Cmp(secp256k1P) >= 0 {
		return false
	}
	left := new(big.Int).Mul(y, y)
	right := new(big.Int).Mul(x, x)
	right.Add(right.Mul(right, x), big.NewInt(7))
	return left.Sub(left, right).Mod(left, secp256k1P).Sign() == 0
}
