package kms

import (
	"context"
	"time"
)

// EnableVersion and DisableVersion switch one version on and off; both are
// idempotent.
func (s *Service) EnableVersion(ctx context.Context, t *Ticket, ref string, number uint32) (*Key, error) {
	return s.switchVersion(ctx, t, OpEnableVersion, ref, number, VersionEnabled)
}

// DisableVersion switches a version off. See EnableVersion.
func (s *Service) DisableVersion(ctx context.Context, t *Ticket, ref string, number uint32) (*Key, error) {
	return s.switchVersion(ctx, t, OpDisableVersion, ref, number, VersionDisabled)
}

func (s *Service) switchVersion(ctx context.Context, t *Ticket, op Op, ref string, number uint32, state VersionState) (*Key, error) {
	return s.changeVersion(ctx, t, op, ref, number, func(t *Ticket, v *Version) (VersionChange, error) {
		if v.State == VersionPendingDestruction {
			return VersionChange{}, Errorf(KindPendingDeletion, "the version is scheduled for destruction; cancel that first")
		}
		return VersionChange{State: state}, nil
	})
}

// ScheduleVersionDestruction makes a version unusable and sets the date at
// which its material is erased. The primary version cannot go: new operations
// need it; rotate first.
func (s *Service) ScheduleVersionDestruction(ctx context.Context, t *Ticket, ref string, number uint32, days int) (*Key, error) {
	return s.changeVersion(ctx, t, OpDestroyVersion, ref, number, func(t *Ticket, v *Version) (VersionChange, error) {
		switch {
		case days < MinDeletionDays || days > MaxDeletionDays:
			return VersionChange{}, Errorf(KindInvalidArgument, "days: must be %d to %d", MinDeletionDays, MaxDeletionDays)
		case t.Key.DeletionProtection:
			return VersionChange{}, Errorf(KindConflict, "the key is protected from deletion; switch that off first")
		case v.Number == t.Key.Primary:
			return VersionChange{}, Errorf(KindConflict, "the version is the primary one; rotate the key first")
		case v.State == VersionPendingDestruction:
			return VersionChange{}, Errorf(KindPendingDeletion, "the version is scheduled for destruction already")
		}
		return VersionChange{State: VersionPendingDestruction, DestroyAt: s.clock().Add(time.Duration(days) * 24 * time.Hour)}, nil
	})
}

// CancelVersionDestruction takes a scheduled destruction back; the version
// stays disabled until it is enabled.
func (s *Service) CancelVersionDestruction(ctx context.Context, t *Ticket, ref string, number uint32) (*Key, error) {
	return s.changeVersion(ctx, t, OpCancelDestroy, ref, number, func(t *Ticket, v *Version) (VersionChange, error) {
		if v.State != VersionPendingDestruction {
			return VersionChange{}, Errorf(KindConflict, "the version is not scheduled for destruction")
		}
		return VersionChange{State: VersionDisabled}, nil
	})
}

func (s *Service) changeVersion(ctx context.Context, t *Ticket, op Op, ref string, number uint32,
	plan func(*Ticket, *Version) (VersionChange, error)) (*Key, error) {
	var change VersionChange
	var changed *Key
	err := s.run(ctx, t, &task{op: op, ref: ref,
		prepare: func(t *Ticket) (err error) {
			v := t.Key.Version(number)
			if v == nil || v.State == VersionDestroyed {
				return Errorf(KindInvalidArgument, "version: the key has no such version")
			}
			t.Version = number
			change, err = plan(t, v)
			return err
		},
		store: func(ctx context.Context, t *Ticket) (err error) {
			changed, err = s.lifecycle.UpdateVersion(ctx, t.By.Tenant.ID, t.Key.ID, t.Key.Revision, number, change)
			return concurrently(err)
		},
	})
	if err != nil {
		return nil, err
	}
	return changed, nil
}
