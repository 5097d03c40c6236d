package api_test

import (
	"context"
	"slices"
	"strconv"

	"github.com/sluice-kms/sluice/kms"
)

func (m *memory) NewestPolicy(context.Context) (uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return uint64(len(m.policies)), nil
}

func (m *memory) Policy(_ context.Context, version uint64) (*kms.PolicyVersion, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if version == 0 || version > uint64(len(m.policies)) {
		return nil, kms.ErrNotFound
	}
	return m.policies[version-1], nil
}

// ListPolicies has the newest first; its tokens are the versions.
func (m *memory) ListPolicies(_ context.Context, p kms.Page) ([]*kms.PolicyVersion, string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	left := m.policies
	if p.Token != "" {
		before, err := strconv.Atoi(p.Token)
		if err != nil || before < 1 || before > len(left) {
			return nil, "", kms.Errorf(kms.KindInvalidArgument, "page token")
		}
		left = left[:before-1]
	}
	list := slices.Clone(left)
	slices.Reverse(list)
	if len(list) <= p.Size {
		return list, "", nil
	}
	return list[:p.Size], strconv.FormatUint(list[p.Size-1].Version, 10), nil
}

func (m *memory) PutPolicy(_ context.Context, p *kms.PolicyVersion) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.storeFault != nil {
		return m.storeFault
	}
	if p.Version != uint64(len(m.policies))+1 {
		return kms.Errorf(kms.KindPreconditionFailed, "another revision")
	}
	m.policies = append(m.policies, p)
	return nil
}
