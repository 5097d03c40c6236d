package scheduler

import (
	"testing"
	"time"
)

// With the gate, the cap and the aging lane on as they are by default,
// backlogged tenants get what they bought too: none of them is there to take
// from a tenant that is at its share.
func TestTheWholeIsAsFairAsItsQueue(t *testing.T) {
	mixed := func(w *world) func(int) *job {
		return func(i int) *job {
			k := w.rnd.IntN(len(ops) - 2*(i%2))
			return &job{Flow: Flow{Op: Op{Algorithm: uint16(k)}, Prior: ops[k]}, size: ops[k]}
		}
	}
	tests := map[string]struct {
		slots   int
		weights []uint32
		op      func(*world) func(tenant int) *job
		limit   float64
	}{
		// The largest has 36 % of the slots, and the cap is six of sixteen.
		"a share near the cap": {16, []uint32{8000, 4000, 4000, 2000, 1000, 1000, 1000, 1000}, mixed, 0.005},
		// The gate lowers a class above its share, and these are at theirs.
		"classes that the gate refuses": {32, []uint32{4000, 4000, 2000, 2000, 1000, 1000}, func(w *world) func(int) *job {
			return func(i int) *job {
				j := mixed(w)(i)
				if i >= 4 {
					j.Class = Mid
				}
				return j
			}
		}, 0.005},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1, Options{MaxQueue: 1 << 20}, Node{ID: "a", Slots: tt.slots})
			got := measure(w, tt.weights, 5, 64, tt.op(w))
			t.Logf("share error %.3f %% over 5 s, %.2f %% in the worst second", 100*got.overall, 100*got.worstSecond)
			if got.overall > tt.limit {
				t.Errorf("a tenant is %.2f %% off its share", 100*got.overall)
			}
		})
	}
}

// A tenant at its share is not above it because the window that sums its use
// reaches back up to a part more than a second.
func TestATenantAtItsShareIsNotAboveIt(t *testing.T) {
	w := newWorld(t, 1, Options{CapMode: CapOff, BigShare: 1}, Node{ID: "a", Slots: 10})
	for i := range 2 { // half of the slots each, all of the time
		for range 5 {
			var again func()
			again = func() {
				w.submit(&job{Flow: Flow{Tenant: tenantID(i)}, size: 7 * time.Millisecond, next: again})
			}
			again()
		}
	}
	w.run(1500 * time.Millisecond)
	for w.now < 3*time.Second {
		w.run(w.now + 10*time.Millisecond)
		for _, tenant := range w.s.Snapshot().Domains[0].Tenants {
			if tenant.Over {
				t.Fatalf("after %v a tenant with half of the slots counts as above its share", w.now)
			}
		}
	}
}
