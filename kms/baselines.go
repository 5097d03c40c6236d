package kms

import (
	"context"
	"uuid"
)

// CredentialBaselines stores what is usual of credentials, in the form of
// package abuse.
type CredentialBaselines interface {
	// Baseline returns nil when none is stored, or one that somebody changed.
	Baseline(ctx context.Context, tenant, credential uuid.UUID) ([]byte, error)
	// PutBaselines stores them in place of those that there are. Those of missing
	// credentials are left out.
	PutBaselines(ctx context.Context, list []StoredBaseline) error
}

// StoredBaseline is what is usual of a credential.
type StoredBaseline struct {
	Tenant, Credential uuid.UUID
	Document           []byte
}

// MaxBaseline bounds a stored baseline in bytes.
const MaxBaseline = 2048
