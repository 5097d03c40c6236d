package kms

import (
	"time"
	"uuid"
)

// SystemTenantName is the tenant that owns operators and the service's own
// secrets. It exists from the first start and cannot be deleted.
const SystemTenantName = "system"

// DefaultProject exists in every tenant.
const DefaultProject = "default"

// TenantState is the state of a tenant.
type TenantState string

// The tenant states. The last three are those of a deleted tenant: its rows
// are being erased; they are, but backups may hold copies; none of those can be
// opened any more.
const (
	TenantActive    TenantState = "ACTIVE"
	TenantSuspended TenantState = "SUSPENDED"
	TenantDeleting  TenantState = "DELETING"
	TenantDeleted   TenantState = "DELETED"
	TenantShredded  TenantState = "SHREDDED"
)

// Tier names a set of quota parameters.
type Tier string

// The tiers, the strongest first.
const (
	TierPlatinum Tier = "platinum"
	TierGold     Tier = "gold"
	TierSilver   Tier = "silver"
	TierFree     Tier = "free"
)

// Tiers returns the tiers, the strongest first.
func Tiers() []Tier { return []Tier{TierPlatinum, TierGold, TierSilver, TierFree} }

// Tenant is a customer. Values that the store returns are shared and must not
// be changed.
type Tenant struct {
	ID    uuid.UUID
	Name  string // unique, immutable; see ValidName
	Tier  Tier
	State TenantState
	// AllowSealed is the tenant's consent to SEALED protection when a
	// request does not name a protection level.
	AllowSealed bool
	// Sealing is the tenant's current sealing key; of a deleted tenant it has
	// no material, only what tells which roots open the copies.
	Sealing SealingKey
	// Deletion is set of a deleted tenant.
	Deletion *Deletion
	Created  time.Time
	Revision uint64 // grows by one with every change, from 1
}

// Deleted tells whether the tenant was deleted, which cannot be taken back.
func (t *Tenant) Deleted() bool { return t.Deletion != nil }

// Deletion is the record of a tenant's shredding.
type Deletion struct {
	Requested time.Time // when credentials stopped and the sealing key was erased
	// Void is when every copy in a backup is void: see Config.RootRotation.
	Void     time.Time
	Erased   time.Time // when the last key was erased; zero: not yet
	Shredded time.Time // when completion was noted; zero: not yet
}

// SealingKey is a tenant's AES-256 key in the form in which it is stored:
// wrapped by the domain's sealing root, of use only inside its tokens.
type SealingKey struct {
	ID             uuid.UUID
	Tenant         uuid.UUID
	Domain         uuid.UUID
	RootGeneration uint32
	Wrapped        []byte // RFC 5649
}

// Project is a namespace inside a tenant, named by a path.
type Project struct {
	Tenant  uuid.UUID
	Name    string // immutable, unique in the tenant
	Created time.Time
}
