package kms

import (
	"context"
	"time"
)

// redoSecret makes a change of a provider secret's state again. All of them are
// gone through in their order, what puts a version into use as well: a version
// that took the place of another one may be all that is left.
func (s *Service) redoSecret(ctx context.Context, e *Entry) (bool, error) {
	id, ok := parseRef(e.Resource)
	if !ok {
		return false, ErrNotFound
	}
	was, err := s.secrets.Secret(ctx, e.target(), id)
	if err != nil {
		return false, err
	}
	next := was.Clone()
	if !next.again(e, s.clock()) {
		return false, nil
	}
	made, err := s.again(ctx, e, was.Revision, func(ctx context.Context) error {
		return s.secrets.UpdateSecret(ctx, was, next, SecretRevoked)
	})
	if made {
		s.forgetDestroyed(next)
	}
	return made, err
}

// again makes one change of state again and tells whether it changed anything. A
// version that is in that state already, or was added after the backup, is no
// error. A roll-out begins with all calls, as the journal does not tell its steps;
// one that was rolled back goes back. Dates of destruction are the latest that can
// have been asked for.
func (s *ProviderSecret) again(e *Entry, now time.Time) bool {
	v := s.Version(e.Version)
	if v != nil && v.State == SecretDestroyed || s.State == SecretGone {
		return false
	}
	switch e.Op {
	case OpDeleteSecret:
		if s.scheduleDeletion(now, MaxDeletionDays) != nil {
			return false
		}
		s.DeletionDate = latestDestruction(e)
		return true
	case OpKeeperDestroySecret:
		switch {
		case v != nil:
			s.endRollout(now, v.Number)
			v.destroy(now)
		case e.Version == 0 && s.State == SecretPendingDeletion:
			s.destroyAll(now)
		default:
			return false
		}
		return true
	case OpRollbackSecret, OpKeeperRollbackSecret:
		return v != nil && v.State == SecretActive && s.rollback(now) == nil
	}
	if v == nil {
		return false
	}
	switch e.Op {
	case OpActivateSecret:
		if s.running() { // as it was saved; it has come to its end since
			s.Rollout.Step = len(s.Rollout.Steps) - 1
			s.advance(now)
		}
		return s.activate(now, ActivateInput{Version: v.Number}) == nil
	case OpDisableSecret:
		return v.State != SecretDisabled && s.disable(now, v.Number) == nil
	case OpRestoreSecret:
		return s.restore(v.Number) == nil
	case OpDestroySecret:
		if v.State == SecretDisabled && !v.DestroyAt.IsZero() {
			return false
		}
		if v.State == SecretActive {
			s.disable(now, v.Number)
		}
		if s.scheduleDestruction(now, v.Number, MaxDeletionDays) != nil {
			return false
		}
		v.DestroyAt = latestDestruction(e)
		return true
	}
	return false
}
