package hsm

import (
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
	// SelfTests are keys under the key root, one of each family that some
	// member can hold, with which a node proves at every start what it can
	// do: generating RSA keys anew would take seconds.
	SelfTests []SelfTestKey `json:"self_tests"`
}

// SelfTestKey is one key of a domain's self-test.
type SelfTestKey struct {
	Spec      kms.Spec  `json:"spec"`
	Usage     kms.Usage `json:"usage"`
	Material  []byte    `json:"material"`
	PublicKey []byte    `json:"public_key,omitempty"`
}
