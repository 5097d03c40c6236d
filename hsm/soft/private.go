package soft

import (
	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/kms"
)

// privateKey is a loaded key in the form in which its family uses it. It has
// the methods of its usage and no others, safe for concurrent use. RSA, EC and
// SM2 keys are the libraries' own, which hold copies that they do not show and
// so cannot be wiped.
type privateKey any

// wiper is a key that owns memory outside its slot and can wipe it; no other
// method runs during wipe or after.
type wiper interface {
	wipe()
}

// The calls of these have passed checkFields, and their algorithm is one of
// the key's. They return new memory.
type (
	signer interface {
		sign(c *hsm.Call) ([]byte, error)
	}
	decrypter interface {
		decrypt(c *hsm.Call) ([]byte, error)
	}
	// encrypter is for symmetric keys, which are decrypters too.
	encrypter interface {
		encrypt(c *hsm.Call) ([]byte, error)
	}
	macer interface {
		mac(c *hsm.Call) []byte
	}
	agreer interface {
		agree(c *hsm.Call) ([]byte, error)
	}
	deriver interface {
		derive(c *hsm.Call) ([]byte, error)
	}
	wrapper interface {
		wrap(c *hsm.Call) ([]byte, error)
		unwrap(c *hsm.Call) ([]byte, error)
	}
	decapsulater interface {
		decapsulate(c *hsm.Call) ([]byte, error)
	}
)

// newPrivateKey makes the key of a spec and usage from its raw form, which is
// not kept. Families that work from the raw form copy it to slot, memory of
// slotSize bytes that is theirs to read as long as the key is used; the caller
// wipes it. An error is errMaterial.
func newPrivateKey(info *kms.SpecInfo, usage kms.Usage, raw, slot []byte) (privateKey, error) {
	switch info.Family {
	case kms.FamilyAES, kms.FamilySM4:
		return newCipherKey(info, usage, raw, slot)
	case kms.FamilyHMAC, kms.FamilyHMACSM3:
		return newHMACKey(info, usage, raw, slot)
	case kms.FamilyRSA:
		return newRSAKey(info, usage, raw)
	case kms.FamilyEC:
		return newECKey(info, usage, raw)
	case kms.FamilySecp256k1:
		return newSecp256k1Key(usage, raw, slot)
	case kms.FamilyEd25519:
		return newEd25519Key(raw)
	case kms.FamilySM2:
		return newSM2Key(usage, raw)
	case kms.FamilyMLKEM:
		return newMLKEMKey(info, raw)
	case kms.FamilyMLDSA:
		return newMLDSAKey(info, raw, slot)
	case kms.FamilySLHDSA:
		return newSLHDSAKey(info, raw, slot)
	}
	return nil, errMaterial
}

// copySecret copies a key of size bytes into slot.
func copySecret(size int, raw, slot []byte) ([]byte, error) {
	if len(raw) != size {
		return nil, errMaterial
	}
	return slot[:copy(slot, raw)], nil
}

// apply runs a private verb if the key has it.
func apply(key privateKey, c *hsm.Call) ([]byte, error) {
	switch c.Verb {
	case kms.VerbSign:
		if k, ok := key.(signer); ok {
			return k.sign(c)
		}
	case kms.VerbMAC:
		if k, ok := key.(macer); ok {
			return k.mac(c), nil
		}
	case kms.VerbDecrypt:
		if k, ok := key.(decrypter); ok {
			return k.decrypt(c)
		}
	case kms.VerbEncrypt:
		if k, ok := key.(encrypter); ok {
			return k.encrypt(c)
		}
	case kms.VerbAgree:
		if k, ok := key.(agreer); ok {
			return k.agree(c)
		}
	case kms.VerbDerive:
		if k, ok := key.(deriver); ok {
			return k.derive(c)
		}
	case kms.VerbWrap:
		if k, ok := key.(wrapper); ok {
			return k.wrap(c)
		}
	case kms.VerbUnwrap:
		if k, ok := key.(wrapper); ok {
			return k.unwrap(c)
		}
	case kms.VerbDecapsulate:
		if k, ok := key.(decapsulater); ok {
			return k.decapsulate(c)
		}
	}
	return nil, errAlgorithm
}
