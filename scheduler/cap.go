package scheduler

import "time"

// CapMode says when the tenant cap holds.
type CapMode uint8

// The modes.
const (
	// CapAuto: while another tenant was active in the last ten seconds.
	CapAuto CapMode = iota
	CapHard         // always
	CapOff          // never
)

const (
	// capWindow is the time over which a tenant's slot time is capped.
	capWindow = 10 * time.Second

	// windowParts is into how many parts a window is cut. It forgets a part
	// at a time, and sums one part more than it is long, so that it never
	// counts less than what was used in the window.
	windowParts = 10
)

// window sums slot time over a sliding window.
type window struct {
	part  int64 // ns
	at    int64 // the part that is filled now, from 0 on
	end   int64 // of that part, ns; 0 at first
	parts [windowParts + 1]int64
	total int64
}

func newWindow(d time.Duration) window { return window{part: int64(d) / windowParts} }

func (w *window) advance(now int64) {
	if now < w.end {
		return
	}
	at := now / w.part
	w.end = (at + 1) * w.part
	if at-w.at > windowParts {
		w.parts, w.total, w.at = [windowParts + 1]int64{}, 0, at
		return
	}
	for w.at < at {
		w.at++
		p := &w.parts[w.at%(windowParts+1)]
		w.total -= *p
		*p = 0
	}
}

func (w *window) add(now, ns int64) {
	w.advance(now)
	w.parts[w.at%(windowParts+1)] += ns
	w.total += ns
}

func (w *window) sum(now int64) int64 {
	w.advance(now)
	return w.total
}

// capApplies tells whether tenants are capped now.
func (d *domain) capApplies() bool {
	switch d.capMode {
	case CapHard:
		return true
	case CapOff:
		return false
	}
	return d.present > 1
}

// maxInFlight is the slots that a capped tenant may hold.
func (d *domain) maxInFlight() int { return max(1, int(d.capShare*float64(d.slots)+1e-9)) }

// windowLimit is the slot time that a capped tenant may use in capWindow: the
// cap's share, but never less than one slot's, as in maxInFlight. With one or
// two slots a smaller part would stop a tenant for seconds.
func (d *domain) windowLimit() int64 {
	return int64(max(1, d.capShare*float64(d.slots)) * float64(capWindow))
}

// capReason tells whether the cap keeps t from starting work, and by which
// of its two parts.
func (d *domain) capReason(t *tenant) (Reason, bool) {
	switch {
	case !d.capApplies():
		return 0, false
	case t.running-t.stuck >= d.maxInFlight():
		return Cap, true
	case t.capped.sum(d.now) >= d.windowLimit():
		return Window, true
	}
	return 0, false
}

// recap parks t or frees it, as the cap says now. A parked tenant is on the
// side list and in no heap. Its own completions free it; for the window, for
// a pool that grows and for others that leave, reviewParked looks again.
func (d *domain) recap(t *tenant) {
	reason, capped := d.capReason(t)
	capped = capped && t.queued > 0
	if capped == t.isParked && (!capped || reason == t.parked) {
		return
	}
	for _, b := range t.branches {
		for u := range b.queues {
			d.charge(&b.queues[u])
		}
	}
	switch {
	case capped && !t.isParked:
		d.parked.push(t)
	case !capped:
		d.parked.remove(t)
		// What the tenant could not use for seconds is not owed to it: it
		// comes back as if it had just arrived. The slots that it holds touch
		// the cap again and again when its share is near it; then it keeps its
		// turn, within forfeit's bound, or it would fall short of its share.
		if t.parked == Window {
			t.tag = max(t.tag, d.enterTag(t.mask()))
		}
	}
	t.isParked, t.parked = capped, reason
	d.refile(t)
}

// reviewParked looks at every parked tenant. It runs when slots or the cap's
// mode change and when the window has moved, not for each request.
func (d *domain) reviewParked() {
	for t := d.parked.head; t != nil; {
		next := t.links[d.parked.kind].next
		d.recap(t)
		t = next
	}
}
