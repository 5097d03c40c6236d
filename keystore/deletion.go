package keystore

import (
	"context"
	"slices"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// DeleteTenant implements kms.TenantDeletions. KindInvalidArgument when the
// copies are void before the deletion.
func (s *Store) DeleteTenant(ctx context.Context, id uuid.UUID, revision uint64, requested, void time.Time) (*kms.Tenant, error) {
	return s.changeTenant(ctx, id, revision, func(t *kms.Tenant) error {
		if t.State != kms.TenantSuspended {
			return kms.Errorf(kms.KindConflict, "the tenant is not suspended")
		}
		t.State = kms.TenantDeleting
		t.Sealing.Wrapped = nil
		t.Deletion = &kms.Deletion{Requested: storedTime(requested), Void: storedTime(void)}
		return nil
	})
}

// AdvanceDeletion implements kms.TenantDeletions.
func (s *Store) AdvanceDeletion(ctx context.Context, id uuid.UUID, revision uint64, to kms.TenantState, at time.Time) (*kms.Tenant, error) {
	return s.changeTenant(ctx, id, revision, func(t *kms.Tenant) error {
		switch {
		case t.State == kms.TenantDeleting && to == kms.TenantDeleted:
			t.Deletion.Erased = storedTime(at)
		case t.State == kms.TenantDeleted && to == kms.TenantShredded:
			t.Deletion.Shredded = storedTime(at)
		default:
			return kms.Errorf(kms.KindConflict, "the tenant's deletion is at another step")
		}
		t.State = to
		return nil
	})
}

// DueDeletions implements kms.TenantDeletions. Rows that name no tenant are
// reported to the log and left out.
func (s *Store) DueDeletions(ctx context.Context, now time.Time, after uuid.UUID, limit int) ([]uuid.UUID, error) {
	if limit < 1 {
		return nil, errArgument("limit", reasonRange)
	}
	if _, err := s.coder(); err != nil {
		return nil, err
	}
	rows, err := s.driver.DueDeletions(ctx, DueDeletionsParams{Now: timestamp(now), After: after, Limit: limit})
	if err != nil {
		return nil, translate(err)
	}
	due := make([]uuid.UUID, 0, len(rows))
	for _, row := range rows {
		d := newDecoder(ObjectTenant, rowID(row), rowID(row))
		id := d.id(row, "id")
		if err := d.result(); err != nil {
			s.damaged(err)
			continue
		}
		due = append(due, id)
	}
	return due, nil
}

// checkDeletion checks that what is known of a tenant's deletion goes with its
// state.
func checkDeletion(t *kms.Tenant, fail failFunc) {
	deleted := slices.Contains([]kms.TenantState{kms.TenantDeleting, kms.TenantDeleted, kms.TenantShredded}, t.State)
	if deleted != t.Deleted() {
		fail("deleted_at", "does not go with the state")
		return
	}
	if deleted != (len(t.Sealing.Wrapped) == 0) {
		fail("sealing key", "does not go with the state")
	}
	if !deleted {
		return
	}
	switch d := t.Deletion; {
	case d.Requested.IsZero() || d.Void.Before(d.Requested):
		fail("void_at", reasonRange)
	case d.Erased.IsZero() != (t.State == kms.TenantDeleting):
		fail("erased_at", "does not go with the state")
	case d.Shredded.IsZero() == (t.State == kms.TenantShredded):
		fail("shredded_at", "does not go with the state")
	}
}

// deletion reads what a row says of its tenant's deletion, nil for nothing.
func (d *decoder) deletion(r *TenantRow) *kms.Deletion {
	deletion := kms.Deletion{
		Requested: d.maybeTime(r.Deleted, "deleted_at"),
		Void:      d.maybeTime(r.Void, "void_at"),
		Erased:    d.maybeTime(r.Erased, "erased_at"),
		Shredded:  d.maybeTime(r.Shredded, "shredded_at"),
	}
	if deletion == (kms.Deletion{}) {
		return nil
	}
	return &deletion
}

// deletion adds a deletion to its tenant's record.
func (r *TenantRecord) deletion(d *kms.Deletion) {
	if d == nil {
		return
	}
	r.Deleted, r.Void = maybeTimestamp(d.Requested), maybeTimestamp(d.Void)
	r.Erased, r.Shredded = maybeTimestamp(d.Erased), maybeTimestamp(d.Shredded)
}
