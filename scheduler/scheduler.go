package scheduler

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"sync"
	"time"
)

// The ends of a request whose work never ran.
var (
	// ErrQueueFull: as many requests wait as may.
	ErrQueueFull = errors.New("scheduler: the queue is full")
	// ErrTenantQueueFull is the ErrQueueFull of a tenant that holds its part
	// of the queue.
	ErrTenantQueueFull = fmt.Errorf("%w for this tenant", ErrQueueFull)
	// ErrOverloaded: the utilisation gate refuses the request's class.
	ErrOverloaded = errors.New("scheduler: the nodes are too busy for this class of request")
	// ErrWaitTooLong: the wait that is to be expected is longer than the
	// request may wait.
	ErrWaitTooLong = errors.New("scheduler: the expected wait is too long")
	// ErrWaitExceeded: the longest wait passed, or the context ended, before
	// a slot was free. In the second case the error that Do returns wraps the
	// context's too.
	ErrWaitExceeded = errors.New("scheduler: the wait ended without a slot")
	// ErrNoNodes: none of the listed nodes is known and serving, or the last
	// of them went down while the request waited.
	ErrNoNodes = errors.New("scheduler: none of the nodes is serving")
)

// maxWait bounds the longest wait, in ns (36 years), so that the end of it is a
// time.
const maxWait = 1 << 60

// searched is how many nodes of a domain are searched by name before the map
// is: about as many as cost the same.
const searched = 8

// Scheduler hands work to slots. All methods are safe for concurrent use.
type Scheduler struct {
	clock func() time.Time
	epoch time.Time
	config

	// How time and requests are waited for; tests drive both by hand.
	after func(*domain, time.Duration) // look at the domain again then
	wake  func(*request)               // its decision was written

	mu      sync.Mutex // guards the rest, and everything that hangs on it
	now     int64      // ns since epoch, read by lock
	nodes   map[string]*node
	domains []*domain
	queued  int // requests that wait
	orders  uint64
	decided *request // those that unlock will wake
	spare   []*request
}

// New makes a Scheduler of the given nodes; more can join later. It fails on
// nodes that SetNode would not accept, on two of one ID, and on options out of
// their range.
func New(nodes []Node, o Options) (*Scheduler, error) {
	c, err := o.config()
	if err != nil {
		return nil, err
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	s := &Scheduler{
		clock:  o.Clock,
		epoch:  o.Clock(),
		config: c,
		nodes:  make(map[string]*node, len(nodes)),
	}
	s.after = s.arm
	s.wake = func(r *request) { r.decided <- struct{}{} }
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
// ErrNoNodes, ErrOverloaded, ErrWaitTooLong, ErrQueueFull or its
// ErrTenantQueueFull at once, ErrWaitExceeded once f.MaxWait passed and, with
// ctx's error, once ctx ended.
func (s *Scheduler) Do(ctx context.Context, f Flow, work func(node string)) (wait time.Duration, err error) {
	if err := ctx.Err(); err != nil {
		if f.Explain != nil {
			*f.Explain = Explanation{}
		}
		return 0, contextEnded(err)
	}
	r, err := s.enter(&f, f.Explain)
	if err != nil {
		return 0, err
	}
	if r.enqueued {
		wait, err = s.await(ctx, r, f.Explain)
		if err != nil {
			return wait, err
		}
	}
	defer s.finish(r, f.Explain)
	work(r.node.id)
	return wait, nil
}

// enter starts a request or enqueues it, or returns why it may do neither.
func (s *Scheduler) enter(f *Flow, explain *Explanation) (*request, error) {
	s.lock()
	defer s.unlock()
	r := s.newRequest()
	if explain != nil {
		r.wantWhy()
	}
	err := s.resolve(r, f)
	if err == nil {
		err = r.domain.enter(r)
	}
	if err != nil {
		s.recycle(r, explain)
		return nil, err
	}
	return r, nil
}

// newRequest returns a request from the spare ones, or a new one. They are not
// in a sync.Pool, because all of this happens under the lock anyway.
func (s *Scheduler) newRequest() *request {
	last := len(s.spare) - 1
	if last < 0 {
		return newRequest()
	}
	r := s.spare[last]
	s.spare = s.spare[:last]
	return r
}

// recycle ends r, which nobody else knows any more.
func (s *Scheduler) recycle(r *request, explain *Explanation) {
	r.explain(explain)
	r.reset()
	if len(s.spare) < maxSpare {
		s.spare = append(s.spare, r)
	}
}

// resolve fills r from f: its domain, nodes, tenant, estimate and longest wait.
func (s *Scheduler) resolve(r *request, f *Flow) error {
	r.first = nobody
	for _, id := range f.Nodes {
		n := s.nodeOf(id, r.domain)
		if n == nil || n.removed || r.domain != nil && n.domain != r.domain {
			continue
		}
		r.domain = n.domain
		r.list = append(r.list, uint8(n.bit))
		r.mask |= 1 << n.bit
		if r.first == nobody {
			r.first = n.bit
		}
	}
	d := r.domain
	if d == nil || !d.anyServing(r.mask) {
		return ErrNoNodes
	}
	d.refresh(s.now)
	d.settleHome(r)
	r.urgency, r.class, r.prior = f.Urgency, f.Class, f.Prior
	r.key = estimateKey{d.nodes[r.home].model, f.Op}
	r.estimate = d.estimates.of(r.key, r.prior)
	r.big = d.mean > 0 && r.estimate > bigFactor*d.mean
	longest := int64(f.MaxWait)
	if f.Deadline > 0 {
		longest = min(longest, int64(f.Deadline)-r.estimate)
	}
	r.arrived, r.mark, r.until = s.now, s.now, s.now+min(longest, maxWait)
	r.since = s.now - max(int64(f.Waited), 0)
	r.order, s.orders = s.orders, s.orders+1
	r.tenant = d.tenantOf(f)
	return nil
}

// nodeOf returns the node of a name, or nil. All nodes that a request lists are
// of the first one's domain, where a few comparisons find them in half the time
// of the map.
func (s *Scheduler) nodeOf(id string, d *domain) *node {
	if d != nil {
		for _, n := range d.nodes[:min(searched, bits.Len64(d.known))] {
			if n != nil && n.id == id {
				return n
			}
		}
	}
	return s.nodes[id]
}

// await waits for the decision about r, or writes it when ctx or the longest
// wait ends first. It recycles r unless it was granted a slot.
func (s *Scheduler) await(ctx context.Context, r *request, explain *Explanation) (time.Duration, error) {
	r.timer.Reset(time.Duration(r.until - r.arrived))
	select {
	case <-r.decided:
	case <-r.timer.C:
		s.giveUp(r, ErrWaitExceeded)
	case <-ctx.Done():
		s.giveUp(r, contextEnded(ctx.Err()))
	}
	r.timer.Stop()
	wait, err := time.Duration(r.ended-r.arrived), r.err
	if err != nil {
		s.mu.Lock()
		s.recycle(r, explain)
		s.mu.Unlock()
	}
	return wait, err
}

// giveUp decides that r ends with err; an earlier decision stands. On return
// the decision is in r.
func (s *Scheduler) giveUp(r *request, err error) {
	s.lock()
	d := r.domain
	d.refresh(s.now)
	d.decide(r, nil, err)
	d.dispatch()
	s.unlock()
	<-r.decided
}

// finish frees r's slot, hands it to whose turn it is, and recycles r.
func (s *Scheduler) finish(r *request, explain *Explanation) {
	s.lock()
	r.domain.refresh(s.now)
	r.domain.finish(r)
	s.recycle(r, explain)
	s.unlock()
}

// look dispatches what time has let go.
func (s *Scheduler) look(d *domain) {
	s.lock()
	defer s.unlock()
	d.refresh(s.now)
	d.dispatch()
}

func (s *Scheduler) lock() {
	s.mu.Lock()
	s.now = max(s.now, int64(s.clock().Sub(s.epoch)))
}

// decideLocked notes that unlock is to wake r's request.
func (s *Scheduler) decideLocked(r *request) { r.following, s.decided = s.decided, r }

// unlock sets the timers, gives up the lock and then wakes the requests that
// were decided under it.
func (s *Scheduler) unlock() {
	for _, d := range s.domains {
		if d.wake > 0 {
			s.after(d, d.wake)
			d.wake = 0
		}
	}
	r := s.decided
	s.decided = nil
	s.mu.Unlock()
	for r != nil {
		next := r.following // r is its request's as soon as that has the token
		r.following = nil
		s.wake(r)
		r = next
	}
}

// arm sets d's timer. It runs only while something waits beside a free slot.
func (s *Scheduler) arm(d *domain, wake time.Duration) {
	if d.timer == nil {
		d.timer = time.AfterFunc(wake, func() { s.look(d) })
		return
	}
	d.timer.Reset(wake)
}

func (s *Scheduler) domainOf(name string) *domain {
	for _, d := range s.domains {
		if d.name == name {
			return d
		}
	}
	d := newDomain(s, name, s.config)
	s.domains = append(s.domains, d)
	return d
}

func contextEnded(cause error) error {
	return fmt.Errorf("%w: %w", ErrWaitExceeded, cause)
}
