package soft

import (
	"crypto/rand"
	"slices"

	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/kms"
)

// maxRandom bounds what one call allocates; it is above what an API answer
// may hold.
const maxRandom = 1 << 20

// session implements hsm.Session. It has no state of its own but whether it
// is open.
type session struct {
	token  *Token
	closed bool
}

// Close ends the session; loaded keys stay.
func (s *session) Close() error {
	s.closed = true
	return nil
}

// Do runs one call. Outputs are set on success only.
func (s *session) Do(c *hsm.Call) error {
	if s.closed {
		return errSession
	}
	if s.token.closed.Load() {
		return errClosed
	}
	output, valid, err := s.run(c)
	if err != nil {
		return err
	}
	c.Output, c.Valid = output, valid
	return nil
}

func (s *session) run(c *hsm.Call) (output []byte, valid bool, err error) {
	if err := checkFields(c); err != nil {
		return nil, false, err
	}
	switch c.Verb {
	case kms.VerbSign, kms.VerbDecrypt, kms.VerbMAC:
		output, err = s.usePrivate(c)
	case kms.VerbEncrypt:
		if info := c.Spec.Info(); info != nil && !info.Symmetric() {
			output, err = encryptPublic(info, c)
		} else {
			output, err = s.usePrivate(c)
		}
	case kms.VerbVerify:
		valid, err = verifyPublic(c)
	case kms.VerbDigest:
		output, err = digest(c.Digest, c.Input)
	case kms.VerbRandom:
		output, err = random(c.Length)
	default:
		err = errVerb
	}
	return output, valid, err
}

// usePrivate runs a verb on the loaded key of the call's handle.
func (s *session) usePrivate(c *hsm.Call) ([]byte, error) {
	k := s.token.lookup(c.Handle)
	if k == nil {
		return nil, errStale
	}
	if c.Spec != k.spec {
		return nil, errSpec
	}
	if !slices.Contains(k.algorithms, c.Algorithm) {
		return nil, errAlgorithm
	}
	k.mu.RLock()
	defer k.mu.RUnlock()
	if k.use == nil {
		return nil, errStale
	}
	return apply(k.use, c)
}

func random(n int) ([]byte, error) {
	if n < 1 || n > maxRandom {
		return nil, errLength
	}
	b := make([]byte, n)
	rand.Read(b) // never fails
	return b, nil
}
