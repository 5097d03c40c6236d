package kms

import (
	"context"
	"log/slog"
	"math"
	"strings"
	"time"
	"uuid"
)

// The database is not trusted to keep what was written last. A row that was
// authentic once stays so, so an old one that is put back, before a key was
// disabled or a credential revoked, shows only against what is known from
// elsewhere: the journal has the revision of an object before every change, and
// whether the change was made. What the store knows it refuses to read older;
// it knows it from its own reads and changes, from this node's journal since the
// start, and from what other API nodes have found.

// RowObject is the kind of object that a row with a revision is of.
type RowObject string

// The kinds.
const (
	RowOfTenant     RowObject = "tenant"
	RowOfKey        RowObject = "key"
	RowOfCredential RowObject = "credential"
	RowOfWebhook    RowObject = "webhook"
	RowOfApproval   RowObject = "approval"
	RowOfNode       RowObject = "node"
	RowOfPolicy     RowObject = "policy"
	// RowOfSecret is a provider secret, whose revision is the tenant's: a change
	// makes it at least one more.
	RowOfSecret RowObject = "secret"
	// RowOfAlias is a further name of a key. Its revision grows on when it is
	// taken away.
	RowOfAlias RowObject = "alias"
	// RowOfRoute is a route over providers. Its revision grows on when it is
	// deleted and made anew.
	RowOfRoute RowObject = "route"
)

// StoredRevision is a revision that the row of an object is known to have had.
type StoredRevision struct {
	Object RowObject
	Tenant uuid.UUID // whose; zero for what is the operators'
	ID     uuid.UUID // zero for nodes, policies, aliases and routes
	Name   string    // of a RowOfNode, a RowOfAlias and a RowOfRoute
	// Revision is, of RowOfPolicy, the version, and RowRemoved for an object that
	// was removed, of which any row is too old.
	Revision uint64
}

// RowRemoved is the revision of what was removed for good.
const RowRemoved uint64 = math.MaxInt64

// FirstAliasRevision is the revision of an alias that was set once, and of one
// from before aliases had revisions. The entries of that time have the revision of
// the key, which is never so high: by that they are told apart.
const FirstAliasRevision uint64 = 1 << 32

// RouteRevisions is what entries add to the revision of a route. Those without are
// from before it grew on when a route was made anew.
const RouteRevisions uint64 = 1 << 32

// The revisions of an approval: asked for, given, used.
const (
	revisionApproved = 2
	revisionUsed     = 3
)

// Made tells whether an outcome says that the change of its intent was made.
func (e *Entry) Made() bool {
	return e.Outcome == "ok" || e.Outcome == OutcomeFoundDone || e.Outcome == OutcomeFoundChanged
}

// StoredRevisions are the revisions that an intent proves. made says that the
// change was made, by its outcome.
func (e *Entry) StoredRevisions(made bool) []StoredRevision {
	var proven []StoredRevision
	if row, ok := e.row(); ok && (made || e.Revision > 0) {
		row.Revision = e.Revision
		switch {
		case made && e.Op == OpDeleteWebhook:
			row.Revision = RowRemoved
		case made:
			row.Revision++
		}
		proven = append(proven, row)
	}
	if made && e.Approval != uuid.Nil() {
		a := StoredRevision{Object: RowOfApproval, ID: e.Approval, Revision: revisionUsed}
		if e.Op == OpApprove {
			a.Revision = revisionApproved
		}
		proven = append(proven, a)
	}
	return proven
}

// row is the row that a change is of, without its revision; false for changes
// of rows that have none, or of many.
func (e *Entry) row() (StoredRevision, bool) {
	r := StoredRevision{Tenant: e.target()}
	switch e.Op {
	case OpCreateProject, OpApprove, OpSetSecretGrants, OpCreateJob, OpCancelJob, OpDeleteJob, OpLiftCost:
		return r, false
	case OpRewrapKeys, OpRetireRoots, OpInitDomain, OpJoinDomain, OpReplaceRoots, OpGiveRoots, OpRestore:
		return r, false
	case OpSetNodeMode:
		return StoredRevision{Object: RowOfNode, Name: e.Resource}, true
	case OpPutPolicy:
		return StoredRevision{Object: RowOfPolicy}, true
	case OpSetAlias, OpDeleteAlias:
		r.Object, r.Name = RowOfAlias, e.Resource
		return r, e.Revision >= FirstAliasRevision
	case OpPutRoute, OpDeleteRoute:
		r.Object, r.Name = RowOfRoute, e.Resource
		return r, e.Revision >= RouteRevisions
	case OpCreateTenant, OpUpdateTenant, OpSuspendTenant, OpResumeTenant, OpDeleteTenant, OpKeeperErase, OpKeeperShred, OpRewrapTenant:
		r.Object = RowOfTenant
	case OpCreateCredential, OpRotateCredential, OpRevokeCredential, OpKeeperRevoke,
		OpClearCredential, OpEnrolCode, OpProveCredential, OpKeeperFlag, OpGiveSecretGrant, OpTakeSecretGrant:
		r.Object = RowOfCredential
	case OpCreateWebhook, OpDeleteWebhook:
		r.Object = RowOfWebhook
	case OpCreateSecret, OpUpdateSecret, OpDeleteSecret, OpAddSecretVersion, OpActivateSecret, OpRollbackSecret, OpDisableSecret,
		OpDestroySecret, OpRestoreSecret, OpKeeperAdvanceSecret, OpKeeperRollbackSecret, OpKeeperDestroySecret:
		r.Object = RowOfSecret
	default:
		r.Object, r.ID = RowOfKey, e.Key
		return r, e.Key != uuid.Nil()
	}
	id, err := uuid.Parse(e.Resource)
	r.ID = id
	if r.Object == RowOfTenant {
		r.Tenant = id
	}
	return r, err == nil
}

// String names the object, as entries of OpFoundOld do.
func (r StoredRevision) String() string {
	switch r.Object {
	case RowOfNode, RowOfAlias, RowOfRoute:
		return string(r.Object) + " " + r.Name
	case RowOfPolicy:
		return string(r.Object)
	}
	return string(r.Object) + " " + r.ID.String()
}

// OldRow is an object whose row is older than it was.
type OldRow struct {
	StoredRevision
	// Found is the revision of the row that is there, 0 when there is none.
	Found uint64
}

// Revisions is the store's knowledge of revisions.
type Revisions interface {
	// KnowRevisions tells what rows are known to have had. A row that is older
	// is refused from then on.
	KnowRevisions(list ...StoredRevision)
	// OldRows reads the rows of all objects of which more is known than that
	// they were made, and returns those that are older, or missing.
	OldRows(ctx context.Context) ([]OldRow, error)
	// EntriesOf returns the payloads of an operation's entries that came into
	// the audit trail, of whatever node, behind a place, and the place to go on
	// from. A negative place is the trail's end.
	EntriesOf(ctx context.Context, op Op, after int64) (payloads [][]byte, next int64, err error)
}

// The pace of the row watch. What one node finds all refuse within a minute: two
// looks, and some seconds for the way through the trail.
const (
	rowWatchInterval = 20 * time.Second
	// rowFollowInterval is how often the trail is asked for what other nodes
	// found.
	rowFollowInterval = time.Second
	// maxFound bounds the entries of one look: a database that was put back as
	// a whole is told by a hundred of them.
	maxFound = 100
)

// The outcomes of OpFoundOld.
const (
	OutcomeOld  = "found_old"     // an earlier row was put back
	OutcomeGone = "found_missing" // the row was removed
)

// RowWatch looks for old rows that were put back.
type RowWatch struct {
	service *Service
	after   int64
	stop    context.CancelFunc
	ended   chan struct{}
}

// NewRowWatch makes a RowWatch that does nothing by itself: it looks and
// follows when it is told to.
func (s *Service) NewRowWatch() *RowWatch { return &RowWatch{service: s, after: -1} }

// StartRowWatch begins to look for old rows, and to refuse what other nodes
// find. Close ends it.
func (s *Service) StartRowWatch() *RowWatch {
	ctx, stop := context.WithCancel(context.Background())
	w := s.NewRowWatch()
	w.stop, w.ended = stop, make(chan struct{})
	go w.loop(ctx)
	return w
}

// Close ends the watch and waits for it.
func (w *RowWatch) Close() error {
	w.stop()
	<-w.ended
	return nil
}

func (w *RowWatch) loop(ctx context.Context) {
	defer close(w.ended)
	look, follow := time.NewTicker(rowWatchInterval), time.NewTicker(rowFollowInterval)
	defer look.Stop()
	defer follow.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			return
		case <-look.C:
			_, err = w.Look(ctx)
		case <-follow.C:
			err = w.Follow(ctx)
		}
		if err != nil && ctx.Err() == nil {
			w.service.log.LogAttrs(ctx, slog.LevelError, "looking for old rows in the database", slog.Any("error", err))
		}
	}
}

// Look compares the rows with what is known of them once, records those that
// are older, which tells the other API nodes, and returns them.
func (w *RowWatch) Look(ctx context.Context) ([]OldRow, error) {
	s := w.service
	old, err := s.revisions.OldRows(ctx)
	if err != nil {
		return nil, err
	}
	for i := range old[:min(len(old), maxFound)] {
		if err := s.journal.Record(ctx, s.foundOld(&old[i])); err != nil {
			return old, Wrap(KindAuditUnavailable, err, "the journal cannot record an old row")
		}
	}
	if len(old) > 0 {
		s.log.LogAttrs(ctx, slog.LevelError, "rows of the database are older than they were, and refused",
			slog.String("alarm", "old_rows"), slog.Int("rows", len(old)), slog.String("first", old[0].String()),
			slog.Uint64("revision", old[0].Found), slog.Uint64("known_revision", old[0].Revision))
	}
	return old, nil
}

// foundOld makes the entry of an old row.
func (s *Service) foundOld(old *OldRow) *Entry {
	e := &Entry{Time: s.clock(), Phase: PhaseOutcome, RequestID: newID(), Tenant: old.Tenant, Project: DefaultProject,
		Component: keeperComponent, Op: OpFoundOld, Resource: old.String(), Revision: old.Revision, Outcome: OutcomeOld,
		PolicyVersion: s.engine.PolicyVersion()}
	if old.Object == RowOfKey {
		e.Key = old.ID
	}
	if old.Found == 0 {
		e.Outcome = OutcomeGone
	}
	return e
}

// Follow takes over what was found since the last call, here or elsewhere. The
// trail can be written to by whoever writes to the database, who so can have an
// object refused, and could remove it as well; what he removes from the trail
// is found, and refused, by the node whose journal has it.
func (w *RowWatch) Follow(ctx context.Context) error {
	payloads, next, err := w.service.revisions.EntriesOf(ctx, OpFoundOld, w.after)
	if err != nil {
		return err
	}
	w.after = next
	for _, payload := range payloads {
		e, err := w.service.readEntry(payload)
		if err != nil {
			continue
		}
		if row, ok := e.found(); ok {
			w.service.revisions.KnowRevisions(row)
		}
	}
	return nil
}

// found is what an entry of OpFoundOld tells.
func (e *Entry) found() (StoredRevision, bool) {
	object, name, _ := strings.Cut(e.Resource, " ")
	r := StoredRevision{Object: RowObject(object), Tenant: e.Tenant, Revision: e.Revision}
	switch r.Object {
	case RowOfPolicy:
		return r, true
	case RowOfNode, RowOfAlias, RowOfRoute:
		r.Name = name
		return r, true
	}
	id, err := uuid.Parse(name)
	r.ID = id
	return r, err == nil
}
