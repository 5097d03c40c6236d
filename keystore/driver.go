package keystore

import (
	"context"
	"errors"
	"uuid"
)

// Errors with which a driver classifies what its database said. Every other
// error of a driver means that the database could not be used. None of them,
// wrapped or not, may carry values of the statement.
var (
	// ErrMissing: the row, or the row that a new one refers to, is not there.
	ErrMissing = errors.New("keystore: no such row")
	// ErrExists: a row with that key is there already.
	ErrExists = errors.New("keystore: the row exists")
	// ErrStale: the row does not have the revision that the change is for.
	ErrStale = errors.New("keystore: the row has another revision")
	// ErrRefused: the database's constraints refuse the values.
	ErrRefused = errors.New("keystore: a constraint refuses the row")
)

// Driver runs the statements of one SQL dialect. It contains no rules: Store
// validates what is written and judges what is read. Every method takes the
// tenant where there is one and has it in the statement's condition. Each
// write is one transaction, durable when the method returns nil. All methods
// are safe for concurrent use.
//
// The updates write all of the record that can change, with its Revision as
// the new one, if the stored revision is one less, and give ErrStale otherwise.
// Lists return up to Limit rows that come after the position in the byte order
// of names, which is the order of the result.
type Driver interface {
	TenantDriver
	KeyDriver
	CredentialDriver
	SystemSecretDriver
	ClaimDriver
	// Close waits for calls under way and lets go of the database.
	Close() error
}

// TenantDriver is the part of Driver for tenants and projects.
type TenantDriver interface {
	Tenant(context.Context, TenantParams) (*TenantRow, error)
	TenantID(context.Context, TenantIDParams) (Bytes, error)
	ListTenants(context.Context, ListTenantsParams) ([]*TenantRow, error)
	// InsertTenant stores the tenant and its first project together.
	InsertTenant(context.Context, InsertTenantParams) error
	UpdateTenant(context.Context, UpdateTenantParams) error

	Project(context.Context, ProjectParams) (*ProjectRow, error)
	ListProjects(context.Context, ListProjectsParams) ([]*ProjectRow, error)
	InsertProject(context.Context, InsertProjectParams) error
}

// KeyDriver is the part of Driver for keys and versions.
type KeyDriver interface {
	Key(context.Context, KeyParams) (*KeyRow, error)
	KeyID(context.Context, KeyIDParams) (Bytes, error)
	ListKeys(context.Context, ListKeysParams) ([]*KeyRow, error)
	// InsertKey stores the key and its first version together.
	InsertKey(context.Context, InsertKeyParams) error
	UpdateKey(context.Context, UpdateKeyParams) error
	// InsertVersion updates the key and stores a version of it together.
	InsertVersion(context.Context, InsertVersionParams) error
}

// CredentialDriver is the part of Driver for credentials.
type CredentialDriver interface {
	// CredentialForAuthentication is the one statement that finds a tenant's
	// row without the tenant.
	CredentialForAuthentication(context.Context, CredentialForAuthenticationParams) (*CredentialRow, error)
	Credential(context.Context, CredentialParams) (*CredentialRow, error)
	ListCredentials(context.Context, ListCredentialsParams) ([]*CredentialRow, error)
	InsertCredential(context.Context, InsertCredentialParams) error
	// UpdateCredential replaces the stored secrets as well.
	UpdateCredential(context.Context, UpdateCredentialParams) error
}

// SystemSecretDriver is the part of Driver for the service's own secrets.
type SystemSecretDriver interface {
	// SystemSecrets returns the versions of a name, ascending.
	SystemSecrets(context.Context, SystemSecretsParams) ([]*SystemSecretRow, error)
	InsertSystemSecret(context.Context, InsertSystemSecretParams) error
}

// ClaimDriver is the part of Driver for idempotency.
type ClaimDriver interface {
	// Claim stores a claim in flight where there is none or an expired one,
	// and returns nil; otherwise it returns the one that is there.
	Claim(context.Context, ClaimParams) (*ClaimRow, error)
	// FinishClaim turns a claim in flight into an answer; ErrMissing when
	// there is none in flight.
	FinishClaim(context.Context, FinishClaimParams) error
	// DeleteClaim removes a claim in flight; ErrMissing when there is none.
	DeleteClaim(context.Context, DeleteClaimParams) error
	// DeleteExpiredClaims removes up to Limit claims and answers of all
	// tenants that expired at or before Now, and returns how many.
	DeleteExpiredClaims(context.Context, DeleteExpiredClaimsParams) (int, error)
}

// Timestamp is a time as it is stored: UTC microseconds since 1970.
type Timestamp = int64

// The parameters and rows of tenants and projects.
type (
	TenantParams      struct{ ID uuid.UUID }
	TenantIDParams    struct{ Name string }
	ListTenantsParams struct {
		After string
		Limit int
	}
	InsertTenantParams struct {
		Tenant  TenantRecord
		Project ProjectRecord
	}
	UpdateTenantParams struct{ Tenant TenantRecord }

	ProjectParams struct {
		Tenant uuid.UUID
		Name   string
	}
	ListProjectsParams struct {
		Tenant uuid.UUID
		After  string
		Limit  int
	}
	InsertProjectParams struct{ Project ProjectRecord }
)

// TenantRecord is a tenant as it is written.
type TenantRecord struct {
	ID                uuid.UUID
	Name              string
	Tier              string
	State             string
	AllowSealed       bool
	SealingID         uuid.UUID
	SealingDomain     uuid.UUID
	SealingGeneration uint32
	SealingWrapped    []byte
	Created           Timestamp
	Revision          uint64
}

// TenantRow is a tenant as it was found.
type TenantRow struct {
	ID                Bytes
	Name              Text
	Tier              Text
	State             Text
	AllowSealed       Integer
	SealingID         Bytes
	SealingDomain     Bytes
	SealingGeneration Integer
	SealingWrapped    Bytes
	Created           Integer
	Revision          Integer
}

// ProjectRecord is a project as it is written.
type ProjectRecord struct {
	Tenant  uuid.UUID
	Name    string
	Created Timestamp
}

// ProjectRow is a project as it was found.
type ProjectRow struct {
	Name    Text
	Created Integer
}

// The parameters of keys and versions.
type (
	KeyParams   struct{ Tenant, ID uuid.UUID }
	KeyIDParams struct {
		Tenant uuid.UUID
		Name   string
	}
	ListKeysParams struct {
		Tenant  uuid.UUID
		Project string // "": all projects
		After   string
		Limit   int
	}
	InsertKeyParams struct {
		Key     KeyRecord
		Version VersionRecord
	}
	UpdateKeyParams     struct{ Key KeyRecord }
	InsertVersionParams struct {
		Key     KeyRecord
		Version VersionRecord
	}
)

// KeyRecord is a key as it is written.
type KeyRecord struct {
	Tenant             uuid.UUID
	ID                 uuid.UUID
	Project            string
	Name               string
	Spec               string
	Usage              string
	Protection         string
	State              string
	Description        string
	Tags               string // a JSON object
	Created            Timestamp
	DeletionDate       *Timestamp
	DeletionProtection bool
	PrimaryVersion     uint32
	HighestVersion     uint32 // the highest number ever used
	Revision           uint64
}

// KeyRow is a key with its versions, ascending, as it was found.
type KeyRow struct {
	ID                 Bytes
	Project            Text
	Name               Text
	Spec               Text
	Usage              Text
	Protection         Text
	State              Text
	Description        Text
	Tags               Text
	Created            Integer
	DeletionDate       Integer
	DeletionProtection Integer
	PrimaryVersion     Integer
	HighestVersion     Integer
	Revision           Integer
	Versions           []VersionRow
}

// VersionRecord is a version as it is written.
type VersionRecord struct {
	ID        uuid.UUID
	Number    uint32
	State     string
	Created   Timestamp
	PublicKey []byte
	Blob      []byte
}

// VersionRow is a version as it was found.
type VersionRow struct {
	ID        Bytes
	Number    Integer
	State     Text
	Created   Integer
	PublicKey Bytes
	Blob      Bytes
}

// The parameters of credentials.
type (
	CredentialForAuthenticationParams struct{ ID uuid.UUID }
	CredentialParams                  struct{ Tenant, ID uuid.UUID }
	ListCredentialsParams             struct {
		Tenant    uuid.UUID
		AfterName string
		AfterID   []byte // names of credentials are not unique
		Limit     int
	}
	InsertCredentialParams struct{ Credential CredentialRecord }
	UpdateCredentialParams struct{ Credential CredentialRecord }
)

// CredentialRecord is a credential as it is written.
type CredentialRecord struct {
	Tenant    uuid.UUID
	ID        uuid.UUID
	Project   string
	Name      string
	Component string
	Scopes    string // a JSON array of strings
	Networks  string // a JSON array of strings
	Created   Timestamp
	Expires   *Timestamp
	Revoked   *Timestamp
	Revision  uint64
	Secrets   []SecretRecord
}

// CredentialRow is a credential with its secrets, in the order in which they
// were written, as it was found.
type CredentialRow struct {
	Tenant    Bytes
	ID        Bytes
	Project   Text
	Name      Text
	Component Text
	Scopes    Text
	Networks  Text
	Created   Integer
	Expires   Integer
	Revoked   Integer
	Revision  Integer
	Secrets   []SecretRow
}

// SecretRecord is one secret of a credential as it is written.
type SecretRecord struct {
	Hash          []byte
	PepperVersion uint32
	Created       Timestamp
	Expires       *Timestamp
}

// SecretRow is one secret of a credential as it was found.
type SecretRow struct {
	Hash          Bytes
	PepperVersion Integer
	Created       Integer
	Expires       Integer
}

// The parameters and rows of the service's own secrets.
type (
	SystemSecretsParams      struct{ Name string }
	InsertSystemSecretParams struct {
		Name    string
		Version uint32
		Blob    []byte
		Created Timestamp
	}
	SystemSecretRow struct {
		Version Integer
		Blob    Bytes
		Created Integer
	}
)

// ClaimID names a claim.
type ClaimID struct {
	Tenant     uuid.UUID
	Credential uuid.UUID
	Claim      []byte
}

// The parameters and rows of idempotency.
type (
	ClaimParams struct {
		ClaimID
		Fingerprint []byte
		Now         Timestamp
		Expires     Timestamp
	}
	FinishClaimParams struct {
		ClaimID
		Status   int
		Resource string
		Secret   bool
		Expires  Timestamp
	}
	DeleteClaimParams         struct{ ClaimID }
	DeleteExpiredClaimsParams struct {
		Now   Timestamp
		Limit int
	}
	ClaimRow struct {
		Fingerprint Bytes
		State       Text
		Status      Integer
		Resource    Text
		Secret      Integer
	}
)
