package soft

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"

	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/kms"
)

// curves holds the NIST curves (FIPS 186-5, SP 800-186).
var curves = map[kms.Spec]elliptic.Curve{
	kms.SpecP256: elliptic.P256(),
	kms.SpecP384: elliptic.P384(),
	kms.SpecP521: elliptic.P521(),
}

// ecdsaKey signs with ECDSA (FIPS 186-5, section 6) on a NIST curve.
type ecdsaKey struct{ private *ecdsa.PrivateKey }

func newECKey(info *kms.SpecInfo, usage kms.Usage, raw []byte) (privateKey, error) {
	if usage == kms.UsageKeyAgreement {
		return newECDHKey(info, raw)
	}
	private, err := ecdsa.ParseRawPrivateKey(curves[info.Spec], raw)
	if err != nil {
		return nil, errMaterial
	}
	return ecdsaKey{private}, nil
}

func (k ecdsaKey) sign(c *hsm.Call) ([]byte, error) {
	sig, err := ecdsa.SignASN1(rand.Reader, k.private, inputDigest(c))
	if err != nil {
		return nil, failed("sign", err)
	}
	return sig, nil
}

type ecdsaPublic struct{ public *ecdsa.PublicKey }

func (k ecdsaPublic) verify(c *hsm.Call) bool {
	return ecdsa.VerifyASN1(k.public, inputDigest(c), c.Signature)
}

// ed25519Key signs with Ed25519 (RFC 8032, section 5.1), which takes the
// message whole.
type ed25519Key struct{ private ed25519.PrivateKey }

func newEd25519Key(raw []byte) (privateKey, error) {
	if len(raw) != ed25519.SeedSize {
		return nil, errMaterial
	}
	return ed25519Key{ed25519.NewKeyFromSeed(raw)}, nil
}

func (k ed25519Key) sign(c *hsm.Call) ([]byte, error) {
	return ed25519.Sign(k.private, c.Input), nil
}

func (k ed25519Key) wipe() { clear(k.private) }

type ed25519Public ed25519.PublicKey

func (k ed25519Public) verify(c *hsm.Call) bool {
	return ed25519.Verify(ed25519.PublicKey(k), c.Input, c.Signature)
}
