package redis

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
	"github.com/sluice-kms/sluice/quota"
	"github.com/sluice-kms/sluice/quota/quotatest"
	"github.com/sluice-kms/sluice/quota/redis/redistest"
)

// long is for how long a load is measured: half a minute in the chaos run.
func long() time.Duration {
	if os.Getenv("SLUICE_CHAOS") == "full" {
		return 30 * time.Second
	}
	return 10 * time.Second
}

// thousand is a policy under which the tenant has 1,000 credits a second, and
// four tenths of it in an emergency.
func thousand() *quota.Policy {
	p := quota.DefaultPolicy()
	l := p.Tiers[kms.TierSilver]
	l.OverdraftCredits, l.RequestsPerSecond, l.BurstRequests = 0, 0, 0
	return p
}

// startCluster starts four engines that share one server.
func startCluster(t *testing.T, s *redistest.Server) *quotatest.Cluster {
	t.Helper()
	c := quotatest.NewCluster(t, 4, thousand(), kms.TierSilver, func(int) quota.Backing { return open(t, s) })
	t.Cleanup(c.Close)
	return c
}

func within(t *testing.T, what string, got, low, high float64) {
	t.Helper()
	if got < low || got > high {
		t.Errorf("%s: %.3f, want %.3f to %.3f", what, got, low, high)
	}
}

var (
	moving     = quotatest.Skewed(2000, 2*time.Second)
	everywhere = func(int, time.Duration) float64 { return 500 }
)

// punctual notes the longest time between the ends of two exchanges of a node.
type punctual struct {
	quota.Backing
	mu   sync.Mutex // guards the rest
	last time.Time
	gap  time.Duration
}

func (p *punctual) Exchange(ctx context.Context, claims []quota.Claim) ([]quota.Grant, error) {
	grants, err := p.Backing.Exchange(ctx, claims)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gap = max(p.gap, time.Since(p.last))
	p.last = time.Now()
	return grants, err
}

// longest returns the longest gap since it was asked last.
func (p *punctual) longest() (gap time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	gap, p.gap = max(p.gap, time.Since(p.last)), 0
	return gap
}

// The bounds are those of exchanges that are on time. When one comes later than
// a lease lasts, because the machine has other things to do, what a node did not
// get meanwhile it gets in a lump afterwards, as a bucket would give it: such a
// run is repeated, and after three of them judged by what holds then too.
func TestFourNodesAdmitTheLimitWithFewCalls(t *testing.T) {
	s := redistest.Start(t)
	var nodes []*punctual
	c := quotatest.NewCluster(t, 4, thousand(), kms.TierSilver, func(int) quota.Backing {
		nodes = append(nodes, &punctual{Backing: open(t, s), last: time.Now()})
		return nodes[len(nodes)-1]
	})
	t.Cleanup(c.Close)
	c.Drive(t, moving, 1, 4*time.Second) // the burst is gone then
	lease := time.Duration(thousand().Leases.PeriodMs) * time.Millisecond
	low, high, most, runs := 0.98, 1.02, 1.15, 3
	for run := 1; ; run++ {
		for _, node := range nodes {
			node.longest()
		}
		calls := s.Scripts()
		r := c.Drive(t, moving, 1, long())
		calls = s.Scripts() - calls
		var gap time.Duration
		for _, node := range nodes {
			gap = max(gap, node.longest())
		}
		late := gap > lease
		admitted, peak := r.Between(0, long())/1000/long().Seconds(), r.Overshoot(0, long(), 1000)
		t.Logf("admitted %.4f of the limit, peak second %.3f, least %.3f; %d requests and %d calls, %.0f to one; longest gap %v",
			admitted, peak, r.Least(0, long())/1000, r.Offered, calls, float64(r.Offered)/float64(calls), gap)
		within(t, "requests to a call", float64(r.Offered)/float64(calls), 40, 1e9)
		if late && run < runs {
			continue
		}
		if late {
			low, high, most = 0.9, 1.1, 1.5
		}
		within(t, "admitted", admitted, low, high)
		within(t, "peak second", peak, 0.9, most)
		return
	}
}

// A server that hangs, in the middle of an exchange too: leases go on, then
// the emergency part; when it goes on, so does the limit.
func TestRedisPaused(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	c := startCluster(t, s)
	c.Drive(t, everywhere, 1, 4*time.Second)
	s.Signal(syscall.SIGSTOP)
	away := c.Drive(t, everywhere, 1, 8*time.Second)
	s.Signal(syscall.SIGCONT)
	c.Drive(t, everywhere, 1, 8*time.Second) // what was used too much is paid back
	back := c.Drive(t, everywhere, 1, long())
	t.Logf("paused: %.3f in the first 2 s, then %.3f, least second %.3f; after it %.3f",
		away.Between(0, 2*time.Second)/2000, away.Between(3*time.Second, 8*time.Second)/5000, away.Least(3*time.Second, 8*time.Second)/1000,
		back.Between(0, long())/1000/long().Seconds())
	within(t, "the first seconds", away.Between(0, 2*time.Second)/2000, 0.8, 1.15)
	within(t, "paused", away.Between(3*time.Second, 8*time.Second)/5000, 0.3, 0.6)
	within(t, "least second", away.Least(3*time.Second, 8*time.Second)/1000, 0.2, 1)
	within(t, "after it", back.Between(0, long())/1000/long().Seconds(), 0.97, 1.03)
	for _, e := range c.Engines {
		if err := e.Shared(); err != nil {
			t.Errorf("after it: %v", err)
		}
	}
}

// A server that is killed loses everything: nobody is freed by it, and the
// engines find the next one by themselves.
func TestRedisKilledAndStartedEmpty(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	c := startCluster(t, s)
	c.Drive(t, everywhere, 1, 4*time.Second)
	s.End()
	away := c.Drive(t, everywhere, 1, 6*time.Second)
	s.Restart()
	c.Drive(t, everywhere, 1, 6*time.Second)
	back := c.Drive(t, everywhere, 1, long())
	t.Logf("killed: %.3f in the first 2 s, then %.3f; after it %.3f", away.Between(0, 2*time.Second)/2000,
		away.Between(3*time.Second, 6*time.Second)/3000, back.Between(0, long())/1000/long().Seconds())
	within(t, "the first seconds", away.Between(0, 2*time.Second)/2000, 0.8, 1.15)
	within(t, "killed", away.Between(3*time.Second, 6*time.Second)/3000, 0.3, 0.6)
	within(t, "after it", back.Between(0, long())/1000/long().Seconds(), 0.97, 1.03)
}

func TestRedisFlushed(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	c := startCluster(t, s)
	c.Drive(t, everywhere, 1, 4*time.Second)
	s.Do("FLUSHALL")
	r := c.Drive(t, everywhere, 1, 8*time.Second)
	t.Logf("flushed: %.3f in 8 s, of which the first %.3f", r.Between(0, 8*time.Second)/8000, r.Between(0, time.Second)/1000)
	// Half of the bucket of 3,000, and a tick of what was lent.
	within(t, "flushed", r.Between(0, 8*time.Second)/8000, 0.98, 1.02+1750.0/8000)
}

// A master that dies is followed by its replica: leases, and then the emergency
// part, bridge the time until the Sentinel has made it the master, and nobody
// restarts anything. What the replica did not have yet frees nobody.
func TestRedisFailsOver(t *testing.T) {
	t.Parallel()
	master := redistest.Start(t)
	replica := redistest.Start(t, "--replicaof", "127.0.0.1 "+strconv.Itoa(master.Port))
	eventually(t, "the replica follows", func() bool { return strings.Contains(replica.Do("INFO", "replication"), "master_link_status:up") })
	sentinel := redistest.Sentinel(t, "limits", master, time.Second)
	eventually(t, "the Sentinel knows the replica", func() bool {
		return strings.Contains(sentinel.Do("SENTINEL", "REPLICAS", "limits"), strconv.Itoa(replica.Port))
	})
	c := quotatest.NewCluster(t, 4, thousand(), kms.TierSilver, func(int) quota.Backing {
		store, err := Open(context.Background(), Config{Addresses: []string{sentinel.Address()}, Master: "limits", Dial: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { store.Close() })
		return store
	})
	t.Cleanup(c.Close)
	c.Drive(t, everywhere, 1, 4*time.Second)
	master.End()
	over := c.Drive(t, everywhere, 1, 10*time.Second)
	c.Drive(t, everywhere, 1, 4*time.Second)
	back := c.Drive(t, everywhere, 1, long())
	t.Logf("failed over: %.3f in 10 s, least second %.3f; after it %.3f",
		over.Between(0, 10*time.Second)/10_000, over.Least(0, 10*time.Second)/1000, back.Between(0, long())/1000/long().Seconds())
	if role := replica.Do("ROLE"); !strings.HasPrefix(role, "[master") {
		t.Fatalf("the replica was not promoted: %s", role)
	}
	within(t, "failed over", over.Between(0, 10*time.Second)/10_000, 0.6, 1.1)
	within(t, "least second", over.Least(0, 10*time.Second)/1000, 0.2, 1.1)
	within(t, "after it", back.Between(0, long())/1000/long().Seconds(), 0.97, 1.03)
	for _, e := range c.Engines {
		if err := e.Shared(); err != nil {
			t.Errorf("after it: %v", err)
		}
	}
}

// What a node holds when it leaves is there for the others at once.
func TestNodeThatLeavesGivesBackWhatItHas(t *testing.T) {
	s := redistest.Start(t)
	store := open(t, s)
	c := quotatest.NewCluster(t, 1, thousand(), kms.TierSilver, func(int) quota.Backing { return store })
	c.Drive(t, func(int, time.Duration) float64 { return 600 }, 1, 2*time.Second)
	c.Close()
	// No tick of a lease, no slot and no chunk of the day is left with it.
	g, err := store.Exchange(context.Background(), []quota.Claim{{
		Tenant: c.Tenant.ID, Node: "other", Epoch: 1, Sequence: 1, PeriodMs: 250, SlotsMs: 3000, Lines: []quota.LineClaim{
			{Name: "t.s", Kind: quota.SlotLine, Limit: 64, Ask: 64},
			{Name: "t.m", Kind: quota.TotalLine, Limit: 500_000_000_000, Window: monthNow()},
		},
	}})
	if err != nil {
		t.Fatal(err)
	}
	a, _ := c.Engines[0].Accounts(c.Tenant.ID)
	if slots, allocated := g[0].Lines[0].Tokens, g[0].Lines[1].Allocated; slots != 64 || allocated-int64(a.MonthUsed)/quota.Grain > 500_000_000_000/64 {
		t.Errorf("%d of 64 slots are free; of the month %d are allocated, %d used", slots, allocated, a.MonthUsed/quota.Grain)
	}
}

func monthNow() int64 {
	y, m, _ := time.Now().UTC().Add(-5 * time.Minute).Date()
	return int64(y)*12 + int64(m)
}

// Three masters, each with a part of the tenants.
func TestRedisCluster(t *testing.T) {
	var servers []*redistest.Server
	var addresses []string
	for range 3 {
		s := redistest.Start(t, "--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf")
		servers, addresses = append(servers, s), append(addresses, s.Address())
	}
	const slots = 16384
	for i, s := range servers {
		s.Do("CLUSTER", "ADDSLOTSRANGE", i*slots/3, (i+1)*slots/3-1)
		if i > 0 {
			s.Do("CLUSTER", "MEET", "127.0.0.1", servers[0].Port)
		}
	}
	eventually(t, "the cluster is up", func() bool {
		for _, s := range servers {
			if !strings.Contains(s.Do("CLUSTER", "INFO"), "cluster_state:ok") {
				return false
			}
		}
		return true
	})
	store, err := Open(context.Background(), Config{Addresses: addresses, Cluster: true, Dial: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	var claims []quota.Claim
	for i := range 100 {
		claims = append(claims, quota.Claim{
			Tenant: uuid.New(), Node: "a", Epoch: 1, Sequence: uint64(i) + 1, PeriodMs: 250, SlotsMs: 3000, Lines: []quota.LineClaim{
				{Name: "t.e", Kind: quota.TotalLine, Limit: 1_000_000, Window: 1, Ask: int64(i), Head: int64(i)},
				{Name: "t.c", Kind: quota.RateLine, Limit: 3000, PerSecond: 1000, Ask: 3000},
			},
		})
	}
	grants, err := store.Exchange(context.Background(), claims)
	if err != nil {
		t.Fatal(err)
	}
	for i, g := range grants {
		if g.Lines[0].Tokens != int64(i) || g.Lines[1].Tokens != 1500 {
			t.Errorf("claim %d: %+v", i, g)
		}
	}
	for i, s := range servers {
		if s.Scripts() == 0 {
			t.Errorf("server %d has no tenants", i)
		}
	}
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(redistest.Patience); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(fmt.Sprint("not in time: ", what))
		}
	}
}
