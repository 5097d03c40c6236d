package p11

import (
	"crypto/ecdh"
	"crypto/rsa"
	"crypto/x509"
	"encoding/asn1"
	"errors"
	"math/big"

	"github.com/miekg/pkcs11"

	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/kms"
)

// curve is what keys on an elliptic curve need to know of it.
type curve struct {
	oid       asn1.ObjectIdentifier
	params    []byte // CKA_EC_PARAMS: the DER of oid
	fieldSize int    // bytes
	nist      ecdh.Curve
}

func newCurve(fieldSize int, nist ecdh.Curve, oid ...int) *curve {
	params, err := asn1.Marshal(asn1.ObjectIdentifier(oid))
	if err != nil {
		panic(err) // the constants below are well-formed
	}
	return &curve{oid, params, fieldSize, nist}
}

// The curves (RFC 5480, 2.1.1.1; SEC 2, A.2.1 for secp256k1).
var curves = map[kms.Spec]*curve{
	kms.SpecP256:      newCurve(32, ecdh.P256(), 1, 2, 840, 10045, 3, 1, 7),
	kms.SpecP384:      newCurve(48, ecdh.P384(), 1, 3, 132, 0, 34),
	kms.SpecP521:      newCurve(66, ecdh.P521(), 1, 3, 132, 0, 35),
	kms.SpecSecp256k1: newCurve(32, nil, 1, 3, 132, 0, 10),
}

// publicKey reads the public half of a new key as SubjectPublicKeyInfo.
func (o objects) publicKey(object pkcs11.ObjectHandle, spec kms.Spec) ([]byte, error) {
	der, err := o.encodePublicKey(object, spec)
	if _, ok := errors.AsType[*hsm.Error](err); err != nil && !ok {
		// The token gave a public key that is none.
		return nil, &hsm.Error{Class: hsm.ClassAmbiguous, Call: "C_GetAttributeValue", Err: err}
	}
	return der, err
}

func (o objects) encodePublicKey(object pkcs11.ObjectHandle, spec kms.Spec) ([]byte, error) {
	if curve := curves[spec]; curve != nil {
		values, err := o.attributes(object, pkcs11.CKA_EC_POINT)
		if err != nil {
			return nil, err
		}
		return curve.publicKeyInfo(values[0])
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

// publicKeyInfo builds the SubjectPublicKeyInfo from CKA_EC_POINT.
func (c *curve) publicKeyInfo(ecPoint []byte) ([]byte, error) {
	point, err := c.point(ecPoint)
	if err != nil {
		return nil, err
	}
	if c.nist != nil {
		key, err := c.nist.NewPublicKey(point) // checks that it is on the curve
		if err != nil {
			return nil, err
		}
		return x509.MarshalPKIXPublicKey(key)
	}
	if !onSecp256k1(point) {
		return nil, errors.New("the point is not on the curve")
	}
	// crypto/x509 does not know the curve. RFC 5480, 2.
	var info struct {
		Algorithm struct{ Algorithm, Curve asn1.ObjectIdentifier }
		PublicKey asn1.BitString
	}
	info.Algorithm.Algorithm = asn1.ObjectIdentifier{1, 2, 840, 10045, 2, 1} // id-ecPublicKey
	info.Algorithm.Curve = c.oid
	info.PublicKey = asn1.BitString{Bytes: point, BitLength: 8 * len(point)}
	return asn1.Marshal(info)
}

// point unpacks CKA_EC_POINT: an uncompressed point in a DER OCTET STRING
// (PKCS#11 v2.40, 2.3.3) or, in some modules, bare. Only the length tells the
// two apart, since a point may begin as an OCTET STRING does.
func (c *curve) point(ecPoint []byte) ([]byte, error) {
	const uncompressed = 4 // SEC 1, 2.3.3
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
