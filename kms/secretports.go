package kms

import (
	"context"
	"time"
	"uuid"
)

// ProviderSecrets stores provider secrets. Every method takes the tenant, or an
// object that has it; another tenant's secret and a missing one give
// ErrNotFound. A change gives the tenant the next revision in the transaction
// of the change. All methods are safe for concurrent use.
type ProviderSecrets interface {
	// SecretByPath costs no database call when it is warm; the result is shared
	// and must not be changed. It is not older than what SecretsRevision said
	// before.
	SecretByPath(ctx context.Context, tenant uuid.UUID, path string) (*ProviderSecret, error)
	// Secret asks the database.
	Secret(ctx context.Context, tenant, id uuid.UUID) (*ProviderSecret, error)
	// ListSecrets returns up to page.Size secrets whose path begins with prefix,
	// ordered by path, without their sealed values.
	ListSecrets(ctx context.Context, tenant uuid.UUID, prefix string, page Page) ([]*ProviderSecret, string, error)
	// CreateSecret stores a secret and sets its Revision. KindConflict when the
	// path is taken.
	CreateSecret(ctx context.Context, s *ProviderSecret) error
	// UpdateSecret stores the next state of a secret, of which was is the
	// present one, and sets next.Revision; KindPreconditionFailed when it is
	// not. Versions that are in neither are none of its business.
	UpdateSecret(ctx context.Context, was, next *ProviderSecret, kind SecretChangeKind) error
	// DueSecrets returns up to limit secrets of all tenants for which something
	// is due at now, in the order of date, tenant and id and after one. It is for
	// the service's own keeper only.
	DueSecrets(ctx context.Context, now time.Time, after DueSecret, limit int) ([]DueSecret, error)
	SecretChanges
	SecretOutcomes
}

// DueSecret names a secret for which something is due, and its place in the
// list of those; the zero one is before all.
type DueSecret struct {
	Due    time.Time
	Tenant uuid.UUID
	Secret uuid.UUID
}

// SecretChanges tells what changed.
type SecretChanges interface {
	// SecretsRevision is the tenant's revision as far as this process knows of
	// all changes: those of other processes come within about a second.
	SecretsRevision(ctx context.Context, tenant uuid.UUID) (uint64, error)
	// AwaitSecretsRevision waits until SecretsRevision is at least want, or ctx
	// ends, and returns it.
	AwaitSecretsRevision(ctx context.Context, tenant uuid.UUID, want uint64) (uint64, error)
	// ChangesOfSecrets returns up to limit changes above a revision, ascending.
	// gap tells that not all are kept.
	ChangesOfSecrets(ctx context.Context, tenant uuid.UUID, after uint64, limit int) (changes []SecretChange, gap bool, err error)
	// FollowSecrets has f called after SecretsRevision of a tenant grew; the zero
	// tenant stands for all. f must be fast. There is one follower.
	FollowSecrets(f func(tenant uuid.UUID))
}

// SecretOutcomes counts what calls with versions came to.
type SecretOutcomes interface {
	// AddOutcomes adds to what is counted; what names no version that there is
	// is left out.
	AddOutcomes(ctx context.Context, tenant uuid.UUID, list []SecretOutcome) error
	// Outcomes returns what is counted of a secret since its rollout's step
	// began: a change of the secret that begins one begins the counting anew.
	Outcomes(ctx context.Context, tenant, secret uuid.UUID) ([]SecretOutcome, error)
}

// Bounds of the changes that are kept: what a client that was away for longer
// has missed it reads anew.
const (
	SecretChangesKept   = 4096 // of a tenant
	SecretChangesMaxAge = 24 * time.Hour
)
