package hsm

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/sluice-kms/sluice/kms"
)

// meterInterval is the time over which utilisation is measured: long enough
// for hundreds of operations, short enough to follow a peak.
const meterInterval = time.Second

// meter measures how much of a node's slot time is used. read belongs to one
// goroutine; utilisation is safe for concurrent use.
type meter struct {
	since time.Time
	busy  int64
	now   atomic.Uint64 // a float64's bits
}

// read takes in the slot time used so far.
func (m *meter) read(at time.Time, busy int64, slots int) {
	elapsed := at.Sub(m.since)
	if elapsed < meterInterval {
		return
	}
	if !m.since.IsZero() {
		m.now.Store(math.Float64bits(min(1, float64(busy-m.busy)/(float64(elapsed)*float64(slots)))))
	}
	m.since, m.busy = at, busy
}

// utilisation is the share of the slot time used in the last second, 0 to 1.
func (s *seat) utilisation() float64 { return math.Float64frombits(s.meter.now.Load()) }

// status reports the seat and the node on it.
func (s *seat) status() kms.NodeStatus {
	st := kms.NodeStatus{
		ID: s.config.ID, Mode: s.wanted(), Slots: s.config.Slots, Utilisation: s.utilisation(),
		Operations: s.tally.operations.Load(), Errors: s.tally.errors.Load(), Faults: s.tally.faultsByClass(),
		BusyTime: time.Duration(s.tally.busy.Load()), Loads: s.tally.loads.Load(), LoadCosts: s.tally.loadCosts(),
	}
	if d := s.config.Domain; d != nil {
		st.Domain, st.DomainName, st.Generation, st.OldestGeneration = d.ID, d.Name, d.Generation, d.Oldest()
	}
	if e := s.lastErr.Load(); e != nil {
		st.LastError = *e
	}
	n := s.current.Load()
	if n != nil {
		n.status(&st)
	}
	st.MaxEpochLoads = s.maxLoads(n)
	st.State, st.Breaker = s.state(n), s.breaker(n)
	return st
}

func (s *seat) state(n *node) kms.NodeState {
	switch {
	case !s.open() && n != nil:
		return kms.NodeDraining
	case !s.open():
		return kms.NodeClosed
	case n == nil && s.out.Load():
		return kms.NodeOut
	case n == nil || n.down.Load():
		return kms.NodeDown
	case n.warming.Load():
		return kms.NodeWarming
	}
	return kms.NodeUp
}

// breaker tells what the node's circuit breaker does: it opens when the node
// goes down, lets one opening and self-test at a time through (half open) and
// closes when that succeeds.
func (s *seat) breaker(n *node) kms.BreakerState {
	switch {
	case s.proving.Load():
		return kms.BreakerHalfOpen
	case n == nil || n.down.Load():
		return kms.BreakerOpen
	}
	return kms.BreakerClosed
}
