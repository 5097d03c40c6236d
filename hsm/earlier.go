package hsm

import (
	"errors"

	"github.com/sluice-kms/sluice/kms"
)

// EarlierLoader is a Token that holds roots of earlier generations beside the
// newest ones; see Domain.Earlier.
type EarlierLoader interface {
	// LoadEarlier and LoadEarlierSealingKey are Load and LoadSealingKey for
	// material under the roots of an earlier generation. ClassUnsupported when
	// the token does not hold those.
	LoadEarlier(generation uint32, material []byte, spec kms.Spec, usage kms.Usage) (Handle, error)
	LoadEarlierSealingKey(generation uint32, material []byte) (Handle, error)
}

// errNoRoot: the node lacks the roots of a generation that another node may
// hold: an earlier one still, or a later one already.
var errNoRoot = &kms.Error{Kind: kms.KindHSMUnavailable, Detail: "the node does not hold the roots of the key's generation"}

// loadMaterial loads a version's material; generation is that of the root which
// wraps it, and means nothing to the in-process engine.
func (n *node) loadMaterial(generation uint32, material []byte, spec kms.Spec, usage kms.Usage) (Handle, error) {
	if n.domain == nil || generation == n.domain.Generation {
		return n.token.Load(material, spec, usage)
	}
	return n.earlier(func(l EarlierLoader) (Handle, error) { return l.LoadEarlier(generation, material, spec, usage) })
}

// loadSealingKey loads a tenant's sealing key.
func (n *node) loadSealingKey(k kms.SealingKey) (Handle, error) {
	if k.RootGeneration == n.domain.Generation {
		return n.token.LoadSealingKey(k.Wrapped)
	}
	return n.earlier(func(l EarlierLoader) (Handle, error) { return l.LoadEarlierSealingKey(k.RootGeneration, k.Wrapped) })
}

func (n *node) earlier(load func(EarlierLoader) (Handle, error)) (Handle, error) {
	loader, ok := n.token.(EarlierLoader)
	if !ok {
		return 0, errNoRoot
	}
	h, err := load(loader)
	if c := ClassOf(err); err != nil && (c == ClassUnsupported || c == ClassStaleObject || c == ClassRootGone) {
		// A root that was retired under a running service is no fault of the
		// node's.
		return 0, errNoRoot
	}
	return h, err
}

// lacksRoot tells whether a step failed because the node lacks roots that
// another one may hold.
func lacksRoot(err error) bool { return errors.Is(err, errNoRoot) }
