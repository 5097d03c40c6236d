package sim

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-kms/sluice/bench/plot"
	"github.com/sluice-kms/sluice/quota"
	"github.com/sluice-kms/sluice/quota/inmem"
	"github.com/sluice-kms/sluice/scheduler"
)

// The pool of the capacity runs: an HSM that does 500 operations/s.
const (
	capacitySlots   = 4
	capacityService = 8 * time.Millisecond
	capacityLoad    = 0.7 // of all slots: below the safe line
	capacityTenants = 100
)

// pointSeconds is how long a run is in simulated time: enough for a P99.
const pointSeconds = 1

// point is what one size of the system does.
type point struct {
	APINodes, HSMNodes, Tenants int
	Served                      float64 // operations/s
	OfOffered                   float64
	P50, P99                    float64 // wait for a slot, in ms
	// Decision is the processor time of the machine that runs the simulator for
	// each operation, in µs, that of the simulator itself included.
	Decision float64
	// Over is by how much the slots that all API nodes may use are more than the
	// HSMs have, at the end.
	Over float64
}

// capacity plays an open load, spread evenly over tenants and API nodes, on
// schedulers that share the HSM nodes' slots.
func capacity(t *testing.T, apiNodes, hsmNodes, tenants int) point {
	p := point{APINodes: apiNodes, HSMNodes: hsmNodes, Tenants: tenants}
	var waits []time.Duration
	asked := 0
	began := processorTime(t)
	synctest.Test(t, func(t *testing.T) {
		c := newCapacity(apiNodes, hsmNodes)
		defer c.close()
		waits, asked = c.play(tenants)
		p.Over = c.granted()/float64(hsmNodes*capacitySlots) - 1
	})
	p.Decision = (processorTime(t) - began).Seconds() * 1e6 / float64(max(1, asked))
	if slices.Sort(waits); len(waits) > 0 {
		p.P50, p.P99 = waits[len(waits)/2].Seconds()*1000, waits[len(waits)*99/100].Seconds()*1000
	}
	p.Served = float64(len(waits)) / pointSeconds
	p.OfOffered = float64(len(waits)) / float64(max(1, asked))
	return p
}

func processorTime(t *testing.T) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// cluster is API nodes before HSM nodes that they share.
type cluster struct {
	schedulers []*scheduler.Scheduler
	names      []string
	engines    []chan struct{} // of each HSM node: what it does at once
	stop       context.CancelFunc
	sharing    sync.WaitGroup

	mu    sync.Mutex // guards the rest
	parts map[string]int
}

func newCapacity(apiNodes, hsmNodes int) *cluster {
	c := &cluster{parts: make(map[string]int)}
	var nodes []scheduler.Node
	for i := range hsmNodes {
		id := fmt.Sprint("hsm-", i)
		c.names = append(c.names, id)
		nodes = append(nodes, scheduler.Node{ID: id, Domain: domainOf(i), Slots: max(1, capacitySlots/apiNodes)})
		c.engines = append(c.engines, make(chan struct{}, capacitySlots))
	}
	ctx, stop := context.WithCancel(context.Background())
	c.stop = stop
	store := inmem.New(time.Now)
	for i := range apiNodes {
		s, err := scheduler.New(nodes, scheduler.Options{MaxQueue: maxQueue})
		if err != nil {
			panic(err)
		}
		c.schedulers = append(c.schedulers, s)
		if apiNodes > 1 {
			c.share(ctx, store, i)
		}
	}
	return c
}

// share runs the product's slot sharing for an API node.
func (c *cluster) share(ctx context.Context, store quota.Backing, i int) {
	policies, err := quota.NewPolicies(time.Now, 1, quota.DefaultPolicy())
	if err != nil {
		panic(err)
	}
	s := c.schedulers[i]
	sharing := &quota.SlotSharing{
		Backing: store, Policies: policies, Clock: time.Now, Node: fmt.Sprint("api-", i), Epoch: uint64(i) + 1,
		Demands: func() (all []quota.NodeDemand) {
			for _, d := range s.Demands() {
				all = append(all, quota.NodeDemand{Token: d.ID, Slots: capacitySlots, Busy: d.Busy, Wanted: d.Busy + d.Waiting, Weight: d.Weight})
			}
			return all
		},
		Apply: func(token string, n int) {
			c.mu.Lock()
			c.parts[fmt.Sprint(i, " ", token)] = n
			c.mu.Unlock()
			if err := s.SetNode(scheduler.Node{ID: token, Domain: domainOf(slices.Index(c.names, token)), Slots: n}); err != nil {
				panic(err)
			}
		},
		Failed: func(err error) {
			if err != nil {
				panic(err)
			}
		},
	}
	c.sharing.Go(func() { sharing.Run(ctx) })
}

func (c *cluster) close() {
	c.stop()
	c.sharing.Wait()
}

// granted is how many slots all API nodes may use together.
func (c *cluster) granted() (total float64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.parts) == 0 { // one API node, which has all
		return float64(len(c.names) * capacitySlots)
	}
	for _, n := range c.parts {
		total += float64(n)
	}
	return total
}

// play sends requests at random times and returns the waits of those that were
// served, and how many there were.
func (c *cluster) play(tenants int) (waits []time.Duration, asked int) {
	rnd := rand.New(rand.NewPCG(1, 2))
	rate := capacityLoad * float64(len(c.names)*capacitySlots) / capacityService.Seconds()
	start := time.Now()
	var all sync.WaitGroup
	for next := time.Duration(0); ; {
		next += time.Duration(rnd.ExpFloat64() / rate * float64(time.Second))
		if next >= pointSeconds*time.Second {
			break
		}
		time.Sleep(next - time.Since(start))
		asked++
		tenant, api, home := rnd.IntN(tenants), rnd.IntN(len(c.schedulers)), rnd.IntN(len(c.names))
		all.Go(func() {
			if c.request(c.schedulers[api], tenant, home) {
				wait := time.Since(start) - next - capacityService
				c.mu.Lock()
				waits = append(waits, wait)
				c.mu.Unlock()
			}
		})
	}
	all.Wait()
	return waits, asked
}

// domainNodes is how many HSM nodes a domain has: the scheduler takes 64.
const domainNodes = 50

func domainOf(node int) string { return fmt.Sprint("domain-", node/domainNodes) }

// choices is how many nodes a request can go to: its key's home, and the next.
const choices = 3

func (c *cluster) request(s *scheduler.Scheduler, tenant, home int) bool {
	f := scheduler.Flow{Tenant: [16]byte{byte(tenant), byte(tenant >> 8), 1}, Weight: 1000, Class: scheduler.High, MaxWait: 2 * time.Second,
		Op: scheduler.Op{Algorithm: 1}, Prior: capacityService}
	first := home / domainNodes * domainNodes
	size := min(domainNodes, len(c.names)-first)
	for k := range min(choices, size) {
		f.Nodes = append(f.Nodes, c.names[first+(home-first+k)%size])
	}
	_, err := s.Do(context.Background(), f, func(node string) {
		engine := c.engines[slices.Index(c.names, node)]
		engine <- struct{}{} // where API nodes send more than it can do, the HSM queues
		time.Sleep(capacityService)
		<-engine
	})
	return err == nil
}

// TestCapacity says how the service grows. In its short form it checks that more
// HSM nodes and more tenants cost no throughput; with -sim.out it writes the page.
func TestCapacity(t *testing.T) {
	long := *out != ""
	hsmNodes, tenants, apiNodes := []int{1, 4}, []int{10, 1000}, []int{1, 4}
	if long {
		hsmNodes, tenants, apiNodes = []int{1, 4, 16, 64, 100}, []int{10, 100, 1_000, 10_000}, []int{1, 4, 16, 64, 100, 300, 1_000}
	}
	r := capacityReport{Slots: capacitySlots, ServiceMS: capacityService.Seconds() * 1000, Load: capacityLoad}
	for _, n := range hsmNodes {
		r.HSMNodes = append(r.HSMNodes, capacity(t, 1, n, capacityTenants))
	}
	for _, n := range tenants {
		r.Tenants = append(r.Tenants, capacity(t, 1, 16, n))
	}
	for _, n := range apiNodes {
		began := time.Now()
		r.APINodes = append(r.APINodes, capacity(t, n, apiPool(n), capacityTenants))
		t.Logf("%d API nodes took %v", n, time.Since(began).Round(time.Millisecond))
	}
	t.Logf("\n%s", r.markdown())
	for _, p := range slices.Concat(r.HSMNodes, r.Tenants) {
		if p.OfOffered < 0.999 || p.Served == 0 {
			t.Errorf("%+v: not all that was offered was served", p)
		}
	}
	for _, p := range r.APINodes {
		if p.Served == 0 {
			t.Errorf("%+v: nothing was served", p)
		}
	}
	if long {
		if err := r.write(*out); err != nil {
			t.Fatal(err)
		}
	}
}

// apiPool is how many HSM nodes stand behind API nodes: as many as they are, up
// to manyAPINodes. What a store does for the sharing grows with the square of the
// API nodes for each HSM node, so that the largest numbers are simulated with one
// HSM node: each is shared by itself.
func apiPool(apiNodes int) int {
	if apiNodes > manyAPINodes {
		return 1
	}
	return max(4, apiNodes)
}

const manyAPINodes = 100

// capacityReport is all points.
type capacityReport struct {
	Slots     int
	ServiceMS float64
	Load      float64
	HSMNodes  []point
	Tenants   []point
	APINodes  []point
}

func (r *capacityReport) markdown() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "Each HSM node runs %d operations at once of %.0f ms each; %.0f %% of all slots are asked for, at random times.\n", r.Slots, r.ServiceMS, 100*r.Load)
	for _, s := range []struct {
		title  string
		points []point
	}{{"HSM nodes, one API node, 100 tenants", r.HSMNodes}, {"Tenants, one API node, 16 HSM nodes", r.Tenants}, {"API nodes that share the HSM nodes, 100 tenants", r.APINodes}} {
		fmt.Fprintf(&b, "\n### %s\n\n| API nodes | HSM nodes | tenants | served/s | of what was offered | wait P50 ms | wait P99 ms | processor µs an operation | slots granted beyond those there are |\n|---|---|---|---|---|---|---|---|---|\n", s.title)
		for _, p := range s.points {
			fmt.Fprintf(&b, "| %d | %d | %d | %.0f | %.2f %% | %.2f | %.2f | %.1f | %.0f %% |\n", p.APINodes, p.HSMNodes, p.Tenants, p.Served, 100*p.OfOffered, p.P50, p.P99, p.Decision, 100*max(0, p.Over))
		}
	}
	return b.Bytes()
}

func (r *capacityReport) write(folder string) error {
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	var chart plot.Lines
	chart.Title, chart.XAxis, chart.YAxis, chart.LogX, chart.LogY = "Throughput over HSM nodes, simulated", "HSM nodes", "operations/s", true, true
	served := plot.Series{Name: "served"}
	for _, p := range r.HSMNodes {
		served.X, served.Y = append(served.X, float64(p.HSMNodes)), append(served.Y, p.Served)
	}
	chart.Series = []plot.Series{served}
	svg, err := chart.SVG()
	if err != nil {
		return err
	}
	page := "# Capacity, simulated\n\nWritten by `make sim-capacity`; [capacity.json](capacity.json) has the figures.\n\n![throughput over HSM nodes](capacity.svg)\n\n" + strings.TrimSpace(string(r.markdown())) + "\n"
	for name, content := range map[string][]byte{"capacity.json": append(data, '\n'), "capacity.md": []byte(page), "capacity.svg": svg} {
		if err := os.WriteFile(filepath.Join(folder, name), content, 0o644); err != nil {
			return err
		}
	}
	return nil
}
