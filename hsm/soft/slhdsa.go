package soft

import (
	"bytes"
	"crypto/rand"
	"io"

	"github.com/emmansun/gmsm/slhdsa"

	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/kms"
)

// slhdsaSet is a parameter set of SLH-DSA (FIPS 205, table 2).
type slhdsaSet struct {
	n        int // bytes of a hash value and of each seed
	generate func(random io.Reader) (*slhdsa.PrivateKey, error)
	public   func(key []byte) (*slhdsa.PublicKey, error)
}

var slhdsaSets = map[kms.Spec]slhdsaSet{
	kms.SpecSLHDSASHA2128S:  newSLHDSASet("SLH-DSA-SHA2-128s", 16),
	kms.SpecSLHDSASHA2128F:  newSLHDSASet("SLH-DSA-SHA2-128f", 16),
	kms.SpecSLHDSASHA2192S:  newSLHDSASet("SLH-DSA-SHA2-192s", 24),
	kms.SpecSLHDSASHA2192F:  newSLHDSASet("SLH-DSA-SHA2-192f", 24),
	kms.SpecSLHDSASHA2256S:  newSLHDSASet("SLH-DSA-SHA2-256s", 32),
	kms.SpecSLHDSASHA2256F:  newSLHDSASet("SLH-DSA-SHA2-256f", 32),
	kms.SpecSLHDSASHAKE128S: newSLHDSASet("SLH-DSA-SHAKE-128s", 16),
	kms.SpecSLHDSASHAKE128F: newSLHDSASet("SLH-DSA-SHAKE-128f", 16),
	kms.SpecSLHDSASHAKE192S: newSLHDSASet("SLH-DSA-SHAKE-192s", 24),
	kms.SpecSLHDSASHAKE192F: newSLHDSASet("SLH-DSA-SHAKE-192f", 24),
	kms.SpecSLHDSASHAKE256S: newSLHDSASet("SLH-DSA-SHAKE-256s", 32),
	kms.SpecSLHDSASHAKE256F: newSLHDSASet("SLH-DSA-SHAKE-256f", 32),
}

func newSLHDSASet(name string, n int) slhdsaSet {
	params, ok := slhdsa.GetParameterSet(name)
	if !ok {
		panic("soft: no parameter set " + name) // a constant of this file
	}
	return slhdsaSet{
		n:        n,
		generate: func(random io.Reader) (*slhdsa.PrivateKey, error) { return slhdsa.GenerateKey(random, params) },
		public:   func(key []byte) (*slhdsa.PublicKey, error) { return slhdsa.NewPublicKey(key, params) },
	}
}

// expand computes a key from its seeds: the library draws SK.seed, SK.prf and
// PK.seed in this order (FIPS 205, algorithm 21).
func (s slhdsaSet) expand(seeds []byte) (*slhdsa.PrivateKey, error) {
	return s.generate(bytes.NewReader(seeds))
}

// slhdsaKey signs with SLH-DSA (FIPS 205, section 10.2.1), pure and hedged,
// with an empty context. The library's keys hold the states of their hash
// functions and serve one call at a time, so each call expands its own from
// the seeds: the top one of the 7 to 22 trees that a signature takes.
type slhdsaKey struct {
	set   slhdsaSet
	seeds []byte // in the slab
}

func newSLHDSAKey(info *kms.SpecInfo, raw, slot []byte) (privateKey, error) {
	set := slhdsaSets[info.Spec]
	seeds, err := copySecret(3*set.n, raw, slot)
	if err != nil {
		return nil, err
	}
	return &slhdsaKey{set, seeds}, nil
}

func (k *slhdsaKey) sign(c *hsm.Call) ([]byte, error) {
	private, err := k.set.expand(k.seeds)
	if err != nil {
		return nil, failed("expand key", err)
	}
	random := make([]byte, k.set.n)
	rand.Read(random) // never fails
	sig, err := private.SignMessage(nil, c.Input, &slhdsa.Options{AddRand: random})
	if err != nil {
		return nil, failed("sign", err)
	}
	return sig, nil
}

// slhdsaPublic serves one call, for which it was parsed.
type slhdsaPublic struct{ public *slhdsa.PublicKey }

func (k slhdsaPublic) verify(c *hsm.Call) bool {
	return k.public.VerifyWithOptions(c.Signature, c.Input, nil)
}
