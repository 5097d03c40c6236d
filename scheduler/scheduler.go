package scheduler

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

const (
	// DefaultMaxQueue is the number of requests that may wait when Options
	// does not say. At 2,000 requests/s, the rate the design sizes a pool of
	// four nodes for, it is two seconds of arrivals, which is the longest
	// that a request of normal urgency waits.
	DefaultMaxQueue = 4096

	// tenantParts bounds what one tenant may hold of the queue: one part in
	// four, so that it takes four tenants at their bound to refuse a fifth.
	tenantParts = 4

	// MaxSlots bounds the slots of one node; a PKCS#11 token has tens to a
	// few hundred sessions worth using, so a larger number is a mistake.
	MaxSlots = 1 << 16
)

// The ends of a request whose work never ran.
var (
	// ErrQueueFull: as many requests wait as may.
	ErrQueueFull = errors.New("scheduler: the queue is full")
	// ErrTenantQueueFull is the ErrQueueFull of a tenant that holds its part
	// of the queue.
	ErrTenantQueueFull = fmt.Errorf("%w for this tenant", ErrQueueFull)
	// ErrWaitExceeded: the longest wait passed, or the context ended, before
	// a slot was free. In the second case the error that Do returns wraps the
	// context's too.
	ErrWaitExceeded = errors.New("scheduler: the wait ended without a slot")
	// ErrNoNodes: none of the listed nodes is known and serving, or the last
	// of them went down while the request waited.
	ErrNoNodes = errors.New("scheduler: none of the nodes is serving")
)

// Options configures a Scheduler; the zero value is usable.
type Options struct {
	// MaxQueue is the number of requests that may wait in all; 0 means
	// DefaultMaxQueue.
	MaxQueue int
	// Clock measures waits; nil means time.Now. It is called with the lock
	// held: it must return at once and must not call the Scheduler.
	Clock func() time.Time
}

// Flow is what the scheduler knows of a request. Nodes is not kept.
type Flow struct {
	Tenant [16]byte
	// Nodes that can serve the request, the preferred one first. Unknown
	// ones are ignored, and one that is first made known while the request
	// waits does not serve it.
	Nodes []string
	// MaxWait bounds the waiting; zero or less means that only a slot that is
	// free now will do.
	MaxWait time.Duration
}

// Scheduler hands work to slots. All methods are safe for concurrent use.
type Scheduler struct {
	clock     func() time.Time
	maxQueue  int
	maxTenant int // waiters of one tenant
	pool      sync.Pool

	mu      sync.Mutex // guards the rest, and the nodes and waiters in it
	nodes   map[string]*node
	queued  int              // waiters
	tenants map[[16]byte]int // waiters by tenant, none at zero
}

// New makes a Scheduler of the given nodes; more can join later. It fails on
// nodes that SetNode would not accept, on two of one ID, and on a negative
// MaxQueue.
func New(nodes []Node, o Options) (*Scheduler, error) {
	if o.MaxQueue < 0 {
		return nil, fmt.Errorf("scheduler: MaxQueue is %d; give 0 for the default or a positive number", o.MaxQueue)
	}
	if o.MaxQueue == 0 {
		o.MaxQueue = DefaultMaxQueue
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	s := &Scheduler{
		clock:     o.Clock,
		maxQueue:  o.MaxQueue,
		maxTenant: max(1, o.MaxQueue/tenantParts),
		nodes:     make(map[string]*node, len(nodes)),
		tenants:   make(map[[16]byte]int),
	}
	s.pool.New = func() any { return newWaiter() }
	for _, n := range nodes {
		if s.nodes[n.ID] != nil {
			return nil, fmt.Errorf("scheduler: node %q is given twice", n.ID)
		}
		if err := s.SetNode(n); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Do waits for a slot on one of f.Nodes, runs work there with the node's ID,
// frees the slot and returns. ctx and f.MaxWait bound the waiting only; work
// that was granted a slot runs even if either ends in the same moment. If work
// panics, the slot is freed and the panic goes on.
//
// wait is the time from joining the queue to the grant or to giving up, and 0
// for a request that never queued. A non-nil error means that work never ran:
// ErrNoNodes, ErrQueueFull or its ErrTenantQueueFull at once, ErrWaitExceeded
// once f.MaxWait passed and, with ctx's error, once ctx ended.
func (s *Scheduler) Do(ctx context.Context, f Flow, work func(node string)) (wait time.Duration, err error) {
	if err := ctx.Err(); err != nil {
		return 0, contextEnded(err)
	}
	n, w, err := s.enter(&f)
	if err != nil {
		return 0, err
	}
	if w != nil {
		n, wait, err = s.await(ctx, w, f.MaxWait)
		if err != nil {
			return wait, err
		}
	}
	defer s.release(n)
	work(n.id)
	return wait, nil
}

// enter takes a free slot and returns its node, or else enqueues the request
// and returns its waiter.
func (s *Scheduler) enter(f *Flow) (*node, *waiter, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	serving := false
	for _, id := range f.Nodes {
		n := s.nodes[id]
		if n == nil || !n.serving() {
			continue
		}
		if n.busy < n.slots {
			n.take()
			return n, nil, nil
		}
		serving = true
	}
	switch {
	case !serving:
		return nil, nil, ErrNoNodes
	case f.MaxWait <= 0:
		return nil, nil, ErrWaitExceeded
	case s.queued >= s.maxQueue:
		return nil, nil, ErrQueueFull
	case s.tenants[f.Tenant] >= s.maxTenant:
		return nil, nil, ErrTenantQueueFull
	}
	return nil, s.enqueueLocked(f), nil
}

// await waits for the decision about w, or writes it when ctx or the longest
// wait ends first, and recycles w.
func (s *Scheduler) await(ctx context.Context, w *waiter, maxWait time.Duration) (*node, time.Duration, error) {
	w.timer.Reset(maxWait)
	select {
	case <-w.decided:
	case <-w.timer.C:
		s.giveUp(w, ErrWaitExceeded)
	case <-ctx.Done():
		s.giveUp(w, contextEnded(ctx.Err()))
	}
	n, wait, err := w.node, s.clock().Sub(w.since), w.err
	w.reset()
	s.pool.Put(w)
	return n, wait, err
}

// giveUp decides that w ends with err; an earlier decision stands. On return
// the decision is in w.
func (s *Scheduler) giveUp(w *waiter, err error) {
	s.mu.Lock()
	s.decideLocked(w, nil, err)
	s.mu.Unlock()
	<-w.decided
}

// release frees a slot of n and hands it to the next in line.
func (s *Scheduler) release(n *node) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n.busy--
	s.dispatchLocked(n)
	if n.removed && n.busy == 0 {
		delete(s.nodes, n.id)
	}
}

func contextEnded(cause error) error {
	return fmt.Errorf("%w: %w", ErrWaitExceeded, cause)
}
