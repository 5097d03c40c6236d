package api_test

import (
	"context"
	"slices"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// alias is a name that stands for a key of a tenant.
type alias struct {
	tenant uuid.UUID
	name   string
}

func (m *memory) UpdateVersion(_ context.Context, _, key uuid.UUID, revision uint64, number uint32, c kms.VersionChange) (*kms.Key, error) {
	return m.change(key, revision, func(k *kms.Key) {
		v := *k.Version(number)
		v.State, v.DestroyAt = c.State, c.DestroyAt
		k.Versions = slices.Clone(k.Versions)
		k.Versions[number-1] = &v
	})
}

func (m *memory) DestroyVersion(ctx context.Context, tenant, key uuid.UUID, revision uint64, number uint32) (*kms.Key, error) {
	return m.UpdateVersion(ctx, tenant, key, revision, number, kms.VersionChange{State: kms.VersionDestroyed})
}

func (m *memory) DestroyKey(_ context.Context, _, key uuid.UUID, _ uint64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.keys, key)
	return nil
}

func (m *memory) SetRotation(_ context.Context, _, key uuid.UUID, revision uint64, period time.Duration, next time.Time) (*kms.Key, error) {
	return m.change(key, revision, func(k *kms.Key) { k.RotationPeriod, k.NextRotation = period, next })
}

func (m *memory) DueKeys(context.Context, time.Time, kms.DueKey, int) ([]kms.DueKey, error) {
	return nil, nil
}

func (m *memory) LeaseNonces(_ context.Context, _, _ uuid.UUID, _ uint32, block uint64) (uint64, error) {
	return block, nil
}

func (m *memory) TouchKeys(_ context.Context, uses []kms.KeyUse) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, u := range uses {
		k := *m.keys[u.Key]
		k.LastUsed, k.LastUsedOp = u.Time, u.Op
		m.keys[u.Key] = &k
	}
	return nil
}

func (m *memory) TouchCredentials(context.Context, []kms.CredentialUse) error { return nil }

func (m *memory) SetAlias(_ context.Context, tenant, key uuid.UUID, name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.aliases[alias{tenant, name}] = key
	return nil
}

func (m *memory) DeleteAlias(_ context.Context, tenant uuid.UUID, name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.aliases, alias{tenant, name})
	return nil
}

func (m *memory) AliasRevision(_ context.Context, tenant uuid.UUID, name string) (uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.aliases[alias{tenant, name}]; ok {
		return kms.FirstAliasRevision, nil
	}
	return 0, nil
}

func (m *memory) KeyAliases(_ context.Context, tenant, key uuid.UUID) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var names []string
	for a, id := range m.aliases {
		if a.tenant == tenant && id == key {
			names = append(names, a.name)
		}
	}
	slices.Sort(names)
	return names, nil
}

func (m *memory) ListAliases(_ context.Context, tenant uuid.UUID, p kms.Page) ([]kms.Alias, string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var list []kms.Alias
	for a, id := range m.aliases {
		if a.tenant == tenant {
			list = append(list, kms.Alias{Name: a.name, Key: id})
		}
	}
	return page(list, func(a kms.Alias) string { return a.Name }, p)
}
