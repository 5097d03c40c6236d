package hsm

import (
	"math"
	"time"

	"github.com/sluice-kms/sluice/kms"
)

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
