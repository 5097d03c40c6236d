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
	if err := checkFields(c); err != nil {
		return err
	}
	r, err := s.run(c)
	if err != nil {
		return err
	}
	c.Output, c.Secret, c.Valid = r.output, r.secret, r.valid
	return nil
}

// result is what a call gives.
type result struct {
	output, secret []byte
	valid          bool
}

func (s *session) run(c *hsm.Call) (r result, err error) {
	switch c.Verb {
	case kms.VerbSign, kms.VerbDecrypt, kms.VerbMAC, kms.VerbAgree, kms.VerbDerive,
		kms.VerbWrap, kms.VerbUnwrap, kms.VerbDecapsulate:
		r.output, err = s.usePrivate(c)
	case kms.VerbEncrypt:
		if info := c.Spec.Info(); info != nil && !info.Symmetric() {
			r.output, err = encryptPublic(info, c)
		} else {
			r.output, err = s.usePrivate(c)
		}
	case kms.VerbVerify:
		r.valid, err = verifyPublic(c)
	case kms.VerbEncapsulate:
		r.secret, r.output, err = encapsulatePublic(c)
	case kms.VerbDigest:
		r.output, err = digest(c.Digest, c.Input)
	case kms.VerbRandom:
		r.output, err = random(c.Length)
	default:
		err = errVerb
	}
	return r, err
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
	b := make([]byte, n)
	rand.Read(b) // never fails
	return b, nil
}
