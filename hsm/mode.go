package hsm

import (
	"log/slog"
	"time"

	"github.com/sluice-kms/sluice/kms"
)

const (
	// quietTime is for how long nobody may be on a node that leaves before it
	// is closed: who was promised a slot there is on his way.
	quietTime = 500 * time.Millisecond
	// quietLimit bounds the wait for that: the longest that a request waits
	// for a slot (30 s, bulk) and the longest ordinary call.
	quietLimit = 30*time.Second + callLimit
)

// wanted returns what operators want of the seat.
func (s *seat) wanted() kms.NodeMode {
	if m := s.mode.Load(); m != nil {
		return *m
	}
	return kms.NodeActive
}

// open tells whether the seat's token shall be open.
func (s *seat) open() bool {
	m := s.wanted()
	return m == kms.NodeActive || m == kms.NodeStandby
}

// leave takes a node out without a failed request: new work goes elsewhere,
// its keys are loaded there, its work ends, and then it is closed. A node that
// is wanted again meanwhile stays.
func (s *seat) leave(stop <-chan struct{}, done chan<- struct{}) {
	defer close(done)
	n := s.current.Load()
	worn := s.open()
	if worn {
		// The lease on being recycled: one node of a domain at a time.
		if !s.domain.recycling.CompareAndSwap(false, true) {
			return
		}
		defer s.domain.recycling.Store(false)
		n.warming.Store(true) // takes no new work
	}
	s.device.handOver(s, n, stop)
	if !s.quiet(n, stop) || s.open() != worn {
		n.warming.Store(false)
		return
	}
	if s.vacate(n, stop) {
		s.log.Info("node is closed", slog.String("node", string(s.config.ID)), slog.Uint64("epoch", n.epoch),
			slog.String("mode", string(s.wanted())))
	}
}

// quiet waits until nobody has been on the node for a while; false when stop
// is closed or the wait takes too long.
func (s *seat) quiet(n *node, stop <-chan struct{}) bool {
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	end := s.clock().Add(quietLimit)
	since := s.clock()
	for {
		now := s.clock()
		if n.users.Load() > 0 {
			since = now
		}
		switch {
		case now.Sub(since) >= quietTime:
			return true
		case now.After(end):
			return false
		}
		select {
		case <-stop:
			return false
		case <-tick.C:
		}
	}
}

// recycles tells whether the node has loaded as many keys as its module may in
// one opening, and another can serve meanwhile.
func (s *seat) recycles(n *node) bool {
	most := s.maxLoads(n)
	if most == 0 || n.loads.Load() < most || s.config.Reopen == nil || s.domain.recycling.Load() {
		return false
	}
	for _, f := range n.families {
		if !s.domain.servedWithout(s, f) {
			return false
		}
	}
	return true
}

// maxLoads is how many keys the node may load: what the configuration says, or
// else the driver; 0: no bound.
func (s *seat) maxLoads(n *node) uint64 {
	if s.config.MaxLoads > 0 || n == nil {
		return s.config.MaxLoads
	}
	return n.info.MaxLoads
}

// servedWithout tells whether another node than the seat's takes new work of
// the family ("": any).
func (d *domainNodes) servedWithout(s *seat, f kms.Family) bool {
	for _, peer := range d.seats {
		if peer != s && peer.usable(f) {
			return true
		}
	}
	return false
}

// SetMode implements kms.Device.
func (d *Device) SetMode(id kms.NodeID, mode kms.NodeMode) error {
	s := d.byID[id]
	if s == nil || s.domain == nil {
		return kms.ErrNotFound
	}
	before := s.wanted()
	s.mode.Store(&mode)
	if s.open() {
		s.out.Store(false) // an operator has seen to it
	}
	if before != mode {
		s.log.Info("node has another mode", slog.String("node", string(id)), slog.String("mode", string(mode)), slog.String("before", string(before)))
	}
	return nil
}

// CheckMode implements kms.Device.
func (d *Device) CheckMode(id kms.NodeID, mode kms.NodeMode) error {
	s := d.byID[id]
	switch {
	case s == nil || s.domain == nil:
		return kms.ErrNotFound
	case mode == kms.NodeActive || mode == kms.NodeStandby:
		return nil
	}
	n := s.serving()
	if n == nil {
		return nil // nobody counts on it
	}
	if s.config.Reopen == nil {
		return kms.Errorf(kms.KindConflict, "the node could not be opened again")
	}
	for _, f := range n.families {
		if !s.domain.servedWithout(s, f) {
			return kms.Errorf(kms.KindConflict, "no other node of the domain %s serves %s keys now; force it to take the node out all the same", s.domain.Name, f)
		}
	}
	return nil
}
