package scheduler

import (
	"iter"
	"math/bits"
	"time"
)

const (
	// bigFactor: an operation is big when its slot time is more than so many
	// times the mean.
	bigFactor = 4

	// meanGain is the weight of one operation in the domain's mean slot time.
	meanGain = 256

	// largestDecay is how fast a large operation is forgotten: by a 1,024th
	// with each operation after it.
	largestDecay = 1024

	// maxSpare bounds the requests, tenants and branches kept for reuse, of
	// each.
	maxSpare = 4096
)

// domain is a set of nodes that share their work. It is guarded by the
// Scheduler's lock. Every entry calls refresh first and dispatch last.
type domain struct {
	scheduler *Scheduler
	name      string
	config
	now int64 // ns, as of the last refresh

	nodes [maxNodes]*node // by bit
	known uint64          // bits in use
	slots int             // of nodes that serve
	busy  int             // also on nodes that have left

	tenants        map[[16]byte]*tenant
	spareTenants   []*tenant
	spareBranches  []*branch
	routes         []*route
	resting        tenantList // by idle; likewise the next two
	lingering      tenantList
	owing          tenantList
	parked         tenantList // by the cap
	over           tenantList // above their share and waiting, by reviewed
	present        int        // tenants that are active, resting or lingering
	activeWeight   int64      // of those that are active or resting
	pressingWeight int64      // of those with more than one request that waits

	waitingTenants int
	queued         int
	backlog        int64 // ns that wait, estimated
	inFlight       int64 // ns that run, estimated

	clock   int64  // the virtual time
	lastTag int64  // the largest tag
	turns   uint64 // breaks ties between tags

	passing  window // over shareWindow, of those who are not pressing
	gate     gate
	lines    [ranks]int // by drawLines
	linesFor struct {
		band  Band
		slots int
	}
	entrance  entrance
	aging     aging
	estimates estimator
	mean      int64 // ns of slot time of an operation
	largest   int64 // ns of slot time of a large one
	bigBusy   int
	loadCost  int64 // ns that running away from home costs
	windowAt  int64 // the part of capWindow in which parked was reviewed
	stuckAt   int64 // when stuck work is looked for next

	waited  [classes][Reasons]int64 // ns, for operators
	refused [classes]uint64         // by the gate

	wake  time.Duration // from now, 0 for none
	timer *time.Timer
}

func newDomain(s *Scheduler, name string, c config) *domain {
	return &domain{
		scheduler: s, name: name, config: c, now: s.now,
		tenants:   make(map[[16]byte]*tenant),
		resting:   tenantList{kind: presenceList},
		lingering: tenantList{kind: presenceList},
		owing:     tenantList{kind: presenceList},
		parked:    tenantList{kind: parkedList},
		over:      tenantList{kind: overList},
		passing:   newWindow(shareWindow),
		gate:      gate{off: c.gateOff, safe: c.safe, hard: c.hard, at: s.now},
		entrance:  entrance{rate: c.entranceRate, at: s.now},
		aging:     aging{off: c.agingOff, at: s.now},
		estimates: make(estimator),
	}
}

// members are the known nodes whose bits are in mask, with their bits.
func (d *domain) members(mask uint64) iter.Seq2[int, *node] {
	return func(yield func(int, *node) bool) {
		for m := mask & d.known; m != 0; m &= m - 1 {
			bit := bits.TrailingZeros64(m)
			if !yield(bit, d.nodes[bit]) {
				return
			}
		}
	}
}

func (d *domain) bigLimit() int { return max(1, int(d.bigShare*float64(d.slots)+1e-9)) }

// refresh brings what depends on time to now.
func (d *domain) refresh(now int64) {
	d.forgetLoads(now - d.now)
	d.now = now
	if d.clock > rebaseAt {
		d.rebase()
	}
	d.gate.update(d.now, d.busy, d.slots)
	if d.linesFor.band != d.gate.band || d.linesFor.slots != d.slots {
		d.drawLines()
	}
	d.entrance.update(d.now, d.largest)
	d.aging.update(d.now, d.slots)
	d.forget()
	d.reviewOver()
	d.reviewStuck()
	if part := d.now / (int64(capWindow) / windowParts); d.parked.n > 0 && (part != d.windowAt || !d.capApplies()) {
		d.windowAt = part
		d.reviewParked()
	}
}

// enter starts r on a free slot, or enqueues it, or returns why not.
func (d *domain) enter(r *request) error {
	if d.queued > 0 {
		d.dispatch()
	}
	t := r.tenant
	if t.class[r.urgency] != r.class {
		t.class[r.urgency] = r.class // the newest counts, also for what waits
		d.refile(t)
	}
	d.review(t)
	if n := d.immediate(r); n != nil {
		d.join(r)
		if d.queued == 0 {
			d.advance(n, t.tag)
		}
		d.begin(r, n)
		d.refile(t)
		d.dispatch() // its home is busier now, so others may be worth moving
		return nil
	}
	if err := d.refusal(r); err != nil {
		d.leave(t)
		d.dispatch() // its tenant was looked at again
		return err
	}
	d.enqueue(r)
	d.dispatch()
	if r.why != nil && !r.isDecided {
		d.number(r, d.reasonOf(r))
	}
	return nil
}

// immediate returns the node on which r can start now. Whatever waits could
// not start, or dispatch would have started it; but no request overtakes one
// of its own queue.
func (d *domain) immediate(r *request) *node {
	t := r.tenant
	if d.entranceEmpty() || d.hasQueue(r) {
		return nil
	}
	if _, capped := d.capReason(t); capped {
		return nil
	}
	k := bucketOf(rankFor(r.class, t.over), r.big)
	if n := d.nodes[r.home]; d.allowed(n)>>k&1 == 1 {
		return n
	}
	if !d.worthMoving(r.home) {
		return nil
	}
	for _, bit := range r.list {
		if n := d.nodes[bit]; d.allowed(n)>>k&1 == 1 {
			return n
		}
	}
	return nil
}

// refusal tells why r, which cannot start now, may not wait either.
func (d *domain) refusal(r *request) error {
	t := r.tenant
	wait := time.Duration(r.until - r.arrived)
	switch {
	case d.gate.cell(rankFor(r.class, t.over)) == refuse:
		d.refused[r.class]++
		d.advise(r, int64(d.gate.level()*1000), int64(d.gate.line()*1000))
		if r.why != nil { // it takes the averages a while to fall
			r.why.RetryAfter = max(r.why.RetryAfter, gateSlow/2)
		}
		return ErrOverloaded
	case wait <= 0:
		d.advise(r, 0, 0)
		return ErrWaitExceeded
	case d.scheduler.queued >= d.bounds.all:
		d.advise(r, int64(d.scheduler.queued), int64(d.bounds.all))
		return ErrQueueFull
	case t.queued >= d.bounds.tenant:
		d.advise(r, int64(t.queued), int64(d.bounds.tenant))
		return ErrTenantQueueFull
	case t.waiting[r.urgency] >= d.bounds.flow:
		d.advise(r, int64(t.waiting[r.urgency]), int64(d.bounds.flow))
		return ErrTenantQueueFull
	}
	expected := d.expectedWait(r)
	if r.why != nil {
		r.why.Estimate = expected
	}
	if d.hopeless(r, expected, wait) {
		d.advise(r, int64(expected), int64(wait))
		return ErrWaitTooLong
	}
	return nil
}

// advise fills in the numbers of a refusal and when to try again.
func (d *domain) advise(r *request, have, limit int64) {
	if r.why != nil {
		r.why.Have, r.why.Limit = have, limit
		r.why.RetryAfter = d.comeBack(r)
	}
}

// decide writes the decision about r, which waits: granted a slot of n, or
// ended by err when n is nil.
func (d *domain) decide(r *request, n *node, err error) {
	if r.isDecided {
		return
	}
	t := r.tenant
	d.dequeue(r)
	r.isDecided, r.err, r.ended = true, err, d.now
	if n != nil {
		if !r.aged { // the lane is beside the tenant's own order
			t.innerClock = max(t.innerClock, t.inner[r.urgency])
		}
		d.begin(r, n)
	} else if err == ErrWaitExceeded { // and nobody has left
		d.advise(r, 0, 0)
	}
	d.refile(t)
	d.leave(t)
	d.scheduler.decideLocked(r)
}

// begin takes a slot of n for r.
func (d *domain) begin(r *request, n *node) {
	t := r.tenant
	if n.model != r.key.model {
		r.key.model = n.model
		r.estimate = d.estimates.of(r.key, r.prior)
	}
	r.node, r.started = n, d.now
	r.away = n.bit != r.first
	t.turn, d.turns = d.turns, d.turns+1
	d.spend(t, r.urgency, r.estimate)
	t.running++
	t.recent.add(d.now, r.estimate)
	if r.passing = t.queued == 0; r.passing {
		d.passing.add(d.now, r.estimate)
	}
	if d.capApplies() {
		t.capped.add(d.now, r.estimate)
	}
	n.busy++
	n.moved = d.now
	n.started(r)
	if r.isOther = rankFor(r.class, t.over) != rankHigh; r.isOther {
		n.others++
	}
	n.granted++
	if r.away {
		n.away++
	}
	n.inFlight += r.estimate
	d.busy++
	d.inFlight += r.estimate
	if r.big {
		d.bigBusy++
	}
	d.entrance.start(r.estimate)
	d.recap(t)
	d.review(t)
}

// finish frees r's slot and settles what it was charged.
func (d *domain) finish(r *request) {
	t, n := r.tenant, r.node
	actual := min(d.now-r.started, maxSlotTime)
	n.busy--
	n.moved = d.now
	n.ended(r)
	if r.isOther {
		n.others--
	}
	n.inFlight -= r.estimate
	d.busy--
	d.inFlight -= r.estimate
	if r.big {
		d.bigBusy--
	}
	t.running--
	t.recent.add(d.now, actual-r.estimate)
	if r.passing {
		d.passing.add(d.now, actual-r.estimate)
	}
	if d.capApplies() {
		t.capped.add(d.now, actual-r.estimate)
	}
	d.entrance.settle(r.estimate, actual)
	if r.aged {
		d.aging.budget -= actual - r.estimate
	}
	d.settle(t, r.urgency, r.estimate, actual)
	d.learn(r, actual)
	if r.why != nil {
		r.why.SlotTime, r.why.Away, r.why.Aged = time.Duration(actual), r.away, r.aged
	}
	d.recap(t)
	d.review(t)
	d.leave(t)
	d.scheduler.drop(n)
	d.dispatch()
}

// learn takes in what an operation cost.
func (d *domain) learn(r *request, actual int64) {
	d.loaded(r, actual)
	if !r.away || d.noAffinity { // a load is no part of the operation's cost
		d.estimates.measured(r.key, actual, d.now)
	}
	if d.mean == 0 {
		d.mean = actual
	}
	d.mean += (actual - d.mean) / meanGain
	d.largest = max(actual, d.largest-d.largest/largestDecay)
}
