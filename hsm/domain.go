package hsm

import (
	"errors"
	"slices"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// Domain describes a domain: what its ceremony made and every node needs to
// join it. It holds nothing secret; a false description makes tokens fail
// their checks and nothing else.
type Domain struct {
	ID         uuid.UUID `json:"id"`
	Name       string    `json:"name"`
	Generation uint32    `json:"generation"` // of the roots, from 1
	// KeyRootCheck and SealingRootCheck are check values: a fixed, public
	// 32-byte secret key wrapped (RFC 5649) under the root, hashed with
	// SHA-256. Two tokens whose check values agree hold the same root.
	KeyRootCheck     []byte `json:"key_root_check"`
	SealingRootCheck []byte `json:"sealing_root_check"`
	// Earlier are the generations before this one whose roots exist still, in
	// ascending order: material of theirs opens, and nothing new is made under
	// them. There are some while the roots are being replaced.
	Earlier []Generation `json:"earlier,omitempty"`
	// SelfTests are keys under the newest key root, one of each family that some
	// member can hold, with which a node proves at every start what it can
	// do: generating RSA keys anew would take seconds.
	SelfTests []SelfTestKey `json:"self_tests"`
}

// Generation is one generation of a domain's roots, with its check values.
type Generation struct {
	Generation       uint32 `json:"generation"`
	KeyRootCheck     []byte `json:"key_root_check"`
	SealingRootCheck []byte `json:"sealing_root_check"`
}

// Generations returns those whose roots exist, in ascending order; the last
// one is the newest.
func (d *Domain) Generations() []Generation {
	return append(slices.Clone(d.Earlier), Generation{d.Generation, d.KeyRootCheck, d.SealingRootCheck})
}

// Oldest returns the first generation whose roots exist.
func (d *Domain) Oldest() uint32 { return d.Generations()[0].Generation }

// has tells whether roots of a generation exist.
func (d *Domain) has(generation uint32) bool {
	return generation == d.Generation ||
		slices.ContainsFunc(d.Earlier, func(g Generation) bool { return g.Generation == generation })
}

// checkSize is the length of a check value in bytes.
const checkSize = 32

// CheckGenerations refuses generations that are out of order, or lack a check
// value.
func (d *Domain) CheckGenerations() error {
	last := uint32(0)
	for _, g := range d.Generations() {
		if g.Generation <= last {
			return errors.New("the generations of the roots are out of order")
		}
		if len(g.KeyRootCheck) != checkSize || len(g.SealingRootCheck) != checkSize {
			return errors.New("a generation of the roots has no check values")
		}
		last = g.Generation
	}
	return nil
}

// SelfTestKey is one key of a domain's self-test.
type SelfTestKey struct {
	Spec      kms.Spec  `json:"spec"`
	Usage     kms.Usage `json:"usage"`
	Material  []byte    `json:"material"`
	PublicKey []byte    `json:"public_key,omitempty"`
}
