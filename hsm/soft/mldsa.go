package soft

import (
	"crypto"
	"crypto/mldsa"

	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/kms"
)

var mldsaSets = map[kms.Spec]mldsa.Parameters{
	kms.SpecMLDSA44: mldsa.MLDSA44(),
	kms.SpecMLDSA65: mldsa.MLDSA65(),
	kms.SpecMLDSA87: mldsa.MLDSA87(),
}

// mldsaKey signs with ML-DSA (FIPS 204, section 5.2), hedged, with an empty
// context. The key is expanded from its seed for every call, which adds a third
// to a signature's time: expanded keys take 50 to 100 KiB each, 1.5 GiB for as
// many as can be loaded, and could not be wiped.
type mldsaKey struct {
	set  mldsa.Parameters
	seed []byte // in the slab
}

func newMLDSAKey(info *kms.SpecInfo, raw, slot []byte) (privateKey, error) {
	seed, err := copySecret(mldsa.PrivateKeySize, raw, slot)
	if err != nil {
		return nil, err
	}
	return &mldsaKey{mldsaSets[info.Spec], seed}, nil
}

func (k *mldsaKey) sign(c *hsm.Call) ([]byte, error) {
	private, err := mldsa.NewPrivateKey(k.set, k.seed)
	if err != nil {
		return nil, failed("expand key", err)
	}
	var opts crypto.SignerOpts = &mldsa.Options{}
	if c.Prehashed {
		opts = crypto.MLDSAMu
	}
	sig, err := private.Sign(nil, c.Input, opts)
	if err != nil {
		return nil, failed("sign", err)
	}
	return sig, nil
}

type mldsaPublic struct{ public *mldsa.PublicKey }

func (k mldsaPublic) verify(c *hsm.Call) bool {
	return mldsa.Verify(k.public, c.Input, c.Signature, nil) == nil
}
