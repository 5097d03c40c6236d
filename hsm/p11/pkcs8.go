package p11

import (
	"crypto/subtle"
	"encoding/asn1"
)

// oneAsymmetricKey is RFC 5958, 2 for keys on elliptic curves, without
// attributes, and ecPrivateKey RFC 5915, 3.
type oneAsymmetricKey struct {
	Version    int
	Algorithm  struct{ Algorithm, Curve asn1.ObjectIdentifier }
	PrivateKey []byte
	PublicKey  asn1.BitString `asn1:"optional,tag:1"`
}

type ecPrivateKey struct {
	Version    int
	PrivateKey []byte
	Curve      asn1.ObjectIdentifier `asn1:"optional,explicit,tag:0"`
	PublicKey  asn1.BitString        `asn1:"optional,explicit,tag:1"`
}

// encodes tells whether der is a PKCS #8 encoding of the key: there is one for
// each choice of what the standards leave to the writer, to name the curve
// twice, and to add the public key in two places.
func (c *curve) encodes(scalar, point, der []byte) bool {
	public := asn1.BitString{Bytes: point, BitLength: 8 * len(point)}
	for choice := range 8 {
		inner := ecPrivateKey{Version: 1, PrivateKey: scalar}
		var outer oneAsymmetricKey
		outer.Algorithm.Algorithm, outer.Algorithm.Curve = oidECPublicKey, c.oid
		if choice&1 != 0 {
			inner.Curve = c.oid
		}
		if choice&2 != 0 {
			inner.PublicKey = public
		}
		if choice&4 != 0 {
			outer.Version, outer.PublicKey = 1, public
		}
		if outer.equals(inner, der) {
			return true
		}
	}
	return false
}

func (k *oneAsymmetricKey) equals(inner ecPrivateKey, der []byte) bool {
	var err error
	if k.PrivateKey, err = asn1.Marshal(inner); err != nil {
		return false
	}
	defer clear(k.PrivateKey)
	encoded, err := asn1.Marshal(*k)
	defer clear(encoded)
	return err == nil && subtle.ConstantTimeCompare(encoded, der) == 1
}

// privateScalar returns the scalar inside a PKCS #8 encoding of a key on an
// elliptic curve, in new memory. Whether the encoding is one of the key,
// curve.encodes tells.
func privateScalar(der []byte) (scalar []byte, ok bool) {
	var outer oneAsymmetricKey
	if rest, err := asn1.Unmarshal(der, &outer); err != nil || len(rest) != 0 {
		return nil, false
	}
	defer clear(outer.PrivateKey)
	var inner ecPrivateKey
	rest, err := asn1.Unmarshal(outer.PrivateKey, &inner)
	return inner.PrivateKey, err == nil && len(rest) == 0
}
