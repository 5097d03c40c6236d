package sim

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/sluice-kms/sluice/scheduler"
)

// server is what a workload drives: the scheduler, or a pool in its place.
type server interface {
	Do(ctx context.Context, f scheduler.Flow, work func(node string)) (time.Duration, error)
}

var (
	errFull    = errors.New("the queue is full")
	errLate    = errors.New("the wait is over")
	errLimited = errors.New("over the limit")
)

// maxQueue is the bound of every queue, the scheduler's too.
const maxQueue = 1024

// pool is a bounded queue before the slots of nodes. Its rule says which of
// those who wait is next.
type pool struct {
	mu      sync.Mutex
	rule    rule
	free    map[string]int
	waiting []*waiter
	running map[[16]byte]int
}

type waiter struct {
	scheduler.Flow
	since   time.Time
	granted chan string
}

// rule picks the next of waiting, which is in order of arrival and not empty.
type rule interface{ next(p *pool) int }

func newPool(nodes []scheduler.Node, r rule) *pool {
	p := &pool{rule: r, free: make(map[string]int), running: make(map[[16]byte]int)}
	for _, n := range nodes {
		p.free[n.ID] = n.Slots
	}
	return p
}

func (p *pool) Do(ctx context.Context, f scheduler.Flow, work func(string)) (time.Duration, error) {
	w := &waiter{Flow: f, since: time.Now(), granted: make(chan string, 1)}
	p.mu.Lock()
	if len(p.waiting) >= maxQueue {
		p.mu.Unlock()
		return 0, errFull
	}
	p.waiting = append(p.waiting, w)
	p.start()
	p.mu.Unlock()
	late := time.NewTimer(f.MaxWait)
	defer late.Stop()
	select {
	case node := <-w.granted:
		return p.serve(w, node, work), nil
	case <-ctx.Done():
	case <-late.C:
	}
	p.mu.Lock()
	i := slices.Index(p.waiting, w)
	if i >= 0 {
		p.waiting = slices.Delete(p.waiting, i, i+1)
	}
	p.mu.Unlock()
	if i >= 0 {
		return time.Since(w.since), errLate
	}
	return p.serve(w, <-w.granted, work), nil
}

func (p *pool) serve(w *waiter, node string, work func(string)) time.Duration {
	wait := time.Since(w.since)
	work(node)
	p.mu.Lock()
	p.free[node]++
	p.running[w.Tenant]--
	p.start()
	p.mu.Unlock()
	return wait
}

func (p *pool) start() {
	for len(p.waiting) > 0 {
		i := p.rule.next(p)
		w := p.waiting[i]
		at := slices.IndexFunc(w.Nodes, func(id string) bool { return p.free[id] > 0 })
		if at < 0 {
			return
		}
		p.waiting = slices.Delete(p.waiting, i, i+1)
		p.free[w.Nodes[at]]--
		p.running[w.Tenant]++
		w.granted <- w.Nodes[at]
	}
}

// set changes a node's slots, as the scheduler's SetNode does.
func (p *pool) set(n scheduler.Node, before int) {
	p.mu.Lock()
	p.free[n.ID] += n.Slots - before
	p.start()
	p.mu.Unlock()
}

// firstCome is the pool of sessions that a PKCS#11 wrapper has.
type firstCome struct{}

func (firstCome) next(*pool) int { return 0 }

// inFlight serves the tenant with the least work in flight for its weight.
type inFlight struct{}

func (inFlight) next(p *pool) int {
	best := 0
	for i, w := range p.waiting {
		b := p.waiting[best]
		if p.running[w.Tenant]*int(b.Weight) < p.running[b.Tenant]*int(w.Weight) {
			best = i
		}
	}
	return best
}

// strict serves the highest class, and inside it gives each tenant its
// weight's number of requests in a round. With promote set, whoever waited
// longer than that goes before all of them: the literal "aging".
type strict struct {
	promote time.Duration
	turns   map[[16]byte]float64 // requests served ÷ weight
}

func newStrict(promote time.Duration) *strict {
	return &strict{promote: promote, turns: make(map[[16]byte]float64)}
}

func (s *strict) next(p *pool) int {
	best := 0
	if s.promote == 0 || time.Since(p.waiting[0].since) < s.promote {
		for i, w := range p.waiting {
			b := p.waiting[best]
			if w.Class < b.Class || w.Class == b.Class && s.turns[w.Tenant] < s.turns[b.Tenant] {
				best = i
			}
		}
	}
	w := p.waiting[best]
	if p.anyFree(w.Nodes) {
		s.turns[w.Tenant] += 1 / float64(w.Weight)
	}
	return best
}

func (p *pool) anyFree(nodes []string) bool {
	return slices.ContainsFunc(nodes, func(id string) bool { return p.free[id] > 0 })
}

// limiter refuses what is above a tenant's rate, request by request, before a
// pool that is first come, first served. The rates share out capacity by
// weight, in requests of the mean size.
type limiter struct {
	*pool
	rate  func(f *scheduler.Flow) float64 // requests/s
	mu    sync.Mutex
	ready map[[16]byte]time.Time // when the bucket is full again
}

func newLimiter(p *pool, rate func(*scheduler.Flow) float64) *limiter {
	return &limiter{pool: p, rate: rate, ready: make(map[[16]byte]time.Time)}
}

func (l *limiter) Do(ctx context.Context, f scheduler.Flow, work func(string)) (time.Duration, error) {
	rate := l.rate(&f)
	l.mu.Lock()
	now := time.Now()
	full := l.ready[f.Tenant]
	if full.Before(now) {
		full = now
	}
	full = full.Add(time.Duration(float64(time.Second) / rate))
	if full.Sub(now) > 100*time.Millisecond { // the burst: a tenth of a second
		l.mu.Unlock()
		return 0, errLimited
	}
	l.ready[f.Tenant] = full
	l.mu.Unlock()
	return l.pool.Do(ctx, f, work)
}

// mClock serves first who has got less than what is reserved for it, and then
// by tags that grow by cost ÷ weight (Gulati, Merchant, Varman 2010; without
// the upper limit). The reserved rate is half of the share. Costs are those
// known on arrival, and what work really took does not correct them.
type mClock struct {
	weights  float64 // of all tenants
	slots    float64
	reserved map[[16]byte]time.Duration // of the next request, since start
	tags     map[[16]byte]float64
	clock    float64
	start    time.Time
}

func newMClock(w workload) *mClock {
	m := &mClock{reserved: make(map[[16]byte]time.Duration), tags: make(map[[16]byte]float64), start: time.Now()}
	for _, who := range w.tenants {
		m.weights += float64(who.weight)
	}
	for _, n := range w.nodes {
		m.slots += float64(n.Slots)
	}
	return m
}

func (m *mClock) next(p *pool) int {
	now := time.Since(m.start)
	best, early := -1, -1
	for i, w := range p.waiting {
		if m.reserved[w.Tenant] <= now && (early < 0 || m.reserved[w.Tenant] < m.reserved[p.waiting[early].Tenant]) {
			early = i
		}
		if best < 0 || m.tags[w.Tenant] < m.tags[p.waiting[best].Tenant] {
			best = i
		}
	}
	if early >= 0 {
		best = early
	}
	w := p.waiting[best]
	if p.anyFree(w.Nodes) {
		m.clock = max(m.clock, m.tags[w.Tenant])
		cost := w.Prior.Seconds() / float64(w.Weight)
		m.tags[w.Tenant] = max(m.tags[w.Tenant], m.clock) + cost
		rate := m.slots / m.weights / 2 // slots per weight
		m.reserved[w.Tenant] = max(m.reserved[w.Tenant], now-100*time.Millisecond) + time.Duration(cost/rate*float64(time.Second))
	}
	return best
}
