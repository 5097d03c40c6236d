package scheduler

import "time"

// request is one call of Do. Requests are reused; the Scheduler's lock guards
// every field but decided and timer until the decision was received, then the
// request's goroutine alone owns it until it ends.
type request struct {
	tenant  *tenant
	domain  *domain
	key     estimateKey
	prior   time.Duration
	urgency Urgency
	class   Class
	big     bool
	away    bool // runs on another node than the one preferred
	aged    bool
	passing bool // its tenant was not pressing when it started
	isOther bool // runs in another rank than High

	list     []uint8 // bits of the nodes that can serve it, as listed at arrival
	mask     uint64  // the same, without those that have left
	first    int     // the preferred node's bit
	home     int     // the bit of the node that it waits for
	estimate int64   // ns of slot time
	arrived  int64
	since    int64 // arrived, or before that when it comes again: its place in the queue
	until    int64 // when its longest wait ends
	order    uint64
	mark     int64 // to here its waiting is attributed, if it is no head
	ahead    int

	enqueued   bool   // it did not start at once; constant once enter returned
	queue      *queue // while it waits
	prev, next *request
	// Of what runs on its node, while it does; see stuck.go.
	before, after *request
	isStuck       bool

	// The decision, written once: a node granted, or an error.
	isDecided bool
	node      *node
	err       error
	started   int64
	ended     int64 // of the waiting

	following *request      // in Scheduler.decided
	decided   chan struct{} // capacity 1; one token per decision of one that waited
	timer     *time.Timer   // of the longest wait; stopped but in await

	why *Explanation // nil: not wanted
	own *Explanation // made once, for all that r is used for
}

func newRequest() *request {
	r := &request{decided: make(chan struct{}, 1), timer: time.NewTimer(time.Hour)}
	r.timer.Stop()
	return r
}

// explain copies the explanation to where the caller wants it. It is not
// written there directly, because then all that a Flow points to would escape
// to the heap.
func (r *request) explain(to *Explanation) {
	if to != nil && r.why != nil {
		*to = *r.why
	}
}

// wantWhy makes room for the explanation.
func (r *request) wantWhy() {
	if r.own == nil {
		r.own = &Explanation{}
	}
	r.why = r.own
	*r.why = Explanation{}
}

// reset makes r ready for the pool, holding on to nothing.
func (r *request) reset() {
	*r = request{decided: r.decided, timer: r.timer, own: r.own, list: r.list[:0]}
}

// parkedBucket is the bucket of a queue whose tenant is parked.
const parkedBucket = -1

// queue is a flow's line on one route: the requests of one tenant and one
// urgency for one set of nodes, in order of arrival.
type queue struct {
	branch     *branch
	head, tail *request
	bucket     int8 // the heap that counts its head, or parkedBucket
	since      int64
	seen       [routeReasons]int64 // of its account, at since
	duePos     int32               // in the aging heap, or -1
}

// precedes tells whether r came before o.
func (r *request) precedes(o *request) bool {
	return r.since < o.since || r.since == o.since && r.order < o.order
}

// insert puts r in by order of arrival; nearly always that is the end.
func (q *queue) insert(r *request) {
	after := q.tail
	for after != nil && r.precedes(after) {
		after = after.prev
	}
	r.queue, r.prev = q, after
	if after == nil {
		r.next, q.head = q.head, r
	} else {
		r.next, after.next = after.next, r
	}
	if r.next == nil {
		q.tail = r
	} else {
		r.next.prev = r
	}
}

func (q *queue) remove(r *request) {
	if r.prev == nil {
		q.head = r.next
	} else {
		r.prev.next = r.next
	}
	if r.next == nil {
		q.tail = r.prev
	} else {
		r.next.prev = r.prev
	}
	r.queue, r.prev, r.next = nil, nil, nil
}

// join raises the tags of a tenant and an urgency with nothing waiting to the
// clocks, so that nobody saves up service by staying away.
func (d *domain) join(r *request) {
	t, u := r.tenant, r.urgency
	if t.queued == 0 {
		t.tag = max(t.tag, d.enterTag(r.mask))
	}
	if t.waiting[u] == 0 {
		t.inner[u] = max(t.inner[u], t.innerClock)
	}
}

// hasQueue tells whether others wait in the queue that r would join.
func (d *domain) hasQueue(r *request) bool {
	if r.tenant.waiting[r.urgency] == 0 {
		return false
	}
	for _, b := range r.tenant.branches {
		if b.route.mask == r.mask && b.route.home == r.home && b.queues[r.urgency].head != nil {
			return true
		}
	}
	return false
}

// enqueue puts r in its tenant's queue for its nodes.
func (d *domain) enqueue(r *request) {
	t := r.tenant
	r.enqueued = true
	d.join(r)
	switch t.queued {
	case 0:
		d.waitingTenants++
	case 1:
		d.pressingWeight += t.weight
	}
	r.ahead = t.waiting[r.urgency]
	t.waiting[r.urgency]++
	t.work[r.urgency] += r.estimate
	t.queued++
	t.backlog += r.estimate
	d.backlog += r.estimate
	d.queued++
	d.scheduler.queued++
	d.place(r)
	d.recap(t)
	d.refile(t)
}

// dequeue takes r off its queue, with the end of its waiting attributed.
func (d *domain) dequeue(r *request) {
	t := r.tenant
	d.displace(r)
	t.waiting[r.urgency]--
	t.work[r.urgency] -= r.estimate
	t.queued--
	t.backlog -= r.estimate
	d.backlog -= r.estimate
	d.queued--
	d.scheduler.queued--
	switch t.queued {
	case 1:
		d.pressingWeight -= t.weight
	case 0:
		d.waitingTenants--
		d.over.remove(t)
		d.parked.remove(t)
		t.isParked = false
	}
}

// place puts r on the route of its nodes and home.
func (d *domain) place(r *request) {
	b := d.branchOf(r.tenant, d.routeOf(r))
	q := &b.queues[r.urgency]
	d.charge(q)
	old := q.head
	q.insert(r)
	b.route.queued++
	d.nodes[r.home].queued += r.estimate
	if q.head != old {
		if old != nil {
			old.mark = d.now // from now on it waits for those before it
		}
		d.headed(q)
	}
}

// displace takes r off its route.
func (d *domain) displace(r *request) {
	q := r.queue
	b := q.branch
	wasHead := q.head == r
	if wasHead {
		d.charge(q)
	} else {
		d.note(r, OwnQueue, d.now-r.mark)
	}
	r.mark = d.now
	q.remove(r)
	b.route.queued--
	d.nodes[r.home].queued -= r.estimate
	if wasHead {
		d.headed(q)
	}
}

// headed starts the clock of q's new head, if it has one.
func (d *domain) headed(q *queue) {
	q.since = d.now
	if r := q.head; r != nil {
		if q.bucket >= 0 {
			a := &q.branch.route.accounts[q.bucket]
			a.advance(d.now)
			q.seen = a.sums
		}
		d.note(r, OwnQueue, d.now-r.mark)
		r.mark = d.now
	}
	d.ageHead(q)
}
