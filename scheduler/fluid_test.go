package scheduler

import (
	"math"
	"testing"
	"time"
)

// fluid is a GPS server: at every moment it gives each tenant that has work
// left its weight's part of the capacity. It is the ideal that no server of
// whole operations can be; it knows nothing of tags, clocks or slots.
type fluid struct {
	capacity float64 // slots
	weights  []float64
	left     []float64 // seconds of slot time
	served   []float64
	at       float64
}

// to lets time pass until a moment.
func (f *fluid) to(until float64) {
	for f.at < until {
		sum := 0.0
		for i, left := range f.left {
			if left > 0 {
				sum += f.weights[i]
			}
		}
		if sum == 0 {
			break
		}
		step := until - f.at // or until the first has no work left
		for i, left := range f.left {
			if left > 0 {
				step = min(step, left*sum/(f.capacity*f.weights[i]))
			}
		}
		for i, left := range f.left {
			if left > 0 {
				got := step * f.capacity * f.weights[i] / sum
				f.served[i] += got
				if f.left[i] -= got; f.left[i] < 1e-12 {
					f.left[i] = 0
				}
			}
		}
		f.at += step
	}
	f.at = until
}

// Tenants come and go in bursts. At every moment each has had as much as the
// fluid server would have given it, but for what whole operations and slots
// make: (D+1) × the largest operation, for itself and for one other.
func TestServiceFollowsTheFluidServerThroughBursts(t *testing.T) {
	const slots = 16
	for seed := range uint64(3) {
		w := newWorld(t, seed, off, Node{ID: "a", Slots: slots})
		weights := []uint32{4000, 2000, 2000, 1000, 1000, 1000}
		ideal := &fluid{capacity: slots, left: make([]float64, len(weights)), served: make([]float64, len(weights))}
		for _, weight := range weights {
			ideal.weights = append(ideal.weights, float64(weight))
		}
		real := make([]float64, len(weights))
		running := make(map[*job]bool)
		w.ended = func(j *job) {
			real[j.Tenant[0]] += j.size.Seconds()
			delete(running, j)
		}
		var burst func(i int)
		burst = func(i int) {
			ideal.to(w.now.Seconds())
			for range 100 + w.rnd.IntN(400) {
				k := w.rnd.IntN(len(ops))
				j := &job{Flow: Flow{Tenant: tenantID(i), Weight: weights[i], Op: Op{Algorithm: uint16(k)}, Prior: ops[k]}, size: ops[k]}
				ideal.left[i] += j.size.Seconds()
				running[j] = true
				w.submit(j)
			}
			w.in(time.Duration(w.rnd.ExpFloat64()*float64(300*time.Millisecond)), func() { burst(i) })
		}
		for i := range weights {
			w.in(time.Duration(w.rnd.IntN(int(time.Second))), func() { burst(i) })
		}
		worst := 0.0
		for w.now < 10*time.Second {
			w.run(w.now + 10*time.Millisecond)
			ideal.to(w.now.Seconds())
			now := append([]float64(nil), real...)
			for j := range running { // what has started counts as far as it is
				if j.node != "" {
					now[j.Tenant[0]] += (w.now - j.started).Seconds()
				}
			}
			for i := range now {
				worst = max(worst, math.Abs(now[i]-ideal.served[i]))
			}
		}
		const largest = 57 * 100e-6
		bound := 2 * (slots + 1) * largest
		t.Logf("seed %d: at most %.1f ms of slot time from the fluid server, bound %.1f", seed, 1e3*worst, 1e3*bound)
		if worst > bound || worst == 0 {
			t.Errorf("seed %d: %.1f ms of slot time from the fluid server, bound %.1f", seed, 1e3*worst, 1e3*bound)
		}
	}
}
