package scheduler

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func newScheduler(t testing.TB, o Options, nodes ...Node) *Scheduler {
	t.Helper()
	s, err := New(nodes, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// on is a request for any of the nodes that waits as long as a test may take.
func on(nodes ...string) Flow { return Flow{Nodes: nodes, MaxWait: time.Hour} }

// hold occupies a slot until the returned function is called.
func hold(s *Scheduler, f Flow) (release func()) {
	started, end := make(chan struct{}), make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.Do(context.Background(), f, func(string) { close(started); <-end })
	}()
	<-started
	return func() { close(end); <-ended }
}

// wantIdle fails unless every slot is free and nobody waits.
func wantIdle(t *testing.T, s *Scheduler) {
	t.Helper()
	snap := s.Snapshot()
	if snap.Queued != 0 || snap.Tenants != 0 || snap.Oldest != 0 {
		t.Errorf("idle scheduler has %d waiting of %d tenants, the oldest for %v", snap.Queued, snap.Tenants, snap.Oldest)
	}
	for _, n := range snap.Nodes {
		if n.Busy != 0 || n.Waiting != 0 {
			t.Errorf("idle node %s has %d busy, %d waiting", n.ID, n.Busy, n.Waiting)
		}
	}
}

func TestOneFlowIsServedInOrderOfArrival(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScheduler(t, Options{}, Node{ID: "a", Slots: 1})
		release := hold(s, on("a"))
		const requests = 50
		var order []int
		for i := range requests {
			go s.Do(t.Context(), on("a"), func(string) {
				order = append(order, i) // one slot: never two at once
			})
			synctest.Wait()
		}
		release()
		synctest.Wait()
		if len(order) != requests || !slices.IsSorted(order) {
			t.Errorf("served in the order %v", order)
		}
		wantIdle(t, s)
	})
}

// A request whose node failed comes again, and stands where it would have stood
// had it listed another node from the beginning.
func TestRequestThatComesAgainKeepsItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScheduler(t, Options{}, Node{ID: "a", Slots: 1})
		release := hold(s, on("a"))
		var order []string
		ask := func(name string, waited time.Duration) {
			f := on("a")
			f.Waited = waited
			go s.Do(t.Context(), f, func(string) { order = append(order, name) })
			synctest.Wait()
			time.Sleep(time.Second)
		}
		ask("first", 0)
		ask("second", 0)
		ask("third", 0)
		ask("again", 2500*time.Millisecond) // came between the first and the second
		ask("last", 0)
		release()
		synctest.Wait()
		if want := []string{"first", "again", "second", "third", "last"}; !slices.Equal(order, want) {
			t.Errorf("served in the order %v, want %v", order, want)
		}
		wantIdle(t, s)
	})
}

func TestListedOrderIsPreference(t *testing.T) {
	tests := []struct {
		name string
		busy []string // nodes whose only slot is taken
		down []string
		want string
	}{
		{"all free", nil, nil, "a"},
		{"preferred busy", []string{"a"}, nil, "b"},
		{"preferred down", nil, []string{"a"}, "b"},
		{"two out of reach", []string{"a"}, []string{"b"}, "c"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newScheduler(t, Options{}, Node{ID: "c", Slots: 1}, Node{ID: "a", Slots: 1}, Node{ID: "b", Slots: 1})
			for _, id := range tt.busy {
				defer hold(s, on(id))()
			}
			for _, id := range tt.down {
				if err := s.SetNode(Node{ID: id, Slots: 1, Down: true}); err != nil {
					t.Fatal(err)
				}
			}
			got := ""
			wait, err := s.Do(t.Context(), on("unknown", "a", "b", "c"), func(node string) { got = node })
			if got != tt.want || wait != 0 || err != nil {
				t.Errorf("ran on %q after %v with error %v, want %q at once", got, wait, err, tt.want)
			}
		})
	}
}

func TestFirstSlotThatFreesServesTheWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScheduler(t, Options{}, Node{ID: "a", Slots: 1}, Node{ID: "b", Slots: 1})
		releaseA := hold(s, on("a"))
		releaseB := hold(s, on("b"))
		onlyA, either := "", ""
		go s.Do(t.Context(), on("a"), func(n string) { onlyA = n })
		synctest.Wait()
		go s.Do(t.Context(), on("a", "b"), func(n string) { either = n })
		synctest.Wait()
		releaseB()
		synctest.Wait()
		if onlyA != "" || either != "b" {
			t.Errorf("with b free, the waiter for a ran on %q and the one for either on %q", onlyA, either)
		}
		releaseA()
		synctest.Wait()
		if onlyA != "a" {
			t.Errorf("with a free, the waiter for a ran on %q", onlyA)
		}
		wantIdle(t, s)
	})
}

func TestWaitIsFromQueueingToGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScheduler(t, Options{}, Node{ID: "a", Slots: 1})
		release := hold(s, on("a"))
		time.AfterFunc(70*time.Millisecond, release)
		time.AfterFunc(30*time.Millisecond, func() {
			if oldest := s.Snapshot().Oldest; oldest != 30*time.Millisecond {
				t.Errorf("30 ms into the wait the oldest waiter has waited %v", oldest)
			}
		})
		wait, err := s.Do(t.Context(), on("a"), func(string) { <-time.After(time.Second) })
		if wait != 70*time.Millisecond || err != nil {
			t.Errorf("waited %v with error %v, want 70ms", wait, err)
		}
	})
}

func TestWaitIsReadFromTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Unix(0, 0)
		s := newScheduler(t, Options{Clock: func() time.Time { return now }}, Node{ID: "a", Slots: 1})
		release := hold(s, on("a"))
		var wait time.Duration
		go func() { wait, _ = s.Do(t.Context(), on("a"), func(string) {}) }()
		synctest.Wait()
		now = now.Add(5 * time.Minute)
		release()
		synctest.Wait()
		if wait != 5*time.Minute {
			t.Errorf("waited %v on a clock that moved 5m", wait)
		}
	})
}

func TestLongestWaitEndsTheWait(t *testing.T) {
	tests := []struct {
		name    string
		maxWait time.Duration
		wait    time.Duration
	}{
		{"some", 40 * time.Millisecond, 40 * time.Millisecond},
		{"none", 0, 0},
		{"past", -time.Second, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newScheduler(t, Options{}, Node{ID: "a", Slots: 1})
				flow := Flow{Nodes: []string{"a"}, MaxWait: tt.maxWait}
				if _, err := s.Do(t.Context(), flow, func(string) {}); err != nil {
					t.Errorf("with a slot free: %v", err)
				}
				release := hold(s, on("a"))
				for range 2 { // the second with a waiter that was used before
					wait, err := s.Do(t.Context(), flow, func(string) { t.Error("the work ran") })
					if !errors.Is(err, ErrWaitExceeded) || wait != tt.wait {
						t.Errorf("got error %v after %v, want it after %v", err, wait, tt.wait)
					}
				}
				release()
				wantIdle(t, s)
			})
		})
	}
}

func TestEndOfContextEndsTheWait(t *testing.T) {
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	tests := []struct {
		name  string
		ctx   func(t *testing.T) context.Context
		cause error
		wait  time.Duration
	}{
		{"deadline", func(t *testing.T) context.Context {
			ctx, cancel := context.WithTimeout(t.Context(), 40*time.Millisecond)
			t.Cleanup(cancel)
			return ctx
		}, context.DeadlineExceeded, 40 * time.Millisecond},
		{"cancelled while waiting", func(t *testing.T) context.Context {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(10*time.Millisecond, cancel)
			return ctx
		}, context.Canceled, 10 * time.Millisecond},
		{"cancelled before", func(*testing.T) context.Context { return cancelled }, context.Canceled, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newScheduler(t, Options{}, Node{ID: "a", Slots: 1})
				release := hold(s, on("a"))
				wait, err := s.Do(tt.ctx(t), on("a"), func(string) { t.Error("the work ran") })
				if !errors.Is(err, ErrWaitExceeded) || !errors.Is(err, tt.cause) || wait != tt.wait {
					t.Errorf("got error %v after %v, want %v after %v", err, wait, tt.cause, tt.wait)
				}
				release()
				wantIdle(t, s)
			})
		})
	}
}

func TestNoWorkForACallerWhoHasLeftThoughASlotIsFree(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s := newScheduler(t, Options{}, Node{ID: "a", Slots: 1})
	if _, err := s.Do(ctx, on("a"), func(string) { t.Error("the work ran") }); !errors.Is(err, ErrWaitExceeded) {
		t.Errorf("got error %v", err)
	}
}

func TestQueueBounds(t *testing.T) {
	tests := []struct {
		name     string
		maxQueue int
		tenants  []byte // of the requests that are to queue
		next     byte
		want     error
	}{
		{"room", 8, []byte{1, 2, 2}, 1, nil},
		{"tenant at its quarter", 8, []byte{1, 1}, 1, ErrTenantQueueFull},
		{"another tenant beside it", 8, []byte{1, 1}, 2, nil},
		{"full", 8, []byte{1, 1, 2, 2, 3, 3, 4, 4}, 5, ErrQueueFull},
		{"a tenant may always queue one", 1, nil, 1, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newScheduler(t, Options{MaxQueue: tt.maxQueue}, Node{ID: "a", Slots: 1})
				release := hold(s, on("a"))
				for _, id := range tt.tenants {
					go s.Do(t.Context(), Flow{Tenant: [16]byte{id}, Nodes: []string{"a"}, MaxWait: time.Hour}, func(string) {})
				}
				synctest.Wait()
				if got := s.Snapshot(); got.Queued != len(tt.tenants) {
					t.Fatalf("%d requests wait, want %d", got.Queued, len(tt.tenants))
				}
				var err error
				go func() {
					_, err = s.Do(t.Context(), Flow{Tenant: [16]byte{tt.next}, Nodes: []string{"a"}, MaxWait: time.Hour}, func(string) {})
				}()
				synctest.Wait()
				if !errors.Is(err, tt.want) {
					t.Errorf("the next request got %v, want %v", err, tt.want)
				}
				if tt.want != nil && !errors.Is(err, ErrQueueFull) {
					t.Errorf("%v is no ErrQueueFull", err)
				}
				if tt.want == ErrQueueFull && errors.Is(err, ErrTenantQueueFull) {
					t.Error("a full queue is blamed on the tenant")
				}
				release()
				synctest.Wait()
				wantIdle(t, s)
			})
		})
	}
}

func TestNoServingNodeIsAnErrorAtOnce(t *testing.T) {
	s := newScheduler(t, Options{}, Node{ID: "down", Slots: 4, Down: true}, Node{ID: "empty"})
	for _, nodes := range [][]string{nil, {}, {"unknown"}, {"down"}, {"empty"}, {"unknown", "down", "empty"}} {
		t.Run(fmt.Sprint(nodes), func(t *testing.T) {
			wait, err := s.Do(t.Context(), on(nodes...), func(string) { t.Error("the work ran") })
			if err != ErrNoNodes || wait != 0 {
				t.Errorf("got %v after %v", err, wait)
			}
		})
	}
}

func TestEndingByPanicOrExitFreesTheSlot(t *testing.T) {
	boom := errors.New("boom")
	endings := map[string]func(string){
		"panic":   func(string) { panic(boom) },
		"go exit": func(string) { runtime.Goexit() },
	}
	for name, work := range endings {
		t.Run(name, func(t *testing.T) {
			s := newScheduler(t, Options{}, Node{ID: "a", Slots: 1})
			recovered := make(chan any)
			for range 3 {
				go func() {
					defer func() { recovered <- recover() }()
					s.Do(context.Background(), on("a"), work)
				}()
				if got := <-recovered; name == "panic" && got != boom {
					t.Errorf("the panic value became %v", got)
				}
			}
			wantIdle(t, s)
		})
	}
}

func TestNewRefusesWhatCannotWork(t *testing.T) {
	tests := []struct {
		name    string
		nodes   []Node
		options Options
	}{
		{"no id", []Node{{Slots: 1}}, Options{}},
		{"negative slots", []Node{{ID: "a", Slots: -1}}, Options{}},
		{"too many slots", []Node{{ID: "a", Slots: MaxSlots + 1}}, Options{}},
		{"twice", []Node{{ID: "a", Slots: 1}, {ID: "a", Slots: 2}}, Options{}},
		{"negative queue", nil, Options{MaxQueue: -1}},
		{"safe line above hard line", nil, Options{SafeLine: 0.96}},
		{"hard line above all", nil, Options{HardLine: 1.01}},
		{"negative line", nil, Options{SafeLine: -0.1}},
		{"no number", nil, Options{SafeLine: math.NaN()}},
		{"cap above all", nil, Options{Cap: 1.5}},
		{"unknown mode", nil, Options{CapMode: CapOff + 1}},
		{"share of big operations", nil, Options{BigShare: -1}},
		{"negative rate", nil, Options{EntranceRate: -1}},
		{"rate of nothing", nil, Options{EntranceRate: 0.0001}},
		{"rate above all slots", nil, Options{EntranceRate: MaxSlots + 1}},
		{"another domain", []Node{{ID: "a", Slots: 1}, {ID: "a", Slots: 1, Domain: "b"}}, Options{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if s, err := New(tt.nodes, tt.options); err == nil {
				t.Errorf("made %+v", s.Snapshot())
			}
		})
	}
}
