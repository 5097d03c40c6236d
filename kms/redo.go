package kms

import (
	"context"
	"log/slog"
	"slices"
	"time"
	"uuid"
)

// A database that was restored is as it was when it was saved: what was disabled,
// revoked or destroyed since is as before. The journal has those changes. They
// are made once more before the service serves: the last state of each key and
// version that takes something away, every end of a credential, webhook or
// tenant, a tenant's suspension, what was taken from a credential, and all states
// of a provider secret's versions, one after the other. What gives something, or
// only describes, is not made again, since the journal does not hold what it was
// made with; it is counted and told.

// restoreComponent is who acts, in the journal.
const restoreComponent = "restore"

// Redone is what became of changes that were to be made again.
type Redone struct {
	Made    int // objects and versions that were changed
	Already int // that were in that state, or are not in the database
	Failed  int // that could not be changed; the log says which
	// Left counts changes that are not made again.
	Left map[Op]int
}

// redoObject is what a change is of.
type redoObject struct {
	op      Op // of what is not a key's: how it ends, or one for all changes of a kind
	tenant  uuid.UUID
	key     uuid.UUID
	version uint32 // 0: the key
	other   string
}

// redoOf tells of what a change is that may have to be made again; false for
// one that is left.
func redoOf(e *Entry) (redoObject, bool) {
	o := redoObject{tenant: e.target(), key: e.Key}
	switch e.Op {
	case OpEnableKey, OpDisableKey, OpDeleteKey, OpCancelDel:
	case OpEnableVersion, OpDisableVersion, OpDestroyVersion, OpCancelDestroy, OpKeeperDestroy:
		o.version = e.Version
	case OpRevokeCredential, OpKeeperRevoke:
		o.op, o.other = OpRevokeCredential, e.Resource
	case OpDeleteWebhook, OpDeleteTenant, OpRotateCredential:
		o.op, o.other = e.Op, e.Resource
	case OpSuspendTenant, OpResumeTenant:
		o.op, o.other = OpSuspendTenant, e.Resource
	case OpKeeperFlag, OpClearCredential:
		o.op, o.other = OpKeeperFlag, e.Resource
	case OpGiveSecretGrant, OpTakeSecretGrant:
		if len(e.Items) != 1 {
			return o, false
		}
		o.op, o.key, o.other = OpTakeSecretGrant, e.Items[0].Secret, e.Resource
	case OpActivateSecret, OpRollbackSecret, OpDisableSecret, OpDestroySecret, OpRestoreSecret, OpDeleteSecret,
		OpKeeperRollbackSecret, OpKeeperDestroySecret:
		o.op, o.other = OpKeeperDestroySecret, e.Resource
	default:
		return o, false
	}
	return o, true
}

// redoOrder brings versions before their keys, so that a key still can be
// rotated, rotations of a credential before its other changes, since they are
// told from newer ones by its revision, and tenants last.
func redoOrder(o redoObject) int {
	switch {
	case o.version != 0, o.op == OpRotateCredential:
		return 0
	case o.op == OpDeleteTenant:
		return 2
	case o.op == OpSuspendTenant: // which a deleted one is
		return 3
	}
	return 1
}

// Redo makes changes again that were made after a time, by the intents that tell
// of them, in any order. It is called before the first request. It ends with the
// error of a part of the service that is away; then it is to be called again.
func (s *Service) Redo(ctx context.Context, since time.Time, changes []*Entry) (*Redone, error) {
	system, err := s.tenants.TenantByRef(ctx, SystemTenantName)
	if err != nil {
		return nil, err
	}
	all := &Entry{Time: s.clock(), RequestID: newID(), Tenant: system.ID, Project: DefaultProject, Component: restoreComponent,
		Op: OpRestore, Resource: since.UTC().Format(time.RFC3339), Settlement: Cancelled}
	if err := s.recordOwn(ctx, all, PhaseIntent, nil); err != nil {
		return nil, err
	}
	changes = slices.Clone(changes)
	slices.SortStableFunc(changes, func(a, b *Entry) int { return a.Time.Compare(b.Time) })
	done := &Redone{Left: make(map[Op]int)}
	of := make(map[redoObject][]*Entry)
	for _, e := range changes {
		o, ok := redoOf(e)
		switch {
		case !ok:
			done.Left[e.Op]++
		case o.op == OpKeeperDestroySecret:
			of[o] = append(of[o], e)
		case len(of[o]) == 0 || of[o][0].Op != OpKeeperDestroy: // which is the end
			of[o] = []*Entry{e}
		}
	}
	objects := make([]redoObject, 0, len(of))
	for o := range of {
		objects = append(objects, o)
	}
	slices.SortFunc(objects, func(a, b redoObject) int { return redoOrder(a) - redoOrder(b) })
	for _, o := range objects {
		if err := s.redoObject(ctx, since, o, of[o], done); err != nil {
			return done, err
		}
	}
	if err := s.stopRestored(ctx); err != nil {
		return done, err
	}
	return done, s.recordOwn(ctx, all, PhaseOutcome, nil)
}

// redoObject makes the changes of an object again that count: of a secret all, of
// the others the last.
func (s *Service) redoObject(ctx context.Context, since time.Time, o redoObject, changes []*Entry, done *Redone) error {
	if o.op == OpKeeperDestroySecret {
		return s.redoSecret(ctx, since, changes, done)
	}
	made, err := s.redoChange(ctx, since, o, changes[0])
	return s.redone(ctx, changes[0], done, made, err)
}

// redone counts what became of a change. The error is that of a part of the
// service that is away.
func (s *Service) redone(ctx context.Context, e *Entry, done *Redone, made bool, err error) error {
	switch KindOf(err) {
	case KindStoreUnavailable, KindHSMUnavailable, KindAuditUnavailable:
		if err != nil {
			return err
		}
	case KindNotFound: // made after the backup, and so not in it
		made, err = false, nil
	}
	switch {
	case err != nil:
		done.Failed++
		s.log.LogAttrs(ctx, slog.LevelError, "a change from before the restore could not be made again", slog.String("alarm", "restore"),
			slog.String("op", string(e.Op)), slog.String("key", e.Key.String()), slog.Int("version", int(e.Version)),
			slog.String("resource", e.Resource), slog.Any("error", err))
	case made:
		done.Made++
	default:
		done.Already++
	}
	return nil
}

func (s *Service) redoChange(ctx context.Context, since time.Time, o redoObject, e *Entry) (made bool, err error) {
	switch {
	case o.op == OpRevokeCredential:
		return s.redoRevoke(ctx, e)
	case o.op == OpRotateCredential:
		return s.redoRotate(ctx, since, e)
	case o.op == OpKeeperFlag:
		return s.redoFlag(ctx, e)
	case o.op == OpTakeSecretGrant:
		return s.redoTake(ctx, e)
	case o.op == OpDeleteWebhook:
		return s.redoWebhook(ctx, e)
	case o.op == OpSuspendTenant:
		return s.redoSuspend(ctx, e)
	case o.op == OpDeleteTenant:
		return s.redoTenant(ctx, e)
	case o.version != 0:
		return s.redoVersion(ctx, e)
	}
	return s.redoKey(ctx, e)
}

// again records a change and makes it, unless it is nil.
func (s *Service) again(ctx context.Context, e *Entry, revision uint64, change func(context.Context) error) (bool, error) {
	if change == nil {
		return false, nil
	}
	r := &Entry{Time: s.clock(), RequestID: newID(), Tenant: e.Tenant, Target: e.Target, Project: e.Project, Component: restoreComponent,
		Op: e.Op, Key: e.Key, KeyName: e.KeyName, Version: e.Version, Spec: e.Spec, Protection: e.Protection, Resource: e.Resource,
		Revision: revision, Items: e.Items, Settlement: Cancelled}
	if err := s.recordOwn(ctx, r, PhaseIntent, nil); err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	err := change(ctx)
	if rerr := s.recordOwn(ctx, r, PhaseOutcome, err); rerr != nil {
		return false, rerr
	}
	return err == nil, err
}

func (s *Service) redoKey(ctx context.Context, e *Entry) (bool, error) {
	key, err := s.keys.Lookup(ctx, e.Tenant, e.Key.String())
	if err != nil {
		return false, err
	}
	var change func(context.Context) error
	become := func(c KeyChange) {
		change = func(ctx context.Context) error {
			_, err := s.keys.UpdateKey(ctx, e.Tenant, key.ID, key.Revision, c)
			return err
		}
	}
	disabled, pending, never, date := KeyDisabled, KeyPendingDeletion, time.Time{}, latestDestruction(e)
	switch {
	case e.Op == OpKeeperDestroy:
		change = func(ctx context.Context) error { return s.lifecycle.DestroyKey(ctx, e.Tenant, key.ID, key.Revision) }
	case e.Op == OpDeleteKey && key.State != KeyPendingDeletion:
		become(KeyChange{State: &pending, DeletionDate: &date})
	case e.Op == OpDisableKey && key.State == KeyEnabled:
		become(KeyChange{State: &disabled})
	case e.Op == OpCancelDel && key.State != KeyDisabled:
		become(KeyChange{State: &disabled, DeletionDate: &never})
	}
	return s.again(ctx, e, key.Revision, change)
}

// latestDestruction is the latest date that a request can have set, which the
// journal does not tell: nothing is destroyed earlier than was asked for.
func latestDestruction(e *Entry) time.Time { return e.Time.Add(MaxDeletionDays * 24 * time.Hour) }

func (s *Service) redoVersion(ctx context.Context, e *Entry) (bool, error) {
	key, err := s.keys.Lookup(ctx, e.Tenant, e.Key.String())
	if err != nil {
		return false, err
	}
	v := key.Version(e.Version)
	if v == nil || v.State == VersionDestroyed {
		return false, nil
	}
	var change func(context.Context) error
	become := func(c VersionChange) {
		change = func(ctx context.Context) error {
			_, err := s.lifecycle.UpdateVersion(ctx, e.Tenant, key.ID, key.Revision, v.Number, c)
			return err
		}
	}
	switch {
	case e.Op == OpKeeperDestroy:
		if v.Number == key.Primary { // the rotation before it was lost with the database
			if key, err = s.rotate(ctx, s.keeperTicket(key.Tenant, key.Project), OpKeeperRotate, key.ID.String(), always); err != nil {
				return false, err
			}
		}
		change = func(ctx context.Context) error {
			_, err := s.lifecycle.DestroyVersion(ctx, e.Tenant, key.ID, key.Revision, v.Number)
			return err
		}
	case e.Op == OpDestroyVersion && v.State != VersionPendingDestruction:
		become(VersionChange{State: VersionPendingDestruction, DestroyAt: latestDestruction(e)})
	case e.Op == OpDisableVersion && v.State == VersionEnabled, e.Op == OpCancelDestroy && v.State != VersionDisabled:
		become(VersionChange{State: VersionDisabled})
	}
	return s.again(ctx, e, key.Revision, change)
}

func (s *Service) redoWebhook(ctx context.Context, e *Entry) (bool, error) {
	id, ok := parseRef(e.Resource)
	if !ok {
		return false, ErrNotFound
	}
	w, err := s.webhooks.Webhook(ctx, e.target(), id)
	if err != nil {
		return false, err
	}
	return s.again(ctx, e, w.Revision, func(ctx context.Context) error { return s.webhooks.DeleteWebhook(ctx, w.Tenant, w.ID) })
}

func (s *Service) redoSuspend(ctx context.Context, e *Entry) (bool, error) {
	t, err := s.tenants.TenantByRef(ctx, e.Resource)
	if err != nil || t.State != TenantActive || e.Op == OpResumeTenant {
		return false, err
	}
	return s.again(ctx, e, t.Revision, func(ctx context.Context) error {
		suspended := TenantSuspended
		_, err := s.tenants.UpdateTenant(ctx, t.ID, t.Revision, TenantChange{State: &suspended})
		return err
	})
}

func (s *Service) redoTenant(ctx context.Context, e *Entry) (bool, error) {
	t, err := s.tenants.TenantByRef(ctx, e.Resource)
	if err != nil || t.Deleted() {
		return false, err
	}
	return s.again(ctx, e, t.Revision, func(ctx context.Context) (err error) {
		if t.State != TenantSuspended {
			suspended := TenantSuspended
			if t, err = s.tenants.UpdateTenant(ctx, t.ID, t.Revision, TenantChange{State: &suspended}); err != nil {
				return err
			}
		}
		// The copies that were restored live from now on.
		_, err = s.deletions.DeleteTenant(ctx, t.ID, t.Revision, e.Time, s.clock().Add(s.copiesLive))
		return err
	})
}
