package scheduler

import (
	"testing"
	"time"
)

// departures counts ends of work in windows of 100 ms between two moments.
func departures(w *world, from, until time.Duration) []float64 {
	counts := make([]float64, (until-from)/(100*time.Millisecond))
	w.ended = func(j *job) {
		if j.err == nil && j.ended >= from && j.ended < until {
			counts[(j.ended-from)/(100*time.Millisecond)]++
		}
	}
	return counts
}

func meanVariation(counts []float64) (mean, variation float64) {
	for _, c := range counts {
		mean += c / float64(len(counts))
	}
	for _, c := range counts {
		variation += (c - mean) * (c - mean) / float64(len(counts)) / (mean * mean)
	}
	return mean, variation
}

// unlimited has so many slots that only the entrance bucket bounds.
var unlimited = Options{EntranceRate: 13.6, GateOff: true, CapMode: CapOff, AgingOff: true, BigShare: 1, MaxQueue: 1 << 20}

// A tenfold burst comes out at the configured rate, slots unlimited.
func TestEntranceFlattensABurst(t *testing.T) {
	w := newWorld(t, 1, unlimited, Node{ID: "a", Slots: MaxSlots})
	const op = 4 * time.Millisecond
	counts := departures(w, time.Second, 9*time.Second)
	for i := range 8 {
		// Ten times the rate for two seconds; what queues comes out after.
		w.open(10*13.6/op.Seconds()/8, 2*time.Second, func() *job {
			return &job{Flow: Flow{Tenant: tenantID(i), Prior: op}, size: op}
		})
	}
	w.run(10 * time.Second)
	mean, variation := meanVariation(counts)
	want := 13.6 / op.Seconds() / 10
	t.Logf("%.1f ends in 100 ms, variance %.3f %%", mean, 100*variation)
	if mean < 0.98*want || mean > 1.02*want {
		t.Errorf("%.1f operations left in 100 ms, want %.1f", mean, want)
	}
	if variation > 0.05 {
		t.Errorf("the variance of departures is %.1f %%", 100*variation)
	}
}

// When the nodes slow down, the leak follows without anybody changing a rate:
// what is in flight stays what it was.
func TestEntranceFollowsANodeThatSlowsDown(t *testing.T) {
	w := newWorld(t, 1, unlimited, Node{ID: "a", Slots: MaxSlots})
	op := 4 * time.Millisecond
	slow := func(string) time.Duration {
		if w.now > 3*time.Second {
			return 3 * op
		}
		return op
	}
	counts := departures(w, time.Second, 9*time.Second)
	w.backlogged(400, func() *job { return &job{Flow: Flow{Tenant: tenantID(1), Prior: op}, sizeOn: slow} })
	w.run(10 * time.Second)
	before, _ := meanVariation(counts[:20])
	after, _ := meanVariation(counts[30:])
	t.Logf("%.1f operations in 100 ms, then %.1f", before, after)
	if ratio := after / before; ratio < 0.30 || ratio > 0.37 {
		t.Errorf("three times slower, the leak is %.2f of what it was", ratio)
	}
	if busy := w.s.domains[0].busy; busy > 3*16 {
		t.Errorf("%d operations in flight", busy)
	}
}

// Estimates that are wrong do not change the rate, because the bucket counts
// what the work took.
func TestEntranceSettlesWrongEstimates(t *testing.T) {
	for _, factor := range []float64{0.25, 4} {
		w := newWorld(t, 1, unlimited, Node{ID: "a", Slots: MaxSlots})
		const op = 4 * time.Millisecond
		counts := departures(w, 2*time.Second, 9*time.Second)
		w.backlogged(400, func() *job {
			clear(w.s.domains[0].estimates)
			return &job{Flow: Flow{Tenant: tenantID(1), Prior: time.Duration(factor * float64(op))}, size: op}
		})
		w.run(10 * time.Second)
		mean, _ := meanVariation(counts)
		want := 13.6 / op.Seconds() / 10
		t.Logf("estimates %v times the truth: %.1f operations in 100 ms, %.1f configured", factor, mean, want)
		if mean > 1.02*want {
			t.Errorf("%.1f operations left in 100 ms, more than %.1f", mean, want)
		}
	}
}
