package scheduler

import (
	"fmt"
	"math"
	"testing"
	"time"
)

// off switches off all that is not the fair queue.
var off = Options{GateOff: true, CapMode: CapOff, AgingOff: true, MaxQueue: 1 << 20}

func tenantID(i int) (id [16]byte) {
	id[0], id[1], id[2], id[15] = byte(i), byte(i>>8), byte(i>>16), 1
	return id
}

const unit = 100 * time.Microsecond // the tests' operations take 1 to 57 of it

// ops is a mix of operations as the tests run them.
var ops = []time.Duration{unit, 2 * unit, 4 * unit, 12 * unit, 20 * unit, 57 * unit}

// backlogged keeps n requests of a tenant waiting or running.
func (w *world) backlogged(n int, make func() *job) {
	var again func()
	again = func() {
		j := make()
		j.next = again
		w.submit(j)
	}
	for range n {
		again()
	}
}

// usage sums slot time by tenant and second. It knows nothing of how the
// scheduler counts: it adds up when work ran.
type usage struct {
	from    time.Duration
	seconds []float64
	total   float64
}

func (u *usage) add(start, end time.Duration) {
	for start = max(start, u.from); start < end; {
		second := int((start - u.from) / time.Second)
		stop := min(end, u.from+time.Duration(second+1)*time.Second)
		for len(u.seconds) <= second {
			u.seconds = append(u.seconds, 0)
		}
		u.seconds[second] += (stop - start).Seconds()
		u.total += (stop - start).Seconds()
		start = stop
	}
}

type shares struct {
	overall, worstSecond float64 // largest |share ÷ due − 1|
	lag                  float64 // largest |W_f/w_f − W_g/w_g| of any second's end, s
}

// measure runs tenants of the weights, all backlogged, and compares what they
// got with what the fluid GPS server gives backlogged tenants: their weight's
// part of all that was served, at every moment.
func measure(w *world, weights []uint32, seconds int, op func(tenant int) *job) shares {
	used := make([]usage, len(weights))
	warm := 2 * time.Second
	for i := range used {
		used[i].from = warm
	}
	who := make(map[[16]byte]int)
	w.ended = func(j *job) {
		used[who[j.Tenant]].add(j.started, min(j.ended, warm+time.Duration(seconds)*time.Second))
	}
	for i, weight := range weights {
		who[tenantID(i)] = i
		w.backlogged(3*16/len(weights)+17, func() *job {
			j := op(i)
			j.Tenant, j.Weight = tenantID(i), weight
			return j
		})
	}
	w.run(warm + time.Duration(seconds)*time.Second + time.Second)
	return compare(used, weights, seconds)
}

func compare(used []usage, weights []uint32, seconds int) (s shares) {
	sum, total := 0.0, 0.0
	perSecond := make([]float64, seconds)
	cumulative := make([]float64, len(used))
	for i, u := range used {
		sum += float64(weights[i])
		total += u.total
		for k := range perSecond {
			perSecond[k] += u.seconds[k]
		}
	}
	for k := range perSecond {
		low, high := math.Inf(1), math.Inf(-1)
		for i, u := range used {
			due := float64(weights[i]) / sum
			s.worstSecond = max(s.worstSecond, math.Abs(u.seconds[k]/perSecond[k]/due-1))
			cumulative[i] += u.seconds[k]
			low, high = min(low, cumulative[i]/float64(weights[i])), max(high, cumulative[i]/float64(weights[i]))
		}
		s.lag = max(s.lag, high-low)
	}
	for i, u := range used {
		s.overall = max(s.overall, math.Abs(u.total/total/(float64(weights[i])/sum)-1))
	}
	return s
}

var eight = []uint32{8000, 4000, 4000, 2000, 1000, 1000, 1000, 1000}

// mix draws operations of 1 to 57 units. Each tenant has its own mix, so that
// counting requests would be unfair.
func mix(w *world, wrong bool) func(int) *job {
	return func(tenant int) *job {
		k := w.rnd.IntN(len(ops))
		if tenant%2 == 0 {
			k = min(k, w.rnd.IntN(len(ops)))
		}
		j := &job{size: ops[k], Flow: Flow{Op: Op{Algorithm: uint16(k)}, Prior: ops[k]}}
		if wrong { // a table that is up to 4 times off, and operations that vary
			j.Prior = time.Duration(float64(ops[k]) * []float64{.25, 2, .5, 4, 1, .3}[k])
			j.size = time.Duration(float64(ops[k]) * (.5 + w.rnd.Float64()))
		}
		return j
	}
}

func TestSharesFollowTheFluidServer(t *testing.T) {
	for _, wrong := range []bool{false, true} {
		for seed := range uint64(2) {
			t.Run(fmt.Sprintf("wrong table %v, seed %d", wrong, seed), func(t *testing.T) {
				w := newWorld(t, seed, off, Node{ID: "a", Slots: 16})
				got := measure(w, eight, 30, mix(w, wrong))
				t.Logf("%+v", got)
				if got.overall > 0.001 || got.worstSecond > 0.01 {
					t.Errorf("share error %.4f %% over 30 s, %.3f %% in the worst second", 100*got.overall, 100*got.worstSecond)
				}
			})
		}
	}
}
