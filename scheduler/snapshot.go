package scheduler

import (
	"cmp"
	"slices"
	"time"
)

// snapshotTenants bounds the tenants in a DomainSnapshot.
const snapshotTenants = 100

// Snapshot is the scheduler's state at one moment, for operators.
type Snapshot struct {
	Nodes     []NodeSnapshot   // by ID
	Domains   []DomainSnapshot // by name
	Queued    int              // requests that wait
	MaxQueue  int              // that may wait in all
	MaxTenant int              // that may wait of one tenant in a domain
	Tenants   int              // tenants with requests that wait, by domain
	Oldest    time.Duration    // how long the longest waiting has waited
}

// NodeSnapshot is one node in a Snapshot.
type NodeSnapshot struct {
	Node
	Removed bool          // gone once Busy is 0
	Busy    int           // slots in use
	Waiting int           // requests that could run here; one may count on several
	Granted uint64        // slots taken since the node joined
	Away    uint64        // of those, by requests that prefer another node
	Behind  time.Duration // expected wait of a request that joins here
}

// DomainSnapshot is one domain in a Snapshot.
type DomainSnapshot struct {
	Name        string
	Slots, Busy int
	Queued      int
	Band        Band
	Trips       uint64  // times that the gate came to its hard line
	Fast, Slow  float64 // utilisation, 0 to 1
	MaxInFlight int     // slots that a capped tenant may hold
	Capped      bool    // the cap applies now
	LoadCost    time.Duration
	// Waited sums all waiting so far, by Class and Reason.
	Waited [classes][Reasons]time.Duration
	// Refused counts what the gate refused, by Class.
	Refused [classes]uint64
	// Tenants are those with work, the largest users of the last second
	// first, at most a hundred.
	Tenants []TenantSnapshot
}

// TenantSnapshot is one tenant in a DomainSnapshot.
type TenantSnapshot struct {
	Tenant  [16]byte
	Weight  int64
	Running int
	Waiting [urgencies]int // by Urgency
	Used    time.Duration  // slot time of the last second
	Share   float64        // its fair share, in slots
	Lag     time.Duration  // slot time it is owed; negative if it is ahead
	Over    bool           // above its fair share
	Parked  bool           // held by the cap
	Why     Reason         // Cap or Window, if Parked
}

// Snapshot returns the present state.
func (s *Scheduler) Snapshot() Snapshot {
	s.lock()
	defer s.unlock()
	snap := Snapshot{
		Nodes:     make([]NodeSnapshot, 0, len(s.nodes)),
		Queued:    s.queued,
		MaxQueue:  s.bounds.all,
		MaxTenant: s.bounds.tenant,
	}
	for _, d := range s.domains {
		d.refresh(s.now)
		d.dispatch()
		snap.Domains = append(snap.Domains, d.snapshot())
		snap.Tenants += d.waitingTenants
		snap.Oldest = max(snap.Oldest, d.oldest())
	}
	for _, n := range s.nodes {
		snap.Nodes = append(snap.Nodes, n.snapshot())
	}
	slices.SortFunc(snap.Nodes, func(a, b NodeSnapshot) int { return cmp.Compare(a.ID, b.ID) })
	slices.SortFunc(snap.Domains, func(a, b DomainSnapshot) int { return cmp.Compare(a.Name, b.Name) })
	return snap
}

// Demand is what is wanted of a node now.
type Demand struct {
	ID     string
	Domain string
	Slots  int
	Busy   int
	// Waiting counts the requests that could run here; one may count on several
	// nodes.
	Waiting int
	Weight  int64 // of the domain's tenants that have work or had some lately
}

// Demands returns the demand of every node, in no order. It looks at no tenant,
// so it may be called many times a second.
func (s *Scheduler) Demands() []Demand {
	s.lock()
	defer s.unlock()
	demands := make([]Demand, 0, len(s.nodes))
	for _, n := range s.nodes {
		demands = append(demands, Demand{
			ID: n.id, Domain: n.domain.name, Slots: n.slots, Busy: n.busy, Waiting: n.waiting(), Weight: n.domain.activeWeight,
		})
	}
	return demands
}

// waiting counts the requests that could run on n.
func (n *node) waiting() (count int) {
	for _, rt := range n.domain.routes {
		if rt.mask>>n.bit&1 == 1 {
			count += rt.queued
		}
	}
	return count
}

func (n *node) snapshot() NodeSnapshot {
	return NodeSnapshot{
		Node:    Node{ID: n.id, Slots: n.slots, Down: n.down, Domain: n.domain.name, Model: n.model},
		Removed: n.removed,
		Busy:    n.busy,
		Waiting: n.waiting(),
		Granted: n.granted,
		Away:    n.away,
		Behind:  time.Duration(n.behind()),
	}
}

func (d *domain) snapshot() DomainSnapshot {
	snap := DomainSnapshot{
		Name: d.name, Slots: d.slots, Busy: d.busy, Queued: d.queued,
		Band: d.gate.band, Trips: d.gate.trips, Fast: d.gate.fast, Slow: d.gate.slow,
		MaxInFlight: d.maxInFlight(), Capped: d.capApplies(),
		LoadCost: time.Duration(d.loadCost), Refused: d.refused,
	}
	for c := range d.waited {
		for r, ns := range d.waited[c] {
			snap.Waited[c][r] = time.Duration(ns)
		}
	}
	for _, t := range d.tenants {
		if t.presence == active {
			snap.Tenants = append(snap.Tenants, d.tenantSnapshot(t))
		}
	}
	slices.SortFunc(snap.Tenants, func(a, b TenantSnapshot) int {
		return cmp.Or(cmp.Compare(b.Used, a.Used), slices.Compare(a.Tenant[:], b.Tenant[:]))
	})
	snap.Tenants = slices.Clip(snap.Tenants[:min(len(snap.Tenants), snapshotTenants)])
	return snap
}

func (d *domain) tenantSnapshot(t *tenant) TenantSnapshot {
	return TenantSnapshot{
		Tenant: t.id, Weight: t.weight, Running: t.running, Waiting: t.waiting,
		Used: time.Duration(t.recent.sum(d.now)), Share: d.fairShare(t),
		Lag:  time.Duration(float64(d.clock-t.tag) / tagUnit * float64(t.weight)),
		Over: t.over, Parked: t.isParked, Why: t.parked,
	}
}

// oldest is how long the longest waiting request has waited.
func (d *domain) oldest() (longest time.Duration) {
	for _, t := range d.tenants {
		for _, b := range t.branches {
			for u := range b.queues {
				if r := b.queues[u].head; r != nil {
					longest = max(longest, time.Duration(d.now-r.arrived))
				}
			}
		}
	}
	return longest
}
