package quota

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"slices"
	"sync/atomic"
	"time"
)

// exchange claims shares for an engine: all tenants that were used since the
// last tick in one go, a few times a second.
type exchange struct {
	engine  *Engine
	backing Backing
	node    string
	epoch   uint64
	early   chan struct{} // asks for an exchange before the next tick

	sequence atomic.Uint64
	nodes    atomic.Int64 // as a grant told last
	answered atomic.Int64 // ns of the engine's clock: when the store was heard of last
	failure  atomic.Pointer[error]
}

// tenantShare is what a tenant's claims need to know.
type tenantShare struct {
	active  []*scope // to claim for
	listed  bool     // is in the shard's list
	claimed int64    // ns of the last claim
	nodes   int64    // as its last grant told; 0: no grant yet
	pending *claim   // sent, not answered yet

	spent  minuteUse // of the day, by all nodes
	rest   int64     // of the day, as told last
	restOf int64     // the day's number
}

// claim is a claim with where its answer goes.
type claim struct {
	Claim
	tenant *tenant
	lines  []claimLine
	sent   int64 // ns
}

// claimLine is where the answer to a line goes: one of the three.
type claimLine struct {
	scope  *scope
	bucket *bucket
	rate   *rateLease
	total  *totalLease
	window int64
	slots  *slotLease
	grain  int64
}

// maxScopes bounds the scopes of one claim, so that a tenant with many keys
// does not hold up the store for others; the rest has its turn next.
const maxScopes = 64

// idleTicks is after how many ticks without use a scope gives back what it has.
const idleTicks = 5

// minGap is the least time between two exchanges that requests ask for.
const minGap = 5 * time.Millisecond

// NewEpoch makes the epoch of a process, which no other has had: of 52 bits, so
// that a double holds it.
func NewEpoch() uint64 {
	var epoch [8]byte
	rand.Read(epoch[:])
	return binary.BigEndian.Uint64(epoch[:]) >> 12
}

func newExchange(e *Engine, b Backing, node string) *exchange {
	x := &exchange{engine: e, backing: b, node: node, epoch: NewEpoch(), early: make(chan struct{}, 1)}
	x.nodes.Store(1)
	return x
}

// kick asks for an exchange before the next tick.
func (x *exchange) kick() {
	select {
	case x.early <- struct{}{}:
	default:
	}
}

// away tells whether the store has not been heard of for so long that
// emergency limits hold.
func (x *exchange) away(now int64) bool {
	return x.failure.Load() != nil && now-x.answered.Load() >= x.engine.policies.Current().leases.down
}

// nodesOf returns how many nodes share a tenant, as far as is known.
func (x *exchange) nodesOf(t *tenant) int64 {
	if t.share != nil && t.share.nodes > 0 {
		return t.share.nodes
	}
	return x.nodes.Load()
}

// touch notes that a scope is used. The shard's lock is held.
func (x *exchange) touch(s *engineShard, sc *scope) {
	l, t := sc.lease, sc.owner
	l.touched = true
	if l.listed {
		return
	}
	l.listed = true
	if t.share == nil {
		t.share = new(tenantShare)
	}
	t.share.active = append(t.share.active, sc)
	if !t.share.listed {
		t.share.listed = true
		s.active = append(s.active, t)
	}
}

// Run exchanges shares with the other nodes until ctx ends, and then gives
// back what is not used. Without a Backing it returns at once.
func (e *Engine) Run(ctx context.Context) {
	x := e.shared
	if x == nil {
		return
	}
	tick := time.NewTimer(0)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			x.leave(context.WithoutCancel(ctx))
			return
		case <-tick.C:
		case <-x.early:
			if x.failure.Load() != nil {
				continue // a store that is away is asked at the ticks only
			}
			tick.Reset(minGap) // several ask for the same
			select {
			case <-ctx.Done():
				continue
			case <-tick.C:
			}
		}
		rules := e.policies.Current().leases
		x.round(ctx, rules, false)
		tick.Reset(time.Duration(rules.tick))
	}
}

// leave gives back what this node holds, once: a store that does not answer
// has it back when the leases end.
func (x *exchange) leave(ctx context.Context) {
	rules := x.engine.policies.Current().leases
	x.round(ctx, rules, false) // what is pending
	x.round(ctx, rules, true)
}

// round sends the claims that are due and takes their grants.
func (x *exchange) round(ctx context.Context, rules leaseRules, leaving bool) {
	claims := x.collect(rules, leaving)
	if len(claims) == 0 {
		x.heard(nil)
		return
	}
	sent := make([]Claim, len(claims))
	for i, c := range claims {
		sent[i] = c.Claim
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(rules.period))
	defer cancel()
	grants, err := x.backing.Exchange(ctx, sent)
	if err == nil {
		err = fits(grants, claims)
	}
	if err != nil {
		x.heard(fmt.Errorf("share limits: %w", err))
		return
	}
	x.heard(nil)
	for i, c := range claims {
		x.take(c, grants[i], rules)
	}
}

// fits tells whether the grants answer the claims: with others the store counts
// as away.
func fits(grants []Grant, claims []*claim) error {
	if len(grants) != len(claims) {
		return fmt.Errorf("%d grants for %d claims", len(grants), len(claims))
	}
	for i := range grants {
		if got, want := len(grants[i].Lines), len(claims[i].Lines); got != want {
			return fmt.Errorf("a grant of %d lines for a claim of %d", got, want)
		}
	}
	return nil
}

// heard notes how an exchange ended.
func (x *exchange) heard(err error) {
	if err != nil {
		x.failure.Store(&err)
		return
	}
	x.answered.Store(int64(x.engine.clock().Sub(x.engine.start)))
	x.failure.Store(nil)
}

// Shared returns nil while this node hears of the others, and else why not.
func (e *Engine) Shared() error {
	if e.shared == nil {
		return nil
	}
	if err := e.shared.failure.Load(); err != nil {
		return *err
	}
	return nil
}

// collect makes the claims of all tenants in use. Those that were not answered
// are sent again as they were.
func (x *exchange) collect(rules leaseRules, leaving bool) []*claim {
	var claims []*claim
	for i := range x.engine.shards {
		s := &x.engine.shards[i]
		s.mu.Lock()
		now := x.engine.nowLocked(s)
		s.active = slices.DeleteFunc(s.active, func(t *tenant) bool {
			if t.share.pending == nil {
				x.engine.advance(t, now)
				t.share.pending = x.claim(t, now, rules, leaving)
			}
			if t.share.pending != nil {
				claims = append(claims, t.share.pending)
				return false
			}
			t.share.listed = len(t.share.active) > 0
			return !t.share.listed
		})
		s.mu.Unlock()
	}
	return claims
}

// claim makes a tenant's claim, nil when there is nothing to tell.
func (x *exchange) claim(t *tenant, now instant, rules leaseRules, leaving bool) *claim {
	share := t.share
	c := &claim{tenant: t, sent: now.ns}
	passed := max(now.ns-share.claimed, int64(minGap))
	turn := min(len(share.active), maxScopes)
	share.active = slices.Concat(share.active[turn:], slices.DeleteFunc(share.active[:turn:turn], func(sc *scope) bool {
		l := sc.lease
		if l.touched {
			l.touched, l.idle = false, 0
		} else {
			l.idle++
		}
		waits := l.refused > 0 && now.ns-l.refused < headWait
		if !waits {
			l.forgetHeads()
		}
		idle := leaving || l.idle >= idleTicks && sc.inFlight == 0 && !waits
		if l.idle > 0 && !idle && sc.inFlight == 0 {
			return false // nothing new to tell
		}
		x.engine.fill(sc, now.ns)
		x.claimScope(c, sc, now, passed, idle)
		l.listed = !idle
		return idle
	}))
	if len(c.Lines) == 0 {
		return nil
	}
	share.claimed = now.ns
	c.Claim = Claim{
		Tenant: t.id, Node: x.node, Epoch: x.epoch, Sequence: x.sequence.Add(1),
		PeriodMs: rules.period / int64(time.Millisecond), SlotsMs: rules.slots / int64(time.Millisecond), Lines: c.Lines,
	}
	return c
}

// claimScope adds the lines of a scope.
func (x *exchange) claimScope(c *claim, sc *scope, now instant, passed int64, idle bool) {
	l, t := sc.lease, sc.owner
	span := x.engine.load.current.Load()
	if r := sc.rate(sc.step(now.ns)); r.perSecond > 0 {
		line := LineClaim{Name: l.name + ".c", Kind: RateLine, Limit: r.burst / Grain, PerSecond: r.perSecond / Grain}
		if sc.kind == tenantScope {
			line.PerSecond = line.PerSecond * span.tiers[t.limits.tier].share / permille
			line.Repay = int64(t.snapshot.repay)
			if !span.above {
				line.Overdraft = r.overdraft / Grain
			}
		}
		line.PerSecond = max(line.PerSecond, 1)
		returned := l.credits.claim(&sc.credits, &line, passed, t.snapshot.leases.period, idle)
		if sc.kind == tenantScope {
			t.granted -= returned
		}
		c.add(line, claimLine{scope: sc, bucket: &sc.credits, rate: &l.credits, grain: Grain})
	}
	if r := sc.limits.requests; r.perSecond > 0 {
		line := LineClaim{Name: l.name + ".r", Kind: RateLine, Limit: r.burst / Grain, PerSecond: r.perSecond / Grain}
		l.requests.claim(&sc.requests, &line, passed, t.snapshot.leases.period, idle)
		c.add(line, claimLine{scope: sc, bucket: &sc.requests, rate: &l.requests, grain: Grain})
	}
	if limit := sc.limits.day; limit > 0 {
		x.claimTotal(c, sc, &l.day, LineClaim{Name: l.name + ".d", Limit: limit / Grain}, passed, Grain, idle)
	}
	if limit := sc.limits.concurrency; limit > 0 {
		want := max(l.slots.peak, sc.inFlight)
		line := LineClaim{Name: l.name + ".s", Kind: SlotLine, Limit: limit, Held: sc.inFlight, Ask: min(want+want/4+2, limit)}
		if idle {
			line.Ask = 0
		}
		l.slots.peak = sc.inFlight
		c.add(line, claimLine{scope: sc, slots: &l.slots, grain: 1})
	}
	if sc.kind == tenantScope {
		x.claimTenant(c, t, passed, idle)
	}
}

// claimTenant adds the lines that only tenants have.
func (x *exchange) claimTenant(c *claim, t *tenant, passed int64, idle bool) {
	l, d := t.lease, t.limits.days
	x.claimTotal(c, &t.scope, &l.day, LineClaim{
		Name: "t.e", Limit: d.total / Grain, Pool: d.pool / Grain, Repay: d.repay, Notch: d.notch,
	}, passed, Grain, idle)
	x.claimTotal(c, &t.scope, &l.month, LineClaim{Name: "t.m", Limit: t.limits.month / Grain}, passed, Grain, idle)
	x.claimTotal(c, &t.scope, &l.bandwidth, LineClaim{Name: "t.b", Limit: t.limits.bandwidth}, passed, 1, idle)
	for i := range t.limits.packs {
		if pack := &t.limits.packs[i]; l.packs[pack.id] != nil {
			x.claimTotal(c, &t.scope, l.packs[pack.id], LineClaim{Name: "t.p:" + pack.id, Limit: pack.credits / Grain}, passed, Grain, idle)
		}
	}
}

func (x *exchange) claimTotal(c *claim, sc *scope, l *totalLease, line LineClaim, passed, grain int64, idle bool) {
	line.Kind, line.Window = TotalLine, l.window
	l.claim(&line, passed, grain, x.nodesOf(sc.owner), idle)
	c.add(line, claimLine{scope: sc, total: l, window: l.window, grain: grain})
}

func (c *claim) add(line LineClaim, to claimLine) {
	c.Lines = append(c.Lines, line)
	c.lines = append(c.lines, to)
}

// take gives a grant to the lines that it is for.
func (x *exchange) take(c *claim, g Grant, rules leaseRules) {
	t := c.tenant
	s := x.engine.shardOf(t.id)
	s.mu.Lock()
	defer s.mu.Unlock()
	t.share.pending = nil
	now := x.engine.nowLocked(s)
	t.share.nodes = max(min(g.Nodes, maxNodes), 1)
	x.nodes.Store(t.share.nodes)
	for i, line := range c.lines {
		grant := g.Lines[i].within(&c.Lines[i])
		switch {
		case line.rate != nil:
			x.engine.fill(line.scope, now.ns) // at the rate that held
			granted := line.rate.grant(line.bucket, grant, now.ns, rules)
			if line.scope.kind == tenantScope && line.bucket == &t.credits {
				t.granted += granted
			}
		case line.total != nil:
			line.total.grant(grant, line.window, line.grain)
			if line.total == &t.lease.day {
				t.elastic.pool, t.elastic.lowered = grant.Pool*Grain, grant.Lowered
				t.share.spentOf(line.total, now.ns)
			}
		case line.slots != nil:
			// From when it was asked for, so that it ends here before it
			// ends there.
			line.slots.slots, line.slots.until = grant.Tokens, c.sent+rules.slots*9/10
			if c.Lines[i].Ask == 0 {
				line.slots.until = 0 // it gave all back and is as at first
			}
		}
	}
}
