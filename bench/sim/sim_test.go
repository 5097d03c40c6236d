package sim

import (
	"context"
	"errors"
	"flag"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-kms/sluice/kms"
	"github.com/sluice-kms/sluice/scheduler"
)

var (
	seconds = flag.Int("sim.seconds", 1, "simulated seconds of each run; from 2 on all workloads are run")
	out     = flag.String("sim.out", "", "folder for the report, its data and its charts; \"\": none")
)

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
	obeys   bool                                                           // waits as long as it is told to after a refusal
	home    func(rnd *rand.Rand) int                                       // of the key of a request, a node; nil: any
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
	servers []entry                                     // nil: servers()
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
	slowPart   float64 // work of the last node, of another's
	estimate   float64 // median error of the expected wait, of those who waited for longWait; 0: none is made
	home       float64 // part that ran on the node which it prefers
	explains   bool    // the server tells where requests ran
	obeyed     float64 // part of the first repetitions by who obeys that were served
}

// tally is what one tenant got.
type tally struct {
	latencies []time.Duration
	longest   time.Duration
	slotTime  time.Duration
	served    int
	refused   int
	estimates []float64 // |expected ÷ waited − 1|
	away      int

	firstRepeats, firstServed int
}

// play runs a workload against a server in a bubble of its own.
func play(t *testing.T, w workload, name string, build func(w workload) server, seed uint64) row {
	var tallies []tally
	var perNode map[string]int
	total := time.Duration(*seconds) * time.Second
	synctest.Test(t, func(t *testing.T) {
		r := &run{workload: w, server: build(w), start: time.Now(), total: total, tallies: make([]tally, len(w.tenants)), perNode: make(map[string]int)}
		if w.lose != "" {
			r.all.Go(r.loseNode)
		}
		for i := range w.tenants {
			r.all.Go(func() { r.drive(i, rand.New(rand.NewPCG(seed, uint64(i)))) })
		}
		r.all.Wait()
		if c, ok := r.server.(io.Closer); ok {
			c.Close()
		}
		tallies, perNode = r.tallies, r.perNode
	})
	result := summarise(w, name, tallies, total)
	if last := len(w.nodes) - 1; last > 0 {
		others := 0.0
		for _, n := range w.nodes[:last] {
			others += float64(perNode[n.ID]) / float64(last)
		}
		result.slowPart = float64(perNode[w.nodes[last].ID]) / max(1, others)
	}
	return result
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
	perNode map[string]int // requests that ran
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
				r.client(i, own)
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

// client sends one request after the other until the run ends.
func (r *run) client(i int, rnd *rand.Rand) {
	repeats := 0 // of the present request
	for r.at() < r.total {
		err := r.request(i, rnd, r.at())
		if repeats == 1 && r.tenants[i].obeys {
			r.repeated(i, err == nil)
		}
		if repeats++; err == nil {
			repeats = 0
			continue
		}
		pause := 10 * time.Millisecond // not at once again
		if r.tenants[i].obeys {
			pause = time.Second
			if told, ok := errors.AsType[*kms.Error](err); ok && told.RetryAfter > 0 {
				pause = told.RetryAfter
			}
			pause += time.Duration(rnd.Int64N(int64(50 * time.Millisecond))) // the way there
		}
		time.Sleep(pause)
	}
}

func (r *run) repeated(i int, served bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tallies[i].firstRepeats++
	if served {
		r.tallies[i].firstServed++
	}
}

// request makes one and returns why it was not served.
func (r *run) request(i int, rnd *rand.Rand, intended time.Duration) error {
	who := &r.tenants[i]
	size, op := who.size(rnd, intended)
	f := scheduler.Flow{
		Tenant: [16]byte{byte(i), byte(i >> 8), 1}, Weight: who.weight, Class: who.class, Urgency: who.urgency,
		MaxWait: who.maxWait, Op: scheduler.Op{Algorithm: op}, Prior: size,
	}
	at := rnd.IntN(len(r.nodes))
	if who.home != nil {
		at = who.home(rnd)
	}
	var why scheduler.Explanation
	f.Explain = &why
	for k := range r.nodes {
		f.Nodes = append(f.Nodes, r.nodes[(at+k)%len(r.nodes)].ID)
	}
	var began, ended time.Duration
	var ranOn string
	wait, err := r.server.Do(context.Background(), f, func(node string) {
		began = r.at()
		if r.slow != nil {
			size = time.Duration(float64(size) * r.slow(node, began))
		}
		time.Sleep(size)
		ended = r.at()
		ranOn = node
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	y := &r.tallies[i]
	r.perNode[ranOn]++
	y.slotTime += max(0, min(ended, r.total)-max(began, r.warm()))
	if intended < r.warm() {
		return err
	}
	if err != nil {
		y.refused++
		return err
	}
	y.served++
	y.latencies = append(y.latencies, ended-intended)
	y.longest = max(y.longest, wait)
	if why.Away {
		y.away++
	}
	if why.Estimate > 0 && wait >= longWait {
		y.estimates = append(y.estimates, math.Abs(why.Estimate.Seconds()/wait.Seconds()-1))
	}
	return nil
}

// longWait is from what wait on its estimate is held against it: whoever waits
// for a few operations is not refused for it, and is told nothing of it.
const longWait = 10 * time.Millisecond

func summarise(w workload, name string, tallies []tally, total time.Duration) row {
	r := row{server: name}
	var latencies []time.Duration
	var slotTime, sum, square float64
	weights, got, refused, asked, n := 0.0, 0.0, 0, 0, 0.0
	var estimates []float64
	away, repeats, obeyed := 0, 0, 0
	for i, y := range tallies {
		who := w.tenants[i]
		slotTime += y.slotTime.Seconds()
		r.longest = max(r.longest, y.longest)
		r.served += y.served
		estimates, away = append(estimates, y.estimates...), away+y.away
		repeats, obeyed = repeats+y.firstRepeats, obeyed+y.firstServed
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
	if slices.Sort(estimates); len(estimates) > 0 {
		r.estimate = estimates[len(estimates)/2]
	}
	r.explains = len(estimates) > 0
	r.home = 1 - float64(away)/max(1, float64(r.served))
	r.obeyed = float64(obeyed) / max(1, float64(repeats))
	r.used = slotTime / (float64(slots) * total.Seconds() * 0.9)
	r.refused = float64(refused) / max(1, float64(asked))
	return r
}
