package scheduler

import (
	"cmp"
	"math"
	"slices"
	"time"
)

const (
	// behindFactor and behindSlack: a request waits for its second choice
	// when its home is further behind than the mean times the factor, plus
	// the slack. The slack keeps a nearly idle pool from moving keys about.
	behindFactor = 1.25
	behindSlack  = 5 * time.Millisecond

	// tieOperations is the width of the tie window in large operations: a
	// node serves a request at home before one whose turn is earlier by less.
	tieOperations = 2

	// staying is how far a node must be behind before what waits for it may run
	// elsewhere, in thousandths of an operation, or behindSlack if that is less:
	// a full node without a queue is behind by half an operation. Keys that are
	// loaded everywhere cost nothing to run elsewhere, and without it would
	// wander until they are: of four nodes with 16 slots, 80 % used, 82 % of
	// requests ran at home, and 94 % do, for 0.13 operations more waiting at P99.
	staying = 667

	// loadGain is the weight of one run away from home in the average of what
	// that costs: a quarter, so that a few loads are enough to stay at home.
	loadGain = 4

	// loadMemory is how fast that is forgotten. Without, a node that was
	// dear once would not be tried again, though its keys are loaded now; with
	// it, an overloaded node's keys are tried elsewhere about once a second.
	loadMemory = time.Second

	// nobody is the bit of no node.
	nobody = -1
)

// behind is how much work is ahead of a new request on n, in ns: what is
// estimated, or, when all its slots are taken, the time since one was last
// taken or freed. A node that hangs is as far behind as it has hung, whatever
// its work was expected to take.
func (n *node) behind() int64 {
	if n.slots == 0 {
		return 0
	}
	ahead := (n.queued + n.inFlight/2) / int64(n.slots)
	if n.busy >= n.slots {
		ahead = max(ahead, n.domain.now-n.moved)
	}
	return ahead
}

// settleHome chooses the node that r waits for: the first listed that serves,
// or the next if the first is too far behind.
func (d *domain) settleHome(r *request) {
	home, second := nobody, nobody
	sum, count := int64(0), int64(0)
	for _, bit := range r.list {
		n := d.nodes[bit]
		if !n.serving() {
			continue
		}
		switch {
		case home < 0:
			home = n.bit
		case second < 0 && n.bit != home:
			second = n.bit
		}
		sum += n.behind()
		count++
	}
	r.home = home
	if second < 0 || d.noAffinity {
		return
	}
	limit := int64(behindFactor*float64(sum/count)) + int64(behindSlack)
	if at := d.nodes[home].behind(); at > limit && d.nodes[second].behind() < at {
		r.home = second
	}
}

// worthMoving tells whether what waits for home may run elsewhere: home is
// away, or so far behind that loading the key elsewhere costs less, and that a
// queue has come together.
func (d *domain) worthMoving(home int) bool {
	n := d.nodes[home]
	return d.noAffinity || !n.serving() || n.behind() >= max(d.loadCost, min(staying*d.mean/milli, int64(behindSlack)))
}

// tieWindow is the lead, in tags, that a request at home has over t's.
func (d *domain) tieWindow(t *tenant) int64 {
	if d.noAffinity {
		return 0
	}
	return tieOperations * d.largest << tagShift / t.weight
}

// forgetLoads lets the cost of a load fade over the time since the last call.
func (d *domain) forgetLoads(dt int64) {
	if d.loadCost > 0 && dt > 0 {
		d.loadCost -= int64(math.Ceil(float64(d.loadCost) * decay(float64(dt)/float64(loadMemory))))
	}
}

// decay is 1 − e^−x. Nearly all steps are small, and there the first two terms
// of the series are within x³ ÷ 6, a millionth of what x is at most.
func decay(x float64) float64 {
	if x < 1e-3 {
		return x - x*x/2
	}
	return -math.Expm1(-x)
}

// loaded learns what running away from home costs.
func (d *domain) loaded(r *request, actual int64) {
	if !r.away || d.noAffinity {
		return
	}
	d.loadCost += (max(0, actual-r.estimate) - d.loadCost) / loadGain
}

// waitersOf returns, in order of arrival, the requests that wait on routes
// that match. It looks at all tenants, for the rare case of a node that comes
// or goes.
func (d *domain) waitersOf(match func(*route) bool) []*request {
	var all []*request
	for _, t := range d.tenants {
		for _, b := range t.branches {
			if !match(b.route) {
				continue
			}
			for u := range b.queues {
				for r := b.queues[u].head; r != nil; r = r.next {
					all = append(all, r)
				}
			}
		}
	}
	slices.SortFunc(all, func(a, b *request) int { return cmp.Or(cmp.Compare(a.since, b.since), cmp.Compare(a.order, b.order)) })
	return all
}

// strand moves what waits for n elsewhere, or ends it with ErrNoNodes where
// no node serves it any more. With gone set, n cannot serve it later either.
// What is moved keeps its time of arrival and its tenant's tag.
func (d *domain) strand(n *node, gone bool) {
	for _, r := range d.waitersOf(func(rt *route) bool { return rt.mask>>n.bit&1 == 1 }) {
		if gone {
			r.mask &^= 1 << n.bit
			if r.first == n.bit {
				r.first = nobody
			}
		}
		home := r.home
		if home == n.bit {
			home = d.leastBehind(r.mask)
		}
		switch {
		case !d.anyServing(r.mask):
			d.decide(r, nil, ErrNoNodes)
		case gone || home != r.home || r.first == n.bit:
			d.rehome(r, home)
		}
	}
}

// welcome gives back to n, which serves again, what prefers it.
func (d *domain) welcome(n *node) {
	for _, r := range d.waitersOf(func(rt *route) bool { return rt.lost && rt.mask>>n.bit&1 == 1 }) {
		if r.first == n.bit {
			d.rehome(r, n.bit)
		}
	}
}

// rehome makes r wait for another node, at its place in the order of arrival.
func (d *domain) rehome(r *request, home int) {
	d.displace(r)
	r.home = home
	d.place(r)
	d.refile(r.tenant)
}

// leastBehind returns the serving node of mask with the least work, or nobody.
func (d *domain) leastBehind(mask uint64) int {
	best := nobody
	for _, n := range d.members(mask) {
		if n.serving() && (best == nobody || n.behind() < d.nodes[best].behind()) {
			best = n.bit
		}
	}
	return best
}

func (d *domain) anyServing(mask uint64) bool {
	for _, n := range d.members(mask) {
		if n.serving() {
			return true
		}
	}
	return false
}
