package scheduler

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// Clients send more in a moment than can be served in what they may wait. Who
// is refused stays away for as long as he is told, as a header tells it (in
// whole seconds, rounded up), and is served at the first retry.
func TestRequestThatComesBackWhenToldIsServed(t *testing.T) {
	if underRace {
		t.Skip("the bubble has thousands of goroutines and is slow for nothing")
	}
	tests := []struct {
		name    string
		options Options
		burst   int
		maxWait time.Duration
	}{
		{"the wait would be too long", Options{CapMode: CapOff}, 2000, time.Second},
		{"the queue is full", Options{CapMode: CapOff, MaxQueue: 64}, 800, 30 * time.Second},
		{"the gate refuses", Options{CapMode: CapOff, MaxQueue: 256}, 800, 2 * time.Second},
	}
	const service = 10 * time.Millisecond
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newScheduler(t, tt.options, Node{ID: "a", Slots: 4})
				class := Mid
				if tt.name == "the gate refuses" {
					class = Low
				}
				var refused, served, again atomic.Int64
				send := func(tenant int) (Explanation, error) {
					var why Explanation
					flow := Flow{Tenant: tenantID(tenant), Nodes: []string{"a"}, MaxWait: tt.maxWait, Class: class, Prior: service, Explain: &why}
					_, err := s.Do(context.Background(), flow, func(string) { time.Sleep(service) })
					return why, err
				}
				for i := range tt.burst {
					go func() {
						why, err := send(i % 4)
						if err == nil {
							return
						}
						refused.Add(1)
						if why.RetryAfter <= 0 {
							t.Errorf("%v without a time to come back", err)
						}
						time.Sleep(max(time.Second, (why.RetryAfter + time.Second - 1).Truncate(time.Second)))
						if _, err := send(i % 4); err == nil {
							served.Add(1)
						} else {
							again.Add(1)
						}
					}()
				}
				time.Sleep(5 * time.Minute)
				t.Logf("%d of %d refused; %d served at the first retry, %d not", refused.Load(), tt.burst, served.Load(), again.Load())
				if n := refused.Load(); n < int64(tt.burst)/10 || served.Load()*100 < n*95 {
					t.Errorf("of %d refused %d were served at the first retry", n, served.Load())
				}
			})
		})
	}
}

// Whatever was sent and in whatever order it ended, the parts of every wait
// make up the wait, and a request that did not wait has none.
func TestReasonsMakeUpEveryWait(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		w := newWorld(t, rapid.Uint64().Draw(r, "seed"), Options{CapMode: CapMode(rapid.IntRange(0, 2).Draw(r, "cap"))},
			Node{ID: "a", Slots: rapid.IntRange(1, 6).Draw(r, "slots")}, Node{ID: "b", Slots: 2})
		ended := 0
		w.ended = func(j *job) {
			ended++
			wait := j.started - j.arrived
			if j.node == "" {
				wait = j.ended - j.arrived
			}
			var sum time.Duration
			for _, part := range j.why.Waits {
				if part.For < 0 {
					r.Errorf("a part of %v", part.For)
				}
				sum += part.For
			}
			if sum != wait {
				r.Errorf("the parts make %v of a wait of %v: %+v, %v", sum, wait, j.why.Waits, j.err)
			}
		}
		n := rapid.IntRange(1, 60).Draw(r, "requests")
		for range n {
			j := &job{size: time.Duration(rapid.IntRange(1, 40).Draw(r, "size")) * time.Millisecond}
			j.Tenant, j.Class = tenantID(rapid.IntRange(0, 4).Draw(r, "tenant")), Class(rapid.IntRange(0, 2).Draw(r, "class"))
			j.Urgency, j.Nodes = Urgency(rapid.IntRange(0, 2).Draw(r, "urgency")), []string{"a", "b"}
			j.MaxWait = time.Duration(rapid.IntRange(0, 100).Draw(r, "wait")+1) * time.Millisecond
			w.in(time.Duration(rapid.IntRange(0, 50).Draw(r, "at"))*time.Millisecond, func() { w.submit(j) })
		}
		w.run(time.Minute)
		if ended != n {
			r.Errorf("%d of %d requests ended", ended, n)
		}
	})
}

func TestRefusalHasItsNumbers(t *testing.T) {
	w := newWorld(t, 1, Options{GateOff: true, CapMode: CapOff, MaxQueue: 8}, Node{ID: "a", Slots: 1})
	flow := Flow{Tenant: tenantID(1), Prior: 100 * time.Millisecond}
	for range 3 { // one runs, and two wait: as many as a tenant may
		w.submit(&job{Flow: flow, size: 100 * time.Millisecond})
	}
	full := &job{Flow: flow}
	w.submit(full)
	if !errors.Is(full.err, ErrTenantQueueFull) || full.why.Have != 2 || full.why.Limit != 2 {
		t.Errorf("%v, %d of %d", full.err, full.why.Have, full.why.Limit)
	}
	hasty := &job{Flow: Flow{Tenant: tenantID(2), Prior: 100 * time.Millisecond, MaxWait: time.Millisecond}}
	w.submit(hasty)
	if !errors.Is(hasty.err, ErrWaitTooLong) || hasty.why.Limit != int64(time.Millisecond) || hasty.why.Have <= hasty.why.Limit {
		t.Errorf("%v, %d of %d", hasty.err, hasty.why.Have, hasty.why.Limit)
	}
}
