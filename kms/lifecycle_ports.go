package kms

import (
	"context"
	"time"
	"uuid"
)

// KeyLifecycle stores what happens to a key between its creation and its end.
// The rules of Keys hold: the tenant is in every call, another tenant's object
// and a missing one give ErrNotFound, a revision that is no longer the given
// one gives KindPreconditionFailed, and cached state is renewed before a call
// returns.
type KeyLifecycle interface {
	// UpdateVersion changes the state of one version. KindInvalidArgument
	// when there is no such version or it is destroyed.
	UpdateVersion(ctx context.Context, tenant, key uuid.UUID, revision uint64, number uint32, change VersionChange) (*Key, error)
	// DestroyVersion erases a version's material and leaves its tombstone.
	DestroyVersion(ctx context.Context, tenant, key uuid.UUID, revision uint64, number uint32) (*Key, error)
	// DestroyKey erases the material of all versions and leaves tombstones of
	// key and versions: its id is missing from then on and never valid again,
	// its name and aliases are free.
	DestroyKey(ctx context.Context, tenant, key uuid.UUID, revision uint64) error
	// SetRotation sets the period and the next date; zero both for none.
	SetRotation(ctx context.Context, tenant, key uuid.UUID, revision uint64, period time.Duration, next time.Time) (*Key, error)
	// DueKeys returns up to limit keys of all tenants for which something is
	// due at the given time: a rotation, the destruction of a version or of
	// the key. They come in the order of their dates, tenants and ids, and
	// after the given one; the zero DueKey is before all. Fewer than limit are
	// the last ones. It is for the service's own keeper only.
	DueKeys(ctx context.Context, now time.Time, after DueKey, limit int) ([]DueKey, error)
	// LeaseNonces counts block further nonces of a version as used, durably,
	// and returns how many are counted in all.
	LeaseNonces(ctx context.Context, tenant, key uuid.UUID, number uint32, block uint64) (total uint64, err error)
	// TouchKeys stores last uses; a later one that is stored already stays.
	// Keys that are gone are passed over.
	TouchKeys(ctx context.Context, uses []KeyUse) error
}

// VersionChange is a change of a version.
type VersionChange struct {
	State     VersionState
	DestroyAt time.Time // with VersionPendingDestruction; else zero
}

// DueKey names a key for which something is due, and its place in the list of
// those.
type DueKey struct {
	Due    time.Time // the earliest date; in whole microseconds, UTC
	Tenant uuid.UUID
	Key    uuid.UUID
}

// KeyUse is the last use of a key's material.
type KeyUse struct {
	Tenant uuid.UUID
	Key    uuid.UUID
	Time   time.Time
	Op     Op
}

// Aliases stores further names of keys, which can be moved from one key to
// another. Names and aliases of a tenant are one namespace: Keys.Lookup finds
// a key by both, and neither can take the place of the other.
type Aliases interface {
	// SetAlias makes alias a name of the key, moving it from another if it
	// was that one's. KindConflict when a key has that name.
	SetAlias(ctx context.Context, tenant, key uuid.UUID, alias string) error
	DeleteAlias(ctx context.Context, tenant uuid.UUID, alias string) error
	// AliasRevision returns the revision of an alias, which grows with every
	// change and when it is taken away: 0 for one that never was. It asks the
	// database, and answers for an alias that is refused as well.
	AliasRevision(ctx context.Context, tenant uuid.UUID, alias string) (uint64, error)
	// KeyAliases returns the aliases of a key, ordered.
	KeyAliases(ctx context.Context, tenant, key uuid.UUID) ([]string, error)
	// ListAliases returns a page of a tenant's aliases ordered by name.
	ListAliases(ctx context.Context, tenant uuid.UUID, page Page) ([]Alias, string, error)
}

// Alias is a further name of a key.
type Alias struct {
	Name string
	Key  uuid.UUID
}

// CredentialUses stores when and from where credentials were last used.
type CredentialUses interface {
	// TouchCredentials stores last uses; a later one that is stored already
	// stays.
	TouchCredentials(ctx context.Context, uses []CredentialUse) error
}

// CredentialUse is the last use of a credential.
type CredentialUse struct {
	Tenant     uuid.UUID
	Credential uuid.UUID
	Time       time.Time
	Address    string
}

// Approvals stores what one operator asked for and another has to approve.
type Approvals interface {
	CreateApproval(ctx context.Context, a *Approval) error
	// Approval: ErrNotFound when there is none or it has expired.
	Approval(ctx context.Context, id uuid.UUID) (*Approval, error)
	// Approve notes the second operator, once: KindConflict when the approval
	// is approved or used already, or by is who asked.
	Approve(ctx context.Context, id, by uuid.UUID) (*Approval, error)
	// UseApproval marks an approved approval as used, once: KindConflict
	// otherwise.
	UseApproval(ctx context.Context, id uuid.UUID) error
	ListApprovals(ctx context.Context, page Page) ([]*Approval, string, error)
}

// Approval is an act that needs two operators.
type Approval struct {
	ID          uuid.UUID
	Op          Op
	Resource    string
	Fingerprint [32]byte // of the act's arguments
	RequestedBy uuid.UUID
	ApprovedBy  uuid.UUID // zero: not yet
	Used        bool
	Created     time.Time
	Expires     time.Time
}

// TenantDeletions stores how tenants end. The rules of Tenants hold.
type TenantDeletions interface {
	// DeleteTenant erases the material of the tenant's sealing key and makes
	// the tenant DELETING, for good. KindConflict unless it is SUSPENDED.
	DeleteTenant(ctx context.Context, id uuid.UUID, revision uint64, requested, void time.Time) (*Tenant, error)
	// AdvanceDeletion takes a deleted tenant to the next state: from DELETING
	// to DELETED, from there to SHREDDED. KindConflict when it is in another.
	AdvanceDeletion(ctx context.Context, id uuid.UUID, revision uint64, to TenantState, at time.Time) (*Tenant, error)
	// DueDeletions returns up to limit tenants, in the order of their ids and
	// after one, that are DELETING, or DELETED with copies that are void at the
	// given time. It is for the service's own keeper only.
	DueDeletions(ctx context.Context, now time.Time, after uuid.UUID, limit int) ([]uuid.UUID, error)
}

// RowAuthenticator computes the code that authenticates a stored row: the
// database is not trusted, so a row is believed only with the code that this
// service gave it. It is keyed by a secret that the HSM seals.
type RowAuthenticator interface {
	// MAC returns the code of a row under a version of the key, 0 standing
	// for the newest, and the version it used; false when that version does
	// not exist. table separates rows of different kinds; fields are the
	// row's security-relevant columns in a fixed order, revision included.
	MAC(version uint32, table string, fields ...[]byte) (code [32]byte, used uint32, ok bool)
}
