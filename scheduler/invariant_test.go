package scheduler

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// check finds what must hold between two events: that every sum is the sum of
// its parts, that every heap is in order and holds who belongs there, and that
// no slot is free beside a request that may use it.
func (d *domain) check() error {
	var queued, running, present int
	var weight, pressing, backlog int64
	for id, t := range d.tenants {
		if t.id != id {
			return fmt.Errorf("tenant %v is kept as %v", t.id, id)
		}
		n, work := 0, int64(0)
		for _, b := range t.branches {
			if b.isEmpty() {
				return fmt.Errorf("tenant %v keeps an empty branch", id)
			}
			if err := d.checkBranch(b); err != nil {
				return err
			}
			for u := range b.queues {
				last := uint64(0)
				for r := b.queues[u].head; r != nil; r = r.next {
					if r.order < last || r.queue != &b.queues[u] || int(r.urgency) != u {
						return fmt.Errorf("request %d is out of place", r.order)
					}
					last = r.order
					n++
					work += r.estimate
				}
			}
		}
		if n != t.queued || work != t.backlog {
			return fmt.Errorf("tenant %v has %d waiting of %d ns, counted %d and %d", id, n, work, t.queued, t.backlog)
		}
		queued += n
		backlog += work
		running += t.running
		if t.presence == active || t.presence == resting {
			weight += t.weight
		}
		if t.presence != owing {
			present++
		}
		if n > 1 {
			pressing += t.weight
		}
		if (t.presence == active) != (t.queued > 0 || t.running > 0) {
			return fmt.Errorf("tenant %v has %d waiting, %d running and presence %d", id, t.queued, t.running, t.presence)
		}
	}
	got := [...]int64{int64(d.queued), int64(d.busy), int64(d.present), d.activeWeight, d.pressingWeight, d.backlog}
	want := [...]int64{int64(queued), int64(running), int64(present), weight, pressing, backlog}
	if got != want {
		return fmt.Errorf("queued, busy, present, weights, backlog are %v, counted %v", want, got)
	}
	return d.checkIdle()
}

func (d *domain) checkBranch(b *branch) error {
	var want [buckets]bool
	for u := range b.queues {
		q := &b.queues[u]
		if q.head != nil && !b.tenant.isParked {
			want[bucketOf(rankFor(b.tenant.class[u], b.tenant.over), q.head.big)] = true
		}
		if (q.head != nil && !d.aging.off) != (q.duePos >= 0) {
			return fmt.Errorf("a queue is in the aging heap: %v", q.duePos >= 0)
		}
	}
	for k, p := range b.pos {
		if (p >= 0) != want[k] {
			return fmt.Errorf("tenant %v is in bucket %d: %v", b.tenant.id, k, p >= 0)
		}
		if p < 0 {
			continue
		}
		h := b.route.heaps[k]
		if h[p].item != b || h[p].key != b.tenant.tag || p > 0 && h[p].before(&h[(p-1)/children]) {
			return fmt.Errorf("bucket %d is out of order at %d", k, p)
		}
	}
	return nil
}

// checkIdle tells of a slot that is free for no reason.
func (d *domain) checkIdle() error {
	for _, n := range d.members(d.known) {
		if q, _ := d.pick(n, d.allowed(n)); q != nil && !d.entranceEmpty() {
			return fmt.Errorf("a slot of %s is free and request %d waits", n.id, q.head.order)
		}
	}
	return nil
}

// TestInvariantsHoldWhateverHappens makes requests, ends, cancellations and
// changes of nodes at random and looks at everything after each.
func TestInvariantsHoldWhateverHappens(t *testing.T) {
	variants := map[string]Options{
		"defaults":    {MaxQueue: 200},
		"no affinity": {MaxQueue: 200, NoAffinity: true},
		"hard cap":    {MaxQueue: 200, CapMode: CapHard},
		"entrance":    {MaxQueue: 200, EntranceRate: 3.5},
		"bare":        {MaxQueue: 200, GateOff: true, CapMode: CapOff, AgingOff: true},
	}
	for name, o := range variants {
		for seed := range uint64(10) {
			t.Run(fmt.Sprintf("%s, seed %d", name, seed), func(t *testing.T) { churn(t, seed, o, 3000) })
		}
	}
}

func churn(t *testing.T, seed uint64, o Options, events int) {
	names := []string{"a", "b", "c", "d"}
	w := newWorld(t, seed, o, Node{ID: "a", Slots: 4}, Node{ID: "b", Slots: 2}, Node{ID: "c", Slots: 1}, Node{ID: "d", Slots: 3})
	rnd := w.rnd
	w.ended = func(j *job) {
		sum := time.Duration(0)
		for _, part := range j.why.Waits {
			sum += part.For
		}
		wait := j.started - j.arrived
		if j.node == "" {
			wait = j.ended - j.arrived
		}
		if sum != wait {
			t.Fatalf("reasons of %v for a wait of %v: %+v", sum, wait, j.why.Waits)
		}
	}
	for range events {
		switch k := rnd.IntN(100); {
		case k < 70:
			w.submit(randomJob(rnd, names))
		case k < 80:
			w.cancelOne()
		case k < 82:
			w.set(Node{ID: names[rnd.IntN(4)], Slots: rnd.IntN(6), Down: rnd.IntN(4) == 0})
		case k < 83:
			w.s.RemoveNode(names[rnd.IntN(4)])
			w.granted()
		}
		for _, d := range w.s.domains {
			if err := d.check(); err != nil {
				t.Fatal(err)
			}
		}
		w.run(w.now + time.Duration(rnd.ExpFloat64()*float64(500*time.Microsecond)))
		if rnd.IntN(200) == 0 {
			w.run(w.now + time.Duration(rnd.IntN(15))*time.Second)
		}
	}
	for _, id := range names {
		w.set(Node{ID: id, Slots: 2})
	}
	w.run(w.now + 2*time.Hour)
	wantIdle(t, w.s)
	if len(w.jobs) != 0 {
		t.Errorf("%d requests never ended", len(w.jobs))
	}
	for _, d := range w.s.domains {
		if err := d.check(); err != nil {
			t.Fatal(err)
		}
		if d.present != 0 && len(d.tenants) > 12 {
			t.Errorf("%d tenants are remembered", len(d.tenants))
		}
	}
}

func randomJob(rnd *rand.Rand, names []string) *job {
	j := &job{size: time.Duration(rnd.ExpFloat64() * float64(3*time.Millisecond))}
	if rnd.IntN(20) == 0 {
		j.size *= 20
	}
	j.Op.Algorithm = uint16(rnd.IntN(4))
	j.Tenant, j.Weight = tenantID(rnd.IntN(12)), uint32(1+rnd.IntN(3000))
	j.Class, j.Urgency = Class(rnd.IntN(classes)), Urgency(rnd.IntN(urgencies))
	j.MaxWait = time.Duration(rnd.IntN(int(3 * time.Second)))
	j.Nodes = slices.Clone(names)
	rnd.Shuffle(len(j.Nodes), func(a, b int) { j.Nodes[a], j.Nodes[b] = j.Nodes[b], j.Nodes[a] })
	j.Nodes = j.Nodes[:1+rnd.IntN(4)]
	return j
}

// cancelOne gives up the request that waits longest.
func (w *world) cancelOne() {
	var oldest *request
	for r := range w.jobs {
		if oldest == nil || r.order < oldest.order {
			oldest = r
		}
	}
	if oldest != nil {
		w.giveUp(oldest)
	}
}

// No number that a caller may give, and no age of the process, breaks the sums.
func TestExtremeNumbersOverflowNothing(t *testing.T) {
	w := newWorld(t, 1, Options{EntranceRate: MaxSlots, MaxQueue: 1 << 20}, Node{ID: "a", Slots: MaxSlots - 1}, Node{ID: "b", Slots: 1})
	for round := range 50 {
		for i, weight := range []uint32{1, 1000, math.MaxUint32} {
			j := &job{size: []time.Duration{0, time.Hour, 100 * time.Hour}[w.rnd.IntN(3)]}
			j.Tenant, j.Weight, j.Nodes = tenantID(i), weight, []string{"b", "a"}[:1+w.rnd.IntN(2)]
			j.MaxWait = []time.Duration{time.Second, math.MaxInt64}[w.rnd.IntN(2)]
			j.Prior = []time.Duration{1, time.Second, math.MaxInt64}[w.rnd.IntN(3)]
			if j.MaxWait == math.MaxInt64 {
				j.size = 0 // the test's own clock would overflow
			}
			w.submit(j)
			if j.MaxWait == math.MaxInt64 && j.err != nil && !errors.Is(j.err, ErrWaitTooLong) {
				t.Errorf("round %d: %v", round, j.err)
			}
			for _, d := range w.s.domains {
				if err := d.check(); err != nil {
					t.Fatal(err)
				}
				if d.clock < 0 || d.clock > rebaseAt+1<<61 {
					t.Fatalf("the clock is at %d", d.clock)
				}
			}
		}
		w.run(w.now + time.Duration(w.rnd.IntN(1000))*time.Hour)
	}
}
