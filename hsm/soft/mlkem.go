package soft

import (
	"crypto/mlkem"
	"crypto/rand"

	gmmlkem "github.com/emmansun/gmsm/mlkem"

	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/kms"
)

// mlkemSet is a parameter set of ML-KEM (FIPS 203, section 8). The standard
// library leaves out ML-KEM-512.
type mlkemSet struct {
	// private expands a key from its seed d ‖ z.
	private func(seed []byte) (decapsulation, error)
	// public reads an encapsulation key, with the check of its coefficients
	// (section 7.2).
	public func(key []byte) (encapsulation, error)
	// ciphertext is the length of an encapsulation in bytes.
	ciphertext int
}

type decapsulation struct {
	decapsulate func(ciphertext []byte) (secret []byte, err error)
	public      func() []byte
}

// encapsulation makes a shared secret and its encapsulation.
type encapsulation func() (secret, ciphertext []byte, err error)

var mlkemSets = map[kms.Spec]mlkemSet{
	kms.SpecMLKEM512: {
		func(seed []byte) (decapsulation, error) {
			k, err := gmmlkem.NewDecapsulationKeyFromSeed512(seed)
			if err != nil {
				return decapsulation{}, err
			}
			return decapsulation{k.Decapsulate, k.EncapsulationKey().Bytes}, nil
		},
		func(key []byte) (encapsulation, error) {
			k, err := gmmlkem.NewEncapsulationKey512(key)
			if err != nil {
				return nil, err
			}
			return func() ([]byte, []byte, error) { return k.Encapsulate(rand.Reader) }, nil
		},
		gmmlkem.CiphertextSize512,
	},
	kms.SpecMLKEM768: {
		func(seed []byte) (decapsulation, error) {
			k, err := mlkem.NewDecapsulationKey768(seed)
			if err != nil {
				return decapsulation{}, err
			}
			return decapsulation{k.Decapsulate, k.EncapsulationKey().Bytes}, nil
		},
		func(key []byte) (encapsulation, error) {
			k, err := mlkem.NewEncapsulationKey768(key)
			if err != nil {
				return nil, err
			}
			return neverFails(k.Encapsulate), nil
		},
		mlkem.CiphertextSize768,
	},
	kms.SpecMLKEM1024: {
		func(seed []byte) (decapsulation, error) {
			k, err := mlkem.NewDecapsulationKey1024(seed)
			if err != nil {
				return decapsulation{}, err
			}
			return decapsulation{k.Decapsulate, k.EncapsulationKey().Bytes}, nil
		},
		func(key []byte) (encapsulation, error) {
			k, err := mlkem.NewEncapsulationKey1024(key)
			if err != nil {
				return nil, err
			}
			return neverFails(k.Encapsulate), nil
		},
		mlkem.CiphertextSize1024,
	},
}

func neverFails(encapsulate func() (secret, ciphertext []byte)) encapsulation {
	return func() ([]byte, []byte, error) {
		secret, ciphertext := encapsulate()
		return secret, ciphertext, nil
	}
}

// mlkemKey is a loaded ML-KEM key, expanded since that takes as long as a
// decapsulation.
type mlkemKey struct {
	decapsulation
	ciphertext int
}

func newMLKEMKey(info *kms.SpecInfo, raw []byte) (privateKey, error) {
	set := mlkemSets[info.Spec]
	private, err := set.private(raw)
	if err != nil {
		return nil, errMaterial
	}
	return mlkemKey{private, set.ciphertext}, nil
}

// decapsulate is FIPS 203, algorithm 21. A ciphertext that no encapsulation
// gave yields a secret that nobody else can compute, and no error (implicit
// rejection): only one of another length is refused.
func (k mlkemKey) decapsulate(c *hsm.Call) ([]byte, error) {
	if len(c.Input) != k.ciphertext {
		return nil, errDecryption
	}
	secret, err := k.decapsulation.decapsulate(c.Input)
	if err != nil {
		return nil, failed("decapsulate", err)
	}
	return secret, nil
}
