package scheduler

import (
	"testing"
	"testing/synctest"
)

// outcome runs Do in the background and tells how it ended.
type outcome struct {
	node string
	err  error
	done bool
}

func start(t *testing.T, s *Scheduler, nodes ...string) *outcome {
	r := new(outcome)
	go func() {
		_, r.err = s.Do(t.Context(), on(nodes...), func(n string) { r.node = n })
		r.done = true
	}()
	synctest.Wait()
	return r
}

func set(t *testing.T, s *Scheduler, n Node) {
	t.Helper()
	if err := s.SetNode(n); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
}

func TestNodeThatLeavesPassesItsWaitersOn(t *testing.T) {
	departures := map[string]func(t *testing.T, s *Scheduler){
		"down":     func(t *testing.T, s *Scheduler) { set(t, s, Node{ID: "a", Slots: 1, Down: true}) },
		"no slots": func(t *testing.T, s *Scheduler) { set(t, s, Node{ID: "a"}) },
		"removed":  func(_ *testing.T, s *Scheduler) { s.RemoveNode("a"); synctest.Wait() },
	}
	for name, leave := range departures {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newScheduler(t, Options{}, Node{ID: "a", Slots: 1}, Node{ID: "b", Slots: 1})
				releaseA := hold(s, on("a"))
				releaseB := hold(s, on("b"))
				onlyA, twiceA, either := start(t, s, "a"), start(t, s, "a", "a"), start(t, s, "a", "b")
				leave(t, s)
				if onlyA.err != ErrNoNodes || twiceA.err != ErrNoNodes {
					t.Errorf("those with no other node got %v and %v", onlyA.err, twiceA.err)
				}
				if either.done {
					t.Errorf("the one with another node ended with %v", either.err)
				}
				releaseB()
				synctest.Wait()
				if either.node != "b" {
					t.Errorf("the one with another node ran on %q", either.node)
				}
				releaseA()
				wantIdle(t, s)
			})
		})
	}
}

func TestNodeThatComesBackServesThoseWhoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScheduler(t, Options{}, Node{ID: "a", Slots: 1, Down: true}, Node{ID: "b", Slots: 1})
		release := hold(s, on("b"))
		r := start(t, s, "a", "b")
		if r.done {
			t.Fatal("ran with no slot free")
		}
		set(t, s, Node{ID: "a", Slots: 1})
		if r.node != "a" {
			t.Errorf("ran on %q, want a", r.node)
		}
		release()
		wantIdle(t, s)
	})
}

func TestAddedSlotsServeThoseWhoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScheduler(t, Options{}, Node{ID: "a", Slots: 1})
		release := hold(s, on("a"))
		first, second := start(t, s, "a"), start(t, s, "a")
		set(t, s, Node{ID: "a", Slots: 3})
		if !first.done || !second.done {
			t.Errorf("with two more slots: first ran %v, second ran %v", first.done, second.done)
		}
		release()
		wantIdle(t, s)
	})
}

func TestShrunkNodeStartsNothingUntilEnoughHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScheduler(t, Options{}, Node{ID: "a", Slots: 3})
		f := on("a")
		releases := []func(){hold(s, f), hold(s, f), hold(s, f)}
		set(t, s, Node{ID: "a", Slots: 1})
		r := start(t, s, "a")
		for i, release := range releases {
			if r.done {
				t.Fatalf("ran beside %d others on one slot", len(releases)-i)
			}
			release()
			synctest.Wait()
		}
		if r.node != "a" {
			t.Errorf("ran on %q once the node was free", r.node)
		}
		wantIdle(t, s)
	})
}

func TestRemovedNodeKeepsCountOfRunningWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScheduler(t, Options{}, Node{ID: "a", Slots: 1})
		release := hold(s, on("a"))
		s.RemoveNode("a")
		if snap := s.Snapshot(); len(snap.Nodes) != 1 || !snap.Nodes[0].Removed || snap.Nodes[0].Busy != 1 {
			t.Errorf("while its work runs the removed node shows as %+v", snap.Nodes)
		}
		if r := start(t, s, "a"); r.err != ErrNoNodes {
			t.Errorf("a removed node gave %v", r.err)
		}
		set(t, s, Node{ID: "a", Slots: 1})
		r := start(t, s, "a")
		if r.done {
			t.Error("a node that came back runs more than its slots")
		}
		s.RemoveNode("a")
		release()
		synctest.Wait()
		if snap := s.Snapshot(); len(snap.Nodes) != 0 {
			t.Errorf("a removed node stays as %+v", snap.Nodes)
		}
		s.RemoveNode("a") // no such node: no harm
	})
}

func TestSnapshotCountsWhatIsThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScheduler(t, Options{MaxQueue: 40}, Node{ID: "b", Slots: 2}, Node{ID: "a", Slots: 1})
		defer hold(s, on("a"))()
		defer hold(s, on("b"))()
		defer hold(s, on("b"))()
		start(t, s, "a")
		start(t, s, "a", "b")
		got := s.Snapshot()
		if got.Queued != 2 || got.MaxQueue != 40 || got.MaxTenant != 10 || got.Tenants != 1 || len(got.Nodes) != 2 {
			t.Fatalf("snapshot %+v", got)
		}
		want := []NodeSnapshot{
			{Node: Node{ID: "a", Slots: 1}, Busy: 1, Waiting: 2, Granted: 1},
			{Node: Node{ID: "b", Slots: 2}, Busy: 2, Waiting: 1, Granted: 2},
		}
		for i := range want {
			got.Nodes[i].Behind = 0 // estimated
			if got.Nodes[i] != want[i] {
				t.Errorf("node %d is %+v, want %+v", i, got.Nodes[i], want[i])
			}
		}
	})
}
