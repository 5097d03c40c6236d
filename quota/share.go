package quota

import (
	"context"
	"uuid"
)

// Backing keeps what nodes share of tenants' limits. It is asked a few times a
// second for all tenants that are being used, never on a request's way.
type Backing interface {
	// Exchange takes a node's claims and answers each with a grant, in their
	// order. Each claim takes effect whole or not at all, and once: a claim
	// that is repeated, with its epoch and sequence, gets the same grant
	// again. After an error some may have taken effect: all are repeated.
	Exchange(ctx context.Context, claims []Claim) ([]Grant, error)
}

// Grain is the unit of claims and grants, in micro-credits and micro-requests:
// coarse enough that a month's total is exact in the 53 bits of a double.
// Bytes and slots are claimed in units of one.
const Grain = 1000

// Claim is what a node tells and asks about one tenant.
type Claim struct {
	Tenant   uuid.UUID
	Node     string
	Epoch    uint64 // of the node's process: another one is another holder
	Sequence uint64 // of the claim, from 1
	PeriodMs int64  // for which rates are granted
	SlotsMs  int64  // for which slots are granted
	Lines    []LineClaim
}

// MaxWeight bounds the weight of a claim, so that the weights of a thousand
// nodes times 65,536 slots are exact in the 53 bits of a double.
const MaxWeight = 1 << 26

// MaxDemand bounds the demand of a claim, in rates.
const MaxDemand = 4

// LineKind is what a line of a claim is about.
type LineKind int64

// The kinds.
const (
	RateLine  LineKind = iota // a token bucket
	TotalLine                 // the total of a day, a month, or a pack
	SlotLine                  // concurrency
	NodeLine                  // slots of an HSM node, by weight
)

// LineClaim is a claim on one limit. What the limit is comes with it, so that
// the store knows no policy.
type LineClaim struct {
	Name string // unique in the tenant
	Kind LineKind

	Limit     int64 // rate: burst; total: of the window; slots
	PerSecond int64 // rate
	Overdraft int64 // rate: how deep debt may be; 0 also while the load forbids it
	Repay     int64 // rate: of debt; total: of unused quota; in thousandths
	Window    int64 // total: number of the day or month
	Pool      int64 // total: capacity of the elastic pool
	Notch     int64 // total: what a lowered day has, in thousandths

	Returned int64 // what the node had and no longer needs
	Extra    int64 // what it used beyond its grants
	Ask      int64 // what it wants to hold more; slots: at all
	Head     int64 // cost of the dearest request that could not be served
	Demand   int64 // rate: what is asked of the node a second, at most MaxDemand times the rate
	Held     int64 // slots in use
	Weight   int64 // of a node line: of the tenants whose work it is, at most MaxWeight

	// What the node was told last of a total, by a store that began the line at
	// KnownBorn: it counts when the store has lost the line since. 0: it was
	// told nothing.
	KnownBorn        int64
	Known, KnownPool int64
	KnownLowered     bool
}

// Grant answers a claim.
type Grant struct {
	Nodes int64 // that claimed of this tenant lately
	Lines []LineGrant
}

// LineGrant is what a node is lent of a limit.
type LineGrant struct {
	Tokens    int64 // to use at once; slots: at all, until the time is over
	PerSecond int64 // to use as time passes, until the period is over
	// Of a total: what is allocated in its window to all nodes together, what
	// is left for others, what the pool has, whether the day runs lowered.
	Allocated, Left, Pool int64
	Lowered               bool
	Born                  int64 // ms: when the store began the line
}

// within returns the grant without what was not asked for and cannot be: a
// store that answers nonsense, or was made to, frees nobody.
func (g LineGrant) within(c *LineClaim) LineGrant {
	clamp := func(n, most int64) int64 { return max(min(n, most), 0) }
	tokens := c.Ask
	if c.Kind == NodeLine { // spare slots are given unasked
		tokens = c.Limit
	}
	return LineGrant{
		Tokens: clamp(g.Tokens, tokens), PerSecond: clamp(g.PerSecond, c.PerSecond),
		Allocated: clamp(g.Allocated, 2*(c.Limit+c.Pool)), Left: clamp(g.Left, c.Limit+c.Pool), Pool: clamp(g.Pool, c.Pool),
		Lowered: g.Lowered, Born: max(g.Born, 0),
	}
}

// maxNodes bounds the nodes that a store may tell of, so that it cannot make
// the emergency part nothing.
const maxNodes = 1000

// Share is what a store keeps of one line. The zero value is a line that the
// store does not know, or lost. It is the reference for stores that cannot run
// Go: they must decide the same.
type Share struct {
	Known   bool
	Born    int64 // ms: of the first claim
	At      int64 // ms: of the last claim
	Level   int64 // rate: what is not lent out; below zero after overuse, and by what is lent in advance
	Rest    int64 // rate: of the last refill, in thousandths of a grain
	Debt    int64
	Window  int64 // total
	Used    int64 // total: lent out or used
	Merged  int64 // total: what nodes knew of one that was lost, as far as it is in Used
	Morning int64 // total: the pool when the window began
	Lowered bool
	Holders map[string]Holder
}

// Holder is what one node holds of a line.
type Holder struct {
	Until     int64 // ms: rate, slots: of its lease
	Seen      int64 // ms
	Demand    int64
	PerSecond int64 // rate
	Slots     int64
	Weight    int64 // of a node line
}

// forget drops holders that were not heard of for several periods. What was
// lent to them in advance is used up for the others.
func (s *Share) forget(now, period int64) {
	for node, h := range s.Holders {
		if max(h.Until, h.Seen+forgetPeriods*period) < now {
			delete(s.Holders, node)
		}
	}
}

// forgetPeriods is after how many periods a silent node no longer counts.
const forgetPeriods = 3

// Exchange takes a node's claim on the line at a time in milliseconds, which
// does not go back. nodes is how many share the tenant.
func (s *Share) Exchange(now int64, node string, c *LineClaim, period, slots, nodes int64) LineGrant {
	if s.Holders == nil {
		s.Holders = make(map[string]Holder)
	}
	s.forget(now, period)
	var g LineGrant
	switch c.Kind {
	case RateLine:
		g = s.lendRate(now, node, c, period)
	case TotalLine:
		g = s.lendTotal(now, node, c, nodes)
	case SlotLine:
		g = s.lendSlots(now, node, c, slots)
	case NodeLine:
		g = s.lendNode(now, node, c, slots)
	}
	s.Known, s.At = true, now
	return g
}

// lendRate settles what the node had and lends it a rate by its part of the
// demand, and tokens when there are more than the rate brings.
func (s *Share) lendRate(now int64, node string, c *LineClaim, period int64) LineGrant {
	if !s.Known { // half, so that losing it is no way to a full bucket
		s.Level, s.At = c.Limit/2, now
	}
	s.refillRate(now, c)
	h := s.Holders[node]
	if h.Until > now { // lent in advance and not used: the new lease replaces it
		s.Level += h.PerSecond * (h.Until - now) / 1000
	}
	s.Level = max(min(s.Level+c.Returned, c.Limit)-c.Extra, -c.Limit)
	h = Holder{Until: now + period, Seen: now, Demand: c.Demand}
	s.Holders[node] = h
	var demand int64
	for _, other := range s.Holders {
		demand += other.Demand
	}
	tokens := s.lendTokens(c, demand, period)
	if demand > 0 {
		h.PerSecond = s.rateFor(c, demand, period)
	}
	s.Level -= h.PerSecond * period / 1000
	s.Holders[node] = h
	return LineGrant{Tokens: tokens, PerSecond: h.PerSecond, Left: max(s.Level, 0)}
}

// refillRate refills the bucket, a part of it for the debt.
func (s *Share) refillRate(now int64, c *LineClaim) {
	passed := max(now-s.At, 0)
	if passed >= (2*c.Limit+s.Debt-min(s.Level, 0))*1000/max(c.PerSecond, 1)+1000 {
		s.Level, s.Debt, s.Rest = c.Limit, 0, 0
		return
	}
	earned := passed*c.PerSecond + s.Rest
	amount := earned / 1000
	s.Rest = earned % 1000
	back := min(amount*c.Repay/1000, s.Debt)
	s.Debt -= back
	s.Level = min(s.Level+amount-back, c.Limit)
}

// lendTokens lends what the bucket has now: while it has less than all ask for,
// by the part of the demand, but enough for the request that waits.
func (s *Share) lendTokens(c *LineClaim, demand, period int64) int64 {
	has := max(s.Level, 0)
	all := has + max(c.Overdraft-s.Debt, 0)
	tokens := min(c.Ask, all)
	if demand > 0 && demand*period/1000 > has {
		tokens = min(tokens, max(partOf(all, c.Demand, demand), min(c.Head, all)))
	}
	fromLevel := min(tokens, has)
	s.Level -= fromLevel
	s.Debt += tokens - fromLevel
	return tokens
}

// rateFor is the node's part of the rate: by demand, but not much more than it
// asks for. After overuse it is halved until the bucket has recovered.
func (s *Share) rateFor(c *LineClaim, demand, period int64) int64 {
	whole := c.PerSecond
	if s.Debt > 0 {
		whole -= whole * c.Repay / 1000
	}
	part := min(partOf(whole, c.Demand, demand), c.Demand+c.Demand/4)
	if s.Level*1000 < -2*c.PerSecond*period {
		part /= 2
	}
	return part
}

// partOf returns the part of whole that part is of all, to a millionth: with
// products that a double holds exactly.
func partOf(whole, part, all int64) int64 {
	return whole * (part * 1_000_000 / all) / 1_000_000
}

// thousandths returns n thousandths of whole, exactly and without a large
// product.
func thousandths(whole, n int64) int64 {
	return whole/1000*n + whole%1000*n/1000
}

// lendTotal lends a chunk of what is left of the window: small ones towards
// its end, so that little lies idle with nodes.
func (s *Share) lendTotal(now int64, node string, c *LineClaim, nodes int64) LineGrant {
	s.turn(now, c)
	if c.Window < s.Window { // of a window that is over
		return LineGrant{}
	}
	s.Holders[node] = Holder{Seen: now}
	if c.KnownBorn != s.Born && c.Known > s.Merged {
		// What nodes know of the line that was lost are states of one counter,
		// and the latest of them is all that was lent: later ones add what
		// they know more.
		s.Used += c.Known - s.Merged
		s.Merged = c.Known
	}
	s.Used = max(s.Used-c.Returned, 0) + c.Extra
	base := s.base(c)
	left := max(base+s.Morning-s.Used, 0)
	tokens := min(c.Ask, left, max(left/(4*max(nodes, 1)), c.Head))
	s.Used += tokens
	return LineGrant{
		Tokens: tokens, Allocated: s.Used, Left: left - tokens,
		Pool: max(s.Morning-max(s.Used-base, 0), 0), Lowered: s.Lowered, Born: s.Born,
	}
}

func (s *Share) base(c *LineClaim) int64 {
	if s.Lowered {
		return thousandths(c.Limit, c.Notch)
	}
	return c.Limit
}

// turn begins the claim's window if it is a later one, as elastic.turn does. A
// store that lost the line takes the node's word for it.
func (s *Share) turn(now int64, c *LineClaim) {
	if !s.Known {
		s.Born, s.Window, s.Morning, s.Lowered = now, c.Window, c.Pool, c.KnownLowered
		if c.KnownBorn != 0 {
			s.Morning = c.KnownPool + max(c.Known-s.base(c), 0)
		}
		return
	}
	for missed := min(c.Window-s.Window, maxMissed); missed > 0; missed-- {
		base := s.base(c)
		pool := max(s.Morning-max(s.Used-base, 0), 0)
		s.Morning = min(pool+thousandths(max(base-s.Used, 0), c.Repay), c.Pool)
		s.Lowered, s.Used, s.Merged = s.Morning < c.Pool, 0, 0
	}
	s.Window = max(s.Window, c.Window)
	s.Morning = min(s.Morning, c.Pool)
}

// maxMissed bounds the windows that are caught up with: a pool that unused days
// have not filled by then never fills.
const maxMissed = 1000

// lendSlots lends slots until the time is over: what others hold is never
// lent twice, so a part that grew too large shrinks first.
func (s *Share) lendSlots(now int64, node string, c *LineClaim, ttl int64) LineGrant {
	var others, wanted int64
	for name, h := range s.Holders {
		if name != node && h.Until > now {
			others += h.Slots
			wanted += h.Demand
		}
	}
	tokens := min(c.Ask, max(c.Limit-others, 0))
	if all := wanted + c.Ask; all > c.Limit {
		tokens = min(tokens, max(partOf(c.Limit, c.Ask, all), 1))
	}
	s.Holders[node] = Holder{Until: now + ttl, Seen: now, Demand: c.Ask, Slots: max(tokens, c.Held)}
	return LineGrant{Tokens: tokens, Left: max(c.Limit-others-tokens, 0)}
}
