package kms

import (
	"context"
	"time"
)

// redoSecret makes the changes of a provider secret's states again. All of them
// are gone through in their order, what puts a version into use as well: a version
// that took the place of another one may be all that is left.
//
// Changes that the database has already are told by the secret's revision. A
// trail has none; from one, what was before the database's time only takes out of
// use.
func (s *Service) redoSecret(ctx context.Context, since time.Time, changes []*Entry, done *Redone) error {
	id, ok := parseRef(changes[0].Resource)
	if !ok {
		return s.redone(ctx, changes[0], done, false, ErrNotFound)
	}
	var saved uint64
	for _, e := range changes {
		was, err := s.secrets.Secret(ctx, e.target(), id)
		if err == nil && saved == 0 {
			saved = was.Revision
		}
		made := false
		if err == nil && !e.inDatabase(saved, since) {
			made, err = s.redoSecretState(ctx, e, was)
		}
		if err := s.redone(ctx, e, done, made, err); err != nil {
			return err
		}
	}
	return nil
}

// inDatabase tells whether a database, as of a time and with a revision of a
// secret, has a change of that.
func (e *Entry) inDatabase(revision uint64, since time.Time) bool {
	switch {
	case e.Revision > 0:
		return e.Revision < revision
	case e.Op == OpActivateSecret, e.Op == OpRollbackSecret, e.Op == OpKeeperRollbackSecret, e.Op == OpRestoreSecret:
		return e.Time.Before(since)
	}
	return false
}

func (s *Service) redoSecretState(ctx context.Context, e *Entry, was *ProviderSecret) (bool, error) {
	next := was.Clone()
	if !next.again(e) {
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

// again makes one change of state again, as of its time, and tells whether it
// changed anything. Since it was possible when it was made, the state is taken for
// one in which it was: so going through changes twice, or from earlier on than has
// to be, ends as going through them once. A version that was added after the
// backup is no error. A roll-out begins with all calls, as the journal does not
// tell its steps; one that was rolled back goes back. Dates of destruction are the
// latest that can have been asked for.
func (s *ProviderSecret) again(e *Entry) (changed bool) {
	if s.State == SecretGone {
		return false
	}
	switch e.Op {
	case OpDeleteSecret:
		if s.scheduleDeletion(e.Time, MaxDeletionDays) != nil {
			return false
		}
		s.DeletionDate = latestDestruction(e)
		return true
	case OpActivateSecret, OpRollbackSecret, OpKeeperRollbackSecret, OpRestoreSecret:
		changed = s.State != SecretInUse
		s.State, s.DeletionDate = SecretInUse, time.Time{}
	case OpKeeperDestroySecret:
		if e.Version == 0 && s.State == SecretPendingDeletion {
			s.destroyAll(e.Time)
			return true
		}
	}
	v := s.Version(e.Version)
	switch {
	case v == nil:
		return changed
	case v.State == SecretDestroyed:
		return s.replacedAgain(e) || changed
	}
	return s.versionAgain(e, v) || changed
}

// replacedAgain takes the version out of use whose place one took that is destroyed
// by now.
func (s *ProviderSecret) replacedAgain(e *Entry) bool {
	in := s.active()
	if in == nil || e.Op != OpActivateSecret && e.Op != OpRollbackSecret {
		return false
	}
	in.retire(e.Time, MaxObserve)
	return true
}

func (s *ProviderSecret) versionAgain(e *Entry, v *SecretVersion) bool {
	switch e.Op {
	case OpKeeperDestroySecret:
		s.endRollout(e.Time, v.Number)
		v.destroy(e.Time)
		return true
	case OpActivateSecret, OpRollbackSecret:
		if s.running() { // as it was saved; it has come to its end since
			s.Rollout.Step = len(s.Rollout.Steps) - 1
			s.advance(e.Time)
		}
		if v.State == SecretDisabled {
			v.State = SecretStaged
		}
		return s.activate(e.Time, ActivateInput{Version: v.Number, Observe: MaxObserve}) == nil
	case OpKeeperRollbackSecret: // which names the version that failed
		if v.State != SecretActive {
			return false
		}
		if s.rollback(e.Time) != nil { // the version before has ended since
			v.retire(e.Time, MaxObserve)
		}
		v.DestroyAt = e.Time.Add(MaxObserve)
		return true
	case OpDisableSecret:
		return v.State != SecretDisabled && s.disable(e.Time, v.Number) == nil
	case OpRestoreSecret:
		if v.State == SecretActive {
			s.disable(e.Time, v.Number)
		}
		return s.restore(v.Number) == nil
	case OpDestroySecret:
		if v.State == SecretDisabled && !v.DestroyAt.IsZero() {
			return false
		}
		s.disable(e.Time, v.Number)
		v.DestroyAt = latestDestruction(e)
		return true
	}
	return false
}
