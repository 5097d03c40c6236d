package quota

import (
	"sync"
	"sync/atomic"
)

// loadClock is the time by which tenants' buckets fill: it runs slower for
// lower tiers while the pool is above its safe line. Buckets that fill by it
// need not be looked at when the load changes. A step of a ramp that lies before
// the last passing of the line counts from there: what came before is not kept.
type loadClock struct {
	set     sync.Mutex // orders changes
	current atomic.Pointer[loadSpan]
}

// loadSpan is the time since the load passed the safe line last, in either
// direction. It is immutable.
type loadSpan struct {
	above bool  // the line was passed upwards and not yet left downwards
	begin int64 // ns of the engine's clock
	tiers [len(tierSet{})]struct {
		time  int64 // of the tier's clock at the beginning
		share int64 // at which it runs, in thousandths
	}
}

func newLoadClock() *loadClock {
	span := new(loadSpan)
	for i := range span.tiers {
		span.tiers[i].share = permille
	}
	c := new(loadClock)
	c.current.Store(span)
	return c
}

// time returns the tier's time at a moment.
func (s *loadSpan) time(tier int, now int64) int64 {
	t, passed := &s.tiers[tier], max(now-s.begin, 0)
	return t.time + passed/permille*t.share + passed%permille*t.share/permille
}

// note tells the clock how busy the pool is, in thousandths of its slots.
func (c *loadClock) note(busy, now int64, s *Snapshot) {
	c.set.Lock()
	defer c.set.Unlock()
	was := c.current.Load()
	above := busy >= s.safe || was.above && busy > s.leaveSafe
	if above == was.above {
		return
	}
	span := &loadSpan{above: above, begin: max(now, was.begin)}
	for i := range span.tiers {
		t := &span.tiers[i]
		t.time, t.share = was.time(i, span.begin), permille
		if above {
			t.share = s.tiers[i].load
		}
	}
	c.current.Store(span)
}
