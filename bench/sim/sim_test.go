package sim

import (
	"context"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-kms/sluice/scheduler"
)

var seconds = flag.Int("sim.seconds", 1, "simulated seconds of each run; from 2 on all workloads are run")

// kind says what a tenant stands for, and so how it is looked at.
type kind int

const (
	victim kind = iota // its latency counts
	greedy             // always has more to do: its share counts
	other
)

// tenant is who sends, and what.
type tenant struct {
	kind
	weight  uint32
	class   scheduler.Class
	urgency scheduler.Urgency
	rate    float64 // requests/s that come by themselves; 0: closed
	clients int     // of a closed load
	on, off time.Duration
	maxWait time.Duration
	size    func(rnd *rand.Rand, at time.Duration) (time.Duration, uint16) // slot time and kind of operation
}

// workload is tenants before nodes, and what happens to the nodes.
type workload struct {
	name    string
	nodes   []scheduler.Node
	tenants []tenant
	slow    func(node string, at time.Duration) float64 // factor of slot time
	lose    string                                      // the node that goes down
	loseAt  float64                                     // after this part of the run
}

// row is what one server made of a workload.
type row struct {
	server     string
	p50, p99   time.Duration // of the victims' latency
	longest    time.Duration // wait of anybody who was served
	shareError float64       // largest of the greedy tenants
	jain       float64
	used       float64 // part of the slots
	refused    float64 // part of the victims' requests
	served     int
}

// tally is what one tenant got.
type tally struct {
	latencies []time.Duration
	longest   time.Duration
	slotTime  time.Duration
	served    int
	refused   int
}

// play runs a workload against a server in a bubble of its own.
func play(t *testing.T, w workload, name string, build func(w workload) server, seed uint64) row {
	var tallies []tally
	total := time.Duration(*seconds) * time.Second
	synctest.Test(t, func(t *testing.T) {
		r := &run{workload: w, server: build(w), start: time.Now(), total: total, tallies: make([]tally, len(w.tenants)), down: make(map[string]bool)}
		if w.lose != "" {
			r.all.Go(r.loseNode)
		}
		for i := range w.tenants {
			r.all.Go(func() { r.drive(i, rand.New(rand.NewPCG(seed, uint64(i)))) })
		}
		r.all.Wait()
		tallies = r.tallies
	})
	return summarise(w, name, tallies, total)
}

// run is a workload that plays.
type run struct {
	workload
	server  server
	start   time.Time
	total   time.Duration
	all     sync.WaitGroup
	mu      sync.Mutex
	tallies []tally
	down    map[string]bool
}

func (r *run) at() time.Duration { return time.Since(r.start) }

// warm is the part of a run that is not looked at.
func (r *run) warm() time.Duration { return r.total / 10 }

func (r *run) loseNode() {
	time.Sleep(time.Duration(r.loseAt * float64(r.total)))
	for _, n := range r.nodes {
		if n.ID != r.lose {
			continue
		}
		switch s := r.server.(type) {
		case *scheduler.Scheduler:
			n.Down = true
			s.SetNode(n)
		case interface{ set(scheduler.Node, int) }:
			before := n.Slots
			n.Slots = 0
			s.set(n, before)
		}
	}
}

func (r *run) drive(i int, rnd *rand.Rand) {
	who := r.tenants[i]
	if who.rate == 0 {
		for range who.clients {
			own := rand.New(rand.NewPCG(rnd.Uint64(), 1))
			r.all.Go(func() {
				for r.at() < r.total {
					if !r.request(i, own, r.at()) {
						time.Sleep(10 * time.Millisecond) // refused: not at once again
					}
				}
			})
		}
		return
	}
	for next := time.Duration(0); ; {
		next += time.Duration(rnd.ExpFloat64() / who.rate * float64(time.Second))
		if who.on > 0 { // time stands still while it is off
			period := who.on + who.off
			if phase := next % period; phase >= who.on {
				next += period - phase
			}
		}
		if next >= r.total {
			return
		}
		time.Sleep(next - r.at())
		own := rand.New(rand.NewPCG(rnd.Uint64(), 2))
		r.all.Go(func() { r.request(i, own, next) })
	}
}

// request makes one and reports whether it was served.
func (r *run) request(i int, rnd *rand.Rand, intended time.Duration) bool {
	who := &r.tenants[i]
	size, op := who.size(rnd, intended)
	f := scheduler.Flow{
		Tenant: [16]byte{byte(i), byte(i >> 8), 1}, Weight: who.weight, Class: who.class, Urgency: who.urgency,
		MaxWait: who.maxWait, Op: scheduler.Op{Algorithm: op}, Prior: size,
	}
	at := rnd.IntN(len(r.nodes))
	for k := range r.nodes {
		f.Nodes = append(f.Nodes, r.nodes[(at+k)%len(r.nodes)].ID)
	}
	var began, ended time.Duration
	wait, err := r.server.Do(context.Background(), f, func(node string) {
		began = r.at()
		if r.slow != nil {
			size = time.Duration(float64(size) * r.slow(node, began))
		}
		time.Sleep(size)
		ended = r.at()
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	y := &r.tallies[i]
	y.slotTime += max(0, min(ended, r.total)-max(began, r.warm()))
	if intended < r.warm() {
		return err == nil
	}
	if err != nil {
		y.refused++
		return false
	}
	y.served++
	y.latencies = append(y.latencies, ended-intended)
	y.longest = max(y.longest, wait)
	return true
}

func summarise(w workload, name string, tallies []tally, total time.Duration) row {
	r := row{server: name}
	var latencies []time.Duration
	var slotTime, sum, square float64
	weights, got, refused, asked, n := 0.0, 0.0, 0, 0, 0.0
	for i, y := range tallies {
		who := w.tenants[i]
		slotTime += y.slotTime.Seconds()
		r.longest = max(r.longest, y.longest)
		r.served += y.served
		if who.kind == victim {
			latencies = append(latencies, y.latencies...)
			refused, asked = refused+y.refused, asked+y.refused+y.served
		}
		if who.kind == greedy {
			weights += float64(who.weight)
			got += y.slotTime.Seconds()
			x := y.slotTime.Seconds() / float64(who.weight)
			sum, square, n = sum+x, square+x*x, n+1
		}
	}
	for i, y := range tallies {
		if w.tenants[i].kind == greedy && got > 0 {
			r.shareError = max(r.shareError, math.Abs(y.slotTime.Seconds()/got/(float64(w.tenants[i].weight)/weights)-1))
		}
	}
	if square > 0 {
		r.jain = sum * sum / n / square
	}
	if slices.Sort(latencies); len(latencies) > 0 {
		r.p50, r.p99 = latencies[len(latencies)/2], latencies[len(latencies)*99/100]
	}
	slots := 0
	for _, node := range w.nodes {
		slots += node.Slots
	}
	r.used = slotTime / (float64(slots) * total.Seconds() * 0.9)
	r.refused = float64(refused) / max(1, float64(asked))
	return r
}

// table prints the rows of a workload; alone is the victims' P99 without the
// others.
func table(w workload, rows []row, alone time.Duration) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n%s\n%-26s %9s %9s %8s %10s %8s %7s %6s %8s %8s\n", w.name,
		"", "P50", "P99", "× alone", "max wait", "share ±", "Jain", "used", "refused", "served")
	for _, r := range rows {
		ratio := "–"
		if alone > 0 && r.p99 > 0 {
			ratio = fmt.Sprintf("%.2f", r.p99.Seconds()/alone.Seconds())
		}
		fmt.Fprintf(&b, "%-26s %9s %9s %8s %10s %7.2f%% %7.4f %5.1f%% %7.2f%% %8d\n", r.server,
			r.p50.Round(10*time.Microsecond), r.p99.Round(10*time.Microsecond), ratio, r.longest.Round(100*time.Microsecond),
			100*r.shareError, r.jain, 100*r.used, 100*r.refused, r.served)
	}
	return b.String()
}
