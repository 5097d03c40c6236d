package hsm

import (
	"cmp"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/sluice-kms/sluice/kms"
)

// Rebalancing moves keys away from a node that stays busier than the others.
const (
	// overloadTime is for how long a node is busier than loadFactor times the
	// mean before keys leave it: shorter peaks pass, and other nodes take their
	// work meanwhile.
	overloadTime = time.Minute
	// rebalanceInterval is how often nodes are compared.
	rebalanceInterval = time.Second
	// smoothing is the part of a node's average load that the newest second is
	// not: one quiet second does not end an overload.
	smoothing = 8
	// maxMoved bounds the keys that leave a node at once. Loading one takes a
	// millisecond or two on a slow token.
	maxMoved = 64
	// enough is how near to the mean a node is brought.
	enough = 1.05
)

// balance is what rebalancing knows of a seat; Device.balancing guards it, but
// for moved.
type balance struct {
	load  float64       // smoothed utilisation
	since time.Time     // overloaded since then; zero: it is not
	moved atomic.Uint64 // keys that left the node
}

// rebalance compares the nodes of every domain until stop.
func (d *Device) rebalance() {
	tick := time.NewTicker(rebalanceInterval)
	defer tick.Stop()
	for {
		select {
		case <-d.stop:
			return
		case <-tick.C:
			d.balancing.Lock()
			for _, dom := range d.ordered {
				d.rebalanceLocked(dom, d.clock())
			}
			d.balancing.Unlock()
		}
	}
}

// rebalanceLocked takes a second of load in, and moves keys from the nodes that
// are overloaded for long enough.
func (d *Device) rebalanceLocked(dom *domainNodes, now time.Time) {
	var seats []*seat
	mean := 0.0
	for _, s := range dom.seats {
		if s.serving() == nil || s.wanted() != kms.NodeActive {
			s.balance.load, s.balance.since = 0, time.Time{}
			continue
		}
		s.balance.load += (s.utilisation() - s.balance.load) / smoothing
		mean += s.balance.load
		seats = append(seats, s)
	}
	if len(seats) < 2 {
		return
	}
	mean /= float64(len(seats))
	for _, s := range seats {
		b := &s.balance
		switch {
		case b.load < idleLoad || b.load <= loadFactor*mean:
			b.since = time.Time{}
		case b.since.IsZero():
			b.since = now
			s.serving().cache.heat() // from here on
		case now.Sub(b.since) >= overloadTime:
			b.since = time.Time{}
			d.unload(s, seats, mean)
		}
	}
}

// hot is a loaded key with the slot time that its uses took.
type hot struct {
	source
	busy int64 // ns
}

// move is a key that leaves its node for another.
type move struct {
	source
	to *seat
}

// unload moves keys away from a seat.
func (d *Device) unload(s *seat, seats []*seat, mean float64) {
	n := s.serving()
	if n == nil {
		return
	}
	moved := 0
	for _, m := range planMoves(s, seats, n.cache.heat(), mean) {
		select {
		case <-d.stop:
			return
		default:
		}
		// Loaded before it is asked for there, so no request waits for that.
		if !m.to.usable(m.key.Spec.Info().Family) || d.preload(m.to.config.ID, m.source) != nil {
			continue
		}
		if d.placement.put(m.key.ID, placed{node: m.to.config.ID, since: d.clock(), why: kms.PlacedByRebalancing}) {
			moved++
		}
	}
	s.balance.moved.Add(uint64(moved))
	d.log.Info("keys moved from a node that is busier than the others", slog.String("node", string(s.config.ID)), slog.Int("keys", moved),
		slog.Float64("utilisation", s.balance.load), slog.Float64("mean", mean))
}

// planMoves says which keys leave a seat for which others: the hottest first,
// each to the least loaded, as long as that stays less loaded than the seat is
// now. So a key that is too hot for any node stays where it is, and
// its work goes to other nodes one by one.
func planMoves(from *seat, seats []*seat, keys []hot, mean float64) (moves []move) {
	slices.SortFunc(keys, func(a, b hot) int {
		return cmp.Or(cmp.Compare(b.busy, a.busy), slices.Compare(a.key.ID[:], b.key.ID[:]))
	})
	var all int64
	for _, k := range keys {
		all += k.busy
	}
	loads := make(map[*seat]float64, len(seats))
	for _, s := range seats {
		loads[s] = s.balance.load
	}
	for _, k := range keys {
		if loads[from] <= enough*mean || len(moves) == maxMoved || k.busy == 0 {
			return moves
		}
		load := from.balance.load * float64(k.busy) / float64(all)
		var to *seat
		for _, s := range seats {
			if s != from && (to == nil || loads[s] < loads[to]) {
				to = s
			}
		}
		if loads[to]+load >= loads[from] {
			continue
		}
		loads[from] -= load
		loads[to] += load
		moves = append(moves, move{k.source, to})
	}
	return moves
}
