package soft

import (
	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/kms"
)

const (
	// nonceSize is the one nonce length of GCM that needs no hashing of the
	// nonce (SP 800-38D, section 8.2.2; RFC 8998, section 3.1).
	nonceSize = 12
	tagSize   = 16

	// maxUserID is the longest SM2 user id in bytes: its length in bits is a
	// number of two bytes (GB/T 32918.2, section 5.5).
	maxUserID = 8191
)

// checkFields refuses a call whose fields do not fit its verb and algorithm:
// wrong lengths, and fields that would be ignored, since a caller who sets
// one believes that it counts.
func checkFields(c *hsm.Call) error {
	for _, check := range []func(*hsm.Call) error{checkMessage, checkNonce, checkUserID, checkLength} {
		if err := check(c); err != nil {
			return err
		}
	}
	if c.Algorithm != kms.AlgSM2PKE && c.Order != "" || c.Verb != kms.VerbAgree && len(c.Peer) != 0 {
		return errFields
	}
	return nil
}

func signs(v kms.Verb) bool { return v == kms.VerbSign || v == kms.VerbVerify }

// checkMessage checks the length of a digest and that one may be given.
func checkMessage(c *hsm.Call) error {
	switch {
	case (c.Verb == kms.VerbAgree || c.Verb == kms.VerbEncapsulate) && len(c.Input) != 0:
		return errFields
	case c.Algorithm == kms.AlgSLHDSA && len(c.Input) == 0:
		return errEmpty // the library has no such case
	case !c.Prehashed:
		return nil
	}
	size := c.Algorithm.PrehashSize()
	switch {
	case !signs(c.Verb) || size == 0,
		// The library signs µ but verifies messages only.
		c.Algorithm == kms.AlgMLDSA && c.Verb == kms.VerbVerify:
		return errPrehashed
	case len(c.Input) != size:
		return errDigestSize
	}
	return nil
}

func checkNonce(c *hsm.Call) error {
	size := 0
	if c.Verb == kms.VerbEncrypt || c.Verb == kms.VerbDecrypt {
		switch c.Algorithm {
		case kms.AlgAESGCM, kms.AlgSM4GCM:
			size = nonceSize
		case kms.AlgAESCBC, kms.AlgSM4CBC:
			size = blockSize
		}
	}
	switch {
	case size == 0 && len(c.Nonce) != 0, size != nonceSize && len(c.AAD) != 0:
		return errFields
	case len(c.Nonce) != size:
		return errNonce
	}
	return nil
}

func checkUserID(c *hsm.Call) error {
	if signs(c.Verb) && c.Algorithm == kms.AlgSM2DSA && !c.Prehashed {
		if len(c.UserID) < 1 || len(c.UserID) > maxUserID {
			return errUserID
		}
		return nil
	}
	if len(c.UserID) != 0 {
		return errFields
	}
	return nil
}

func checkLength(c *hsm.Call) error {
	least, most := 0, 0
	switch c.Verb {
	case kms.VerbRandom:
		least, most = 1, maxRandom
	case kms.VerbDerive:
		least, most = kms.MinDerived, kms.MaxDerived
		if len(c.Input) > kms.MaxDeriveContext {
			return errContext
		}
	}
	if c.Length < least || c.Length > most {
		return errLength
	}
	return nil
}
