package quota

import (
	"sync"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// shardCount is the number of locks that tenants are spread over: several
// times the processors of a large server, so that two busy tenants seldom
// share one. A power of two, for shardOf.
const shardCount = 64

// Gate prices requests and counts what tenants use. It implements kms.Quota.
// All methods are safe for concurrent use.
//
// What it holds grows with the requests in flight and with the tenants that
// were ever seen, both of which others bound.
type Gate struct {
	costs  *CostTable
	shards [shardCount]shard
}

// shard holds the tenants whose id falls to it.
type shard struct {
	mu      sync.Mutex // guards the rest; never held with another shard's
	tenants map[uuid.UUID]*account
	open    map[uuid.UUID]kms.Reservation // by request id

	_ [40]byte // keeps the locks of two shards off one 64-byte cache line
}

// account is what a tenant has used, guarded by its shard's lock.
type account struct {
	requests uint64
	reserved kms.Credits // of open reservations
	open     int
	charged  kms.Credits
}

var _ kms.Quota = (*Gate)(nil)

// NewGate makes a Gate that prices by the table.
func NewGate(costs *CostTable) *Gate {
	g := &Gate{costs: costs}
	for i := range g.shards {
		g.shards[i].tenants = make(map[uuid.UUID]*account)
		g.shards[i].open = make(map[uuid.UUID]kms.Reservation)
	}
	return g
}

// shardOf spreads by the id's last byte, which is random in every version of
// UUID that ids are made in (RFC 9562, 5.4 and 5.7).
func (g *Gate) shardOf(tenant uuid.UUID) *shard {
	return &g.shards[tenant[15]%shardCount]
}

// Admit reserves the price of a request. It fails only on a request id that
// is in flight already, which is a fault of ours (KindInternal) and reserves
// nothing.
func (g *Gate) Admit(r *kms.AdmitRequest) (kms.Reservation, error) {
	reservation := kms.Reservation{
		RequestID: r.RequestID,
		Tenant:    r.Principal.Tenant.ID,
		Cost:      g.costs.Price(r.Op, r.Spec, r.Bytes),
	}
	if r.Source != "" {
		reservation.Cost += g.costs.Price(kms.OpDecrypt, r.Source, r.Bytes)
	}
	s := g.shardOf(reservation.Tenant)
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.open[reservation.RequestID]; ok {
		return kms.Reservation{}, kms.Errorf(kms.KindInternal, "the request is being served already")
	}
	s.open[reservation.RequestID] = reservation
	a := s.tenants[reservation.Tenant]
	if a == nil {
		a = new(account)
		s.tenants[reservation.Tenant] = a
	}
	a.requests++
	a.open++
	a.reserved += reservation.Cost
	return reservation, nil
}

// Settle ends a reservation and charges what the outcome says, but no more
// than the rule of settlement allows. A reservation that is not open, because it
// was settled before or never made, is ignored.
func (g *Gate) Settle(r kms.Reservation, outcome kms.Settlement) {
	s := g.shardOf(r.Tenant)
	s.mu.Lock()
	defer s.mu.Unlock()
	made, ok := s.open[r.RequestID]
	if !ok || made.Tenant != r.Tenant {
		return
	}
	delete(s.open, r.RequestID)
	a := s.tenants[made.Tenant]
	a.open--
	a.reserved -= made.Cost
	a.charged += min(max(outcome.Charged, 0), outcome.State.Charge(made.Cost))
}

// Usage returns the number of requests that the tenant had admitted and the
// micro-credits that it was charged, since the Gate was made.
func (g *Gate) Usage(tenant uuid.UUID) (requests uint64, charged kms.Credits) {
	s := g.shardOf(tenant)
	s.mu.Lock()
	defer s.mu.Unlock()
	if a := s.tenants[tenant]; a != nil {
		return a.requests, a.charged
	}
	return 0, 0
}

// Reserved returns the number of the tenant's requests in flight and the
// micro-credits reserved for them.
func (g *Gate) Reserved(tenant uuid.UUID) (requests int, reserved kms.Credits) {
	s := g.shardOf(tenant)
	s.mu.Lock()
	defer s.mu.Unlock()
	if a := s.tenants[tenant]; a != nil {
		return a.open, a.reserved
	}
	return 0, 0
}
