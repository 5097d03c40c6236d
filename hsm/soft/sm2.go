//lint:file-ignore SA1019 the curve of SM2 has no other API: crypto/ecdh and PublicKey.Bytes know the NIST curves only

package soft

import (
	"crypto/ecdsa"
	"crypto/rand"

	"github.com/emmansun/gmsm/sm2"

	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/kms"
)

const sm2Size = 32 // bytes of a scalar and of a coordinate

// sm2SigningKey signs with SM2 (GB/T 32918.2).
type sm2SigningKey struct{ private *sm2.PrivateKey }

// sm2DecryptionKey decrypts SM2 (GB/T 32918.4); see sm2pke.go.
type sm2DecryptionKey struct{ private *sm2.PrivateKey }

func newSM2Key(usage kms.Usage, raw []byte) (privateKey, error) {
	if len(raw) != sm2Size {
		return nil, errMaterial
	}
	if usage == kms.UsageKeyAgreement {
		return newSM2AgreementKey(raw)
	}
	private, err := sm2.NewPrivateKey(raw)
	if err != nil {
		return nil, errMaterial
	}
	if usage == kms.UsageEncryptDecrypt {
		return sm2DecryptionKey{private}, nil
	}
	return sm2SigningKey{private}, nil
}

// sm2Scalar returns the private scalar.
//
//nolint:staticcheck // the library shows a scalar as the deprecated D only
func sm2Scalar(k *sm2.PrivateKey) []byte { return k.D.FillBytes(make([]byte, sm2Size)) }

// sm2Point returns the uncompressed point.
//
//nolint:staticcheck // crypto/ecdsa encodes points of the NIST curves only
func sm2Point(k *ecdsa.PublicKey) []byte {
	point := make([]byte, 1+2*sm2Size)
	point[0] = pointUncompressed
	k.X.FillBytes(point[1 : 1+sm2Size])
	k.Y.FillBytes(point[1+sm2Size:])
	return point
}

// sm2Digest returns the digest e that is signed: the input itself, or
// SM3(ZA ‖ message) where ZA binds the user id and the public key
// (GB/T 32918.2, section 6.1). The library's CalculateZA would give the same
// and keep every user id for ever.
func sm2Digest(pub *ecdsa.PublicKey, c *hsm.Call) ([]byte, error) {
	if c.Prehashed {
		return c.Input, nil
	}
	e, err := sm2.CalculateSM2Hash(pub, c.Input, c.UserID)
	if err != nil {
		return nil, failed("hash", err)
	}
	return e, nil
}

func (k sm2SigningKey) sign(c *hsm.Call) ([]byte, error) {
	e, err := sm2Digest(&k.private.PublicKey, c)
	if err != nil {
		return nil, err
	}
	// Without options the library takes its input for the digest.
	sig, err := sm2.SignASN1(rand.Reader, k.private, e, nil)
	if err != nil {
		return nil, failed("sign", err)
	}
	return sig, nil
}

// sm2Public is an SM2 public key, for either usage.
type sm2Public struct{ public *ecdsa.PublicKey }

func (k sm2Public) verify(c *hsm.Call) bool {
	e, err := sm2Digest(k.public, c)
	return err == nil && sm2.VerifyASN1(k.public, e, c.Signature)
}
