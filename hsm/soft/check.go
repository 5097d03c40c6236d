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
	signing := c.Verb == kms.VerbSign || c.Verb == kms.VerbVerify
	aead := (c.Verb == kms.VerbEncrypt || c.Verb == kms.VerbDecrypt) &&
		(c.Algorithm == kms.AlgAESGCM || c.Algorithm == kms.AlgSM4GCM)
	if err := checkInput(c, signing); err != nil {
		return err
	}
	switch {
	case aead && len(c.Nonce) != nonceSize:
		return errNonce
	case !aead && (len(c.Nonce) != 0 || len(c.AAD) != 0):
		return errFields
	}
	if signing && c.Algorithm == kms.AlgSM2DSA && !c.Prehashed {
		if len(c.UserID) < 1 || len(c.UserID) > maxUserID {
			return errUserID
		}
	} else if len(c.UserID) != 0 {
		return errFields
	}
	if c.Algorithm != kms.AlgSM2PKE && c.Order != "" {
		return errFields
	}
	return nil
}

// checkInput checks the length of a digest and that one may be given.
func checkInput(c *hsm.Call, signing bool) error {
	if !c.Prehashed {
		return nil
	}
	h := c.Algorithm.Hash()
	if !signing || h == "" {
		return errPrehashed
	}
	if len(c.Input) != h.Size() {
		return errDigestSize
	}
	return nil
}
