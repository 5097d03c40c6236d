package hsmtest

import (
	"crypto/ecdsa"
	"fmt"

	"github.com/decred/dcrd/dcrec/secp256k1/v4"
	"github.com/emmansun/gmsm/sm2"
)

// agree returns the ECDH secret of the judge's key with the key of a
// SubjectPublicKeyInfo.
func (k *judgeKey) agree(der []byte) ([]byte, error) {
	pub, err := parsePublic(k.spec, der)
	if err != nil {
		return nil, err
	}
	switch priv := k.private.(type) {
	case *ecdsa.PrivateKey:
		private, err := priv.ECDH()
		if err != nil {
			return nil, err
		}
		public, err := pub.(*ecdsa.PublicKey).ECDH()
		if err != nil {
			return nil, err
		}
		return private.ECDH(public)
	case *secp256k1.PrivateKey:
		return secp256k1.GenerateSharedSecret(priv, pub.(*secp256k1.PublicKey)), nil
	case *sm2.PrivateKey:
		x, _ := sharedSM2(pub.(*ecdsa.PublicKey), priv)
		return x, nil
	}
	return nil, fmt.Errorf("no agreement with %T", k.private)
}
