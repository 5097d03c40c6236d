package scheduler

import (
	"math"
	"time"
)

const (
	// agingShare is the part of capacity that the aging lane may use.
	agingShare = 0.10

	// agingBurst is for how long the lane saves up what it does not use.
	agingBurst = 100 * time.Millisecond
)

// aging is the lane for those who have waited long. The heap is in the order
// of due, which is static: linear aging, priority plus waiting times a factor,
// orders in the same way as arrival plus a constant.
type aging struct {
	off    bool
	due    heap[*queue]
	budget int64 // ns of slot time
	at     int64
}

// update refills the budget.
func (a *aging) update(now int64, slots int) {
	refill := float64(now-a.at) * agingShare * float64(slots)
	most := int64(agingShare * float64(agingBurst) * float64(slots))
	a.budget = min(a.budget+int64(refill), max(most, 1))
	a.at = now
}

// due is when q's head may take the aging lane: after half its longest wait,
// and not before its flow's last time is a longest wait ago.
func (q *queue) due() int64 {
	r := q.head
	longest := r.until - r.arrived
	due := r.arrived + longest/2
	if last := r.tenant.promoted[r.urgency]; last > 0 {
		due = max(due, last+longest)
	}
	return due
}

// laneWait is how long r would wait for the lane, in ns: until it is due, or
// until the lane has taken all heads that are there; for ever behind others of
// its flow.
func (d *domain) laneWait(r *request) float64 {
	t := r.tenant
	if d.aging.off || t.waiting[r.urgency] > 0 || d.slots == 0 {
		return math.Inf(1)
	}
	longest := r.until - r.arrived
	due := longest / 2
	if last := t.promoted[r.urgency]; last > 0 {
		due = max(due, last+longest-r.arrived)
	}
	return max(float64(due), float64(len(d.aging.due))*float64(d.mean)/(agingShare*float64(d.slots)))
}

// ageHead puts q at its head's place in the heap, or takes it out.
func (d *domain) ageHead(q *queue) {
	switch {
	case d.aging.off:
	case q.head == nil && q.duePos >= 0:
		d.aging.due.remove(q.duePos)
	case q.head == nil:
	case q.duePos >= 0:
		d.aging.due.fix(q.duePos, q.due(), q.head.order)
	default:
		d.aging.due.push(q.due(), q.head.order, q, &q.duePos)
	}
}

// aged returns the queue whose head is due longest and may start on n, or nil.
// One that may not start now is looked at again after an eighth of its
// longest wait, so that it does not bar the others.
func (d *domain) agedFor(n *node, allowed uint8) *queue {
	for len(d.aging.due) > 0 && d.aging.budget > 0 && d.aging.due[0].key <= d.now {
		q := d.aging.due[0].item
		r := q.head
		if due := q.due(); due > d.now { // another queue of its flow was taken
			d.aging.due.fix(q.duePos, due, r.order)
			continue
		}
		if q.bucket >= 0 && r.mask>>n.bit&1 == 1 && allowed>>q.bucket&1 == 1 {
			return q
		}
		d.aging.due.fix(q.duePos, d.now+max(1, (r.until-r.arrived)/8), r.order)
	}
	return nil
}
