package scheduler

import (
	"fmt"
	"syscall"
	"testing"
	"time"
)

// stage is a saturated scheduler whose clock and requests are moved by hand:
// flows tenants with one request waiting each.
type stage struct {
	s       *Scheduler
	now     time.Duration
	running []*request
	flow    Flow
	turn    int
}

func newStage(t testing.TB, flows, nodes int) *stage {
	g := &stage{flow: Flow{MaxWait: time.Hour, Prior: 100 * time.Microsecond}}
	base := time.Unix(0, 0)
	var list []Node
	for i := range nodes {
		id := fmt.Sprint("node", i)
		list = append(list, Node{ID: id, Slots: 16 / nodes})
		g.flow.Nodes = append(g.flow.Nodes, id)
	}
	g.s = newScheduler(t, Options{
		MaxQueue: 1 << 20, Clock: func() time.Time { return base.Add(g.now) },
	}, list...)
	g.s.after = func(*domain, time.Duration) {}
	g.s.wake = func(r *request) { g.running = append(g.running, r) }
	for g.turn < flows+16 {
		g.turn++
		g.enter(tenantID(g.turn), uint32(200+g.turn%7*1000))
	}
	return g
}

func (g *stage) enter(tenant [16]byte, weight uint32) {
	g.flow.Tenant, g.flow.Weight = tenant, weight
	r, err := g.s.enter(&g.flow, nil)
	if err != nil {
		panic(err)
	}
	if !r.enqueued {
		g.running = append(g.running, r)
	}
}

// step ends one request, which starts another, whose tenant makes a new one.
func (g *stage) step() {
	g.now += 10 * time.Microsecond
	ended := g.running[0]
	copy(g.running, g.running[1:])
	g.running = g.running[:len(g.running)-1]
	id, weight := ended.tenant.id, uint32(ended.tenant.weight)
	g.s.finish(ended, nil)
	g.enter(id, weight)
}

func BenchmarkDecision(b *testing.B) {
	for _, nodes := range []int{1, 4} {
		for _, flows := range []int{10, 100, 10_000, 100_000} {
			b.Run(fmt.Sprintf("nodes=%d/flows=%d", nodes, flows), func(b *testing.B) {
				g := newStage(b, flows, nodes)
				b.ReportAllocs()
				began := processorTime(b)
				for b.Loop() {
					g.step()
				}
				b.ReportMetric(float64(processorTime(b)-began)/float64(b.N), "cpu-ns/op")
			})
		}
	}
}

// processorTime is what the process has used of the processors, in ns: what
// counts where the machine has other things to do.
func processorTime(b *testing.B) int64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}

func TestDecisionAllocatesAtMostOnce(t *testing.T) {
	g := newStage(t, 10_000, 4)
	for range 30_000 {
		g.step()
	}
	if got := testing.AllocsPerRun(5000, g.step); got > 1 {
		t.Errorf("%v allocations for enqueue, dispatch and settle", got)
	}
}
