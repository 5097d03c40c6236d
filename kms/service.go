package kms

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"uuid"
)

// Service is the key service behind its ports. It is safe for concurrent use.
type Service struct {
	keys        Keys
	tenants     Tenants
	credentials Credentials
	lifecycle   KeyLifecycle
	aliases     Aliases
	idempotency Idempotency
	approvals   Approvals
	deletions   TenantDeletions
	nodes       NodeSettings
	policies    Policies
	webhooks    Webhooks
	deliveries  Deliveries
	addresses   WebhookAddresses
	engine      PolicyEngine
	followed    followedPolicy

	planner      CapacityPlanner
	selling      sync.Mutex // one act at a time that can oversell the pool
	capacitySeen atomic.Pointer[Capacity]

	twoOperators bool
	copiesLive   time.Duration // after a tenant's deletion: see Config.RootRotation

	credentialUses CredentialUses
	uses           *useBook

	jobs    Jobs
	jobWake chan struct{} // capacity 1
	served  atomic.Int64  // when somebody was last served, jobs and bulk work aside, in Unix nanoseconds

	batches    batchCrew
	queues     Queues
	records    RequestRecords
	recent     *recentRequests
	toRecord   chan RequestRecord
	unrecorded atomic.Uint64

	trail     Trail
	revisions Revisions

	successLine func() int64

	readEntry EntryReader

	secrets     ProviderSecrets
	policyTimes func() SecretTimes
	policyRules func() RouteRules
	dataKeys    *dataKeyCache
	watches     *watchHub
	events      Events

	abuseRules func(*Tenant) AbuseRules
	guards     guardBook

	probes  EndpointProbes
	trials  KeyTrials
	toTry   chan keyTrial
	routes  ProviderRoutes
	routing RouteHealth

	nonces    *nonceMeter
	rotations chan DueKey
	quota     Quota
	accounts  QuotaAccounts
	incidents CostIncidents
	scheduler Scheduler
	device    Device
	journal   Journal
	pepper    *Pepper
	observer  Observer
	log       *slog.Logger
	clock     func() time.Time
}

// Config is what a Service needs; every field is required, but those that say
// what their zero value means.
type Config struct {
	Keys        Keys
	Tenants     Tenants
	Credentials Credentials
	Lifecycle   KeyLifecycle
	Aliases     Aliases
	Idempotency Idempotency
	Approvals   Approvals
	Deletions   TenantDeletions
	Nodes       NodeSettings
	Policies    Policies
	Webhooks    Webhooks
	Deliveries  Deliveries
	// Addresses decides where webhooks may be.
	Addresses WebhookAddresses
	// PolicyEngine holds the policy in force, whose version is in every entry.
	PolicyEngine PolicyEngine
	// Capacity plans what may be promised to tenants.
	Capacity CapacityPlanner

	// TwoOperators tells whether the operations so marked need the approval of
	// a second operator; false: one is enough.
	TwoOperators bool
	// RootRotation is after how long at most a sealing root is replaced, and
	// BackupRetention how long backups are kept after that: together, how long
	// copies of a deleted tenant's rows can live.
	RootRotation    time.Duration
	BackupRetention time.Duration

	Jobs           Jobs
	CredentialUses CredentialUses
	Records        RequestRecords
	Queues         Queues
	Trail          Trail
	Revisions      Revisions
	// SuccessLine is the share of requests that tenants are promised to succeed,
	// in ten-thousandths, by the policy in force.
	SuccessLine func() int64
	ReadEntry   EntryReader // reads the payloads of the trail
	Secrets     ProviderSecrets
	SecretTimes func() SecretTimes // nil: the defaults
	RouteRules  func() RouteRules  // nil: the defaults
	Events      Events
	AbuseRules  func(*Tenant) AbuseRules // nil: flags lead to alerts only
	Incidents   CostIncidents
	Routes      ProviderRoutes
	Probes      EndpointProbes
	KeyTrials   KeyTrials // nil: no key is tried out
	RouteHealth RouteHealth

	Quota     Quota
	Accounts  QuotaAccounts
	Scheduler Scheduler
	Device    Device
	Journal   Journal
	Pepper    *Pepper
	Observer  Observer
	Log       *slog.Logger
	Clock     func() time.Time
}

// NewService makes a Service.
func NewService(c Config) *Service {
	s := &Service{
		keys: c.Keys, tenants: c.Tenants, credentials: c.Credentials,
		lifecycle: c.Lifecycle, aliases: c.Aliases, idempotency: c.Idempotency,
		approvals: c.Approvals, deletions: c.Deletions, nodes: c.Nodes,
		policies: c.Policies, engine: c.PolicyEngine, planner: c.Capacity,
		webhooks: c.Webhooks, deliveries: c.Deliveries, addresses: c.Addresses,
		twoOperators: c.TwoOperators, copiesLive: c.RootRotation + c.BackupRetention,
		credentialUses: c.CredentialUses, uses: newUseBook(),
		queues: c.Queues, records: c.Records, recent: new(recentRequests), toRecord: make(chan RequestRecord, 4*recordBatch),
		jobs: c.Jobs, jobWake: make(chan struct{}, 1),
		batches: batchCrew{workers: make(map[uuid.UUID]int)},
		trail:   c.Trail, revisions: c.Revisions, successLine: c.SuccessLine, readEntry: c.ReadEntry,
		nonces: newNonceMeter(c.Lifecycle), rotations: make(chan DueKey, keeperQueue),
		quota: c.Quota, accounts: c.Accounts, scheduler: c.Scheduler, device: c.Device, journal: c.Journal,
		pepper: c.Pepper, observer: c.Observer, log: c.Log, clock: c.Clock,
		secrets: c.Secrets, policyTimes: c.SecretTimes, policyRules: c.RouteRules, dataKeys: newDataKeyCache(), events: c.Events, abuseRules: c.AbuseRules,
		incidents: c.Incidents,
		routes:    c.Routes, routing: c.RouteHealth, probes: c.Probes, trials: c.KeyTrials, toTry: make(chan keyTrial, trialQueue),
	}
	s.watches = newWatchHub(s)
	return s
}

// task is what a verb hands to the route.
type task struct {
	op Op
	// ref names the key acted on, "" for none.
	ref string
	// bytes is the size of the input, for the price.
	bytes int
	// prepare checks the request against the key and plans the work, before
	// anything is spent. nil: nothing to check.
	prepare func(t *Ticket) error
	// nodes lists the nodes that can run execute. nil: no device step.
	nodes func(t *Ticket) ([]NodeID, error)
	// execute is the device step, on a slot of the node. It may run again on
	// another node when it returned KindHSMUnavailable.
	execute func(ctx context.Context, t *Ticket, node NodeID) error
	// store reads or changes stored state after the device step; a change that
	// was begun is finished even when the client leaves. nil: none.
	store func(ctx context.Context, t *Ticket) error
	// then is a second device step, with nodes of its own, after execute.
	then *deviceStep
	// spec prices operations on a key that does not exist yet.
	spec Spec
	// source is the key that a re-encryption decrypts with.
	source *Key
	// replay says that the change was made before: it is authorised, priced
	// as a read and recorded, and nothing is done.
	replay bool
	// free says that no quota is asked: what is done against a tenant's own
	// traffic cannot be held up by it.
	free bool
	// allowed overrides Principal.Allowed, for acts on another tenant.
	allowed func(t *Ticket) bool
	// act says what two operators have to agree on; nil of it: nothing. Tasks
	// of operations that are marked TwoOperators have it.
	act func(ctx context.Context, t *Ticket) (*act, error)
}

// deviceStep is work for a slot: see task.nodes and task.execute.
type deviceStep struct {
	nodes   func(t *Ticket) ([]NodeID, error)
	execute func(ctx context.Context, t *Ticket, node NodeID) error
}

// Time limits of a request's steps.
const (
	// storeTimeout bounds the store's part of a state change: the client may
	// have left, but the change must not hang for ever.
	storeTimeout = 10 * time.Second
	// maxNodeAttempts bounds fail-over. The design allows one retry on
	// another node; a domain that loses two nodes at once is answered with
	// the third.
	maxNodeAttempts = 3
)

// run is the route: travel, then close, always and once.
func (s *Service) run(ctx context.Context, t *Ticket, k *task) error {
	t.Op = k.op
	t.Bytes = k.bytes
	t.PolicyVersion = s.engine.PolicyVersion()
	if t.Urgency != UrgencyBulk && k.op.Info().Family != "batch" {
		s.served.Store(t.Received.UnixNano())
	}
	err := s.travel(ctx, t, k)
	return s.close(ctx, t, err)
}

// travel takes the steps 1 to 5. Nothing here undoes anything: close does.
func (s *Service) travel(ctx context.Context, t *Ticket, k *task) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = panicError(p)
		}
	}()
	if t.By != nil && !t.unguarded {
		if err := s.checkGuard(ctx, t); err != nil {
			return err
		}
	}
	if k.op.Info().PerKey && !k.replay {
		key, err := s.lookup(ctx, t.By, k.ref)
		if err != nil {
			return err
		}
		t.Key = key
		t.Passed(StepLookup, s.clock)
	}
	if !s.allowed(t, k) {
		return ErrPermissionDenied
	}
	if k.prepare != nil {
		if err := k.prepare(t); err != nil {
			return err
		}
	}
	if !k.free {
		err = s.admit(t, k)
		t.Passed(StepAdmit, s.clock)
		if err != nil {
			return err
		}
	}
	if t.DryRun || k.replay {
		return nil
	}
	if k.op.Info().Changes {
		if err := s.recordIntent(ctx, t); err != nil {
			return Wrap(KindAuditUnavailable, err, "the journal cannot record the change")
		}
		t.Passed(StepIntent, s.clock)
	}
	if k.op.Info().TwoOperators {
		if err := s.agree(ctx, t, k); err != nil {
			return err
		}
	}
	if k.nodes != nil {
		if err := s.dispatch(ctx, t, deviceStep{k.nodes, k.execute}); err != nil {
			return err
		}
	}
	if k.then != nil {
		if err := s.dispatch(ctx, t, *k.then); err != nil {
			return err
		}
	}
	if k.store != nil {
		// The client may leave; what was begun is finished.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
		defer cancel()
		err := k.store(ctx, t)
		t.Passed(StepStore, s.clock)
		return err
	}
	return nil
}

// lookup finds a key that the principal may know of: another project's key is
// as missing as another tenant's.
func (s *Service) lookup(ctx context.Context, by *Principal, ref string) (*Key, error) {
	key, err := s.keys.Lookup(ctx, by.Tenant.ID, ref)
	if err != nil {
		return nil, err
	}
	if !by.Sees(key.Project) {
		return nil, ErrNotFound
	}
	return key, nil
}

func (s *Service) allowed(t *Ticket, k *task) bool {
	if k.allowed != nil {
		return k.allowed(t)
	}
	if t.Key != nil && ownName(t.Key.Tenant, t.Key.Name) && !ownOps[k.op] {
		return false
	}
	return t.By.Allowed(k.op, t.Key)
}

func (s *Service) admit(t *Ticket, k *task) error {
	r := AdmitRequest{
		RequestID: t.RequestID, Principal: t.By, Op: k.op, Spec: k.spec,
		Bytes: k.bytes, Items: t.priced, Urgency: t.Urgency, Batch: t.item, Target: t.Target,
	}
	if t.Key != nil {
		r.Spec, r.Key = t.Key.Spec, t.Key.ID
	}
	if k.op == OpRotateKey { // what the keeper rotates must not grow too old
		r.Versions = t.Key.stored()
	}
	if k.source != nil {
		r.Source = k.source.Spec
	}
	if k.replay {
		r.Op = OpDescribeKey
	}
	if t.Debug {
		r.Gates = &t.Gates
	}
	reservation, err := s.quota.Admit(&r)
	if wait := reservation.LeaseWait; wait > 0 {
		t.waited(&Turn{Wait: wait, Waits: []Reason{{Code: ReasonLease, Waited: wait}}})
	}
	if err != nil {
		return err
	}
	t.reservation, t.admitted, t.Cost = reservation, true, reservation.Cost
	if t.By.throttled(s.clock()) {
		s.guards.charge(t.By.Credential, t.Cost)
	}
	if reservation.PolicyVersion != 0 {
		t.PolicyVersion = reservation.PolicyVersion
	}
	return nil
}

// dispatch waits for a slot and runs the device step there; when the node
// fails it goes on to the next one.
func (s *Service) dispatch(ctx context.Context, t *Ticket, k deviceStep) error {
	nodes, err := k.nodes(t)
	if err != nil {
		return err
	}
	flow := Flow{Tenant: t.By.Tenant.ID, Tier: t.By.Tenant.Tier, Urgency: t.Urgency, Cost: t.Cost, Nodes: nodes}
	if !t.Deadline.IsZero() {
		flow.MaxWait = cmp.Or(t.Deadline.Sub(s.clock()), -1)
	}
	// The end of the client's patience does not end the call; the device
	// bounds its time.
	work := context.Background()
	for tried := 1; ; tried++ {
		var execErr error
		turn, err := s.scheduler.Do(ctx, flow, func(node NodeID) {
			t.Passed(StepQueue, s.clock)
			t.Node, t.ran = node, true
			t.Attempts++
			execErr = guard(func() error { return k.execute(work, t, node) })
			t.Passed(StepHSM, s.clock)
		})
		t.waited(&turn)
		if err != nil {
			return err
		}
		if KindOf(execErr) != KindHSMUnavailable || tried >= maxNodeAttempts {
			return execErr
		}
		// It had its turn: where it goes now it stands by when it came.
		flow.Waited = s.clock().Sub(t.Received)
		failed := t.Node
		flow.Nodes = slices.DeleteFunc(slices.Clone(flow.Nodes), func(n NodeID) bool { return n == failed })
		if len(flow.Nodes) == 0 {
			return execErr
		}
	}
}

// guard turns a panic in a device step into an error, so that the slot is
// freed and the entry written whatever happened.
func guard(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = panicError(p)
		}
	}()
	return f()
}

// panicError describes a panic without its value, which could hold anything;
// run-time errors are safe to print.
func panicError(p any) error {
	what := fmt.Sprintf("%T", p)
	if e, ok := p.(interface{ RuntimeError() }); ok {
		what = fmt.Sprint(e)
	}
	return &Error{Kind: KindInternal, Detail: "internal error", Err: fmt.Errorf("panic: %s\n%s", what, debug.Stack())}
}

// close settles, records and reports a request, and withholds the answer when
// the journal cannot take its entry. An item of a batch is only made ready for
// that: see Batch.
func (s *Service) close(ctx context.Context, t *Ticket, err error) error {
	t.refused(err)
	t.Settled = settlement(t, err)
	entry := entries.Get().(*Entry)
	s.fill(entry, t, PhaseOutcome, err)
	if t.item {
		if t.admitted {
			s.quota.Leave(t.reservation)
		}
		t.ended = ended{entry, err}
		return err
	}
	jerr := s.journal.Record(ctx, entry)
	*entry = Entry{}
	entries.Put(entry)
	return s.conclude(ctx, t, err, jerr)
}

// conclude ends a request whose entry is durable, or with jerr could not be
// made so.
func (s *Service) conclude(ctx context.Context, t *Ticket, err, jerr error) error {
	t.Passed(StepJournal, s.clock)
	if jerr != nil {
		err = Wrap(KindAuditUnavailable, jerr, "the journal cannot record the request")
		// The ledger is what the journal says: no entry, no charge.
		t.Settled = Settlement{State: Cancelled, SlotTime: t.SlotTime}
	}
	switch {
	case t.admitted:
		s.quota.Settle(t.reservation, t.Settled)
	case t.By != nil && err != nil && (penalised(KindOf(err)) || t.Op == OpBatch):
		// Refusals before admission are not free, so that trying out ids and
		// scopes, or sending what is only read, wears out the credential that
		// does.
		s.quota.Penalise(t.By.Tenant, t.By.Credential)
	}
	if KindOf(err) == KindInternal && err != nil {
		s.log.LogAttrs(ctx, slog.LevelError, "request failed",
			slog.String("request_id", t.RequestID.String()), slog.String("op", string(t.Op)), slog.Any("error", err))
	}
	now := s.clock()
	t.Elapsed = now.Sub(t.Received)
	s.uses.note(t, now)
	s.keep(t, err, now)
	s.observer.Request(t, err)
	return err
}

// penalised tells whether a refusal before admission costs its credential.
func penalised(k Kind) bool {
	switch k {
	case KindPermissionDenied, KindNotFound, KindSecondFactor, KindCredentialSuspended:
		return true
	}
	return false
}

// settlement decides what a request is charged: everything when it ran, a
// quarter but at least one credit when it ran and failed by the client's
// fault, nothing when it never ran or failed by ours.
func settlement(t *Ticket, err error) Settlement {
	s := Settlement{State: Cancelled, SlotTime: t.SlotTime}
	if !t.admitted || t.DryRun {
		return s
	}
	switch KindOf(err) {
	case KindDecryptionFailed, KindInvalidArgument:
		if t.ran {
			s.State = Partial
		}
	default:
		if err == nil {
			s.State = Settled
		}
	}
	s.Charged = s.State.Charge(t.Cost)
	return s
}

func (s *Service) recordIntent(ctx context.Context, t *Ticket) error {
	e := &Entry{}
	s.fill(e, t, PhaseIntent, nil)
	return s.journal.Record(ctx, e)
}

// entries are entries for outcomes, which the journal does not keep.
var entries = sync.Pool{New: func() any { return new(Entry) }}

// fill makes e the journal's record of a ticket.
func (s *Service) fill(e *Entry, t *Ticket, phase Phase, err error) {
	now := s.clock()
	*e = Entry{
		Time: now, Phase: phase, RequestID: t.RequestID, ClientRequestID: t.ClientRequestID, TraceID: t.TraceID,
		Op: t.Op, Version: t.Version, Algorithm: t.Algorithm, Resource: t.Resource, Bytes: t.Bytes,
		Node: t.Node, Cost: t.Cost, Charged: t.Settled.Charged, Settlement: t.Settled.State,
		Wait: t.Wait, SlotTime: t.SlotTime, Total: now.Sub(t.Received),
		Outcome: "ok", Reasons: t.Reasons, Address: t.Address, UserAgent: t.UserAgent,
		DryRun: t.DryRun, Replayed: t.Replayed, Approval: t.Approval,
		PolicyVersion: t.PolicyVersion, Items: t.Items,
	}
	if len(t.Reasons) > 0 {
		e.Class, e.Urgency, e.Estimate = t.Class, t.Urgency, t.Estimate
	}
	if by := t.By; by != nil {
		e.Tenant, e.Project, e.Credential = by.Tenant.ID, by.Project, by.Credential
		if t.Target != by.Tenant.ID {
			e.Target = t.Target
		}
		e.Subject, e.Component = by.Subject, by.Component
	}
	if k := t.Key; k != nil {
		e.Key, e.KeyName, e.Spec, e.Protection = k.ID, k.Name, k.Spec, k.Protection
	}
	if phase == PhaseIntent {
		e.Outcome, e.Revision = "", t.Revision
		if t.Key != nil && t.Op.Info().PerKey && t.Op != OpSetAlias {
			e.Revision = t.Key.Revision
		}
	} else if err != nil {
		e.Outcome, e.Refused = KindOf(err).String(), !t.admitted
	}
}

// Refuse records a request that reached no verb: its body was malformed, its
// caller not authenticated. op is what the route would have done. It returns
// err, or KindAuditUnavailable when the journal cannot take the entry.
func (s *Service) Refuse(ctx context.Context, t *Ticket, op Op, err error) error {
	t.Op = op
	t.PolicyVersion = s.engine.PolicyVersion()
	return s.close(ctx, t, err)
}

// newID makes an id for a new object: time-ordered, so that rows made
// together lie together.
func newID() uuid.UUID { return uuid.NewV7() }
