package quota

import "uuid"

// breakerRules say when a breaker opens and for how long.
type breakerRules struct {
	calls   int64 // so many calls in the window at least
	bad     int64 // so many of them bad at least
	share   int64 // and more than this part of them, in thousandths
	window  int64 // ns
	open    int64 // ns at first, doubling
	maxOpen int64 // ns
	probe   int64 // ns that a probe may take
}

// spans is in how many parts a breaker's window is counted: what it forgets
// and keeps is a tenth of the window off at most.
const spans = 5

// breaker stops calls of which most go wrong anyway. It opens for a time that
// doubles, then lets one probe through and closes when that goes well.
//
// A probe is a lease with a deadline: one that is never heard of again counts
// as gone wrong, so that a breaker cannot stay half-open for ever. Its methods
// are pure, as those of bucket.
type breaker struct {
	state    breakerState
	opened   uint8 // times in a row, for the doubling
	span     int32 // number of the span counted last
	until    int64 // open: to when; half-open: the probe's deadline; closed: calm till then forgets opened
	probe    uuid.UUID
	calls    [spans]uint32
	badCalls [spans]uint32
}

type breakerState uint8

const (
	breakerClosed breakerState = iota
	breakerOpen
	breakerProbing
)

// span is the number of the span that a moment is in, counted from the start
// of the process: windows have a second at least.
func (r *breakerRules) span(now int64) int32 { return int32(now / (r.window / spans)) }

// advance forgets what left the window.
func (b *breaker) advance(now int64, r *breakerRules) {
	span := r.span(now)
	if span-b.span >= spans {
		b.calls, b.badCalls = [spans]uint32{}, [spans]uint32{}
	}
	for s := max(b.span+1, span-spans+1); s <= span; s++ {
		b.calls[s%spans], b.badCalls[s%spans] = 0, 0
	}
	b.span = max(b.span, span)
}

// wait tells for how many nanoseconds calls are refused, 0 when one may go on;
// probe says that it would be the probe.
func (b *breaker) wait(now int64, r *breakerRules) (wait int64, probe bool) {
	switch {
	case b.state == breakerProbing && now >= b.until:
		b.trip(now, r)
		return b.until - now, false
	case b.state == breakerOpen && now >= b.until:
		return 0, true
	case b.state != breakerClosed:
		return b.until - now, false
	}
	return 0, false
}

// begin makes the request the probe.
func (b *breaker) begin(probe uuid.UUID, now int64, r *breakerRules) {
	b.state, b.probe, b.until = breakerProbing, probe, now+r.probe
}

// trip opens the breaker, for twice as long as the last time in a row.
func (b *breaker) trip(now int64, r *breakerRules) {
	open := r.open
	for range b.opened {
		open = min(open*2, r.maxOpen)
	}
	b.opened = min(b.opened+1, 62)
	b.state, b.until, b.probe = breakerOpen, now+open, uuid.UUID{}
	b.calls, b.badCalls = [spans]uint32{}, [spans]uint32{}
}

// count notes a call and opens the breaker when too many are bad. Only what a
// closed breaker let through counts.
func (b *breaker) count(bad bool, now int64, r *breakerRules) {
	if b.state != breakerClosed {
		return
	}
	b.advance(now, r)
	if b.opened > 0 && now >= b.until {
		b.opened = 0
	}
	i := b.span % spans
	b.calls[i]++
	if !bad {
		return
	}
	b.badCalls[i]++
	var calls, badCalls int64
	for i := range spans {
		calls += int64(b.calls[i])
		badCalls += int64(b.badCalls[i])
	}
	if calls >= r.calls && badCalls >= r.bad && badCalls*permille > calls*r.share {
		b.trip(now, r)
	}
}

// end closes the breaker when its probe went well and opens it again when not.
// Others' ends are ignored.
func (b *breaker) end(request uuid.UUID, good bool, now int64, r *breakerRules) {
	if b.state != breakerProbing || b.probe != request {
		return
	}
	if !good {
		b.trip(now, r)
		return
	}
	// The next time is as long again as the last, unless a whole window
	// passes well.
	b.state, b.probe, b.until = breakerClosed, uuid.UUID{}, now+r.window
}

// release frees the probe of a request that told nothing: the next one is it.
func (b *breaker) release(request uuid.UUID, now int64) {
	if b.state == breakerProbing && b.probe == request {
		b.state, b.probe, b.until = breakerOpen, uuid.UUID{}, now
	}
}

// quiet tells whether a new breaker would be the same.
func (b *breaker) quiet(now int64, r *breakerRules) bool {
	if b.state != breakerClosed || b.opened > 0 && now < b.until {
		return false
	}
	return r.span(now)-b.span >= spans
}
