package p11

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/rsa"
	"crypto/x509"
	"math/big"
	"slices"

	"github.com/miekg/pkcs11"

	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/kms"
)

var _ hsm.Importer = (*Token)(nil)

// Import implements hsm.Importer. The key becomes a session object that is
// sensitive, extractable and of no use, is wrapped under the key root, and
// destroyed, all in one crossing, through memory that is wiped. Keys on
// secp256k1 are ClassUnsupported: nothing here computes their public half.
func (t *Token) Import(spec kms.Spec, usage kms.Usage, key []byte) (hsm.Generated, error) {
	k, err := t.conn.keyTypeFor(spec, usage)
	if err != nil {
		return hsm.Generated{}, err
	}
	parts, public, err := k.parse(spec, key)
	if err != nil {
		return hsm.Generated{}, err
	}
	defer wipe(parts)
	object := []*pkcs11.Attribute{
		pkcs11.NewAttribute(pkcs11.CKA_CLASS, k.class),
		pkcs11.NewAttribute(pkcs11.CKA_KEY_TYPE, k.id),
	}
	object = slices.Concat(object, k.template(noUsage, true), parts)

	t.generateMu.Lock()
	defer t.generateMu.Unlock()
	o, err := t.generator.run(&request{operation: opImport, mechanism: t.wrapping, key: uint(t.roots[keyRoot]),
		object: object, room: maxMaterial})
	material := bytes.Clone(o.output)
	if err := t.generator.result(err); err != nil {
		return hsm.Generated{}, err
	}
	return hsm.Generated{Material: material, PublicKey: public}, nil
}

func wipe(attributes []*pkcs11.Attribute) {
	for _, a := range attributes {
		clear(a.Value)
	}
}

func importError() *hsm.Error {
	return driverError(hsm.ClassRequest, "Import", "the key is not one of the spec in its encoding")
}

// parse takes a key apart into the attributes that hold it and returns its
// public half.
func (k *keyType) parse(spec kms.Spec, key []byte) (parts []*pkcs11.Attribute, public []byte, err error) {
	switch {
	case k.symmetric():
		if len(key) != k.size {
			return nil, nil, importError()
		}
		return []*pkcs11.Attribute{pkcs11.NewAttribute(pkcs11.CKA_VALUE, bytes.Clone(key))}, nil, nil
	case spec == kms.SpecSM2:
		return k.parseSM2(key)
	case k.curve != nil && k.curve.nist == nil:
		return nil, nil, unsupported("Import")
	}
	parsed, err := x509.ParsePKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, importError() // the library's error could quote the key
	}
	switch private := parsed.(type) {
	case *rsa.PrivateKey:
		parts = k.rsaParts(private, key)
		public, err = x509.MarshalPKIXPublicKey(&private.PublicKey)
	case *ecdsa.PrivateKey:
		parts = k.ecParts(private, key)
		public, err = x509.MarshalPKIXPublicKey(&private.PublicKey)
	}
	if parts == nil || err != nil {
		return nil, nil, importError()
	}
	return parts, public, nil
}

// rsaParts returns nil for a key of another size, exponent or number of
// primes, and for one whose encoding has a second form: what an encoding may
// hold beside, and what does not fit the rest, is refused.
func (k *keyType) rsaParts(private *rsa.PrivateKey, der []byte) []*pkcs11.Attribute {
	if k.curve != nil || private.N.BitLen() != k.size || private.E != rsaExponent || len(private.Primes) != 2 {
		return nil
	}
	canonical, err := x509.MarshalPKCS8PrivateKey(private)
	defer clear(canonical)
	if err != nil || !bytes.Equal(canonical, der) {
		return nil
	}
	var parts []*pkcs11.Attribute
	for _, part := range []struct {
		attribute uint
		value     *big.Int
	}{
		{pkcs11.CKA_MODULUS, private.N},
		{pkcs11.CKA_PUBLIC_EXPONENT, big.NewInt(rsaExponent)},
		{pkcs11.CKA_PRIVATE_EXPONENT, private.D},
		{pkcs11.CKA_PRIME_1, private.Primes[0]},
		{pkcs11.CKA_PRIME_2, private.Primes[1]},
		{pkcs11.CKA_EXPONENT_1, private.Precomputed.Dp},
		{pkcs11.CKA_EXPONENT_2, private.Precomputed.Dq},
		{pkcs11.CKA_COEFFICIENT, private.Precomputed.Qinv},
	} {
		parts = append(parts, pkcs11.NewAttribute(part.attribute, part.value.Bytes()))
	}
	return parts
}

// ecParts returns nil for a key of another curve, and for one whose encoding
// is not one of its own: the parser passes over what the encoding says of the
// public key.
func (k *keyType) ecParts(private *ecdsa.PrivateKey, der []byte) []*pkcs11.Attribute {
	scalar, err := private.Bytes()
	if err != nil {
		return nil
	}
	point, err := private.PublicKey.Bytes()
	if err != nil || k.curve == nil || !k.curve.encodes(scalar, point, der) {
		clear(scalar)
		return nil
	}
	return []*pkcs11.Attribute{
		pkcs11.NewAttribute(pkcs11.CKA_EC_PARAMS, bytes.Clone(k.curve.params)), // to be wiped
		pkcs11.NewAttribute(pkcs11.CKA_VALUE, scalar),
	}
}
