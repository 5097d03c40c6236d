package api_test

import (
	"context"
	"slices"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

func (m *memory) CreateApproval(_ context.Context, a *kms.Approval) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.approvals = append(m.approvals, a)
	return nil
}

// changeApproval replaces an approval by a changed copy, since readers share
// it.
func (m *memory) changeApproval(id uuid.UUID, f func(*kms.Approval) bool) (*kms.Approval, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	i := slices.IndexFunc(m.approvals, func(a *kms.Approval) bool { return a.ID == id })
	if i < 0 {
		return nil, kms.ErrNotFound
	}
	changed := *m.approvals[i]
	if !f(&changed) {
		return nil, kms.Errorf(kms.KindConflict, "the approval was given or used already")
	}
	m.approvals[i] = &changed
	return &changed, nil
}

func (m *memory) Approval(_ context.Context, id uuid.UUID) (*kms.Approval, error) {
	return m.changeApproval(id, func(*kms.Approval) bool { return true })
}

func (m *memory) Approve(_ context.Context, id, by uuid.UUID) (*kms.Approval, error) {
	return m.changeApproval(id, func(a *kms.Approval) bool {
		free := a.ApprovedBy == uuid.Nil() && a.RequestedBy != by
		a.ApprovedBy = by
		return free
	})
}

func (m *memory) UseApproval(_ context.Context, id uuid.UUID) error {
	_, err := m.changeApproval(id, func(a *kms.Approval) bool {
		free := !a.Used && a.ApprovedBy != uuid.Nil()
		a.Used = true
		return free
	})
	return err
}

func (m *memory) ListApprovals(_ context.Context, p kms.Page) ([]*kms.Approval, string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return page(slices.Clone(m.approvals), func(a *kms.Approval) string { return a.ID.String() }, p)
}

func (m *memory) DeleteTenant(_ context.Context, id uuid.UUID, _ uint64, requested, void time.Time) (*kms.Tenant, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := *m.tenants[id]
	t.State, t.Sealing.Wrapped = kms.TenantDeleting, nil
	t.Deletion = &kms.Deletion{Requested: requested, Void: void}
	t.Revision++
	m.tenants[id] = &t
	return &t, nil
}

func (m *memory) AdvanceDeletion(context.Context, uuid.UUID, uint64, kms.TenantState, time.Time) (*kms.Tenant, error) {
	panic("the keeper does not run here")
}

func (m *memory) DueDeletions(context.Context, time.Time, uuid.UUID, int) ([]uuid.UUID, error) {
	return nil, nil
}
