package scheduler

import (
	"testing"
	"time"
)

// The abuser's bulk requests, twice what all slots can do, all get old. In a
// queue where what is old goes first, the others would wait as long as they.
func TestAgingNeverBecomesFirstComeFirstServed(t *testing.T) {
	run := func(agingOff bool, queue int) (p99 time.Duration, aged int) {
		w := newWorld(t, 1, Options{GateOff: true, CapMode: CapOff, BigShare: 1, AgingOff: agingOff, MaxQueue: 4 * queue}, Node{ID: "a", Slots: 16})
		var waits []time.Duration
		w.ended = func(j *job) {
			if j.Urgency == Interactive && j.err == nil {
				waits = append(waits, j.ended-j.arrived)
			}
			if j.why.Aged {
				aged++
			}
		}
		const until = 10 * time.Second
		w.open(2*16/(12*unit).Seconds(), until, func() *job {
			return &job{Flow: Flow{Tenant: tenantID(0), Weight: 1000, Class: Low, Urgency: Bulk, MaxWait: 500 * time.Millisecond, Op: Op{Algorithm: 1}, Prior: 12 * unit}, size: 12 * unit}
		})
		for i := 1; i < 5; i++ {
			w.open(16/(4*unit).Seconds()/16, until, func() *job {
				return &job{Flow: Flow{Tenant: tenantID(i), Weight: 8000, Urgency: Interactive, MaxWait: 500 * time.Millisecond, Op: Op{Algorithm: 2}, Prior: 4 * unit}, size: 4 * unit}
			})
		}
		w.run(until + time.Second)
		return percentile(waits, 0.99), aged
	}
	for _, queue := range []int{5000, 100_000} {
		without, none := run(true, queue)
		with, aged := run(false, queue)
		t.Logf("queue of %d: P99 of High %v without the lane, %v with it; %d took it", queue, without, with, aged)
		if aged == 0 || none != 0 {
			t.Errorf("%d and %d requests took the lane: there was no contest", aged, none)
		}
		if with > without*3/2 {
			t.Errorf("P99 of High %v, more than 1.5 times %v", with, without)
		}
	}
}

// A flow's head takes the lane after half its longest wait, the next one of
// the same flow not before a longest wait later.
func TestAgingTakesEachFlowOncePerLongestWait(t *testing.T) {
	w := newWorld(t, 1, Options{GateOff: true, CapMode: CapOff, BigShare: 1, MaxQueue: 1 << 16}, Node{ID: "a", Slots: 1})
	var took []time.Duration
	w.ended = func(j *job) {
		if j.why.Aged && j.Weight == 1 {
			took = append(took, j.started)
		}
	}
	w.flood(1, 20, time.Millisecond)
	for range 10 { // a tenant with next to no share
		w.submit(&job{Flow: Flow{Tenant: tenantID(2), Weight: 1, MaxWait: 4 * time.Second, Prior: 20 * time.Millisecond}, size: 20 * time.Millisecond})
	}
	w.run(30 * time.Second)
	if len(took) == 0 || took[0] < 1990*time.Millisecond || took[0] > 2100*time.Millisecond {
		t.Fatalf("the lane was taken at %v, want the first time after 2 s", took)
	}
	for i := 1; i < len(took); i++ {
		if took[i]-took[i-1] < 4*time.Second {
			t.Errorf("the lane was taken at %v by one flow", took)
		}
	}
}

// A thousand flows that are all due get a tenth of the slots and no more.
func TestAgingUsesATenthOfCapacity(t *testing.T) {
	w := newWorld(t, 1, Options{GateOff: true, CapMode: CapOff, BigShare: 1, MaxQueue: 1 << 16}, Node{ID: "a", Slots: 8})
	var aged, all time.Duration
	w.ended = func(j *job) {
		if j.started < 2*time.Second {
			return
		}
		all += j.ended - j.started
		if j.why.Aged {
			aged += j.ended - j.started
		}
	}
	w.backlogged(40, func() *job {
		return &job{Flow: Flow{Tenant: tenantID(0), Weight: 1 << 20, Prior: time.Millisecond}, size: time.Millisecond}
	})
	for i := range 1000 {
		w.backlogged(2, func() *job {
			return &job{Flow: Flow{Tenant: tenantID(1 + i), Weight: 1, MaxWait: time.Second, Prior: 5 * time.Millisecond, Op: Op{Algorithm: 1}}, size: 5 * time.Millisecond}
		})
	}
	w.run(12 * time.Second)
	share := aged.Seconds() / all.Seconds()
	t.Logf("%.2f %% of slot time went through the lane", 100*share)
	if share < 0.09 || share > 0.105 {
		t.Errorf("%.2f %% of slot time went through the lane, want a tenth", 100*share)
	}
}
