package scheduler

import "time"

// Reason is why a request waited. The numbers are stable.
type Reason uint8

// The reasons. At every moment a waiting request has exactly one; the comment
// says when, and what Have and Limit of its Wait are.
const (
	// Share: all slots of its nodes work for requests whose turn was before
	// its own. Have is the tenant's slots in use, Limit its fair share of
	// them, both in thousandths.
	Share Reason = iota
	// NodeDown is Share while the node that the request prefers is away.
	// Have is the nodes that serve, Limit those listed.
	NodeDown
	// HomeBusy: another of its nodes has a free slot, but loading the key
	// there costs more than waiting. Both in ns: Have the wait, Limit the cost.
	HomeBusy
	// Gate: the utilisation gate holds it. Both in thousandths: Have is the
	// utilisation, Limit the line.
	Gate
	// Reserve: the only free slots are kept for class High. Have is the slots
	// that the other classes hold, Limit those that they may.
	Reserve
	// BigLimit: big operations hold as many slots as they may. Both in slots.
	BigLimit
	// Entrance: the entrance bucket is empty. Have is the missing slot time
	// in ns, Limit the leak in slot-ns per second.
	Entrance
	// Cap: the tenant has as much work in flight as it may. Both in slots.
	Cap
	// Window: the tenant has used its part of the cap's window. Both in ns.
	Window
	// OwnQueue: earlier requests of the same tenant and urgency wait. Have
	// is their number at arrival, Limit the most that may wait.
	OwnQueue

	// Reasons is the number of reasons.
	Reasons = 10

	// routeReasons are those that hold for all heads of a heap at once.
	routeReasons = int(Entrance) + 1
)

var reasonNames = [Reasons]string{
	"share", "node_down", "home_busy", "gate", "reserve", "big_limit", "entrance", "tenant_cap", "tenant_window", "own_queue",
}

// String returns the reason's name.
func (r Reason) String() string { return reasonNames[r] }

// Wait is the time that a request waited for one reason, with that reason's
// numbers when it was first seen: on arrival for the first reason, for a later
// one when its time ended.
type Wait struct {
	For         time.Duration
	Have, Limit int64
}

// Explanation tells what became of one request. The sum of Waits[].For is the
// wait that Do returns.
type Explanation struct {
	Waits    [Reasons]Wait // by Reason
	Estimate time.Duration // of the wait, made at arrival; 0 for none
	SlotTime time.Duration // from the grant to the end of work
	// RetryAfter is the time after which a refused request could be served: see
	// domain.comeBack. 0: it was not refused, or nobody can tell.
	RetryAfter time.Duration
	// Have and Limit are the numbers of a refusal at arrival: requests that wait
	// for ErrQueueFull, thousandths of utilisation for ErrOverloaded, the expected
	// and the longest wait in ns for ErrWaitTooLong.
	Have, Limit int64
	Away        bool // ran on another node than the one preferred
	Aged        bool // took the aging lane
}

// account integrates, for the heads of one heap, the time under each reason.
type account struct {
	reason Reason
	since  int64
	sums   [routeReasons]int64 // ns, to since
}

func (a *account) advance(now int64) {
	a.sums[a.reason] += now - a.since
	a.since = now
}

// turn makes reason the present one.
func (a *account) turn(reason Reason, now int64) {
	if a.reason != reason {
		a.advance(now)
		a.reason = reason
	}
}

// note adds to r's waiting for a reason.
func (d *domain) note(r *request, reason Reason, ns int64) {
	if ns <= 0 {
		return
	}
	d.waited[r.class][reason] += ns
	if r.why == nil {
		return
	}
	r.why.Waits[reason].For += time.Duration(ns)
	d.number(r, reason)
}

// number fills in a reason's numbers, unless they are there.
func (d *domain) number(r *request, reason Reason) {
	if w := &r.why.Waits[reason]; w.Limit == 0 {
		w.Have, w.Limit = d.numbers(r, reason)
	}
}

// reasonOf is what r, which waits, waits for now.
func (d *domain) reasonOf(r *request) Reason {
	q := r.queue
	switch {
	case q.head != r:
		return OwnQueue
	case q.bucket == parkedBucket:
		return r.tenant.parked
	}
	return q.branch.route.accounts[q.bucket].reason
}

// charge attributes the time since the last call to the reasons that q's head
// waited for. It must be called before q's head, its place or its tenant's
// parking changes.
func (d *domain) charge(q *queue) {
	switch {
	case q.head == nil:
	case q.bucket == parkedBucket:
		d.note(q.head, q.branch.tenant.parked, d.now-q.since)
	default:
		a := &q.branch.route.accounts[q.bucket]
		a.advance(d.now)
		for i := range a.sums {
			d.note(q.head, Reason(i), a.sums[i]-q.seen[i])
		}
		q.seen = a.sums
	}
	q.since = d.now
}

// explain finds what each heap's heads wait for now.
func (d *domain) explain() {
	var free, open uint64 // the nodes with free slots, and those with some for all ranks
	for bit, n := range d.members(d.known) {
		if n.free() > 0 {
			free |= 1 << bit
			if n.others < n.openSlots() {
				open |= 1 << bit
			}
		}
	}
	for _, rt := range d.routes {
		for set := rt.filled; set != 0; set &= set - 1 {
			k := lowest(set)
			rt.accounts[k].turn(d.cause(rt, k, free, open), d.now)
		}
	}
}

// cause is what keeps the heads of a heap from starting, given that dispatch
// has started all that could.
func (d *domain) cause(rt *route, k int, free, open uint64) Reason {
	rank, big := rankOf(k), isBig(k)
	switch {
	case rt.mask&free == 0 && rt.lost:
		return NodeDown
	case rt.mask&free == 0:
		return Share
	case d.entranceEmpty():
		return Entrance
	case big && d.bigBusy >= d.bigLimit():
		return BigLimit
	case d.busy >= d.lines[rank]:
		return Gate
	case rank != rankHigh && rt.mask&open == 0:
		return Reserve
	}
	return HomeBusy
}

// numbers are Have and Limit of a reason for r, now.
func (d *domain) numbers(r *request, reason Reason) (have, limit int64) {
	t := r.tenant
	switch reason {
	case Share:
		return int64(t.running) * 1000, int64(d.fairShare(t) * 1000)
	case NodeDown:
		for _, n := range d.members(r.mask) {
			limit++
			if n.serving() {
				have++
			}
		}
		return have, limit
	case HomeBusy:
		return d.nodes[r.home].behind(), d.loadCost
	case Gate:
		return int64(d.gate.level() * 1000), int64(d.gate.line() * 1000)
	case Reserve:
		for _, n := range d.members(r.mask) {
			have, limit = have+int64(n.others), limit+int64(n.openSlots())
		}
		return have, limit
	case BigLimit:
		return int64(d.bigBusy), int64(d.bigLimit())
	case Entrance:
		return d.entrance.tail - d.entrance.head, d.entrance.rate * int64(time.Second) / milli
	case Cap:
		return int64(t.running), int64(d.maxInFlight())
	case Window:
		return t.capped.sum(d.now), d.windowLimit()
	}
	return int64(r.ahead), int64(d.bounds.flow)
}
