package scheduler

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"
)

// off switches off all that is not the fair queue.
var off = Options{GateOff: true, CapMode: CapOff, AgingOff: true, BigShare: 1, MaxQueue: 1 << 20}

func tenantID(i int) (id [16]byte) {
	id[0], id[1], id[2], id[15] = byte(i), byte(i>>8), byte(i>>16), 1
	return id
}

const unit = 100 * time.Microsecond // the tests' operations take 1 to 57 of it

// ops is a mix of operations as the tests run them.
var ops = []time.Duration{unit, 2 * unit, 4 * unit, 12 * unit, 20 * unit, 57 * unit}

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
func measure(w *world, weights []uint32, seconds, backlog int, op func(tenant int) *job) shares {
	used := make([]usage, len(weights))
	warm := 2 * time.Second
	for i := range used {
		used[i] = usage{from: warm, seconds: make([]float64, seconds)}
	}
	who := make(map[[16]byte]int)
	w.ended = func(j *job) {
		used[who[j.Tenant]].add(j.started, min(j.ended, warm+time.Duration(seconds)*time.Second))
	}
	for i, weight := range weights {
		who[tenantID(i)] = i
		w.backlogged(backlog, func() *job {
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

// pool is what there is without a fair queue: it serves the first come or, with
// least set, whose work in flight is least for its weight.
type pool struct {
	w     *world
	free  int
	queue []*job
	count map[[16]byte]int
	least bool
}

func newPool(w *world, slots int, least bool) *pool {
	return &pool{w: w, free: slots, least: least, count: make(map[[16]byte]int)}
}

func (p *pool) submit(j *job) {
	j.arrived = p.w.now
	p.queue = append(p.queue, j)
	p.start()
}

func (p *pool) start() {
	for p.free > 0 && len(p.queue) > 0 {
		best := 0
		for i, j := range p.queue {
			b := p.queue[best]
			if p.least && p.count[j.Tenant]*int(b.Weight) < p.count[b.Tenant]*int(j.Weight) {
				best = i
			}
		}
		j := p.queue[best]
		p.queue = slices.Delete(p.queue, best, best+1)
		p.free--
		p.count[j.Tenant]++
		j.started, j.node = p.w.now, "a"
		p.w.in(j.size, func() {
			p.free++
			p.count[j.Tenant]--
			p.w.over(j)
			p.start()
		})
	}
}

// fair tells whether shares are what is promised for eight tenants.
func (s shares) fair() bool { return s.overall <= 0.001 && s.worstSecond <= 0.01 }

func TestSharesFollowTheFluidServer(t *testing.T) {
	for _, wrong := range []bool{false, true} {
		for seed := range uint64(2) {
			t.Run(fmt.Sprintf("wrong table %v, seed %d", wrong, seed), func(t *testing.T) {
				w := newWorld(t, seed, off, Node{ID: "a", Slots: 16})
				got := measure(w, eight, 30, 40, mix(w, wrong))
				t.Logf("share error %.4f %% over 30 s, %.3f %% in the worst second", 100*got.overall, 100*got.worstSecond)
				if !got.fair() {
					t.Error("not fair")
				}
			})
		}
	}
}

// The same measure must see what is not fair.
func TestUnfairSchedulersFailTheSameMeasure(t *testing.T) {
	for name, least := range map[string]bool{"first come, first served": false, "least in flight": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1, off, Node{ID: "a", Slots: 16})
			w.send = newPool(w, 16, least).submit
			got := measure(w, eight, 5, 20, mix(w, false))
			t.Logf("share error %.1f %%, %.1f %% in the worst second", 100*got.overall, 100*got.worstSecond)
			if got.fair() {
				t.Error("passes as fair")
			}
		})
	}
}

// Operations that were never measured are charged by the caller's table, here
// up to four times off, and settled when they end.
func TestSettlementAloneMakesAWrongTableFair(t *testing.T) {
	w := newWorld(t, 1, off, Node{ID: "a", Slots: 16})
	op := mix(w, true)
	got := measure(w, eight, 10, 40, func(tenant int) *job {
		clear(w.s.domains[0].estimates)
		return op(tenant)
	})
	t.Logf("share error %.4f %% over 10 s, %.3f %% in the worst second", 100*got.overall, 100*got.worstSecond)
	// In a second the charges that are not settled yet show a little.
	if got.overall > 0.001 || got.worstSecond > 0.02 {
		t.Error("not fair")
	}
}

func TestManyTenantsStayWithinTheBoundOfSFQ(t *testing.T) {
	for _, n := range []int{200, 10_000} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			weights := make([]uint32, n)
			for i := range weights {
				weights[i] = []uint32{200, 1000, 5000, 20000}[i%4]
			}
			w := newWorld(t, 1, off, Node{ID: "a", Slots: 16})
			got := measure(w, weights, 10, 2, mix(w, false))
			const largest = 57 * 100e-6 // s
			bound := 17 * (largest/200 + largest/200)
			t.Logf("lag %.3g s per weight, bound %.3g", got.lag, bound)
			if got.lag > bound {
				t.Errorf("lag %.3g s per weight, above the bound %.3g", got.lag, bound)
			}
		})
	}
}

func TestBaselineIsMetBesideAHundredGoldTenants(t *testing.T) {
	weights := make([]uint32, 101)
	for i := range weights {
		weights[i] = 5000
	}
	weights[100] = 200
	w := newWorld(t, 1, off, Node{ID: "a", Slots: 16})
	got := measure(w, weights, 30, 3, mix(w, false))
	t.Logf("share error %.3f %%", 100*got.overall)
	// The free tenant is due 0.04 % of 16 slots: 6.4 ms of each second, about
	// one large operation. So its share is exact to one of 30 s's thirty.
	if got.overall > 0.03 {
		t.Errorf("a tenant's share is %.2f %% off", 100*got.overall)
	}
}

// Free tenants get their heads served within the published bound while
// platinum tenants want 1.3 times all there is.
func TestNobodyStarves(t *testing.T) {
	const slots, largest = 16, 57 * unit
	w := newWorld(t, 1, off, Node{ID: "a", Slots: slots})
	sum := 4*20000.0 + 20*200
	var worst time.Duration
	w.ended = func(j *job) {
		if j.Weight == 200 && j.err == nil {
			worst = max(worst, j.started-j.arrived)
		}
	}
	mean := 0.0
	for _, op := range ops {
		mean += op.Seconds() / float64(len(ops))
	}
	op := mix(w, false)
	for i := range 4 {
		w.open(1.3*slots/mean/4, 20*time.Second, func() *job {
			j := op(1)
			j.Tenant, j.Weight, j.MaxWait = tenantID(i), 20000, 2*time.Second
			return j
		})
	}
	for i := 4; i < 24; i++ {
		w.backlogged(1, func() *job {
			j := op(1)
			j.Tenant, j.Weight = tenantID(i), 200
			return j
		})
	}
	w.run(20 * time.Second)
	rate := slots * 200 / sum
	bound := time.Duration(float64(largest)/rate) + 24*largest/slots + largest
	t.Logf("longest wait %v, bound %v", worst, bound)
	if worst == 0 || worst > bound {
		t.Errorf("a free tenant waited %v, above the bound %v", worst, bound)
	}
}

func TestUrgenciesShareTheirTenantsPart(t *testing.T) {
	w := newWorld(t, 1, off, Node{ID: "a", Slots: 4})
	var used [2][urgencies]time.Duration
	w.ended = func(j *job) { used[j.Tenant[0]][j.Urgency] += j.ended - j.started }
	op := mix(w, false)
	for tenant := range 2 {
		for u := range Urgency(urgencies) {
			if tenant == 1 && u != Bulk {
				continue // the other tenant sends bulk only, and keeps its half
			}
			w.backlogged(10, func() *job {
				j := op(1)
				j.Tenant, j.Urgency = tenantID(tenant), u
				return j
			})
		}
	}
	w.run(20 * time.Second)
	total := 0.0
	for _, part := range used[0] {
		total += part.Seconds()
	}
	for u, percent := range urgencyShares {
		got := 100 * used[0][u].Seconds() / total
		if math.Abs(got-float64(percent)) > 0.5 {
			t.Errorf("urgency %d got %.2f %% of its tenant's part, want %d", u, got, percent)
		}
	}
	if half := total / (total + used[1][Bulk].Seconds()); math.Abs(half-0.5) > 0.001 {
		t.Errorf("the tenant with urgent work got %.2f %% of all", 100*half)
	}
}
