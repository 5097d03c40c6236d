package quota

import (
	"math/rand/v2"
	"sync"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// Engine decides what tenants may use and keeps count of it. It implements
// kms.Quota. All methods are safe for concurrent use.
//
// Alone it decides exactly. With a Backing it decides from what it was lent,
// still without asking anybody on a request's way.
type Engine struct {
	policies *Policies
	clock    func() time.Time
	start    time.Time
	load     *loadClock
	notify   func(Event)
	shared   *exchange // nil: alone
	shards   [engineShards]engineShard
}

// engineShards is the number of locks that tenants are spread over: many times
// the processors of a large server. A power of two.
const engineShards = 256

// Options are what an Engine needs; all are required but Notify.
type Options struct {
	Policies *Policies
	// Clock is read under a lock and may go back: what counts then is the
	// latest time that was seen.
	Clock func() time.Time
	// Notify is told what a tenant has come to. It must not block and is
	// called with no lock held. nil: nobody is.
	Notify func(Event)
	// Backing shares limits with other nodes, and Run must run. nil: there are
	// no others.
	Backing Backing
	// Node names this process to the Backing; unique among the nodes.
	Node string
}

// NewEngine makes an Engine that knows of no use yet.
func NewEngine(o Options) *Engine {
	e := &Engine{policies: o.Policies, clock: o.Clock, start: o.Clock(), load: newLoadClock(), notify: o.Notify}
	if o.Backing != nil {
		e.shared = newExchange(e, o.Backing, o.Node)
	}
	for i := range e.shards {
		s := &e.shards[i]
		s.tenants = make(map[uuid.UUID]*tenant)
		s.credentials = make(map[uuid.UUID]*scope)
		s.keys = make(map[uuid.UUID]*keyState)
		s.hot = make(map[*keyState]struct{})
		s.early = make(map[*tenant]*lately)
		s.costly = make(map[*tenant]struct{})
		s.holds = make(map[uuid.UUID]*hold)
	}
	return e
}

// engineShard holds the tenants whose id falls to it, and what is theirs.
type engineShard struct {
	mu          sync.Mutex // guards the rest; never held with another shard's
	tenants     map[uuid.UUID]*tenant
	credentials map[uuid.UUID]*scope
	keys        map[uuid.UUID]*keyState
	hot         map[*keyState]struct{} // those whose hot-spot breaker may be open
	holds       map[uuid.UUID]*hold    // open reservations by request id
	free        []*hold                // to be used again
	active      []*tenant              // with leases to claim
	early       map[*tenant]*lately    // those that came too early
	lately      lately                 // of all its tenants
	costly      map[*tenant]struct{}   // whose cost breaker is watched closely
	latest      int64                  // ns since the engine's start, as last read

	_ [40]byte // keeps two locks off one 64-byte cache line
}

// shardOf spreads by the id's last byte, which is random in every version of
// UUID that ids are made in (RFC 9562, 5.4 and 5.7).
func (e *Engine) shardOf(tenant uuid.UUID) *engineShard {
	return &e.shards[int(tenant[15])%engineShards]
}

// instant is a moment: in nanoseconds since the engine's start, never going
// back, and on the wall.
type instant struct {
	ns   int64
	wall time.Time
}

// nowLocked reads the clock. Read under the shard's lock, or a goroutine that
// waited for it would decide by a time that is over and turn buckets back.
func (e *Engine) nowLocked(s *engineShard) instant {
	wall := e.clock()
	s.latest = max(s.latest, int64(wall.Sub(e.start)))
	return instant{s.latest, wall}
}

// SetUtilisation tells how busy the pool is, in thousandths of its slots:
// above the safe line the refill of lower tiers slows down and nobody goes
// into overdraft.
func (e *Engine) SetUtilisation(busy int64) {
	e.load.note(busy, int64(e.clock().Sub(e.start)), e.policies.Current())
}

// Request is a kms.AdmitRequest with what decides beside it.
type Request struct {
	kms.AdmitRequest
	// CredentialSince is when the credential was made; zero: long ago.
	CredentialSince time.Time
	// Creates is what the request adds to the tenant's stored objects.
	Creates Object
}

// requestOf completes a request with what its ids and its operation tell.
func requestOf(r *kms.AdmitRequest) Request {
	full := Request{AdmitRequest: *r, CredentialSince: madeAt(r.Principal.Credential)}
	full.Creates = CreatedBy(r)
	return full
}

// CreatedBy returns what a request adds to the objects of its own tenant:
// Nothing, if it is another's, whom an operator may give more than it could
// make itself.
func CreatedBy(r *kms.AdmitRequest) Object {
	switch {
	case r.Target != (uuid.UUID{}) && r.Target != r.Principal.Tenant.ID:
		return Nothing
	case r.Op == kms.OpCreateKey, r.Op == kms.OpImportKey:
		return Keys
	case r.Op == kms.OpCreateSecret:
		return Secrets
	case r.Op == kms.OpCreateCredential:
		return Credentials
	}
	return Nothing
}

// madeAt returns when an id was made, which a UUIDv7 tells (RFC 9562, 5.7),
// and the zero time for other ids.
func madeAt(id uuid.UUID) time.Time {
	if id[6]>>4 != 7 {
		return time.Time{}
	}
	var ms int64
	for _, b := range id[:6] {
		ms = ms<<8 | int64(b)
	}
	return time.UnixMilli(ms)
}

var _ kms.Quota = (*Engine)(nil)

// Admit reserves the price of a request when every gate agrees, and else
// nothing: the error then has the reasons of all gates that refuse.
func (e *Engine) Admit(r *kms.AdmitRequest) (kms.Reservation, error) {
	full := requestOf(r)
	return e.AdmitRequest(&full)
}

// AdmitRequest is Admit for callers that know more. r is not kept.
func (e *Engine) AdmitRequest(r *Request) (kms.Reservation, error) {
	snapshot := e.policies.Current()
	reservation := kms.Reservation{
		RequestID: r.RequestID,
		Tenant:    r.Principal.Tenant.ID,
		Cost:      snapshot.Costs.Price(r.Op, r.Spec, r.Bytes),

		PolicyVersion: snapshot.Version,
	}
	if r.Op == kms.OpFetchSecrets {
		// Each item is priced; what the caller has already costs nothing.
		reservation.Cost = min(reservation.Cost*kms.Credits(max(r.Items, 0)), MaxPrice)
	}
	if r.Source != "" {
		reservation.Cost += snapshot.Costs.Price(kms.OpDecrypt, r.Source, r.Bytes)
	}
	s := e.shardOf(reservation.Tenant)
	events, err := e.decide(s, snapshot, r, &reservation)
	if e.notify != nil {
		for event := range events.all {
			e.notify(event)
		}
	}
	if err != nil {
		return kms.Reservation{}, err
	}
	return reservation, nil
}

// decide peeks every gate and commits to all or none, under the shard's lock.
func (e *Engine) decide(s *engineShard, snapshot *Snapshot, r *Request, reservation *kms.Reservation) (events events, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.holds[r.RequestID]; ok {
		return events, kms.Errorf(kms.KindInternal, "the request is being served already")
	}
	h := s.newHold()
	h.reservation, h.snapshot, h.now = *reservation, snapshot, e.nowLocked(s)
	h.creates, h.bytes = r.Creates, int64(max(r.Bytes, 0))
	e.find(s, h, r)
	s.came(h.tenant, h.now.ns)
	if r.Gates != nil {
		*r.Gates = e.gates(h, r)
	}
	var f refusal
	if !e.peek(&f, h, r) {
		if f.costOnly {
			h.refusedCost(r)
		}
		err := f.error(snapshot)
		h.tenant.retries.told(h.now.ns, err)
		s.noteHot(h.key)
		s.reuse(h)
		return events, err
	}
	events = e.commit(h)
	s.holds[r.RequestID] = h
	s.countCost(h, r)
	h.tenant.tell(reservation)
	reservation.Exhausted = h.reservation.Exhausted
	return events, nil
}

// tell notes what a tenant has left.
func (t *tenant) tell(r *kms.Reservation) {
	r.PerSecond = kms.Credits(t.limits.credits.perSecond)
	r.Left, r.Burst = kms.Credits(t.credits.level-t.credits.debt), kms.Credits(t.limits.credits.burst)
	r.DayLimit, r.DayEnd = kms.Credits(t.limits.days.total), t.dayEnd()
	if r.DayLimit > 0 {
		_, room := t.elastic.room(t.limits.days)
		r.DayLeft = kms.Credits(room)
	}
}

// jitter lengthens a wait by up to the policy's share of it.
func (s *Snapshot) jitter(wait time.Duration) time.Duration {
	most := int64(wait) / permille * s.retryJitter
	if most <= 0 {
		return wait
	}
	return wait + time.Duration(rand.Int64N(most+1))
}
