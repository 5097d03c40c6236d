package scheduler

import "time"

// stuckAfter is how long work runs until it is taken for stuck: longer than
// any operation of an ordinary slot takes, shorter than what anybody waits.
const stuckAfter = 500 * time.Millisecond

// started puts r among what runs on n.
func (n *node) started(r *request) {
	r.after = n.running
	if n.running != nil {
		n.running.before = r
	}
	n.running = r
}

// ended takes r out of what runs on n, and out of what is stuck.
func (n *node) ended(r *request) {
	if r.before != nil {
		r.before.after = r.after
	} else {
		n.running = r.after
	}
	if r.after != nil {
		r.after.before = r.before
	}
	r.before, r.after = nil, nil
	if r.isStuck {
		r.isStuck = false
		r.tenant.stuck--
	}
}

// reviewStuck takes work that has run for too long for stuck: it holds its
// slot, but its tenant's cap no longer counts it, or a node that hangs would
// stop the tenants whose work it swallowed on all others, too. It looks at
// what runs, which is no more than there are slots, a few times in stuckAfter.
func (d *domain) reviewStuck() {
	if d.now < d.stuckAt {
		return
	}
	d.stuckAt = d.now + int64(stuckAfter)/4
	for _, n := range d.members(d.known) {
		for r := n.running; r != nil; r = r.after {
			if !r.isStuck && d.now-r.started >= int64(stuckAfter) {
				r.isStuck = true
				r.tenant.stuck++
				d.recap(r.tenant)
			}
		}
	}
}
