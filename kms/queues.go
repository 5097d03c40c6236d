package kms

import (
	"context"
	"time"
	"uuid"
)

// Queues tells what the scheduler of this API node does.
type Queues interface {
	// Queues returns its present state.
	Queues() QueueState
}

// QueueState is the scheduler of an API node at one moment.
type QueueState struct {
	Nodes          []QueueNode   // by node
	Domains        []QueueDomain // by name
	Waiting        int           // requests that wait for a slot
	MaxWaiting     int           // that may wait in all
	MaxTenant      int           // that may wait of one tenant in a domain
	WaitingTenants int           // counted by domain
	Oldest         time.Duration // how long the longest waiting has waited
}

// QueueNode is a node as the scheduler sees it.
type QueueNode struct {
	Node    NodeID
	Domain  string
	Down    bool
	Slots   int
	Busy    int
	Waiting int           // requests that could run here; one may count on several
	Granted uint64        // slots taken
	Away    uint64        // of those, by requests that prefer another node
	Behind  time.Duration // expected wait of a request that joins here
}

// QueueDomain is a set of nodes that share their work.
type QueueDomain struct {
	Name        string
	Slots, Busy int
	Waiting     int
	Band        string  // of the utilisation gate
	Fast, Slow  float64 // utilisation, 0 to 1
	MaxInFlight int     // slots that a capped tenant may hold
	Capped      bool    // the cap applies now
	LoadCost    time.Duration
	Classes     []QueueClass // HIGH first
	// Tenants are those with work, the largest users of the last second first,
	// at most a hundred.
	Tenants []QueueTenant
}

// QueueClass is what requests of a class have waited for so far.
type QueueClass struct {
	Class   Class
	Refused uint64      // by the gate
	Waited  []QueueWait // by reason; those of no time are left out
}

// QueueWait is the time waited for a reason.
type QueueWait struct {
	Code string
	Time time.Duration
}

// QueueTenant is a tenant with work in a domain.
type QueueTenant struct {
	Tenant                    uuid.UUID
	Name                      string // "" when it cannot be found now
	Weight                    int64
	Running                   int
	Interactive, Normal, Bulk int           // requests that wait, by urgency
	Used                      time.Duration // slot time of the last second
	Share                     float64       // its fair share, in slots
	Lag                       time.Duration // slot time it is owed; negative: it is ahead
	Over                      bool          // above its fair share
	Parked                    string        // the code of the cap that holds it; "": none
}

// Queues reports what the scheduler of this API node does, to operators.
func (s *Service) Queues(ctx context.Context, t *Ticket) (state *QueueState, err error) {
	err = s.run(ctx, t, &task{op: OpReadNodes, store: func(ctx context.Context, _ *Ticket) error {
		q := s.queues.Queues()
		for d := range q.Domains {
			for i := range q.Domains[d].Tenants {
				of := &q.Domains[d].Tenants[i]
				// A name is for reading: without it the id stands.
				if tenant, err := s.tenants.Tenant(ctx, of.Tenant); err == nil {
					of.Name = tenant.Name
				}
			}
		}
		state = &q
		return nil
	}})
	if err != nil {
		return nil, err
	}
	return state, nil
}
