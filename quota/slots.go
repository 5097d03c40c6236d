package quota

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"time"
	"uuid"
)

// NodeDemand is what this process wants of an HSM node that others use too.
type NodeDemand struct {
	// Token names the token to all processes alike: by its serial.
	Token  string
	Slots  int   // that the token has for all of them
	Busy   int   // in use by this process
	Wanted int   // in use, and by what waits
	Weight int64 // of the tenants whose work it is
}

// SlotSharing shares the slots of HSM nodes among the processes that use them,
// so that together they run no more on a token than it has slots, and each
// gets them by the weights of the tenants that come to it: a tenant's part does
// not depend on which API node it calls. It is exchanged once a tick; a part
// that becomes smaller does so at once, and grows when others have given up
// theirs. While the store is away each process goes on with what it has, and
// then with the whole divided by the processes that were there last.
type SlotSharing struct {
	Backing  Backing
	Policies *Policies
	Clock    func() time.Time
	Node     string // names this process among those that share
	Epoch    uint64 // of this process; another one is another holder
	// Demands tells of every node, whenever it is asked.
	Demands func() []NodeDemand
	// Apply is told how many slots this process may use of a token, one at
	// least.
	Apply func(token string, slots int)
	// Failed is told when the store counts as away, and nil when it is back.
	Failed func(error)

	sequence uint64
	parts    map[string]*nodePart // by token
	heard    time.Time            // when the store answered last
	away     bool
}

// nodePart is this process's part of a token.
type nodePart struct {
	slots, nodes int // nodes: processes that share it, as told last
	peaks        [peakTicks]int
	worked       uint64 // the sequence at which something was wanted last
}

// peakTicks is how many ticks a demand is remembered for: what comes in bursts
// does not have to wait for a tick each time.
const peakTicks = 8

// restTicks is after how many ticks without any work a process forgets what it
// wanted and weighs next to nothing: what it would keep for a burst, others who
// have work wait for, and what nobody needs it is lent unasked.
const restTicks = 2

// headroom is what a process keeps beyond its demand, so that a request that
// finds all its slots busy need not wait for a tick while others are free.
const headroom = 1

// Run shares until ctx ends, and then gives back what it holds. It alone calls
// what it was given.
func (s *SlotSharing) Run(ctx context.Context) {
	s.parts, s.heard = make(map[string]*nodePart), s.Clock()
	tick := time.NewTimer(0)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			s.leave(context.WithoutCancel(ctx))
			return
		case <-tick.C:
		}
		rules := s.Policies.Current().leases
		s.round(ctx, rules)
		tick.Reset(time.Duration(rules.tick))
	}
}

// round exchanges one claim for each token.
func (s *SlotSharing) round(ctx context.Context, rules leaseRules) {
	demands := s.Demands()
	s.sequence++
	claims := make([]Claim, len(demands))
	for i := range demands {
		claims[i] = s.claim(&demands[i], rules)
	}
	grants, err := s.exchange(ctx, claims, rules)
	now := s.Clock()
	if err == nil {
		s.heard = now
	}
	if away := now.Sub(s.heard) >= time.Duration(rules.down); away != s.away {
		s.away = away
		s.Failed(err)
	}
	for i := range demands {
		d := &demands[i]
		part := s.parts[d.Token]
		switch {
		case err == nil:
			part.nodes = int(max(min(grants[i].Nodes, maxNodes), 1))
			s.set(d, grants[i].Lines[0].within(&claims[i].Lines[0]).Tokens)
		case s.away:
			s.set(d, int64(d.Slots/max(part.nodes, 1)))
		}
	}
}

// set applies a part, if it is another one than before.
func (s *SlotSharing) set(d *NodeDemand, slots int64) {
	part := s.parts[d.Token]
	if n := max(int(min(slots, int64(d.Slots))), 1); n != part.slots {
		part.slots = n
		s.Apply(d.Token, n)
	}
}

func (s *SlotSharing) claim(d *NodeDemand, rules leaseRules) Claim {
	part := s.parts[d.Token]
	if part == nil {
		part = new(nodePart)
		s.parts[d.Token] = part
	}
	part.peaks[s.sequence%peakTicks] = d.Wanted
	if d.Wanted > 0 {
		part.worked = s.sequence
	}
	weight := max(d.Weight, 1)
	if s.sequence-part.worked >= restTicks {
		part.peaks, weight = [peakTicks]int{}, 1
	}
	ask := min(slices.Max(part.peaks[:])+headroom, d.Slots)
	return s.claimOf(d.Token, rules, LineClaim{
		Name: "slots", Kind: NodeLine, Limit: int64(d.Slots), Ask: int64(ask), Held: int64(d.Busy), Weight: min(weight, MaxWeight),
	})
}

func (s *SlotSharing) claimOf(token string, rules leaseRules, line LineClaim) Claim {
	const ms = int64(time.Millisecond)
	return Claim{
		Tenant: tokenID(token), Node: s.Node, Epoch: s.Epoch, Sequence: s.sequence,
		PeriodMs: rules.period / ms, SlotsMs: rules.slots / ms, Lines: []LineClaim{line},
	}
}

// tokenID is the id under which a store keeps a token's slots: in the form of
// a UUIDv8 (RFC 9562, 5.8), which no tenant has.
func tokenID(token string) (id uuid.UUID) {
	sum := sha256.Sum256([]byte("sluice node slots\x00" + token))
	copy(id[:], sum[:])
	id[6], id[8] = id[6]&0x0f|0x80, id[8]&0x3f|0x80
	return id
}

func (s *SlotSharing) exchange(ctx context.Context, claims []Claim, rules leaseRules) ([]Grant, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(rules.period))
	defer cancel()
	grants, err := s.Backing.Exchange(ctx, claims)
	if err == nil && (len(grants) != len(claims) || slices.ContainsFunc(grants, func(g Grant) bool { return len(g.Lines) != 1 })) {
		err = fmt.Errorf("%d grants for %d claims", len(grants), len(claims))
	}
	if err != nil {
		return nil, fmt.Errorf("share slots: %w", err)
	}
	return grants, nil
}

// leave gives back what this process holds; a store that does not answer has it
// back when the leases end.
func (s *SlotSharing) leave(ctx context.Context) {
	rules := s.Policies.Current().leases
	s.sequence++
	var claims []Claim
	for token := range s.parts {
		claims = append(claims, s.claimOf(token, rules, LineClaim{Name: "slots", Kind: NodeLine}))
	}
	_, _ = s.exchange(ctx, claims, rules)
}
