package scheduler

import (
	"context"
	"runtime"
	"testing"
)

// nodeID stands for a caller's own type of node names.
type nodeID string

// doTyped is how a package with its own types calls Do.
func doTyped(ctx context.Context, s *Scheduler, nodes []nodeID, work func(nodeID)) error {
	var room [8]string
	names := room[:0]
	for _, n := range nodes {
		names = append(names, string(n))
	}
	_, err := s.Do(ctx, on(names...), func(n string) { work(nodeID(n)) })
	return err
}

func TestUncontendedDoAllocatesNothing(t *testing.T) {
	s := newScheduler(t, Options{}, Node{ID: "a", Slots: 4}, Node{ID: "b", Slots: 4})
	ctx := t.Context()
	flow := on("a", "b")
	ran := 0
	if got := testing.AllocsPerRun(1000, func() { s.Do(ctx, flow, func(string) { ran++ }) }); got != 0 {
		t.Errorf("%v allocations per Do", got)
	}
	nodes := []nodeID{"a", "b"}
	if got := testing.AllocsPerRun(1000, func() { doTyped(ctx, s, nodes, func(nodeID) { ran++ }) }); got != 0 {
		t.Errorf("%v allocations per Do through a caller's types", got)
	}
	if ran == 0 {
		t.Error("nothing ran")
	}
}

func BenchmarkUncontended(b *testing.B) {
	s := newScheduler(b, Options{}, Node{ID: "a", Slots: 4}, Node{ID: "b", Slots: 4})
	flow := on("a", "b")
	ctx := b.Context()
	b.ReportAllocs()
	for b.Loop() {
		s.Do(ctx, flow, func(string) {})
	}
}

func BenchmarkQueued(b *testing.B) {
	s := newScheduler(b, Options{}, Node{ID: "a", Slots: 1}, Node{ID: "b", Slots: 1})
	flow := on("a", "b")
	b.SetParallelism(32)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			// Yielding the processor while holding the slot makes others queue.
			if _, err := s.Do(b.Context(), flow, func(string) { runtime.Gosched() }); err != nil {
				b.Error(err)
			}
		}
	})
}
