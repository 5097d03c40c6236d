package hsmtest_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/hsm/hsmtest"
	"github.com/sluice-kms/sluice/kms"
)

// faultVariable names the fault of the token in the process that a test
// starts: a suite that fails cannot be watched from inside.
const faultVariable = "HSMTEST_FAULT"

// TestSoundTokenPasses runs the suite on the engine with sealing keys added,
// the token that the faults below are built into.
func TestSoundTokenPasses(t *testing.T) {
	runFaulty(t, "")
}

// TestFaultsAreFound: a suite that accepts a broken token is worth nothing.
func TestFaultsAreFound(t *testing.T) {
	if name := os.Getenv(faultVariable); name != "" {
		runFaulty(t, name)
		return
	}
	for name, f := range faults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestFaultsAreFound$")
			cmd.Env = append(os.Environ(), faultVariable+"="+name)
			out, err := cmd.CombinedOutput()
			if err == nil {
				t.Fatal("the suite passes")
			}
			if !strings.Contains(string(out), f.complaint) {
				t.Errorf("the suite fails without saying %q:\n%s", f.complaint, out)
			}
		})
	}
}

func runFaulty(t *testing.T, name string) {
	t.Helper()
	open := func(t *testing.T) hsm.Token { return openFaulty(t, faults[name]) }
	hsmtest.RunToken(t, open, hsmtest.Options{
		Specs: []kms.Spec{kms.SpecAES256, kms.SpecHMAC256, kms.SpecP256, kms.SpecEd25519, kms.SpecSM2,
			kms.SpecMLKEM768, kms.SpecMLDSA44},
		PublicVerbs:   true,
		SealingKeys:   true,
		BoundMaterial: true,
		Peer:          open,
	})
}

// fault is one way of being broken: before and after change a call around the
// engine's Do, the rest changes the token. complaint is what the suite must
// say.
type fault struct {
	complaint string
	before    func(s *session, c *hsm.Call)
	after     func(s *session, c *hsm.Call, err error) error
	load      func(t *token, material []byte) []byte // what is loaded instead
	reuse     bool                                   // handles are numbered anew
	immortal  bool                                   // sessions survive Close
}

func isSM2Message(c *hsm.Call) bool { return c.Algorithm == kms.AlgSM2DSA && !c.Prehashed }

var faults = map[string]fault{
	"changes an input": {
		complaint: "Do changed an input",
		after: func(s *session, c *hsm.Call, err error) error {
			if len(c.AAD) > 0 {
				c.AAD[0] ^= 1
			}
			return err
		},
	},
	"answers in the caller's memory": {
		complaint: "shares memory with an input",
		after: func(s *session, c *hsm.Call, err error) error {
			if c.Verb == kms.VerbMAC && err == nil && len(c.Input) >= len(c.Output) {
				c.Output = c.Input[:len(c.Output)]
			}
			return err
		},
	},
	"hands out the session's buffer": {
		complaint: "a later call changed an earlier output",
		after: func(s *session, c *hsm.Call, err error) error {
			if len(c.Output) > 0 && len(c.Output) <= len(s.buffer) {
				c.Output = s.buffer[:copy(s.buffer[:], c.Output)]
			}
			return err
		},
	},
	"ignores additional data": {
		complaint: "additional data must change the tag",
		before:    func(s *session, c *hsm.Call) { c.AAD = nil },
	},
	"uses a nonce of its own": {
		complaint: "the keystream does not depend on the nonce",
		before: func(s *session, c *hsm.Call) {
			if len(c.Nonce) == 12 {
				c.Nonce = make([]byte, 12)
			}
		},
	},
	"takes short nonces": {
		complaint: "with a nonce of 11 bytes: no error",
		before: func(s *session, c *hsm.Call) {
			if n := len(c.Nonce); n > 0 && n < 12 {
				c.Nonce = append(bytes.Clone(c.Nonce), make([]byte, 12-n)...)
			}
		},
	},
	"leaves output when it fails": {
		complaint: "Do failed and left",
		after: func(s *session, c *hsm.Call, err error) error {
			if err != nil {
				c.Output = []byte("unauthenticated plaintext")
			}
			return err
		},
	},
	"is stuck after a failure": {
		complaint: "operation active",
		before:    func(s *session, c *hsm.Call) { s.stuck = s.failed },
		after: func(s *session, c *hsm.Call, err error) error {
			if s.stuck {
				c.Output, c.Valid = nil, false
				return &hsm.Error{Class: hsm.ClassSession, Call: "operation active"}
			}
			s.failed = err != nil
			return err
		},
	},
	"blames itself for a bad tag": {
		complaint: "is of class token down",
		after: func(s *session, c *hsm.Call, err error) error {
			if err != nil && c.Verb == kms.VerbDecrypt {
				return &hsm.Error{Class: hsm.ClassTokenDown, Call: "C_Decrypt"}
			}
			return err
		},
	},
	"returns an error without a class": {
		complaint: "want *hsm.Error",
		after: func(s *session, c *hsm.Call, err error) error {
			if err != nil {
				return os.ErrInvalid
			}
			return nil
		},
	},
	"signs digests of any length": {
		complaint: "a digest of 33 bytes for ECDSA_SHA_256: no error",
		before: func(s *session, c *hsm.Call) {
			if c.Verb == kms.VerbSign && c.Prehashed && c.Algorithm == kms.AlgECDSASHA256 && len(c.Input) > 32 {
				c.Input = c.Input[:32]
			}
		},
	},
	"hashes a digest again": {
		complaint: "does not verify",
		before: func(s *session, c *hsm.Call) {
			if c.Algorithm == kms.AlgECDSASHA256 {
				c.Prehashed = false
			}
		},
	},
	"puts the default user id for none": {
		complaint: "a message without a user id: no error",
		before: func(s *session, c *hsm.Call) {
			if isSM2Message(c) && len(c.UserID) == 0 {
				c.UserID = []byte("1234567812345678")
			}
		},
	},
	"uses the default user id always": {
		complaint: "does not verify",
		before: func(s *session, c *hsm.Call) {
			if c.Verb == kms.VerbSign && isSM2Message(c) && len(c.UserID) > 0 {
				c.UserID = []byte("1234567812345678")
			}
		},
	},
	"reads any order of an SM2 ciphertext": {
		complaint: "read as",
		after: func(s *session, c *hsm.Call, err error) error {
			for _, o := range []kms.SM2Order{kms.SM2OrderC1C3C2, kms.SM2OrderC1C2C3, kms.SM2OrderASN1} {
				if err != nil && c.Verb == kms.VerbDecrypt && c.Algorithm == kms.AlgSM2PKE {
					c.Order = o
					err = s.Session.Do(c)
				}
			}
			return err
		},
	},
	"finds every signature valid": {
		complaint: "is accepted",
		after: func(s *session, c *hsm.Call, err error) error {
			c.Valid = c.Verb == kms.VerbVerify && err == nil
			return err
		},
	},
	"finds a malformed signature an error": {
		complaint: "verify:",
		after: func(s *session, c *hsm.Call, err error) error {
			if c.Verb == kms.VerbVerify && err == nil && len(c.Signature) == 0 {
				return &hsm.Error{Class: hsm.ClassRequest, Call: "C_Verify"}
			}
			return err
		},
	},
	"drops leading zeros of a secret": {
		complaint: "the secret is 31 bytes",
		after: func(s *session, c *hsm.Call, err error) error {
			if c.Verb == kms.VerbAgree {
				c.Output = bytes.TrimLeft(c.Output, "\x00")
			}
			return err
		},
	},
	"agrees with whatever is no point": {
		complaint: "a peer: off the curve: no error",
		after: func(s *session, c *hsm.Call, err error) error {
			if c.Verb == kms.VerbAgree && err != nil && len(c.Peer) == 91 {
				c.Output = make([]byte, 32)
				return nil
			}
			return err
		},
	},
	"ignores the context of a derivation": {
		complaint: "give the same",
		before: func(s *session, c *hsm.Call) {
			if c.Verb == kms.VerbDerive && len(c.Input) <= kms.MaxDeriveContext {
				c.Input = nil
			}
		},
	},
	"derives a few bytes": {
		complaint: "15 derived bytes: no error",
		before: func(s *session, c *hsm.Call) {
			if c.Verb == kms.VerbDerive && c.Length == kms.MinDerived-1 {
				c.Length++
			}
		},
	},
	"takes any padding of CBC": {
		complaint: "padding of zeros: no error",
		after: func(s *session, c *hsm.Call, err error) error {
			if c.Verb == kms.VerbDecrypt && c.Algorithm == kms.AlgAESCBC && err != nil && len(c.Input) == 48 {
				c.Output = bytes.Clone(c.Input[:32])
				return nil
			}
			return err
		},
	},
	"tells how the padding of CBC is wrong": {
		complaint: "paddings fail by different errors",
		after: func(s *session, c *hsm.Call, err error) error {
			if c.Verb == kms.VerbDecrypt && c.Algorithm == kms.AlgAESCBC && err != nil && len(c.Input) == 48 {
				return &hsm.Error{Class: hsm.ClassRequest, Call: fmt.Sprint("padding ", c.Input[31])}
			}
			return err
		},
	},
	"unwraps without checking": {
		complaint: "byte 0 of 16 changed: no error",
		after: func(s *session, c *hsm.Call, err error) error {
			if c.Verb == kms.VerbUnwrap && err != nil && len(c.Input) == 16 {
				c.Output = bytes.Clone(c.Input[:8])
				return nil
			}
			return err
		},
	},
	"rejects encapsulations by an error": {
		complaint: "verb 10 ML_KEM",
		after: func(s *session, c *hsm.Call, err error) error {
			if c.Verb == kms.VerbDecapsulate && err == nil && bytes.Count(c.Input, []byte{0}) == len(c.Input) {
				c.Output = nil
				return &hsm.Error{Class: hsm.ClassRequest, Call: "C_DecapsulateKey"}
			}
			return err
		},
	},
	"signs the representative as a message": {
		complaint: "does not verify",
		before: func(s *session, c *hsm.Call) {
			if c.Algorithm == kms.AlgMLDSA && len(c.Input) == 64 {
				c.Prehashed = false
			}
		},
	},
	"numbers handles anew": {
		complaint: "an unloaded handle: no error",
		reuse:     true,
	},
	"mixes up concurrent answers": {
		complaint: "the answer is another call's",
		after:     (*session).mixUp,
	},
	"lets a closed session work": {
		complaint: "Do on a closed session: no error",
		immortal:  true,
	},
	"loads a sealing key as a data key": {
		complaint: "a sealing key was loaded as a AES_256",
		load:      func(t *token, material []byte) []byte { return bytes.TrimPrefix(material, []byte(sealingPrefix)) },
	},
	"loads what follows nothing": {
		complaint: "accepted material that is extended",
		load: func(t *token, material []byte) []byte {
			if len(material) == 36 { // 3 bytes of header and a 32-byte key
				return material[:35]
			}
			return material
		},
	},
}
