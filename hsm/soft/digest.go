package soft

import (
	"crypto"
	"crypto/sha256"
	"crypto/sha512"
	"hash"

	"github.com/emmansun/gmsm/sm3"

	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/kms"
)

// newHash returns the constructor of a hash function, nil for an unknown one.
func newHash(d kms.Digest) func() hash.Hash {
	switch d {
	case kms.DigestSHA224:
		return sha256.New224
	case kms.DigestSHA256:
		return sha256.New
	case kms.DigestSHA384:
		return sha512.New384
	case kms.DigestSHA512:
		return sha512.New
	case kms.DigestSM3:
		return sm3.New
	}
	return nil
}

// NewSM3 returns a new SM3 (GB/T 32905), for who must not import it: the
// journal's chain.
func NewSM3() hash.Hash { return sm3.New() }

// cryptoHash returns the standard library's name of a hash function, which
// it has for SHA-2 only.
func cryptoHash(d kms.Digest) crypto.Hash {
	switch d {
	case kms.DigestSHA224:
		return crypto.SHA224
	case kms.DigestSHA256:
		return crypto.SHA256
	case kms.DigestSHA384:
		return crypto.SHA384
	case kms.DigestSHA512:
		return crypto.SHA512
	}
	return 0
}

func digest(d kms.Digest, message []byte) ([]byte, error) {
	h := newHash(d)
	if h == nil {
		return nil, errHash
	}
	return sum(h, message), nil
}

func sum(newHash func() hash.Hash, message []byte) []byte {
	h := newHash()
	h.Write(message)
	return h.Sum(nil)
}

// inputDigest returns the digest that a signature algorithm with a plain hash
// signs: the input itself when it is one, or its hash.
func inputDigest(c *hsm.Call) []byte {
	if c.Prehashed {
		return c.Input
	}
	return sum(newHash(c.Algorithm.Hash()), c.Input)
}
