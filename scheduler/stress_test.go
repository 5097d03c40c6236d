package scheduler

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestCancelAgainstGrantLosesNoSlot(t *testing.T) {
	const (
		slots   = 2
		callers = 32
		rounds  = 400
	)
	s := newScheduler(t, Options{}, Node{ID: "a", Slots: slots}, Node{ID: "b", Slots: slots})
	var busy, ran, cancelled atomic.Int64
	var cancels [callers]atomic.Pointer[context.CancelFunc] // of each caller's present request
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			var why Explanation
			flow := Flow{Tenant: [16]byte{byte(c)}, Nodes: []string{"a", "b"}, MaxWait: time.Hour, Explain: &why}
			for round := range rounds {
				ctx, cancel := context.WithCancel(t.Context())
				cancels[c].Store(&cancel)
				worked := false
				wait, err := s.Do(ctx, flow, func(string) {
					worked = true
					if n := busy.Add(1); n > 2*slots {
						t.Errorf("%d at work on %d slots", n, 2*slots)
					}
					runtime.Gosched() // lets others queue
					busy.Add(-1)
					// Whom this cancels, the slot that is about to be freed
					// may be granted to.
					if victim := (c + 1 + round) % callers; victim != c {
						if cancel := cancels[victim].Load(); cancel != nil {
							(*cancel)()
						}
					}
				})
				cancel()
				var sum time.Duration
				for _, part := range why.Waits {
					sum += part.For
				}
				if sum != wait {
					t.Errorf("the reasons make %v of a wait of %v", sum, wait)
				}
				switch {
				case worked != (err == nil):
					t.Errorf("the work ran: %v; the error: %v", worked, err)
				case err == nil:
					ran.Add(1)
				case errors.Is(err, context.Canceled) && errors.Is(err, ErrWaitExceeded):
					cancelled.Add(1)
				default:
					t.Errorf("error %v", err)
				}
			}
		})
	}
	wg.Wait()
	if ran.Load()+cancelled.Load() != callers*rounds {
		t.Errorf("%d ran and %d were cancelled of %d", ran.Load(), cancelled.Load(), callers*rounds)
	}
	if ran.Load() == 0 || cancelled.Load() == 0 {
		t.Errorf("%d ran and %d were cancelled: there was no contest", ran.Load(), cancelled.Load())
	}
	wantIdle(t, s)
}

// TestGrantStandsAgainstLaterCancellation writes both decisions in a known
// order. When await looks, the grant and the end of the context are both
// there and it may see either first, so it is made to look often.
func TestGrantStandsAgainstLaterCancellation(t *testing.T) {
	s := newScheduler(t, Options{}, Node{ID: "a", Slots: 1})
	for range 100 {
		release := hold(s, on("a"))
		r, err := s.enter(new(on("a")), nil)
		if err != nil || !r.enqueued {
			t.Fatalf("the request did not queue: %v", err)
		}
		release() // grants
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := s.await(ctx, r, nil); err != nil {
			t.Fatalf("a grant was undone by a later cancellation: %v", err)
		}
		s.finish(r, nil)
	}
	wantIdle(t, s)
}

func TestNodesComeAndGoUnderLoad(t *testing.T) {
	s := newScheduler(t, Options{}, Node{ID: "a", Slots: 2}, Node{ID: "b", Slots: 2})
	stop := make(chan struct{})
	var operator, callers sync.WaitGroup
	operator.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			switch i % 4 {
			case 0:
				s.RemoveNode("b")
			case 1:
				s.SetNode(Node{ID: "b", Slots: 3})
			case 2:
				s.SetNode(Node{ID: "b", Slots: 1, Down: true})
			case 3:
				s.SetNode(Node{ID: "b", Slots: 2})
			}
			s.Snapshot()
		}
	})
	for range 16 {
		callers.Go(func() {
			for i := range 2000 {
				f := on("b", "a")
				if i%2 == 0 {
					f = on("b")
				}
				if _, err := s.Do(t.Context(), f, func(string) {}); err != nil && !(errors.Is(err, ErrNoNodes) && i%2 == 0) {
					t.Errorf("error %v for nodes %v", err, f.Nodes)
				}
			}
		})
	}
	callers.Wait()
	close(stop)
	operator.Wait()
	wantIdle(t, s)
}
