package keystore

import "uuid"

// The parameters and rows of provider secrets.
type (
	ProviderSecretParams     struct{ Tenant, ID uuid.UUID }
	ProviderSecretPathParams struct {
		Tenant uuid.UUID
		Path   string
	}
	// ListProviderSecretsParams asks for paths from From, or after After where
	// that is later, and before Before.
	ListProviderSecretsParams struct {
		Tenant              uuid.UUID
		From, After, Before string
		Limit               int
	}
	InsertProviderSecretParams struct {
		Secret   ProviderSecretRecord
		Versions []ProviderVersionRecord
		SecretChangeParams
	}
	UpdateProviderSecretParams struct {
		Secret    ProviderSecretRecord
		Was       uint64 // the secret's revision before
		Added     []ProviderVersionRecord
		Destroyed []uint32 // numbers of versions whose rows go
		// Uncount removes what is counted of outcomes.
		Uncount bool
		SecretChangeParams
	}
	// SecretChangeParams goes with every change of a secret: the tenant's next
	// revision, and what changed.
	SecretChangeParams struct {
		Revision SecretRevisionRecord
		Change   SecretChangeRecord
		// Oldest is the first revision whose change is kept.
		Oldest uint64
	}
	SecretRevisionParams struct{ Tenant uuid.UUID }
	SecretChangesParams  struct {
		Tenant uuid.UUID
		After  uint64
		Limit  int
	}
	DeleteSecretChangesParams struct {
		Before Timestamp
		Limit  int
	}
	AddSecretOutcomesParams struct {
		Tenant   uuid.UUID
		Outcomes []SecretOutcomeRecord
	}
	SecretOutcomesParams struct{ Tenant, Secret uuid.UUID }
)

// ProviderSecretRecord is a provider secret as it is written.
type ProviderSecretRecord struct {
	Tenant   uuid.UUID
	ID       uuid.UUID
	Path     string
	State    string
	Document []byte
	Due      *Timestamp
	Revision uint64 // the tenant's
	Code     Code
}

// ProviderSecretRow is a provider secret as it was found, with the values of its
// versions, ascending, if they were asked for.
type ProviderSecretRow struct {
	ID       Bytes
	Path     Text
	State    Text
	Document Bytes
	Due      Integer
	Revision Integer
	Code     CodeRow
	Versions []ProviderVersionRow
}

// ProviderVersionRecord is the value of a version as it is written.
type ProviderVersionRecord struct {
	Number  uint32
	DataKey []byte
	Value   []byte
	Code    Code
}

// ProviderVersionRow is the value of a version as it was found.
type ProviderVersionRow struct {
	Number  Integer
	DataKey Bytes
	Value   Bytes
	Code    CodeRow
}

// SecretRevisionRecord is a tenant's revision as it is written.
type SecretRevisionRecord struct {
	Tenant   uuid.UUID
	Revision uint64
	Code     Code
}

// SecretRevisionRow is a tenant's revision as it was found.
type SecretRevisionRow struct {
	Revision Integer
	Code     CodeRow
}

// SecretChangeRecord is a change as it is written.
type SecretChangeRecord struct {
	Tenant   uuid.UUID
	Revision uint64
	Path     string
	Kind     string
	Made     Timestamp
	Code     Code
}

// SecretChangeRow is a change as it was found.
type SecretChangeRow struct {
	Revision Integer
	Path     Text
	Kind     Text
	Made     Integer
	Code     CodeRow
}

// SecretOutcomeRecord is what is added to the counts of a version.
type SecretOutcomeRecord struct {
	Secret                                      uuid.UUID
	Version                                     uint32
	OK, Credential, Quota, RateLimit, Transient int64
}

// SecretOutcomeRow is what was counted of a version.
type SecretOutcomeRow struct {
	Version                                     Integer
	OK, Credential, Quota, RateLimit, Transient Integer
}
