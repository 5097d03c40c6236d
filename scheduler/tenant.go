package scheduler

import "time"

const (
	// shareWindow is the time over which a tenant's use is held against its
	// fair share, and for which an idle tenant's weight still counts.
	shareWindow = time.Second

	// shareReview is how often a tenant above its share that sends nothing
	// new is looked at again: one part of the window.
	shareReview = shareWindow / windowParts

	// reviewBatch bounds how many tenants one event looks at again.
	reviewBatch = 64
)

// presence is how long ago a tenant had work.
type presence uint8

const (
	forgotten presence = iota // not known
	active                    // has work now
	resting                   // had work within shareWindow: its weight counts
	lingering                 // had work within capWindow
	owing                     // longer ago, but its tag is ahead of the clock
)

// tenant is one tenant's state in a domain. It exists while the tenant has
// work, for capWindow after, and for as long as it is ahead of its share.
type tenant struct {
	id     [16]byte
	weight int64

	tag  int64 // start tag of its next request, see fair.go
	rest int64 // what the tag's division left over
	turn uint64
	// The same one level down, for its urgencies.
	inner      [urgencies]int64
	innerClock int64

	class    [urgencies]Class
	promoted [urgencies]int64 // when the aging lane last took one
	waiting  [urgencies]int
	work     [urgencies]int64 // ns that wait, estimated
	branches []*branch
	room     [1]*branch // of branches
	own      branch     // the first one, which most tenants have alone; free without a tenant

	queued  int
	backlog int64 // ns that wait, estimated
	running int
	// promised is until when its service is promised to requests that were
	// refused: see comeBack.
	promised int64
	stuck    int // of running, for too long; see stuck.go

	over     bool // above its fair share
	reviewed int64
	recent   window // over shareWindow
	capped   window // over capWindow, of what was used while the cap applied
	isParked bool
	parked   Reason
	aside    bool // see Flow

	presence presence
	idle     int64 // since when
	links    [listKinds]links
}

// pressing tells whether t has more waiting than the next request: it takes all
// that it can get, where others come and go.
func (t *tenant) pressing() bool { return t.queued > 1 }

func (t *tenant) mask() (m uint64) {
	for _, b := range t.branches {
		m |= b.route.mask
	}
	return m
}

// The lists that a tenant can be on; one of each kind at a time.
const (
	presenceList = iota
	parkedList
	overList
	listKinds
)

type links struct {
	on         *tenantList
	prev, next *tenant
}

// tenantList is a list of tenants, linked within them.
type tenantList struct {
	kind       int
	head, tail *tenant
	n          int
}

func (l *tenantList) push(t *tenant) {
	t.links[l.kind] = links{on: l, prev: l.tail}
	if l.tail == nil {
		l.head = t
	} else {
		l.tail.links[l.kind].next = t
	}
	l.tail = t
	l.n++
}

// remove takes t off the list; it is no error if t is not on it.
func (l *tenantList) remove(t *tenant) {
	k := t.links[l.kind]
	if k.on != l {
		return
	}
	if k.prev == nil {
		l.head = k.next
	} else {
		k.prev.links[l.kind].next = k.next
	}
	if k.next == nil {
		l.tail = k.prev
	} else {
		k.next.links[l.kind].prev = k.prev
	}
	t.links[l.kind] = links{}
	l.n--
}

// tenantOf returns the tenant of a request and makes it active.
func (d *domain) tenantOf(f *Flow) *tenant {
	weight := int64(f.Weight)
	if weight == 0 {
		weight = DefaultWeight
	}
	t := d.tenants[f.Tenant]
	if t == nil {
		t = d.newTenant(f.Tenant)
		t.aside = f.Aside
	}
	if t.weight != weight {
		d.reweigh(t, weight)
	}
	switch t.presence {
	case forgotten, owing:
		d.count(t, 1)
		d.weigh(t, weight)
	case lingering:
		d.weigh(t, weight)
	}
	d.listOf(t.presence).remove(t)
	t.presence = active
	return t
}

// count and weigh change the number and the weight of the tenants that share
// with each other, of which t is one unless it stands aside.
func (d *domain) count(t *tenant, n int) {
	if !t.aside {
		d.present += n
	}
}

func (d *domain) weigh(t *tenant, weight int64) {
	if !t.aside {
		d.activeWeight += weight
	}
}

func (d *domain) newTenant(id [16]byte) *tenant {
	var t *tenant
	if n := len(d.spareTenants); n > 0 {
		t, d.spareTenants = d.spareTenants[n-1], d.spareTenants[:n-1]
		*t = tenant{}
	} else {
		t = &tenant{}
	}
	t.branches = t.room[:0]
	t.id = id
	t.recent, t.capped = newWindow(shareWindow), newWindow(capWindow)
	d.tenants[id] = t
	return t
}

// reweigh changes t's weight and the sums that it is part of.
func (d *domain) reweigh(t *tenant, weight int64) {
	if t.presence == active || t.presence == resting {
		d.weigh(t, weight-t.weight)
	}
	if t.pressing() {
		d.pressingWeight += weight - t.weight
	}
	t.weight, t.rest = weight, 0
}

var nowhere tenantList

// listOf is the list of the tenants that are not active.
func (d *domain) listOf(p presence) *tenantList {
	switch p {
	case resting:
		return &d.resting
	case lingering:
		return &d.lingering
	case owing:
		return &d.owing
	}
	return &nowhere
}

// leave makes t rest if it has no work left.
func (d *domain) leave(t *tenant) {
	if t.presence == active && t.queued == 0 && t.running == 0 {
		t.presence, t.idle = resting, d.now
		d.resting.push(t)
	}
}

// forget moves on the tenants whose time on their list is over. Each list is
// in the order of idle, so that only those are looked at.
func (d *domain) forget() {
	for t := d.resting.head; t != nil && d.now-t.idle >= int64(shareWindow); t = d.resting.head {
		d.resting.remove(t)
		d.weigh(t, -t.weight)
		t.presence = lingering
		d.lingering.push(t)
	}
	for t := d.lingering.head; t != nil && d.now-t.idle >= int64(capWindow); t = d.lingering.head {
		d.lingering.remove(t)
		d.count(t, -1)
		d.retire(t)
	}
	if t := d.owing.head; t != nil && d.now-t.idle >= int64(capWindow) {
		d.owing.remove(t)
		d.retire(t)
	}
}

// retire forgets t unless it is ahead of the clock: then it would gain by
// being forgotten.
func (d *domain) retire(t *tenant) {
	if t.tag > d.clock {
		t.presence, t.idle = owing, d.now
		d.owing.push(t)
		return
	}
	t.presence = forgotten
	delete(d.tenants, t.id)
	if len(d.spareTenants) < maxSpare {
		d.spareTenants = append(d.spareTenants, t)
	}
}

// fairShare is t's part of the slots, by the weights of the tenants that had
// work within shareWindow.
func (d *domain) fairShare(t *tenant) float64 {
	return float64(d.slots) * float64(t.weight) / float64(max(t.weight, d.activeWeight))
}

// review finds whether t is above its fair share, and files it accordingly.
// The window reaches back up to a part more than shareWindow, and so much may
// be in it of a tenant that is at its share: without that, the gate would hold
// back tenants that use just what they bought.
func (d *domain) review(t *tenant) {
	t.reviewed = d.now
	over := t.weight < d.activeWeight &&
		float64(t.recent.sum(d.now)) > d.fairShare(t)*float64(shareWindow+shareReview)
	if over != t.over {
		t.over = over
		if t.queued > 0 {
			d.refile(t)
		}
	}
	d.over.remove(t)
	if over && t.queued > 0 {
		d.over.push(t)
	}
}

// reviewOver looks again at tenants above their share whose last look is a
// while ago; the list is in that order.
func (d *domain) reviewOver() {
	for range reviewBatch {
		t := d.over.head
		if t == nil || d.now-t.reviewed < int64(shareReview) {
			return
		}
		d.review(t)
	}
}
