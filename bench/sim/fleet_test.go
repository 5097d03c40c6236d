package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/sluice-kms/sluice/quota"
	"github.com/sluice-kms/sluice/quota/inmem"
	"github.com/sluice-kms/sluice/scheduler"
)

// apiNodes is how many processes share the HSMs in W8.
const apiNodes = 4

// w8Slower makes W8 2,000 requests/s, the rate that the design sizes a pool of
// four nodes for: slots move once in a tenth of a second, and what comes until
// then has to have room in the queue.
const w8Slower = 10

// w8 is load that moves from one API node to the next every second: its slots
// have to follow.
func w8() workload {
	w := workload{name: fmt.Sprintf("W8 8 victims at 60 %% of all slots with operations of %v to %v, all at one of %d API nodes, another one each second",
		w8Slower*unit, w8Slower*12*unit, apiNodes), nodes: one, tenants: victims(8, 0.6)}
	for i := range w.tenants {
		w.tenants[i].rate /= w8Slower
		w.tenants[i].size = func(rnd *rand.Rand, at time.Duration) (time.Duration, uint16) {
			size, op := small(rnd, at)
			return w8Slower * size, op
		}
	}
	fixed := func(name string, build func(workload) server) entry {
		return entry{name, func(w workload) server {
			f := &fleet{start: time.Now()}
			part := w
			part.nodes = []scheduler.Node{{ID: "a", Slots: slots / apiNodes}}
			for range apiNodes {
				f.servers = append(f.servers, build(part))
			}
			return f
		}}
	}
	w.servers = []entry{
		fixed(nameFIFO, func(w workload) server { return newPool(w.nodes, firstCome{}) }),
		fixed(nameFair, newScheduler), // a quarter of the slots each
		{nameOurs, newSharing},
	}
	return w
}

func newScheduler(w workload) server {
	s, err := scheduler.New(w.nodes, scheduler.Options{MaxQueue: maxQueue})
	if err != nil {
		panic(err)
	}
	return s
}

// fleet is several API nodes. All requests go to one of them, another one each
// second.
type fleet struct {
	servers []server
	start   time.Time
	stop    context.CancelFunc
	running sync.WaitGroup
}

func (f *fleet) Do(ctx context.Context, flow scheduler.Flow, work func(string)) (time.Duration, error) {
	at := int(time.Since(f.start)/time.Second) % len(f.servers)
	return f.servers[at].Do(ctx, flow, work)
}

// Close ends the sharing.
func (f *fleet) Close() error {
	if f.stop != nil {
		f.stop()
	}
	f.running.Wait()
	return nil
}

// newSharing has the product's slot sharing between the schedulers.
func newSharing(w workload) server {
	f := &fleet{start: time.Now()}
	ctx, stop := context.WithCancel(context.Background())
	f.stop = stop
	store := inmem.New(time.Now)
	for i := range apiNodes {
		policies, err := quota.NewPolicies(time.Now, 1, quota.DefaultPolicy())
		if err != nil {
			panic(err)
		}
		s := newScheduler(workload{nodes: []scheduler.Node{{ID: "a", Slots: slots / apiNodes}}}).(*scheduler.Scheduler)
		f.servers = append(f.servers, s)
		sharing := &quota.SlotSharing{
			Backing: store, Policies: policies, Clock: time.Now, Node: fmt.Sprint("api-", i), Epoch: uint64(i) + 1,
			Demands: func() (all []quota.NodeDemand) {
				for _, d := range s.Demands() {
					all = append(all, quota.NodeDemand{Token: d.ID, Slots: slots, Busy: d.Busy, Wanted: d.Busy + d.Waiting, Weight: d.Weight})
				}
				return all
			},
			Apply: func(token string, n int) {
				if err := s.SetNode(scheduler.Node{ID: token, Slots: n}); err != nil {
					panic(err)
				}
			},
			Failed: func(err error) {
				if err != nil {
					panic(err)
				}
			},
		}
		f.running.Go(func() { sharing.Run(ctx) })
	}
	return f
}
