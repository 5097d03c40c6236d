package wire

import (
	"encoding/pem"
	"errors"
	"fmt"

	"github.com/sluice-kms/sluice/audit"
	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/hsm/soft"
	"github.com/sluice-kms/sluice/kms"
)

// HeadKeys checks the signatures of a journal's heads with pinned public keys.
type HeadKeys struct {
	token   *soft.Token
	session hsm.Session
	keys    [][]byte // SubjectPublicKeyInfo, DER; the last that fitted first
}

// headSpecs are the specs of keys that sign heads, by their algorithm.
var headSpecs = map[kms.Algorithm]kms.Spec{kms.AlgECDSASHA256: kms.SpecP256, kms.AlgSM2DSA: kms.SpecSM2}

// OpenHeadKeys reads public keys, each a PEM block "PUBLIC KEY" of P-256 or
// SM2, and nothing else.
func OpenHeadKeys(text []byte) (*HeadKeys, error) {
	h := &HeadKeys{}
	for {
		block, rest := pem.Decode(text)
		if block == nil {
			break
		}
		if block.Type != "PUBLIC KEY" {
			return nil, fmt.Errorf("the file of public keys holds a block %q", block.Type)
		}
		h.keys = append(h.keys, block.Bytes)
		text = rest
	}
	if len(h.keys) == 0 {
		return nil, errors.New("the file of public keys holds none in PEM")
	}
	var err error
	if h.token, err = soft.Open(); err != nil {
		return nil, err
	}
	if h.session, err = h.token.NewSession(); err != nil {
		return nil, errors.Join(err, h.token.Close())
	}
	return h, nil
}

// Signed tells whether one of the keys has signed the head. One goroutine at a
// time may use it.
func (h *HeadKeys) Signed(head audit.SignedHead) bool {
	spec, known := headSpecs[head.Algorithm]
	if !known {
		return false
	}
	for i, key := range h.keys {
		call := hsm.Call{Verb: kms.VerbVerify, Algorithm: head.Algorithm, Spec: spec, PublicKey: key,
			Input: audit.HeadMessage(head), Signature: head.Signature}
		if spec == kms.SpecSM2 {
			call.UserID = []byte(kms.DefaultUserID)
		}
		// A key of the other kind is an error, and no answer.
		if err := h.session.Do(&call); err == nil && call.Valid {
			h.keys[0], h.keys[i] = h.keys[i], h.keys[0]
			return true
		}
	}
	return false
}

// Close lets go of the keys.
func (h *HeadKeys) Close() error { return errors.Join(h.session.Close(), h.token.Close()) }
