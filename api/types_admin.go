package api

import (
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// Tenant is a customer.
type Tenant struct {
	ID          uuid.UUID       `json:"id"`
	Name        string          `json:"name" doc:"Unique, immutable" example:"acme"`
	Tier        kms.Tier        `json:"tier"`
	State       kms.TenantState `json:"state"`
	AllowSealed bool            `json:"allow_sealed" doc:"Whether keys that no HSM offers become SEALED without the request saying so"`
	Domain      uuid.UUID       `json:"domain,omitzero" doc:"The domain of HSM nodes that its keys live in"`
	CreatedAt   time.Time       `json:"created_at"`
	Revision    uint64          `json:"revision" doc:"Grows by one with every change" min:"1"`
	Deletion    *TenantDeletion `json:"deletion,omitzero" doc:"Of a deleted tenant"`
}

// TenantDeletion is the record of a tenant's shredding.
type TenantDeletion struct {
	RequestedAt time.Time `json:"requested_at" doc:"When its credentials ended and its sealing key was erased"`
	VoidAt      time.Time `json:"void_at" doc:"When every copy in a backup is void"`
	ErasedAt    time.Time `json:"erased_at,omitzero" doc:"When its last key was erased; absent: not yet"`
	ShreddedAt  time.Time `json:"shredded_at,omitzero" doc:"When it was noted that no copy can be opened; absent: not yet"`
}

// TenantResponse is a tenant.
type TenantResponse struct {
	Tenant
	Charge
}

// TenantListResponse is a page of tenants.
type TenantListResponse struct {
	Tenants       []Tenant `json:"tenants" doc:"Ordered by name"`
	NextPageToken string   `json:"next_page_token,omitzero" doc:"Absent at the end"`
	Charge
}

// CreateTenantRequest is the body of create-tenant.
type CreateTenantRequest struct {
	Name        string   `json:"name" api:"required" doc:"1 to 128 letters, digits and -_./, beginning and ending with a letter or digit, not looking like a UUID" maxlen:"MaxNameLength" example:"acme"`
	Tier        kms.Tier `json:"tier" doc:"Absent: free"`
	AllowSealed bool     `json:"allow_sealed" doc:"Whether keys that no HSM offers become SEALED without the request saying so"`
	Domain      string   `json:"domain" doc:"Name or id of the domain of HSM nodes that its keys live in, for good. Absent: the default one" maxlen:"MaxNameLength"`
	Force       bool     `json:"force" doc:"Create it although the HSMs cannot keep what its tier promises"`
}

// UpdateTenantRequest is the body of update-tenant; what is absent stays.
type UpdateTenantRequest struct {
	Tier        *kms.Tier `json:"tier"`
	AllowSealed *bool     `json:"allow_sealed"`
	Force       bool      `json:"force" doc:"Raise the tier although the HSMs cannot keep what it promises"`
}

// Project is a namespace inside a tenant.
type Project struct {
	Name      string    `json:"name" doc:"Unique in the tenant, immutable" example:"payments"`
	CreatedAt time.Time `json:"created_at"`
}

// ProjectResponse is a project.
type ProjectResponse struct {
	Project
	Charge
}

// ProjectListResponse is a page of projects.
type ProjectListResponse struct {
	Projects      []Project `json:"projects" doc:"Ordered by name"`
	NextPageToken string    `json:"next_page_token,omitzero" doc:"Absent at the end"`
	Charge
}

// CreateProjectRequest is the body of create-project.
type CreateProjectRequest struct {
	Name string `json:"name" api:"required" doc:"As for a tenant" maxlen:"MaxNameLength" example:"payments"`
}

// Credential is what a caller authenticates with, without its secrets.
type Credential struct {
	ID        uuid.UUID          `json:"id"`
	Name      string             `json:"name" example:"orders-signer"`
	Project   string             `json:"project" doc:"What it works in" example:"default"`
	Component string             `json:"component,omitzero" doc:"Which consumer inside the tenant uses it" example:"gateway"`
	Scopes    []string           `json:"scopes" doc:"What it may do: family:operation or family:operation:glob" example:"[\"key:sign:orders-*\"]"`
	Networks  []string           `json:"networks,omitempty" doc:"From where it may be used; absent: from anywhere"`
	Secrets   []CredentialSecret `json:"secrets" doc:"Its live secrets, the newest first"`
	CreatedAt time.Time          `json:"created_at"`
	ExpiresAt time.Time          `json:"expires_at,omitzero" doc:"Absent: never"`
	RevokedAt time.Time          `json:"revoked_at,omitzero"`
	Revision  uint64             `json:"revision" doc:"Grows by one with every change" min:"1"`
	Guard     *CredentialGuard   `json:"guard,omitzero" doc:"What is known against it, and how it can prove itself; absent: nothing ever was, and no one-time code is enrolled"`
}

// CredentialGuard is what is known against a credential.
type CredentialGuard struct {
	Open      bool            `json:"open" doc:"Whether a flag is open"`
	FlaggedAt time.Time       `json:"flagged_at,omitzero" doc:"When it was last used in an unusual way"`
	Action    kms.AbuseAction `json:"action,omitzero" doc:"What follows while the flag is open"`
	Signals   []AbuseReading  `json:"signals,omitempty" doc:"What was unusual"`
	EndsAt    time.Time       `json:"ends_at,omitzero" doc:"When the flag ends by itself; absent: not before it is cleared"`
	ClearedAt time.Time       `json:"cleared_at,omitzero" doc:"When an administrator last cleared it"`
	ProvenTo  time.Time       `json:"proven_until,omitzero" doc:"Until when its last second factor is good"`
	CodeSince time.Time       `json:"one_time_code_since,omitzero" doc:"When its key of one-time codes was enrolled; absent: none is"`
}

// AbuseReading is what was measured of a signal.
type AbuseReading struct {
	Signal kms.AbuseSignal `json:"signal"`
	Gross  bool            `json:"gross,omitzero" doc:"It is enough by itself"`
	Value  int64           `json:"value" doc:"In the unit of the signal's reason"`
	Usual  int64           `json:"usual" doc:"The highest that was not suspicious"`
	Text   string          `json:"text" doc:"What that means"`
}

// EnrolledCodeResponse is a credential with its new key of one-time codes.
type EnrolledCodeResponse struct {
	Credential
	Key string `json:"one_time_key" doc:"The key in base32, for an authenticator. Shown this once"`
	URI string `json:"one_time_uri" doc:"The same as an otpauth URI, for a QR code"`
	Charge
}

// CredentialSecret is one secret of a credential: that it exists, not what it
// is.
type CredentialSecret struct {
	CreatedAt time.Time `json:"created_at"`
	ExpiresAt time.Time `json:"expires_at,omitzero" doc:"Absent: with the credential"`
}

// CredentialResponse is a credential.
type CredentialResponse struct {
	Credential
	Charge
}

// MintedCredentialResponse is a credential with its new secret.
type MintedCredentialResponse struct {
	Credential
	Token string `json:"credential" doc:"What to send as Authorization: Bearer. Shown this once"`
	Charge
}

// CredentialListResponse is a page of credentials.
type CredentialListResponse struct {
	Credentials   []Credential `json:"credentials" doc:"Ordered by name"`
	NextPageToken string       `json:"next_page_token,omitzero" doc:"Absent at the end"`
	Charge
}

// CreateCredentialRequest is the body of create-credential.
type CreateCredentialRequest struct {
	Name      string    `json:"name" api:"required" doc:"As for a tenant" maxlen:"MaxNameLength" example:"orders-signer"`
	Project   string    `json:"project" doc:"Absent: default" maxlen:"MaxNameLength"`
	Component string    `json:"component" doc:"Which consumer inside the tenant uses it" maxlen:"MaxNameLength"`
	Scopes    []string  `json:"scopes" api:"required" doc:"What it may do, never more than the credential that mints it: family:operation, family:operation:glob, or a role such as role:key-user" maxlen:"MaxScopes" example:"[\"key:sign:orders-*\"]"`
	ExpiresAt time.Time `json:"expires_at" doc:"Absent: never"`
	Networks  []string  `json:"networks" doc:"Networks in CIDR notation, without host bits, from which it may be used; absent or empty: from anywhere" maxlen:"MaxNetworks"`
}

// RotateCredentialRequest is the body of rotate-credential. It may be left
// out.
type RotateCredentialRequest struct {
	OverlapHours *int `json:"overlap_hours" doc:"Hours for which the old secret stays valid. Absent: 24; 0: it dies at once" min:"0" max:"MaxOverlapHours"`
}
