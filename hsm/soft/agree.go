package soft

import (
	"crypto/ecdh"

	"github.com/decred/dcrd/dcrec/secp256k1/v4"
	smecdh "github.com/emmansun/gmsm/ecdh"

	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/kms"
)

// The keys of ECDH (SP 800-56A, section 5.7.1.2). The secret is the
// x-coordinate, as long as the field. The peer's key is checked as section
// 5.6.2.3.4 says: in range, on the curve, not the point at infinity; the
// curves have cofactor 1, so that is all.

var dhCurves = map[kms.Spec]ecdh.Curve{
	kms.SpecP256: ecdh.P256(),
	kms.SpecP384: ecdh.P384(),
	kms.SpecP521: ecdh.P521(),
}

type ecdhKey struct{ private *ecdh.PrivateKey }

func newECDHKey(info *kms.SpecInfo, raw []byte) (privateKey, error) {
	private, err := dhCurves[info.Spec].NewPrivateKey(raw)
	if err != nil {
		return nil, errMaterial
	}
	return ecdhKey{private}, nil
}

func (k ecdhKey) agree(c *hsm.Call) ([]byte, error) {
	point, err := peerPoint(c)
	if err != nil {
		return nil, err
	}
	peer, err := k.private.Curve().NewPublicKey(point)
	if err != nil {
		return nil, errPeer
	}
	return agreed(k.private.ECDH(peer))
}

type sm2AgreementKey struct{ private *smecdh.PrivateKey }

func newSM2AgreementKey(raw []byte) (privateKey, error) {
	private, err := smecdh.P256().NewPrivateKey(raw)
	if err != nil {
		return nil, errMaterial
	}
	return sm2AgreementKey{private}, nil
}

func (k sm2AgreementKey) agree(c *hsm.Call) ([]byte, error) {
	point, err := peerPoint(c)
	if err != nil {
		return nil, err
	}
	peer, err := smecdh.P256().NewPublicKey(point)
	if err != nil {
		return nil, errPeer
	}
	return agreed(k.private.ECDH(peer))
}

// secp256k1AgreementKey blinds the library's multiplication, which takes a
// time that depends on the scalar: see secp256k1Key.
type secp256k1AgreementKey struct {
	scalar []byte // in the slab
}

func (k *secp256k1AgreementKey) agree(c *hsm.Call) ([]byte, error) {
	point, err := peerPoint(c)
	if err != nil {
		return nil, err
	}
	peer, err := secp256k1.ParsePubKey(point)
	if err != nil {
		return nil, errPeer
	}
	var d secp256k1.ModNScalar
	d.SetByteSlice(k.scalar)
	defer d.Zero()
	var q secp256k1.JacobianPoint
	peer.AsJacobian(&q)
	shared := blindMult(&d, func(k *secp256k1.ModNScalar, result *secp256k1.JacobianPoint) {
		secp256k1.ScalarMultNonConst(k, &q, result)
	})
	x := shared.X.Bytes()
	return x[:], nil
}

// peerPoint returns the point inside the peer's SubjectPublicKeyInfo.
func peerPoint(c *hsm.Call) ([]byte, error) {
	point, err := publicOctets(c.Spec.Info(), c.Peer)
	if err != nil {
		return nil, errPeer
	}
	return point, nil
}

// agreed translates the outcome of a library's ECDH, which fails at infinity
// only: never, with checked keys.
func agreed(secret []byte, err error) ([]byte, error) {
	if err != nil {
		return nil, failed("agree", err)
	}
	return secret, nil
}
