package scheduler

import "time"

const (
	// estimateTime is the time constant of the average of an operation's slot
	// time: long against a burst, short against a change of hardware.
	estimateTime = 30 * time.Second

	// estimateTrusted is the number of measurements from which the prior no
	// longer counts.
	estimateTrusted = 30

	// estimateClip bounds what one measurement can claim against the average
	// once that is trusted, so that a stalled call does not spoil it.
	estimateClip = 8

	// maxEstimates bounds the table. The caller's operations are a few
	// hundred; a caller who makes up keys without end gets the priors.
	maxEstimates = 1 << 14

	// maxSlotTime bounds the slot time of one operation, in ns (4.9 hours), so
	// that tags and sums cannot overflow whatever a caller's prior says.
	maxSlotTime = 1 << 44
)

type estimateKey struct {
	model string
	op    Op
}

type estimate struct {
	mean float64 // ns
	n    int     // measurements, to estimateTrusted
	at   int64
}

// estimator knows the slot time of operations by node model.
type estimator map[estimateKey]*estimate

// of returns the slot time to expect, at least 1 ns.
func (e estimator) of(k estimateKey, prior time.Duration) int64 {
	if prior <= 0 {
		prior = DefaultPrior
	}
	prior = min(prior, maxSlotTime)
	known := e[k]
	if known == nil {
		return int64(prior)
	}
	trust := float64(known.n) / estimateTrusted
	return max(1, int64(known.mean*trust+float64(prior)*(1-trust)))
}

// measured takes in the slot time of one operation.
func (e estimator) measured(k estimateKey, actual, now int64) {
	known := e[k]
	if known == nil {
		if len(e) >= maxEstimates {
			return
		}
		known = &estimate{}
		e[k] = known
	}
	x := float64(actual)
	if known.n < estimateTrusted { // the plain mean of what there is
		known.n++
		known.mean += (x - known.mean) / float64(known.n)
	} else {
		x = min(max(x, known.mean/estimateClip), known.mean*estimateClip)
		dt := float64(now - known.at)
		known.mean += (x - known.mean) * dt / (dt + float64(estimateTime))
	}
	known.at = now
}

// expectedWait estimates how long r would wait if it joined now: for its tag's
// turn and what its tenant has waiting before it, at the pace at which its
// tenant is served, or for the aging lane, if that is sooner; then for the next
// slot that frees.
func (d *domain) expectedWait(r *request) time.Duration {
	lag := max(0, r.tenant.tag-d.enterTag(r.mask))
	ahead := min(float64(lag)/tagUnit*float64(r.tenant.weight)+float64(d.ownAhead(r)), float64(d.backlog))
	return time.Duration(min(ahead/d.pace(r), d.laneWait(r)) + d.nextSlot())
}

// hopeless tells whether r would not be served within wait even if nobody else
// came: those who come later and go first decide how long it is, and a process
// that begins to have work is given more slots within a tenth of a second.
func (d *domain) hopeless(r *request, expected, wait time.Duration) bool {
	if expected <= wait {
		return false
	}
	own := float64(d.ownAhead(r)) / d.capped(float64(d.slots))
	return time.Duration(max(float64(d.backlog)/d.left(r), own)+d.nextSlot()) > wait
}

// nextSlot is how long it takes until a slot frees, in ns.
func (d *domain) nextSlot() float64 {
	slots := float64(max(1, d.slots))
	return float64(d.inFlight) / slots / slots
}

// pace is how many slots serve r's tenant while it waits: by weight its part,
// among those who press, of those that are left; no less than its fair share,
// and no more than the cap leaves.
func (d *domain) pace(r *request) float64 {
	weights := d.pressingWeight
	if !r.tenant.pressing() {
		weights += r.tenant.weight
	}
	return d.capped(max(d.left(r)*float64(r.tenant.weight)/float64(weights), d.fairShare(r.tenant)))
}

// left is how many slots those who press have: those that r's rank may take,
// without what the others use, who come and go and did so in the last second.
func (d *domain) left(r *request) float64 {
	t, passing := r.tenant, d.passing.sum(d.now)
	if !t.pressing() {
		passing -= min(passing, t.recent.sum(d.now))
	}
	slots := float64(min(d.slots, d.lines[rankFor(r.class, t.over)]))
	return max(slots-float64(passing)/float64(shareWindow+shareReview/2), d.fairShare(t), least)
}

// capped is a number of slots within what the cap leaves one tenant.
func (d *domain) capped(slots float64) float64 {
	if d.capApplies() {
		slots = min(slots, float64(d.maxInFlight()))
	}
	return max(slots, least)
}

// least keeps a pool without slots from dividing by 0: nobody waits so long.
const least = 1e-6

// maxComeBack bounds what a refused request is told to stay away for. With it,
// it bounds what those that never come back can keep from others of their
// tenant.
const maxComeBack = time.Minute

// comeBackShare is the part of its tenant's service and of the queue that is
// promised to those who come back. The rest is for the error of the estimates,
// for what is new, and for the slot that the gate keeps free: of four, a quarter.
const comeBackShare = 0.7

// comeBack is after what time r, which is refused now, can be served: when what
// waits now has been, and what was refused before it and told so. That keeps
// those that obey from coming back together, to a queue that is full of them:
// they come no faster than their tenant is served, and in a second, which is
// how exactly clients are told, no more than find room.
func (d *domain) comeBack(r *request) time.Duration {
	t := r.tenant
	share := d.fairShare(t)
	if share <= 0 {
		return maxComeBack // no slot serves
	}
	room := min(d.bounds.flow, max(1, d.bounds.all/max(1, d.present)))
	each := int64(min(max(float64(r.estimate)/share, float64(time.Second)/float64(room))/comeBackShare, float64(maxComeBack)))
	at := max(d.now+int64(min(d.expectedWait(r), maxComeBack)), t.promised+each)
	if at-d.now > int64(maxComeBack) {
		return maxComeBack
	}
	t.promised = at
	return time.Duration(at - d.now)
}

// ownAhead is the slot time of what r's tenant would be served before r.
func (d *domain) ownAhead(r *request) int64 {
	t := r.tenant
	shares := urgencyShares[r.urgency]
	for u := range t.waiting {
		if t.waiting[u] > 0 && Urgency(u) != r.urgency {
			shares += urgencyShares[u]
		}
	}
	return min(t.work[r.urgency]*shares/urgencyShares[r.urgency], t.backlog)
}
