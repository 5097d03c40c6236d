package quotatest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
	"github.com/sluice-kms/sluice/quota"
)

// Cluster is a number of engines that share a tenant's limits through a
// backing. Its time is that of the package time: real, or a bubble's.
type Cluster struct {
	Engines []*quota.Engine
	Tenant  *kms.Tenant
	limits  *quota.TierLimits
	stop    []context.CancelFunc
	running sync.WaitGroup
}

// NewCluster starts n engines under a policy. open returns the backing of a
// node.
func NewCluster(t testing.TB, n int, p *quota.Policy, tier kms.Tier, open func(node int) quota.Backing) *Cluster {
	t.Helper()
	c := &Cluster{Tenant: &kms.Tenant{ID: uuid.New(), Tier: tier}, limits: p.Tiers[tier]}
	for i := range n {
		policies, err := quota.NewPolicies(time.Now, 1, p)
		if err != nil {
			t.Fatal(err)
		}
		e := quota.NewEngine(quota.Options{
			Policies: policies, Clock: time.Now, Backing: open(i), Node: fmt.Sprintf("node-%d", i),
		})
		ctx, cancel := context.WithCancel(context.Background())
		c.Engines, c.stop = append(c.Engines, e), append(c.stop, cancel)
		c.running.Go(func() { e.Run(ctx) })
	}
	return c
}

// Close ends all engines' exchanges.
func (c *Cluster) Close() {
	for _, stop := range c.stop {
		stop()
	}
	c.running.Wait()
}

// Load is what is asked of a cluster: requests a second at each node, by the
// time since the load began.
type Load func(node int, at time.Duration) float64

// Skewed is a load of which most goes to one node, another one every shift.
func Skewed(perSecond float64, shift time.Duration) Load {
	parts := [...]float64{0.7, 0.2, 0.08, 0.02}
	return func(node int, at time.Duration) float64 {
		return perSecond * parts[(node+int(at/shift))%len(parts)]
	}
}

// bin is how finely what was admitted is counted.
const bin = 100 * time.Millisecond

// Record is what a load led to.
type Record struct {
	began    time.Time
	Offered  int
	Admitted []int64 // micro-credits per bin
	Ideal    []int64 // what one bucket for all would have admitted of the same requests, per bin
	Reasons  map[string]int

	level float64 // of that bucket, in micro-credits; empty at first
	last  time.Duration
}

// Drive puts a load on the cluster for a time, with requests of a cost in
// credits, each settled at once.
func (c *Cluster) Drive(t testing.TB, load Load, credits int, duration time.Duration) *Record {
	t.Helper()
	r := &Record{began: time.Now(), Reasons: make(map[string]int)}
	owed := make([]float64, len(c.Engines))
	last := time.Duration(0)
	for last < duration {
		time.Sleep(time.Millisecond) // a beat of the load, not a wait for anything
		at := time.Since(r.began)
		for i, e := range c.Engines {
			for owed[i] += load(i, at) * (at - last).Seconds(); owed[i] >= 1; owed[i]-- {
				c.request(t, e, credits, r)
			}
		}
		last = at
	}
	return r
}

func (c *Cluster) request(t testing.TB, e *quota.Engine, credits int, r *Record) {
	r.Offered++
	c.ideal(r, float64(credits)*float64(kms.Credit))
	request := kms.AdmitRequest{
		RequestID: uuid.NewV7(), Principal: &kms.Principal{Tenant: c.Tenant}, Op: kms.OpEncrypt, Spec: kms.SpecSM4, Bytes: credits * 4096,
	}
	reservation, err := e.Admit(&request)
	if err != nil {
		refusal, ok := err.(*kms.Error)
		if !ok || len(refusal.Reasons) == 0 {
			t.Fatalf("refused without reasons: %v", err)
		}
		for _, reason := range refusal.Reasons {
			r.Reasons[reason.Code]++
		}
		return
	}
	e.Settle(reservation, kms.Settlement{State: kms.Settled, Charged: reservation.Cost, SlotTime: time.Microsecond})
	count(&r.Admitted, time.Since(r.began), int64(reservation.Cost))
}

// ideal puts a request to the one bucket.
func (c *Cluster) ideal(r *Record, cost float64) {
	at := time.Since(r.began)
	perSecond, burst := float64(c.limits.CreditsPerSecond*int64(kms.Credit)), float64(c.limits.BurstCredits*int64(kms.Credit))
	if n := c.limits.RequestsPerSecond; n > 0 {
		perSecond, burst = min(perSecond, float64(n)*cost), min(burst, float64(c.limits.BurstRequests)*cost)
	}
	r.level = min(r.level+(at-r.last).Seconds()*perSecond, burst)
	r.last = at
	if r.level >= cost {
		r.level -= cost
		count(&r.Ideal, at, int64(cost))
	}
}

func count(bins *[]int64, at time.Duration, n int64) {
	for len(*bins) <= int(at/bin) {
		*bins = append(*bins, 0)
	}
	(*bins)[at/bin] += n
}

// Between returns the credits admitted in a span of time.
func (r *Record) Between(from, to time.Duration) float64 { return between(r.Admitted, from, to) }

func between(bins []int64, from, to time.Duration) float64 {
	var sum int64
	for i, n := range bins {
		if at := time.Duration(i) * bin; at >= from && at < to {
			sum += n
		}
	}
	return float64(sum) / float64(kms.Credit)
}

// Overshoot returns by how much the most of any second of a span passes the
// limit, or where a machine that stood still made requests come in a lump, what
// one bucket would have admitted of them.
func (r *Record) Overshoot(from, to time.Duration, perSecond float64) (most float64) {
	for at := from; at+time.Second <= to; at += bin {
		most = max(most, r.Between(at, at+time.Second)/max(perSecond, between(r.Ideal, at, at+time.Second)))
	}
	return most
}

// Least returns the fewest credits that were admitted in any second of a span.
func (r *Record) Least(from, to time.Duration) float64 {
	least := r.Between(from, from+time.Second)
	for at := from; at+time.Second <= to; at += bin {
		least = min(least, r.Between(at, at+time.Second))
	}
	return least
}
