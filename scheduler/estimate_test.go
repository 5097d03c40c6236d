package scheduler

import (
	"errors"
	"math"
	"slices"
	"testing"
	"time"
)

// A mixed load near saturation, open loop: for most requests that queue, the
// wait is about what was said before.
func TestWaitIsEstimatedBeforeQueueing(t *testing.T) {
	w := newWorld(t, 1, off, Node{ID: "a", Slots: 16})
	var errs []float64
	w.ended = func(j *job) {
		if wait := j.started - j.arrived; j.why.Estimate > 0 && j.err == nil && j.arrived > 2*time.Second && wait > time.Millisecond {
			errs = append(errs, math.Abs(j.why.Estimate.Seconds()/wait.Seconds()-1))
		}
	}
	op := mix(w, false)
	for i, weight := range eight {
		i, weight := i, weight
		w.backlogged(10+5*i, func() *job {
			j := op(i)
			j.Tenant, j.Weight = tenantID(i), weight
			return j
		})
	}
	w.run(15 * time.Second)
	slices.Sort(errs)
	median := errs[len(errs)/2]
	t.Logf("median error %.1f %% of %d waits", 100*median, len(errs))
	if median > 0.25 {
		t.Errorf("the median error of the estimate is %.1f %%", 100*median)
	}
}

// Who cannot be served in time is told so at once, and when to come back.
func TestHopelessRequestIsRefusedAtOnce(t *testing.T) {
	w := newWorld(t, 1, off, Node{ID: "a", Slots: 2})
	flow := Flow{Tenant: tenantID(1), Op: Op{Algorithm: 1}, Prior: 100 * time.Millisecond}
	for range 12 { // 500 ms of work ahead
		w.submit(&job{Flow: flow, size: 100 * time.Millisecond})
	}
	tests := []struct {
		name              string
		maxWait, deadline time.Duration
		refused           bool
	}{
		{"patient", time.Second, 0, false},
		{"impatient", 200 * time.Millisecond, 0, true},
		{"deadline far", time.Second, 900 * time.Millisecond, false},
		{"deadline near", time.Second, 500 * time.Millisecond, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			j := &job{Flow: flow}
			j.MaxWait, j.Deadline = tt.maxWait, tt.deadline
			w.submit(j)
			if refused := errors.Is(j.err, ErrWaitTooLong); refused != tt.refused {
				t.Errorf("with an expected wait of %v it got %v", j.why.Estimate, j.err)
			}
			if tt.refused && (j.why.RetryAfter <= 0 || j.why.RetryAfter > time.Second) {
				t.Errorf("advice %v", j.why.RetryAfter)
			}
		})
	}
	other := &job{Flow: Flow{Tenant: tenantID(2), MaxWait: 100 * time.Millisecond}}
	if w.submit(other); other.err != nil {
		t.Errorf("another tenant, whose turn is next, got %v", other.err)
	}
}

func TestEstimatorLearnsPerModelAndOperation(t *testing.T) {
	e := make(estimator)
	fast, slow := estimateKey{"fast", Op{Algorithm: 1}}, estimateKey{"slow", Op{Algorithm: 1}}
	if got := e.of(fast, 0); got != int64(DefaultPrior) {
		t.Errorf("without any knowledge %d ns", got)
	}
	now := int64(0)
	for range estimateTrusted {
		now += int64(time.Millisecond)
		e.measured(fast, 1000, now)
		e.measured(slow, 3000, now)
	}
	if f, s := e.of(fast, time.Hour), e.of(slow, time.Hour); f != 1000 || s != 3000 {
		t.Errorf("after %d measurements %d and %d ns", estimateTrusted, f, s)
	}
	e.measured(fast, int64(time.Hour), now+1) // a stalled call, at once after another
	if got := e.of(fast, 0); got > 1001 {
		t.Errorf("one stalled call makes it %d ns", got)
	}
	for range 300 { // 30 s of a new speed
		now += int64(100 * time.Millisecond)
		e.measured(fast, 2000, now)
	}
	if got := e.of(fast, 0); got < 1550 || got > 1700 {
		t.Errorf("after one time constant of twice the time %d ns, want about 1,632", got)
	}
}
