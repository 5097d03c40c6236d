package hsm

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"slices"

	"github.com/sluice-kms/sluice/kms"
)

// prove runs the self-test and finds out whether the token enforces the roots'
// unwrap templates; one that does not is an error unless it is allowed.
func (n *node) prove(judge *node, allowUnenforced bool) (err error) {
	if n.families, err = n.selfTest(judge); err != nil {
		return err
	}
	if n.enforced, err = n.token.Enforces(); err != nil {
		return fmt.Errorf("trying the roots' unwrap templates: %w", err)
	}
	if !n.enforced && !allowUnenforced {
		return errUntrusted
	}
	return nil
}

// SelfTest implements kms.NodePool. It runs beside the node's work and changes
// nothing: a node that fails it is taken out by the breaker when its work
// fails.
func (d *Device) SelfTest(ctx context.Context, id kms.NodeID) (families []kms.Family, err error) {
	err = d.onNode(id, func(n *node) error {
		if n.domain == nil {
			families = n.families
			return nil
		}
		families, err = n.selfTest(d.engine)
		if err != nil {
			n.noteError(err)
			return kms.Wrap(kms.KindHSMUnavailable, err, "the node failed its self-test")
		}
		return nil
	})
	return families, err
}

// selfTest replays the domain's self-test keys on the node: load, use, check
// with the engine, tamper. It returns the families that passed; those that
// fail are not offered there, and it is an error when none passes. It runs
// before the node takes traffic.
func (n *node) selfTest(judge *node) (families []kms.Family, err error) {
	failed := map[kms.Family]bool{}
	passed := map[kms.Family]bool{}
	for _, k := range n.domain.SelfTests {
		family := k.Spec.Info().Family
		if err := n.testKey(judge, k); err != nil {
			failed[family] = true
			n.log.Warn("self-test failed", slog.String("node", string(n.id)),
				slog.String("spec", string(k.Spec)), slog.Any("error", err))
			continue
		}
		passed[family] = true
	}
	for f := range passed {
		if !failed[f] {
			families = append(families, f)
		}
	}
	if len(families) == 0 {
		return nil, fmt.Errorf("no algorithm family passed the self-test")
	}
	slices.Sort(families)
	if err := n.testSealing(); err != nil {
		return nil, fmt.Errorf("sealing: %w", err)
	}
	if err := n.load(nil, n.token.Probe); err != nil {
		return nil, fmt.Errorf("running the canary: %w", err)
	}
	return families, nil
}

// selfTestMessage is what the self-test signs, encrypts and authenticates.
var selfTestMessage = []byte("sluice self-test")

func (n *node) testKey(judge *node, k SelfTestKey) error {
	var h Handle
	err := n.load(nil, func() (err error) {
		h, err = n.token.Load(k.Material, k.Spec, k.Usage)
		return err
	})
	if err != nil {
		return fmt.Errorf("loading: %w", err)
	}
	defer n.load(nil, func() error { return n.token.Unload(h) })

	alg := k.Spec.Info().Algorithms(k.Usage)[0]
	base := Call{Algorithm: alg, Spec: k.Spec, Handle: h, PublicKey: k.PublicKey, Input: selfTestMessage}
	switch k.Usage {
	case kms.UsageSignVerify:
		if alg == kms.AlgSM2DSA {
			base.UserID = []byte(kms.DefaultUserID)
		}
		return n.testSignature(judge, base)
	case kms.UsageGenerateVerifyMAC:
		return n.testMAC(base)
	case kms.UsageEncryptDecrypt:
		if k.Spec.Info().Symmetric() {
			return n.testAEAD(base)
		}
		return n.testDecryption(judge, base)
	}
	return fmt.Errorf("unknown usage")
}

func (n *node) testSignature(judge *node, c Call) error {
	c.Verb = kms.VerbSign
	if _, err := n.call(&c); err != nil {
		return fmt.Errorf("signing: %w", err)
	}
	verify := Call{Verb: kms.VerbVerify, Algorithm: c.Algorithm, Spec: c.Spec, PublicKey: c.PublicKey, Input: c.Input, UserID: c.UserID, Signature: c.Output}
	if _, err := judge.call(&verify); err != nil || !verify.Valid {
		return fmt.Errorf("the signature does not verify")
	}
	verify.Input = []byte("another message")
	if _, err := judge.call(&verify); err != nil || verify.Valid {
		return fmt.Errorf("the signature verifies for another message")
	}
	return nil
}

func (n *node) testMAC(c Call) error {
	c.Verb = kms.VerbMAC
	if _, err := n.call(&c); err != nil {
		return fmt.Errorf("computing a MAC: %w", err)
	}
	again, other := c, c
	other.Input = []byte("another message")
	if _, err := n.call(&again); err != nil || !bytes.Equal(again.Output, c.Output) {
		return fmt.Errorf("the MAC of the same message differs")
	}
	if _, err := n.call(&other); err != nil || bytes.Equal(other.Output, c.Output) {
		return fmt.Errorf("the MAC of another message is the same")
	}
	return nil
}

func (n *node) testAEAD(c Call) error {
	nonce := make([]byte, gcmNonceSize)
	rand.Read(nonce)
	c.Verb, c.Nonce, c.AAD = kms.VerbEncrypt, bytes.Clone(nonce), []byte("aad")
	if _, err := n.call(&c); err != nil {
		return fmt.Errorf("encrypting: %w", err)
	}
	if !bytes.Equal(c.Nonce, nonce) {
		// Our formats bind the nonce before the call.
		return fmt.Errorf("the token chooses its own nonces")
	}
	open := c
	open.Verb, open.Input, open.Output = kms.VerbDecrypt, c.Output, nil
	if _, err := n.call(&open); err != nil || !bytes.Equal(open.Output, selfTestMessage) {
		return fmt.Errorf("decrypting does not give the plaintext back")
	}
	tampered := open
	tampered.Input, tampered.Output = bytes.Clone(c.Output), nil
	tampered.Input[0] ^= 1
	if _, err := n.call(&tampered); err == nil {
		return fmt.Errorf("a tampered ciphertext decrypts")
	}
	return nil
}

// testSealing proves that the node can hold tenants' sealing keys, on which
// everything else depends.
func (n *node) testSealing() error {
	var h Handle
	err := n.load(nil, func() error {
		material, err := n.token.GenerateSealingKey()
		if err != nil {
			return fmt.Errorf("generating: %w", err)
		}
		h, err = n.token.LoadSealingKey(material)
		return err
	})
	if err != nil {
		return fmt.Errorf("loading: %w", err)
	}
	defer n.load(nil, func() error { return n.token.Unload(h) })
	return n.testAEAD(Call{Algorithm: kms.AlgAESGCM, Spec: kms.SpecAES256, Handle: h, Input: selfTestMessage})
}

func (n *node) testDecryption(judge *node, c Call) error {
	seal := Call{Verb: kms.VerbEncrypt, Algorithm: c.Algorithm, Spec: c.Spec, PublicKey: c.PublicKey, Input: c.Input}
	if _, err := judge.call(&seal); err != nil {
		return fmt.Errorf("encrypting with the public key: %w", err)
	}
	c.Verb, c.Input = kms.VerbDecrypt, seal.Output
	if _, err := n.call(&c); err != nil || !bytes.Equal(c.Output, selfTestMessage) {
		return fmt.Errorf("decrypting does not give the plaintext back")
	}
	return nil
}
