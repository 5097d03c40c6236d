package scheduler

import "time"

// waiter is a request in the queue. Waiters are pooled; between enqueueLocked
// and the decision the Scheduler's lock guards every field, after it the
// request alone owns them.
type waiter struct {
	tenant [16]byte
	since  time.Time
	links  []link // one per listed and known node

	// The decision, written once: a node granted, or an error.
	isDecided bool
	node      *node
	err       error
	decided   chan struct{} // capacity 1; one token per decision

	timer *time.Timer // of the longest wait; stopped but in await
}

func newWaiter() *waiter {
	w := &waiter{decided: make(chan struct{}, 1), timer: time.NewTimer(time.Hour)}
	w.timer.Stop()
	return w
}

// link is a waiter's place in one node's list. Lists are intrusive, so that
// leaving all of them costs no search and queueing no allocation.
type link struct {
	waiter     *waiter
	node       *node // nil once the link is off its list
	prev, next *link
}

// reset makes w ready for the pool, holding on to nothing.
func (w *waiter) reset() {
	w.timer.Stop()
	clear(w.links)
	*w = waiter{links: w.links[:0], decided: w.decided, timer: w.timer}
}

// served tells whether a node that serves has w on its list.
func (w *waiter) served() bool {
	for i := range w.links {
		if n := w.links[i].node; n != nil && n.serving() {
			return true
		}
	}
	return false
}

// enqueueLocked puts the request on the list of every node it names and that
// is known, serving or not: one that comes back serves those who wait.
func (s *Scheduler) enqueueLocked(f *Flow) *waiter {
	w := s.pool.Get().(*waiter)
	w.tenant = f.Tenant
	w.since = s.clock()
	for _, id := range f.Nodes {
		if n := s.nodes[id]; n != nil && !n.removed {
			w.links = append(w.links, link{waiter: w, node: n})
		}
	}
	for i := range w.links { // only now do the links keep their addresses
		w.links[i].node.push(&w.links[i])
	}
	s.queued++
	s.tenants[w.tenant]++
	return w
}

// decideLocked writes the decision about w, unless it has been written:
// granted a slot of n, or ended by err when n is nil. It takes w off all lists
// and wakes its request.
func (s *Scheduler) decideLocked(w *waiter, n *node, err error) {
	if w.isDecided {
		return
	}
	w.isDecided, w.node, w.err = true, n, err
	if n != nil {
		n.take()
	}
	for i := range w.links {
		if l := &w.links[i]; l.node != nil {
			l.node.remove(l)
		}
	}
	s.queued--
	if s.tenants[w.tenant]--; s.tenants[w.tenant] == 0 {
		delete(s.tenants, w.tenant)
	}
	w.decided <- struct{}{}
}

// dispatchLocked hands n's free slots to those who wait for it, in order.
func (s *Scheduler) dispatchLocked(n *node) {
	for n.serving() && n.busy < n.slots && n.head != nil {
		s.decideLocked(n.head.waiter, n, nil)
	}
}

// strandLocked ends the waiting of those on n's list that no node serves any
// more; the others stay, on n's list too, in case it comes back.
func (s *Scheduler) strandLocked(n *node) {
	for l := n.head; l != nil; {
		w := l.waiter
		// Deciding takes every link of w off; a request that listed n twice
		// has two links here, so step past all of its own first.
		for l != nil && l.waiter == w {
			l = l.next
		}
		if !w.served() {
			s.decideLocked(w, nil, ErrNoNodes)
		}
	}
}
