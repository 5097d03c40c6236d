package kms

import (
	"context"
	"log/slog"
	"time"
	"uuid"
)

// The outcomes of intents that a crash left without one, as the store tells
// them afterwards. Each change is one transaction of the store, so there is
// nothing half-made to complete or undo: what is missing is the entry that
// says how it ended.
const (
	// OutcomeFoundDone: what the request was to make is there.
	OutcomeFoundDone = "found_done"
	// OutcomeFoundUndone: the object is absent, or as it was before.
	OutcomeFoundUndone = "found_undone"
	// OutcomeFoundChanged: the object has changed since; by this request,
	// unless another request's outcome says that it was its own change.
	OutcomeFoundChanged = "found_changed"
	// OutcomeFoundUnknown: the object cannot be read, or is gone.
	OutcomeFoundUnknown = "found_unknown"
)

// reconcileTimeout bounds the reconciliation of one start: there are no more
// intents than requests were under way.
const reconcileTimeout = 30 * time.Second

// Reconcile closes intents that have no outcome: it looks at what became of
// each change and records that as the outcome, which charges nothing, since
// nobody got an answer. It is called at the start, before the first request,
// with the intents of this node's own journal. It returns how many it closed;
// with KindAuditUnavailable, the others stay open for the next start.
func (s *Service) Reconcile(ctx context.Context, intents []*Entry) (closed int, err error) {
	ctx, cancel := context.WithTimeout(ctx, reconcileTimeout)
	defer cancel()
	for _, intent := range intents {
		e := *intent
		e.Phase, e.Time, e.Revision = PhaseOutcome, s.clock(), 0
		e.Outcome = s.found(ctx, intent)
		e.Settlement, e.Charged = Cancelled, 0
		if err := s.journal.Record(ctx, &e); err != nil {
			return closed, Wrap(KindAuditUnavailable, err, "the journal cannot record the outcome of an earlier change")
		}
		closed++
		s.log.LogAttrs(ctx, slog.LevelWarn, "a change was under way when the service ended",
			slog.String("request_id", e.RequestID.String()), slog.String("op", string(e.Op)), slog.String("outcome", e.Outcome))
	}
	return closed, nil
}

// found tells what became of a change.
func (s *Service) found(ctx context.Context, e *Entry) string {
	switch e.Op {
	case OpSetAlias, OpDeleteAlias:
		return s.foundAlias(ctx, e)
	case OpCreateProject:
		return s.foundProject(ctx, e)
	case OpApprove:
		return s.foundApproval(ctx, e)
	case OpSetNodeMode:
		return s.foundNode(ctx, e)
	case OpPutPolicy:
		return s.foundPolicy(ctx, e)
	case OpCreateTenant, OpUpdateTenant, OpSuspendTenant, OpResumeTenant, OpDeleteTenant, OpKeeperErase, OpKeeperShred, OpRewrapTenant:
		return s.foundTenant(ctx, e)
	case OpCreateCredential, OpRotateCredential, OpRevokeCredential, OpKeeperRevoke,
		OpClearCredential, OpEnrolCode, OpProveCredential, OpKeeperFlag, OpGiveSecretGrant, OpTakeSecretGrant:
		return s.foundCredential(ctx, e)
	case OpCreateWebhook, OpDeleteWebhook:
		return s.foundWebhook(ctx, e)
	case OpCreateSecret, OpUpdateSecret, OpDeleteSecret, OpAddSecretVersion, OpActivateSecret, OpRollbackSecret, OpDisableSecret,
		OpDestroySecret, OpRestoreSecret, OpKeeperAdvanceSecret, OpKeeperRollbackSecret, OpKeeperDestroySecret:
		return s.foundSecret(ctx, e)
	case OpPutRoute, OpDeleteRoute:
		return s.foundRoute(ctx, e)
	case OpLiftCost:
		return s.foundCostLift(ctx, e)
	case OpCreateJob, OpCancelJob, OpDeleteJob:
		return s.foundJob(ctx, e)
	case OpSetSecretGrants:
		return OutcomeFoundUnknown // some of the credentials may have been changed
	case OpRewrapKeys, OpRetireRoots, OpInitDomain, OpJoinDomain, OpReplaceRoots, OpGiveRoots, OpRestore:
		return OutcomeFoundUnknown // how far it came; repeating it does the rest
	}
	return s.foundKey(ctx, e)
}

// since compares the revision of an object that is there with the one before
// the change.
func since(before, now uint64) string {
	switch {
	case before == 0:
		return OutcomeFoundDone // made by the request: its id was new
	case now == before:
		return OutcomeFoundUndone
	}
	return OutcomeFoundChanged
}

// missing tells what it means that an object was not found or not read.
func missing(err error, revision uint64) string {
	if KindOf(err) == KindNotFound && revision == 0 {
		return OutcomeFoundUndone
	}
	return OutcomeFoundUnknown
}

func (s *Service) foundKey(ctx context.Context, e *Entry) string {
	key, err := s.keys.Lookup(ctx, e.Tenant, e.Key.String())
	switch {
	case err == nil:
		return since(e.Revision, key.Revision)
	case KindOf(err) == KindNotFound && e.Op == OpKeeperDestroy:
		return OutcomeFoundDone // destroyed keys are missing
	}
	return missing(err, e.Revision)
}

func (s *Service) foundAlias(ctx context.Context, e *Entry) string {
	undone := OutcomeFoundUndone
	if e.Revision >= FirstAliasRevision {
		revision, err := s.aliases.AliasRevision(ctx, e.Tenant, e.Resource)
		switch {
		case err != nil:
			return OutcomeFoundUnknown
		case revision <= e.Revision:
			return OutcomeFoundUndone
		}
		undone = OutcomeFoundChanged
	}
	key, err := s.keys.Lookup(ctx, e.Tenant, e.Resource)
	switch {
	case err != nil && KindOf(err) != KindNotFound:
		return OutcomeFoundUnknown
	case (err == nil) != (e.Op == OpSetAlias):
		return undone
	case err == nil && key.ID != e.Key:
		return undone
	}
	return OutcomeFoundDone
}

func (s *Service) foundTenant(ctx context.Context, e *Entry) string {
	tenant, err := s.tenants.TenantByRef(ctx, e.Resource)
	if err != nil {
		return missing(err, e.Revision)
	}
	return since(e.Revision, tenant.Revision)
}

func (s *Service) foundProject(ctx context.Context, e *Entry) string {
	p, err := s.tenants.Project(ctx, e.target(), e.Resource)
	switch {
	case err != nil:
		return missing(err, 0)
	case p.Created.Before(e.Time):
		return OutcomeFoundUndone // another request's, earlier
	}
	return OutcomeFoundDone
}

func (s *Service) foundCredential(ctx context.Context, e *Entry) string {
	id, err := uuid.Parse(e.Resource)
	if err != nil {
		return OutcomeFoundUnknown
	}
	c, err := s.credentials.Credential(ctx, e.target(), id)
	if err != nil {
		return missing(err, e.Revision)
	}
	return since(e.Revision, c.Revision)
}

func (s *Service) foundApproval(ctx context.Context, e *Entry) string {
	a, err := s.approvals.Approval(ctx, e.Approval)
	switch {
	case err != nil:
		return OutcomeFoundUnknown
	case a.ApprovedBy == e.Credential:
		return OutcomeFoundDone
	}
	return OutcomeFoundUndone
}

func (s *Service) foundNode(ctx context.Context, e *Entry) string {
	revision, err := s.nodeRevision(ctx, NodeID(e.Resource))
	switch {
	case err != nil:
		return OutcomeFoundUnknown
	case revision == e.Revision:
		return OutcomeFoundUndone
	}
	return OutcomeFoundChanged
}

// foundPolicy looks for the version that follows the one before the change.
func (s *Service) foundPolicy(ctx context.Context, e *Entry) string {
	p, err := s.policies.Policy(ctx, e.Revision+1)
	switch {
	case err != nil:
		return missing(err, 0)
	case p.By != e.Credential || p.Created.Before(e.Time.Truncate(time.Microsecond)): // as times are stored
		return OutcomeFoundUndone // another request's
	}
	return OutcomeFoundChanged
}

// target is the tenant that was acted on.
func (e *Entry) target() uuid.UUID {
	if e.Target != (uuid.UUID{}) {
		return e.Target
	}
	return e.Tenant
}
