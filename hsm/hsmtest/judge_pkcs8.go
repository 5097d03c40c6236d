package hsmtest

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"

	"github.com/decred/dcrd/dcrec/secp256k1/v4"
	"github.com/emmansun/gmsm/sm2"
	"github.com/emmansun/gmsm/smx509"

	"github.com/sluice-kms/sluice/kms"
)

// privateKeyInfo is OneAsymmetricKey of version 0 (RFC 5958, section 2).
type privateKeyInfo struct {
	Version    int
	Algorithm  pkix.AlgorithmIdentifier
	PrivateKey []byte
}

// ecPrivateKey is RFC 5915, section 3.
type ecPrivateKey struct {
	Version    int
	PrivateKey []byte
	Parameters asn1.ObjectIdentifier `asn1:"optional,explicit,tag:0"`
	PublicKey  asn1.BitString        `asn1:"optional,explicit,tag:1"`
}

// pkcs8 encodes the judge's key as hsm.Importer takes it.
func (k *judgeKey) pkcs8() ([]byte, error) {
	switch priv := k.private.(type) {
	case *secp256k1.PrivateKey:
		point := priv.PubKey().SerializeUncompressed()
		inner, err := asn1.Marshal(ecPrivateKey{Version: 1, PrivateKey: priv.Serialize(),
			PublicKey: asn1.BitString{Bytes: point, BitLength: 8 * len(point)}})
		if err != nil {
			return nil, err
		}
		return marshalPKCS8(oidECPublicKey, oidSecp256k1, inner)
	case *sm2.PrivateKey:
		return smx509.MarshalPKCS8PrivateKey(priv)
	case quantumSeed:
		return priv.pkcs8()
	}
	return x509.MarshalPKCS8PrivateKey(k.private)
}

func marshalPKCS8(algorithm, curve asn1.ObjectIdentifier, inner []byte) ([]byte, error) {
	info := privateKeyInfo{Algorithm: pkix.AlgorithmIdentifier{Algorithm: algorithm}, PrivateKey: inner}
	if curve != nil {
		parameters, err := asn1.Marshal(curve)
		if err != nil {
			return nil, err
		}
		info.Algorithm.Parameters = asn1.RawValue{FullBytes: parameters}
	}
	return asn1.Marshal(info)
}

// pkcs8 encodes the seed (RFC 9935 and 9881, section 6) or, for SLH-DSA, the
// key as FIPS 205 has it (RFC 9909).
func (k quantumSeed) pkcs8() ([]byte, error) {
	inner := append([]byte{0x80, byte(len(k.seed))}, k.seed...) // [0] IMPLICIT OCTET STRING
	if k.spec.Info().Family == kms.FamilySLHDSA {
		public, err := k.public()
		if err != nil {
			return nil, err
		}
		inner = append(append([]byte{}, k.seed[:2*len(k.seed)/3]...), public...)
	}
	return marshalPKCS8(quantumOID(k.spec), nil, inner)
}

// pkcs8Both encodes seed and expanded key.
func (k quantumSeed) pkcs8Both() ([]byte, error) {
	var private any
	var err error
	switch k.spec.Info().Family {
	case kms.FamilyMLKEM:
		private, _, err = k.decapsulator()
	case kms.FamilyMLDSA:
		private, _, err = k.mldsaSigner()
	}
	if err != nil {
		return nil, err
	}
	expanded, ok := private.(encoder)
	if !ok {
		return nil, errors.New("the key has one form only")
	}
	inner, err := asn1.Marshal(struct{ Seed, Expanded []byte }{k.seed, expanded.Bytes()})
	if err != nil {
		return nil, err
	}
	return marshalPKCS8(quantumOID(k.spec), nil, inner)
}
