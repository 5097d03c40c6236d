package hsm

import (
	"math"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// Heat notes that uses of a loaded version took so much of a node's slot time,
// and nothing else did.
func (d *Device) Heat(node kms.NodeID, version uuid.UUID, busy time.Duration) {
	c := d.byID[node].serving().cache
	s := c.shard(version)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.entries[version].busy.Store(int64(busy))
}

// HoldBalance stops what rebalances by itself until release. step makes the
// nodes as busy as told at a moment and rebalances.
func (d *Device) HoldBalance() (step func(at time.Time, loads map[kms.NodeID]float64), release func()) {
	d.balancing.Lock()
	step = func(at time.Time, loads map[kms.NodeID]float64) {
		for id, load := range loads {
			s := d.byID[id]
			s.meter.now.Store(math.Float64bits(load))
			s.balance.load = load
		}
		for _, dom := range d.ordered {
			d.rebalanceLocked(dom, at)
		}
	}
	return step, d.balancing.Unlock
}
