//lint:file-ignore SA1019 the curve of SM2 has no other API: crypto/ecdh and PublicKey.Bytes know the NIST curves only

package p11

import (
	"bytes"
	"crypto/ecdsa"
	"slices"

	"github.com/emmansun/gmsm/sm2"
	"github.com/miekg/pkcs11"
)

// parseSM2 is parse for SM2 keys, which the standard library does not know.
func (k *keyType) parseSM2(key []byte) (parts []*pkcs11.Attribute, public []byte, err error) {
	scalar, ok := privateScalar(key)
	defer clear(scalar)
	if !ok || len(scalar) != sm2Size {
		return nil, nil, importError()
	}
	private, err := sm2.NewPrivateKey(scalar)
	if err != nil {
		return nil, nil, importError()
	}
	point := sm2Point(&private.PublicKey)
	if !k.curve.encodes(scalar, point, key) {
		return nil, nil, importError()
	}
	if !k.nameless {
		parts = append(parts, pkcs11.NewAttribute(pkcs11.CKA_EC_PARAMS, bytes.Clone(k.curve.params))) // to be wiped
	}
	parts = append(parts, pkcs11.NewAttribute(pkcs11.CKA_VALUE, bytes.Clone(scalar)))
	if k.withPoint {
		parts = append(parts, pkcs11.NewAttribute(pkcs11.CKA_EC_POINT, k.encodePoint(point)))
	}
	return parts, slices.Concat(k.curve.prefix, point), nil
}

// sm2Point returns the uncompressed point.
func sm2Point(k *ecdsa.PublicKey) []byte {
	point := make([]byte, 1+2*sm2Size)
	point[0] = uncompressed
	k.X.FillBytes(point[1 : 1+sm2Size])
	k.Y.FillBytes(point[1+sm2Size:])
	return point
}
