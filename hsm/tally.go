package hsm

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-kms/sluice/kms"
)

// tally counts what a seat's nodes did, through all epochs. It is safe for
// concurrent use.
type tally struct {
	operations atomic.Uint64
	errors     atomic.Uint64
	busy       atomic.Int64  // nanoseconds of slot time
	loads      atomic.Uint64 // keys loaded
	faults     [len(classNames)]atomic.Uint64

	mu sync.Mutex
	// costs are the average times to load a key of a family.
	costs map[kms.Family]time.Duration
}

// costWeight is how much of a family's average load time the newest load is:
// an eighth follows a change within some tens of loads and hides one outlier.
const costWeight = 8

// fault counts an error that was the token's own.
func (t *tally) fault(c Class) {
	t.errors.Add(1)
	if int(c) < len(t.faults) {
		t.faults[c].Add(1)
	}
}

// faultsByClass returns the classes that occurred.
func (t *tally) faultsByClass() map[string]uint64 {
	var counts map[string]uint64
	for c := range t.faults {
		if n := t.faults[c].Load(); n > 0 {
			if counts == nil {
				counts = map[string]uint64{}
			}
			counts[Class(c).String()] = n
		}
	}
	return counts
}

// loaded notes what loading a key took.
func (t *tally) loaded(f kms.Family, took time.Duration) {
	t.loads.Add(1)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.costs == nil {
		t.costs = map[kms.Family]time.Duration{}
	}
	if before, known := t.costs[f]; known {
		took = before + (took-before)/costWeight
	}
	t.costs[f] = took
}

func (t *tally) loadCosts() map[kms.Family]time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.costs)
}
