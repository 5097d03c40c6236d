package kms

import (
	"context"
	"time"
	"uuid"
)

// Policies stores the versions of the policy document. They are numbered from
// 1 without gaps, and none is ever changed or removed; the newest is the one
// that is to be in force. All methods are safe for concurrent use; errors
// without a kind named here carry KindStoreUnavailable, and those about a row
// that is not to be believed KindInternal.
type Policies interface {
	// NewestPolicy returns the number of the newest version, 0 when none is
	// stored. The number alone proves nothing: Policy does.
	NewestPolicy(ctx context.Context) (uint64, error)
	// Policy returns a version with its document; ErrNotFound when there is
	// no such version.
	Policy(ctx context.Context, version uint64) (*PolicyVersion, error)
	// ListPolicies returns up to page.Size versions without their documents,
	// the newest first, and the token of the next page, "" at the end.
	ListPolicies(ctx context.Context, page Page) ([]*PolicyVersion, string, error)
	// PutPolicy stores p as the newest version if the one before it is the
	// newest until then; KindPreconditionFailed otherwise.
	PutPolicy(ctx context.Context, p *PolicyVersion) error
}

// PolicyVersion is one version of the policy document: tiers, prices, lines
// and times of the service.
type PolicyVersion struct {
	Version  uint64    // from 1; 0 is the policy that Sluice comes with, which is not stored
	Document []byte    // JSON; nil in lists
	Digest   [32]byte  // SHA-256 of the document
	Comment  string    // why, in the words of who put it; may be empty
	Created  time.Time // zero for version 0
	By       uuid.UUID // credential; zero for version 0
}

// Bounds of a version.
const (
	// MaxPolicyDocument is the length in bytes of the longest document: some
	// thousand tenants with limits of their own.
	MaxPolicyDocument = 1 << 20
	// MaxPolicyComment is the length in bytes of the longest comment, as of a
	// key's description.
	MaxPolicyComment = MaxDescription
)

// PolicyEngine applies policies. It holds the one in force: an immutable
// snapshot, replaced as a whole. All methods are safe for concurrent use.
type PolicyEngine interface {
	// CheckPolicy decodes and validates a document. It returns the document in
	// its one spelling, or what is wrong with it.
	CheckPolicy(document []byte) (canonical []byte, mistakes []PolicyMistake)
	// DiffPolicies lists in what the second of two valid documents differs
	// from the first, ordered by path.
	DiffPolicies(from, to []byte) ([]PolicyChange, error)
	// ApplyPolicy puts a version into force. A document that is not valid and
	// a version that is not newer change nothing and are errors, which name
	// places in the document and may be shown to operators.
	ApplyPolicy(version uint64, document []byte) error
	// PolicyInForce returns the version in force and its document; 0 is the
	// policy that Sluice comes with.
	PolicyInForce() (version uint64, document []byte)
	// PolicyVersion is the number that PolicyInForce returns, at the cost of
	// an atomic load.
	PolicyVersion() uint64
	// DefaultPolicy returns the document of version 0.
	DefaultPolicy() []byte
}

// PolicyMistake is what is wrong with a document.
type PolicyMistake struct {
	Path string // of the field, as "tiers.gold.burst_credits"; "" of the whole
	What string
}

// PolicyChange is a field in which two policies differ. The values are JSON,
// "" where a policy has no such field.
type PolicyChange struct {
	Path     string
	From, To string
}
