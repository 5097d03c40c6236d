package hsmtest

import (
	"crypto/mlkem"
	"crypto/rand"
	"errors"

	gmmlkem "github.com/emmansun/gmsm/mlkem"

	"github.com/sluice-kms/sluice/kms"
)

// The judge of ML-KEM is gmsm's, whose code is not the standard library's, and
// for what one library encapsulates to a token's key the standard library's.
// ML-KEM-512 has one implementation only.

type decapsulator interface {
	Decapsulate(ciphertext []byte) (secret []byte, err error)
}

// decapsulator expands a key and returns it with its public half.
func (k quantumSeed) decapsulator() (decapsulator, encoder, error) {
	switch k.spec {
	case kms.SpecMLKEM512:
		d, err := gmmlkem.NewDecapsulationKeyFromSeed512(k.seed)
		if err != nil {
			return nil, nil, err
		}
		return d, d.EncapsulationKey(), nil
	case kms.SpecMLKEM768:
		d, err := gmmlkem.NewDecapsulationKeyFromSeed768(k.seed)
		if err != nil {
			return nil, nil, err
		}
		return d, d.EncapsulationKey(), nil
	case kms.SpecMLKEM1024:
		d, err := gmmlkem.NewDecapsulationKeyFromSeed1024(k.seed)
		if err != nil {
			return nil, nil, err
		}
		return d, d.EncapsulationKey(), nil
	}
	return nil, nil, errors.New("not a spec of ML-KEM")
}

// decapsulate recovers a secret with the judge's key.
func (k *judgeKey) decapsulate(ciphertext []byte) ([]byte, error) {
	seed, ok := k.private.(quantumSeed)
	if !ok {
		return nil, errors.New("not a key of ML-KEM")
	}
	d, _, err := seed.decapsulator()
	if err != nil {
		return nil, err
	}
	return d.Decapsulate(ciphertext)
}

// judgeEncapsulate makes a secret for the key of a SubjectPublicKeyInfo.
func judgeEncapsulate(spec kms.Spec, der []byte) (secret, ciphertext []byte, err error) {
	pub, err := parseQuantum(spec, der)
	if err != nil {
		return nil, nil, err
	}
	switch spec {
	case kms.SpecMLKEM512:
		e, err := gmmlkem.NewEncapsulationKey512(pub.octets)
		if err != nil {
			return nil, nil, err
		}
		return e.Encapsulate(rand.Reader)
	case kms.SpecMLKEM768:
		e, err := mlkem.NewEncapsulationKey768(pub.octets)
		if err != nil {
			return nil, nil, err
		}
		secret, ciphertext = e.Encapsulate()
	case kms.SpecMLKEM1024:
		e, err := mlkem.NewEncapsulationKey1024(pub.octets)
		if err != nil {
			return nil, nil, err
		}
		secret, ciphertext = e.Encapsulate()
	}
	return secret, ciphertext, nil
}
