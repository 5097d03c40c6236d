package scheduler

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
)

// oracle is the scheduler as one would say it in a sentence: a list of those
// who wait, in order, and a search through it at every event. It shares no
// code with the scheduler and has no lists per node, no pool, no lock.
type oracle struct {
	nodes   map[string]*oracleNode
	waiting []*oracleRequest // in order of arrival
}

type oracleNode struct {
	slots, busy int
	down        bool
}

type oracleRequest struct {
	id    int
	nodes []string
	state string // "waiting", "ended", "no nodes", "cancelled" or "on <node>"
}

func (n *oracleNode) serves() bool { return n.slots > 0 && !n.down }

func (o *oracle) arrive(r *oracleRequest) {
	r.state = "no nodes"
	for _, id := range r.nodes {
		if n := o.nodes[id]; n.serves() {
			if n.busy < n.slots {
				n.busy++
				r.state = "on " + id
				return
			}
			r.state = "waiting"
		}
	}
	if r.state == "waiting" {
		o.waiting = append(o.waiting, r)
	}
}

// look gives every free slot of a node to the first in the list who names it,
// then sends away those whom no node serves.
func (o *oracle) look(id string) {
	n := o.nodes[id]
	for n.serves() && n.busy < n.slots {
		i := slices.IndexFunc(o.waiting, func(r *oracleRequest) bool { return slices.Contains(r.nodes, id) })
		if i < 0 {
			break
		}
		n.busy++
		o.waiting[i].state = "on " + id
		o.waiting = slices.Delete(o.waiting, i, i+1)
	}
	o.waiting = slices.DeleteFunc(o.waiting, func(r *oracleRequest) bool {
		if slices.ContainsFunc(r.nodes, func(id string) bool { return o.nodes[id].serves() }) {
			return false
		}
		r.state = "no nodes"
		return true
	})
}

// live is a real request beside its oracle.
type live struct {
	oracleRequest
	real   string // the state that the scheduler gave
	cancel context.CancelFunc
	end    chan struct{}
}

func TestSchedulerAgreesWithTheOracle(t *testing.T) {
	for seed := range uint64(30) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { compareWithOracle(t, rand.New(rand.NewPCG(seed, 1)), 400) })
		})
	}
}

func compareWithOracle(t *testing.T, rnd *rand.Rand, events int) {
	o := &oracle{nodes: map[string]*oracleNode{"a": {slots: 1}, "b": {slots: 2}, "c": {slots: 3}}}
	names := slices.Sorted(maps.Keys(o.nodes))
	s := newScheduler(t, Options{NoAffinity: true, AgingOff: true}, Node{ID: "a", Slots: 1}, Node{ID: "b", Slots: 2}, Node{ID: "c", Slots: 3})
	var all []*live

	pick := func(ok func(*live) bool) *live {
		var some []*live
		for _, r := range all {
			if ok(r) {
				some = append(some, r)
			}
		}
		if len(some) == 0 {
			return nil
		}
		return some[rnd.IntN(len(some))]
	}
	running := func(r *live) bool { return len(r.state) > 3 && r.state[:3] == "on " }
	finish := func(r *live) {
		node := r.state[3:]
		close(r.end)
		o.nodes[node].busy--
		r.state = "ended"
		o.look(node)
	}

	for event := range events {
		switch k := rnd.IntN(100); {
		case k < 45:
			r := &live{oracleRequest: oracleRequest{id: len(all)}, real: "waiting", end: make(chan struct{})}
			for range 1 + rnd.IntN(3) {
				r.nodes = append(r.nodes, names[rnd.IntN(len(names))])
			}
			all = append(all, r)
			o.arrive(&r.oracleRequest)
			ctx, cancel := context.WithCancel(context.Background())
			r.cancel = cancel
			go func() {
				defer cancel()
				_, err := s.Do(ctx, on(r.nodes...), func(n string) { r.real = "on " + n; <-r.end })
				switch {
				case err == nil:
					r.real = "ended"
				case errors.Is(err, ErrNoNodes):
					r.real = "no nodes"
				case errors.Is(err, context.Canceled):
					r.real = "cancelled"
				}
			}()
		case k < 85:
			if r := pick(running); r != nil {
				finish(r)
			}
		case k < 93:
			if r := pick(func(r *live) bool { return r.state == "waiting" }); r != nil {
				r.cancel()
				r.state = "cancelled"
				o.waiting = slices.DeleteFunc(o.waiting, func(q *oracleRequest) bool { return q.id == r.id })
			}
		default:
			id := names[rnd.IntN(len(names))]
			n := o.nodes[id]
			n.slots, n.down = rnd.IntN(4), rnd.IntN(3) == 0
			o.look(id)
			if err := s.SetNode(Node{ID: id, Slots: n.slots, Down: n.down}); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		for _, r := range all {
			if r.real != r.state {

				t.Fatalf("event %d: request %d (nodes %v) is %q, want %q", event, r.id, r.nodes, r.real, r.state)
			}
		}
		if snap := s.Snapshot(); snap.Queued != len(o.waiting) {
			t.Fatalf("event %d: %d requests wait, want %d", event, snap.Queued, len(o.waiting))
		}
	}

	for r := pick(running); r != nil; r = pick(running) {
		finish(r)
		synctest.Wait()
	}
	for _, r := range all {
		r.cancel()
	}
	synctest.Wait()
	wantIdle(t, s)
}
