package keystore

import "uuid"

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
	DueDeletionsParams struct {
		Now   Timestamp
		After uuid.UUID
		Limit int
	}
	CountObjectsParams struct {
		Tenant uuid.UUID
		Now    Timestamp
	}
	// ObjectCounts is how many objects a tenant has.
	ObjectCounts struct{ Keys, Secrets, Credentials int64 }

	CountTenantsParams struct{ Except string } // by its name

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
	SealingWrapped    []byte // nil of a deleted tenant
	Created           Timestamp
	Revision          uint64
	Deleted           *Timestamp
	Void              *Timestamp
	Erased            *Timestamp
	Shredded          *Timestamp
	Code              Code
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
	Deleted           Integer
	Void              Integer
	Erased            Integer
	Shredded          Integer
	Code              CodeRow
}

// TenantCountRow is how many tenants a tier has, as it was found.
type TenantCountRow struct {
	Tier  Text
	Count Integer
}

// ProjectRecord is a project as it is written.
type ProjectRecord struct {
	Tenant  uuid.UUID
	Name    string
	Created Timestamp
	Code    Code
}

// ProjectRow is a project as it was found.
type ProjectRow struct {
	Name    Text
	Created Integer
	Code    CodeRow
}

// The parameters of keys and versions.
type (
	KeyParams     struct{ Tenant, ID uuid.UUID }
	KeyNameParams struct {
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
		Name    KeyNameRecord
	}
	UpdateKeyParams struct {
		Key     KeyRecord
		Added   *VersionRecord // nil: none
		Changed []VersionRecord
	}
	DestroyKeyParams struct {
		Key      KeyRecord
		Versions []VersionRecord
	}
	DueKeysParams struct {
		Now   Timestamp
		After DuePosition
		Limit int
	}
	// DuePosition is a place in the list of due keys. The ids are as they are
	// stored, whether or not they are ids.
	DuePosition struct {
		Due        Timestamp
		Tenant, ID []byte
	}
	DueKeyRow struct {
		Due        Integer
		Tenant, ID Bytes
	}

	// TouchKeysParams has the uses in the order of tenant and key, so that
	// two of them at once cannot wait for each other.
	TouchKeysParams struct{ Uses []KeyUseRecord }
	KeyUseRecord    struct {
		Tenant uuid.UUID
		Key    uuid.UUID
		Time   Timestamp
		Op     string
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
	Origin             string
	RotationPeriod     int64 // microseconds, 0 for none
	NextRotation       *Timestamp
	Due                *Timestamp // the earliest date at which something is due
	PrimaryVersion     uint32
	HighestVersion     uint32 // the highest number ever used
	Revision           uint64
	Code               Code
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
	Origin             Text
	RotationPeriod     Integer
	NextRotation       Integer
	Due                Integer
	PrimaryVersion     Integer
	HighestVersion     Integer
	Revision           Integer
	LastUsed           Integer
	LastUsedOp         Text
	Versions           []VersionRow
	Code               CodeRow
}

// VersionRecord is a version as it is written.
type VersionRecord struct {
	ID        uuid.UUID
	Number    uint32
	State     string
	Created   Timestamp
	DestroyAt *Timestamp
	PublicKey []byte
	Blob      []byte // nil of a destroyed version
	Code      Code
	// NoncesCode is that of the count, which begins at 0; it counts when the
	// version is new.
	NoncesCode Code
}

// VersionRow is a version as it was found.
type VersionRow struct {
	ID        Bytes
	Number    Integer
	State     Text
	Created   Integer
	DestroyAt Integer
	PublicKey Bytes
	Blob      Bytes
	Code      CodeRow
}

// The parameters and rows of nonces.
type (
	NoncesParams struct {
		Tenant, Key uuid.UUID
		Number      uint32
	}
	UpdateNoncesParams struct {
		NoncesParams
		Was, Nonces uint64
		Code        Code
	}
	NoncesRow struct {
		Version Bytes // its id
		State   Text
		Nonces  Integer
		Code    CodeRow
	}
)

// The kinds of names as they are stored.
const (
	KindName  = "NAME"
	KindAlias = "ALIAS"
)

// KeyNameRecord is a name or an alias of a key as it is written.
type KeyNameRecord struct {
	Tenant uuid.UUID
	Name   string
	Kind   string
	Key    uuid.UUID
	Code   Code
}

// KeyNameRow is a name or an alias of a key as it was found.
type KeyNameRow struct {
	Name Text
	Kind Text
	Key  Bytes
	Code CodeRow
	// Alias is what goes with an alias; all NULL where there is nothing.
	Alias AliasRevisionRow
}

// AliasRevisionRecord is what an alias stands for since when, as it is written.
// It stays when the alias is taken away, and is apart from the name because
// programs from before there was one write that alone.
type AliasRevisionRecord struct {
	Tenant   uuid.UUID
	Name     string
	Key      *uuid.UUID // nil: the alias was taken away
	Was      uint64     // the revision that this one follows, 0 for the first
	Revision uint64
	Code     Code
}

// AliasRevisionRow is an AliasRevisionRecord as it was found.
type AliasRevisionRow struct {
	Revision Integer
	Key      Bytes
	Code     CodeRow
}

// The parameters of aliases.
type (
	SetAliasParams struct {
		Name     KeyNameRecord
		Revision AliasRevisionRecord
	}
	DeleteAliasParams   struct{ Revision AliasRevisionRecord }
	AliasRevisionParams struct {
		Tenant uuid.UUID
		Name   string
	}
	ListAliasesParams struct {
		Tenant uuid.UUID
		Key    *uuid.UUID // nil: of all keys
		After  string
		Limit  int
	}
)

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

	// TouchCredentialsParams has the uses in the order of tenant and
	// credential; see TouchKeysParams.
	TouchCredentialsParams struct{ Uses []CredentialUseRecord }
	CredentialUseRecord    struct {
		Tenant     uuid.UUID
		Credential uuid.UUID
		Time       Timestamp
		Address    string
	}
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
	Guard     []byte // nil: nothing was ever known against it
	Code      Code
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
	LastUsed  Integer
	Secrets   []SecretRow

	LastAddress Text
	Guard       Bytes
	Code        CodeRow
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

// The parameters of approvals.
type (
	ApprovalParams struct {
		ID  uuid.UUID
		Now Timestamp
	}
	ListApprovalsParams struct {
		Now   Timestamp
		After []byte // an id
		Limit int
	}
	InsertApprovalParams         struct{ Approval ApprovalRecord }
	UpdateApprovalParams         struct{ Approval ApprovalRecord }
	DeleteExpiredApprovalsParams struct {
		Now   Timestamp
		Limit int
	}
)

// ApprovalRecord is an approval as it is written.
type ApprovalRecord struct {
	ID          uuid.UUID
	Op          string
	Resource    string
	Fingerprint []byte
	RequestedBy uuid.UUID
	ApprovedBy  *uuid.UUID
	Used        bool
	Created     Timestamp
	Expires     Timestamp
	Revision    uint64
	Code        Code
}

// ApprovalRow is an approval as it was found.
type ApprovalRow struct {
	ID          Bytes
	Op          Text
	Resource    Text
	Fingerprint Bytes
	RequestedBy Bytes
	ApprovedBy  Bytes
	Used        Integer
	Created     Integer
	Expires     Integer
	Revision    Integer
	Code        CodeRow
}

// The parameters of nodes' settings.
type (
	NodeSettingParams       struct{ Node string }
	InsertNodeSettingParams struct{ Setting NodeSettingRecord }
	UpdateNodeSettingParams struct{ Setting NodeSettingRecord }
)

// NodeSettingRecord is a node's setting as it is written.
type NodeSettingRecord struct {
	Node     string
	Mode     string
	Changed  Timestamp
	Revision uint64
	Code     Code
}

// NodeSettingRow is a node's setting as it was found.
type NodeSettingRow struct {
	Node     Text
	Mode     Text
	Changed  Integer
	Revision Integer
	Code     CodeRow
}

// The parameters of policies.
type (
	PolicyParams       struct{ Version uint64 }
	ListPoliciesParams struct {
		Before uint64
		Limit  int
	}
	InsertPolicyParams struct {
		Policy   PolicyRecord
		Document []byte
	}
)

// PolicyRecord is a version of the policy as it is written, without its
// document, for which the digest stands.
type PolicyRecord struct {
	Version uint64
	Digest  []byte
	Comment string
	Created Timestamp
	By      uuid.UUID
	Code    Code
}

// PolicyRow is a version of the policy as it was found.
type PolicyRow struct {
	Version  Integer
	Document Bytes
	Digest   Bytes
	Comment  Text
	Created  Integer
	By       Bytes
	Code     CodeRow
}

// The parameters of signed heads of journals.
type (
	PutJournalHeadParams   struct{ Head JournalHeadRecord }
	ListJournalHeadsParams struct {
		Node  string
		Limit int
	}
)

// JournalHeadRecord is a signed head as it is written.
type JournalHeadRecord struct {
	Node       string
	Hour       int64 // since 1970, of Signed
	Sequence   uint64
	Hash       []byte
	Signed     Timestamp
	Algorithm  string
	KeyVersion uint32
	Signature  []byte
}

// JournalHeadRow is a signed head as it was found.
type JournalHeadRow struct {
	Sequence   Integer
	Hash       Bytes
	Signed     Integer
	Algorithm  Text
	KeyVersion Integer
	Signature  Bytes
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

// The parameters of webhooks.
type (
	WebhookParams      struct{ Tenant, ID uuid.UUID }
	ListWebhooksParams struct {
		Tenant uuid.UUID
		After  []byte // an id
		Limit  int
	}
	InsertWebhookParams struct{ Webhook WebhookRecord }
	UpdateWebhookParams struct{ Webhook WebhookRecord }
	DeleteWebhookParams struct{ Tenant, ID uuid.UUID }
	// TouchWebhookParams notes that a webhook took an event, or that it failed.
	TouchWebhookParams struct {
		Tenant, ID uuid.UUID
		Taken      bool
		Now        Timestamp
	}
)

// WebhookRecord is a webhook as it is written.
type WebhookRecord struct {
	Tenant   uuid.UUID
	ID       uuid.UUID
	URL      string
	Types    string // a JSON array of strings
	Secret   []byte
	State    string
	Created  Timestamp
	Revision uint64
	Code     Code
}

// WebhookRow is a webhook as it was found.
type WebhookRow struct {
	ID           Bytes
	URL          Text
	Types        Text
	Secret       Bytes
	State        Text
	Created      Integer
	Revision     Integer
	FailingSince Integer
	Delivered    Integer
	Code         CodeRow
}

// The parameters of deliveries.
type (
	InsertDeliveriesParams struct {
		Tenant     uuid.UUID
		Deliveries []DeliveryRecord // the tenant's
		// Keep is how many of a webhook may wait; the oldest beyond are dropped.
		Keep int
	}
	ClaimDeliveriesParams struct {
		Now, Until Timestamp // Until: nobody else claims them before
		Busy       []uuid.UUID
		OfTenant   int
		Limit      int
	}
	DeliveryParams      struct{ Tenant, Webhook, Event uuid.UUID }
	RetryDeliveryParams struct {
		DeliveryParams
		Due Timestamp
	}
	EndDeliveryParams struct {
		DeliveryParams
		Now Timestamp
	}
	DeleteEndedDeliveriesParams struct {
		Before Timestamp
		Limit  int
	}
)

// DeliveryRecord is a delivery as it is written, due when it is made.
type DeliveryRecord struct {
	Tenant  uuid.UUID
	Webhook uuid.UUID
	Event   uuid.UUID
	Once    string
	Type    string
	Body    []byte
	Created Timestamp
	Code    Code
}

// DeliveryRow is a delivery as it was found.
type DeliveryRow struct {
	Tenant   Bytes
	Webhook  Bytes
	Event    Bytes
	Once     Text
	Type     Text
	Body     Bytes
	Created  Integer
	Attempts Integer
	Code     CodeRow
}

// The parameters and rows of the records of requests.
type (
	InsertRequestRecordsParams struct{ Records []RequestRecordRecord }
	RequestRecordParams        struct {
		Tenant  uuid.UUID
		Request uuid.UUID
		Now     Timestamp
	}
	AnyRequestRecordParams struct {
		Request uuid.UUID
		Now     Timestamp
	}
	DeleteExpiredRecordsParams struct {
		Now   Timestamp
		Limit int
	}
	RequestRecordRecord struct {
		Tenant   uuid.UUID
		Request  uuid.UUID
		Document []byte
		Expires  Timestamp
	}
	RequestRecordRow struct {
		Tenant   Bytes
		Document Bytes
	}
)
