// Package quotatest has what every quota.Backing must do: a suite of single
// exchanges, and a cluster of engines under load.
package quotatest

import (
	"context"
	"fmt"
	"reflect"
	"testing"
	"uuid"

	"github.com/sluice-kms/sluice/quota"
)

// Times of the suite's claims.
const (
	periodMs = 250
	slotsMs  = 3000
)

// Suite is a backing under test.
type Suite struct {
	// Open returns an empty backing.
	Open func(t *testing.T) quota.Backing
	// Pass lets time go by, on the backing's clock.
	Pass func(t *testing.T, b quota.Backing, ms int64)
	// Flush loses everything that the backing keeps.
	Flush func(t *testing.T, b quota.Backing)
}

// member is a node that claims.
type member struct {
	t        *testing.T
	backing  quota.Backing
	tenant   uuid.UUID
	name     string
	epoch    uint64
	sequence uint64
}

func (m *member) claim(lines ...quota.LineClaim) quota.Claim {
	m.sequence++
	return quota.Claim{
		Tenant: m.tenant, Node: m.name, Epoch: m.epoch, Sequence: m.sequence, PeriodMs: periodMs, SlotsMs: slotsMs, Lines: lines,
	}
}

func (m *member) send(c quota.Claim) quota.Grant {
	m.t.Helper()
	grants, err := m.backing.Exchange(context.Background(), []quota.Claim{c})
	if err != nil {
		m.t.Fatal(err)
	}
	if len(grants) != 1 || len(grants[0].Lines) != len(c.Lines) {
		m.t.Fatalf("%d grants for one claim of %d lines: %+v", len(grants), len(c.Lines), grants)
	}
	return grants[0]
}

func (m *member) exchange(lines ...quota.LineClaim) quota.Grant {
	m.t.Helper()
	return m.send(m.claim(lines...))
}

// bucket is a claim on a bucket of 1,000 grains a second and 3,000 at once.
func bucket(ask, demand int64) quota.LineClaim {
	return quota.LineClaim{Name: "t.c", Kind: quota.RateLine, Limit: 3000, PerSecond: 1000, Repay: 300, Ask: ask, Demand: demand}
}

func day(window, ask int64) quota.LineClaim {
	return quota.LineClaim{
		Name: "t.e", Kind: quota.TotalLine, Limit: 100_000, Pool: 50_000, Repay: 300, Notch: 800,
		Window: window, Ask: ask, Head: ask,
	}
}

func slots(ask, held int64) quota.LineClaim {
	return quota.LineClaim{Name: "t.s", Kind: quota.SlotLine, Limit: 16, Ask: ask, Held: held}
}

// Run runs the suite.
func (s Suite) Run(t *testing.T) {
	tests := []struct {
		name string
		test func(t *testing.T, s Suite, b quota.Backing, nodes []*member)
	}{
		{"a repeated claim gets the same grant and counts once", repeated},
		{"a line that nobody knows has half a bucket", halfABucket},
		{"a rate is shared by demand", sharedByDemand},
		{"a rate that was not used comes back", unusedComesBack},
		{"a request that waits gets what it needs at once", headIsServed},
		{"what is used beyond a lease is paid back", loansArePaidBack},
		{"debt slows the refill down", debtSlowsDown},
		{"a total is never lent out twice", totalIsExact},
		{"a window that is over lends nothing", oldWindow},
		{"days draw on the pool and repay it", poolOverDays},
		{"a store that lost a total takes the nodes' word", flushedTotal},
		{"slots are never lent twice", slotsAreExact},
		{"slots of a dead node come back", slotsOfTheDead},
		{"tenants have nothing to do with each other", tenantsApart},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := s.Open(t)
			tenant := uuid.New()
			var nodes []*member
			for i := range 4 {
				nodes = append(nodes, &member{t: t, backing: b, tenant: tenant, name: fmt.Sprintf("node-%d", i), epoch: uint64(i) + 1})
			}
			tt.test(t, s, b, nodes)
		})
	}
}

func repeated(t *testing.T, s Suite, b quota.Backing, nodes []*member) {
	n := nodes[0]
	c := n.claim(bucket(1000, 0), day(1, 500), slots(4, 0))
	first := n.send(c)
	if first.Lines[0].Tokens != 1000 || first.Lines[1].Tokens != 500 || first.Lines[2].Tokens != 4 {
		t.Fatalf("got %+v", first)
	}
	s.Pass(t, b, 10)
	for range 3 {
		if again := n.send(c); !reflect.DeepEqual(again, first) {
			t.Fatalf("repeated: %+v, first %+v", again, first)
		}
	}
	if next := n.exchange(bucket(0, 0), day(1, 0)); next.Lines[1].Allocated != 500 || next.Lines[0].Left > 600 {
		t.Errorf("repeated claims counted: %+v", next)
	}
	// A claim that the network delivers late: nobody waits for its answer.
	if _, err := b.Exchange(context.Background(), []quota.Claim{c}); err != nil {
		t.Fatal(err)
	}
	if now := n.exchange(day(1, 0)); now.Lines[0].Allocated != 500 {
		t.Errorf("a claim that came late took effect: %+v", now)
	}
	// Another process of the same name begins anew.
	n.epoch, n.sequence = 99, 0
	if fresh := n.exchange(day(1, 100)); fresh.Lines[0].Allocated != 600 {
		t.Errorf("another process: %+v", fresh)
	}
}

func halfABucket(t *testing.T, s Suite, b quota.Backing, nodes []*member) {
	if g := nodes[0].exchange(bucket(3000, 0)); g.Lines[0].Tokens != 1500 || g.Nodes != 1 {
		t.Errorf("at first: %+v", g)
	}
	s.Flush(t, b)
	if g := nodes[1].exchange(bucket(3000, 0)); g.Lines[0].Tokens != 1500 {
		t.Errorf("after all was lost: %+v", g)
	}
}

func sharedByDemand(t *testing.T, s Suite, b quota.Backing, nodes []*member) {
	demands := []int64{4000, 2000, 1000, 1000}
	var rates [4]int64
	for range 8 {
		for i, n := range nodes {
			rates[i] = n.exchange(bucket(1000, demands[i])).Lines[0].PerSecond
		}
		s.Pass(t, b, 100)
	}
	for i, want := range []int64{500, 250, 125, 125} {
		if rates[i] < want*95/100 || rates[i] > want*105/100 {
			t.Errorf("node %d of demand %d has %d a second, want %d", i, demands[i], rates[i], want)
		}
	}
}

// One node alone that asks for more than there is: over any time it gets the
// rate, and what it gave back is not lost.
func unusedComesBack(t *testing.T, s Suite, b quota.Backing, nodes []*member) {
	n := nodes[0]
	n.exchange(bucket(3000, 0)) // empties it
	s.Pass(t, b, 1000)
	g := n.exchange(bucket(0, 2000))
	if g.Lines[0].PerSecond < 990 || g.Lines[0].PerSecond > 1000 {
		t.Fatalf("alone it has %d a second", g.Lines[0].PerSecond)
	}
	line := bucket(3000, 0) // at once: what was lent in advance comes back too
	line.Returned = 500
	if g := n.exchange(line); g.Lines[0].Tokens < 1490 || g.Lines[0].Tokens > 1600 {
		t.Errorf("after a second and 500 given back it gets %d", g.Lines[0].Tokens)
	}
}

// pd#11240: a node with a small part of the demand never had enough for one
// request.
func headIsServed(t *testing.T, s Suite, b quota.Backing, nodes []*member) {
	nodes[0].exchange(bucket(600, 4000)) // of 1,500, and 250 in advance
	if g := nodes[1].exchange(bucket(600, 10)); g.Lines[0].Tokens > 10 {
		t.Errorf("when nothing waits it gets %d by a part of a four-hundredth", g.Lines[0].Tokens)
	}
	line := bucket(600, 10)
	line.Head = 600
	if g := nodes[1].exchange(line); g.Lines[0].Tokens != 600 {
		t.Errorf("it gets %d; 600 are needed and there", g.Lines[0].Tokens)
	}
}

func loansArePaidBack(t *testing.T, s Suite, b quota.Backing, nodes []*member) {
	line := bucket(0, 0)
	line.Extra = 2500
	nodes[0].exchange(line)
	if g := nodes[0].exchange(bucket(1000, 0)); g.Lines[0].Tokens > 50 {
		t.Errorf("in debt it gets %d", g.Lines[0].Tokens)
	}
	s.Pass(t, b, 1500)
	if g := nodes[0].exchange(bucket(1000, 0)); g.Lines[0].Tokens < 490 || g.Lines[0].Tokens > 650 {
		t.Errorf("half a second after it was paid back it gets %d", g.Lines[0].Tokens)
	}
}

func debtSlowsDown(t *testing.T, s Suite, b quota.Backing, nodes []*member) {
	line := bucket(2500, 0)
	line.Overdraft = 1000
	if g := nodes[0].exchange(line); g.Lines[0].Tokens != 2500 {
		t.Fatalf("with an overdraft it gets %d of 1,500 and 1,000", g.Lines[0].Tokens)
	}
	s.Pass(t, b, 1000)
	if g := nodes[0].exchange(bucket(3000, 0)); g.Lines[0].Tokens < 690 || g.Lines[0].Tokens > 780 {
		t.Errorf("a second in debt brings %d, want 700", g.Lines[0].Tokens)
	}
}

func totalIsExact(t *testing.T, _ Suite, _ quota.Backing, nodes []*member) {
	var lent int64
	for i := range 10_000 {
		g := nodes[i%4].exchange(day(1, 700))
		lent += g.Lines[0].Tokens
		if g.Lines[0].Allocated != lent || lent > 150_000 {
			t.Fatalf("%d are lent, the store says %d", lent, g.Lines[0].Allocated)
		}
		if g.Lines[0].Left == 0 {
			break
		}
	}
	if lent != 150_000 {
		t.Errorf("%d of the day and its pool were lent", lent)
	}
}

func oldWindow(t *testing.T, _ Suite, _ quota.Backing, nodes []*member) {
	nodes[0].exchange(day(5, 700))
	if g := nodes[1].exchange(day(4, 700)); g.Lines[0].Tokens != 0 {
		t.Errorf("yesterday lends %d", g.Lines[0].Tokens)
	}
	if g := nodes[0].exchange(day(5, 0)); g.Lines[0].Allocated != 700 {
		t.Errorf("today changed: %+v", g.Lines[0])
	}
}

func poolOverDays(t *testing.T, _ Suite, _ quota.Backing, nodes []*member) {
	n := nodes[0]
	use := func(window, amount int64) quota.LineGrant {
		line := day(window, 0)
		line.Extra = amount
		return n.exchange(line).Lines[0]
	}
	for i, want := range []struct {
		window, use, pool, left int64
		lowered                 bool
	}{
		{1, 90_000, 50_000, 60_000, false},
		{2, 130_000, 20_000, 20_000, false},
		{3, 80_000, 20_000, 20_000, true},
		{4, 30_000, 20_000, 70_000, true},
		{5, 0, 35_000, 115_000, true}, // 30 % of 50,000 came back
		{6, 0, 50_000, 150_000, false},
		{9, 150_000, 0, 0, false},
		{12, 0, 48_000, 128_000, true}, // two days of rest: 30 % of 80,000 each
	} {
		if g := use(want.window, want.use); g.Pool != want.pool || g.Left != want.left || g.Lowered != want.lowered {
			t.Errorf("step %d: %+v, want %+v", i, g, want)
		}
	}
}

func flushedTotal(t *testing.T, s Suite, b quota.Backing, nodes []*member) {
	var known [2]quota.LineGrant
	for range 30 {
		for i := range known {
			known[i] = nodes[i].exchange(day(7, 2000)).Lines[0]
		}
	}
	s.Pass(t, b, 10)
	s.Flush(t, b)
	for i := range known {
		line := day(7, 0)
		line.KnownBorn, line.Known, line.KnownPool, line.KnownLowered = known[i].Born, known[i].Allocated, known[i].Pool, known[i].Lowered
		g := nodes[i].exchange(line).Lines[0]
		if g.Allocated < known[i].Allocated || i == 1 && (g.Allocated != known[1].Allocated || g.Pool != known[1].Pool || g.Left != known[1].Left) {
			t.Errorf("node %d knew %+v, the store says %+v", i, known[i], g)
		}
	}
}

func slotsAreExact(t *testing.T, _ Suite, _ quota.Backing, nodes []*member) {
	var lent [4]int64
	for round := range 50 {
		for i, n := range nodes {
			want := int64((round*7 + i*5) % 20)
			lent[i] = n.exchange(slots(want, min(lent[i], want))).Lines[0].Tokens
			if all := lent[0] + lent[1] + lent[2] + lent[3]; all > 16 {
				t.Fatalf("round %d: %v slots of 16 are lent", round, lent)
			}
		}
	}
	for range 3 {
		for i, n := range nodes {
			lent[i] = n.exchange(slots(16, 0)).Lines[0].Tokens
		}
	}
	if lent != [4]int64{4, 4, 4, 4} {
		t.Errorf("nodes that want all have %v", lent)
	}
}

func slotsOfTheDead(t *testing.T, s Suite, b quota.Backing, nodes []*member) {
	nodes[0].exchange(slots(16, 0))
	if g := nodes[1].exchange(slots(16, 0)); g.Lines[0].Tokens != 0 {
		t.Errorf("slots that are lent are lent again: %d", g.Lines[0].Tokens)
	}
	s.Pass(t, b, slotsMs+100)
	if g := nodes[1].exchange(slots(16, 0)); g.Lines[0].Tokens != 16 || g.Nodes != 1 {
		t.Errorf("after their time %d come back; %d nodes", g.Lines[0].Tokens, g.Nodes)
	}
}

func tenantsApart(t *testing.T, _ Suite, b quota.Backing, nodes []*member) {
	other := &member{t: t, backing: b, tenant: uuid.New(), name: nodes[0].name, epoch: nodes[0].epoch}
	claims := []quota.Claim{nodes[0].claim(day(1, 100)), other.claim(day(1, 200)), nodes[1].claim(day(1, 300))}
	grants, err := b.Exchange(context.Background(), claims)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []int64{100, 200, 400} {
		if got := grants[i].Lines[0].Allocated; got != want {
			t.Errorf("claim %d: %d are allocated, want %d", i, got, want)
		}
	}
}
