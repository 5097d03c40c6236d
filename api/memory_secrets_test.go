package api_test

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// secretBook is the part of memory for provider secrets.
type secretBook struct {
	secrets   map[uuid.UUID]*kms.ProviderSecret
	revisions map[uuid.UUID]uint64
	changes   map[uuid.UUID][]kms.SecretChange
	outcomes  map[uuid.UUID][]kms.SecretOutcome
	follow    func(uuid.UUID)
}

func newSecretBook() secretBook {
	return secretBook{secrets: map[uuid.UUID]*kms.ProviderSecret{}, revisions: map[uuid.UUID]uint64{},
		changes: map[uuid.UUID][]kms.SecretChange{}, outcomes: map[uuid.UUID][]kms.SecretOutcome{}}
}

func (m *memory) Secret(_ context.Context, tenant, id uuid.UUID) (*kms.ProviderSecret, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.storeFault != nil {
		return nil, m.storeFault
	}
	if s := m.book.secrets[id]; s != nil && s.Tenant == tenant && s.State != kms.SecretGone {
		return s, nil
	}
	return nil, kms.ErrNotFound
}

func (m *memory) SecretByPath(_ context.Context, tenant uuid.UUID, path string) (*kms.ProviderSecret, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.storeFault != nil {
		return nil, m.storeFault
	}
	for _, s := range m.book.secrets {
		if s.Tenant == tenant && s.Path == path && s.State != kms.SecretGone {
			return s, nil
		}
	}
	return nil, kms.ErrNotFound
}

func (m *memory) ListSecrets(_ context.Context, tenant uuid.UUID, prefix string, p kms.Page) ([]*kms.ProviderSecret, string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var list []*kms.ProviderSecret
	for _, s := range m.book.secrets {
		if s.Tenant == tenant && strings.HasPrefix(s.Path, prefix) && s.State != kms.SecretGone {
			list = append(list, s)
		}
	}
	return page(list, func(s *kms.ProviderSecret) string { return s.Path }, p)
}

func (m *memory) CreateSecret(ctx context.Context, s *kms.ProviderSecret) error {
	if _, err := m.SecretByPath(ctx, s.Tenant, s.Path); err == nil {
		return kms.Errorf(kms.KindConflict, "path: is taken")
	}
	m.putSecret(s, kms.SecretChanged)
	return nil
}

func (m *memory) UpdateSecret(ctx context.Context, was, next *kms.ProviderSecret, kind kms.SecretChangeKind) error {
	if now, err := m.Secret(ctx, was.Tenant, was.ID); err != nil || now.Revision != was.Revision {
		return cmp.Or(err, error(kms.Errorf(kms.KindPreconditionFailed, "the revision is another")))
	}
	m.putSecret(next, kind)
	return nil
}

func (m *memory) putSecret(s *kms.ProviderSecret, kind kms.SecretChangeKind) {
	m.mu.Lock()
	b := &m.book
	b.revisions[s.Tenant]++
	s.Revision = b.revisions[s.Tenant]
	b.secrets[s.ID] = s
	b.changes[s.Tenant] = append(b.changes[s.Tenant], kms.SecretChange{Revision: s.Revision, Path: s.Path, Kind: kind})
	m.mu.Unlock()
	b.follow(s.Tenant)
}

func (m *memory) SecretsRevision(_ context.Context, tenant uuid.UUID) (uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.book.revisions[tenant], m.storeFault
}

func (m *memory) AwaitSecretsRevision(ctx context.Context, tenant uuid.UUID, _ uint64) (uint64, error) {
	<-ctx.Done() // nobody else changes anything
	return m.SecretsRevision(ctx, tenant)
}

func (m *memory) ChangesOfSecrets(_ context.Context, tenant uuid.UUID, after uint64, limit int) ([]kms.SecretChange, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := m.book.changes[tenant]
	all = all[min(int(after), len(all)):]
	return slices.Clone(all[:min(limit, len(all))]), false, nil
}

func (m *memory) FollowSecrets(f func(uuid.UUID)) { m.book.follow = f }

func (m *memory) DueSecrets(context.Context, time.Time, kms.DueSecret, int) ([]kms.DueSecret, error) {
	return nil, nil
}

func (m *memory) AddOutcomes(_ context.Context, _ uuid.UUID, list []kms.SecretOutcome) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, o := range list {
		counted := m.book.outcomes[o.Secret]
		i := slices.IndexFunc(counted, func(c kms.SecretOutcome) bool { return c.Version == o.Version })
		if i < 0 {
			m.book.outcomes[o.Secret] = append(counted, o)
			continue
		}
		c := &counted[i]
		c.OK, c.Credential, c.Quota, c.RateLimit, c.Transient = c.OK+o.OK, c.Credential+o.Credential, c.Quota+o.Quota, c.RateLimit+o.RateLimit, c.Transient+o.Transient
	}
	return nil
}

func (m *memory) Outcomes(_ context.Context, _, secret uuid.UUID) ([]kms.SecretOutcome, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.book.outcomes[secret]), nil
}

// Publish implements kms.Events.
func (m *memory) Publish(e kms.Event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.published = append(m.published, e)
}
