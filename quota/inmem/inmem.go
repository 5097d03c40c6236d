// Package inmem is a quota.Backing in the memory of one process: for several
// engines of a process, and for tests that move the time. It decides with
// quota.Share, the reference of every backing.
package inmem

import (
	"context"
	"slices"
	"sync"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/quota"
)

// Store shares limits among the engines that use it. It is safe for concurrent
// use.
type Store struct {
	clock func() time.Time

	mu      sync.Mutex // guards the rest
	tenants map[uuid.UUID]*tenant
	failure error
	calls   int
}

// tenant is what the store keeps of one.
type tenant struct {
	latest int64 // ms: a clock that goes back is not followed
	lines  map[string]*quota.Share
	nodes  map[string]*node
}

// node is a node's last claim, so that a repeated one is known.
type node struct {
	epoch, sequence uint64
	seen            int64
	answer          quota.Grant
}

var _ quota.Backing = (*Store)(nil)

// New makes a store that knows of no use yet.
func New(clock func() time.Time) *Store {
	return &Store{clock: clock, tenants: make(map[uuid.UUID]*tenant)}
}

// Fail makes every exchange fail with err, until it is nil.
func (s *Store) Fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failure = err
}

// Flush loses everything.
func (s *Store) Flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.tenants)
}

// Calls returns how many claims were exchanged.
func (s *Store) Calls() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls
}

// Exchange implements quota.Backing.
func (s *Store) Exchange(ctx context.Context, claims []quota.Claim) ([]quota.Grant, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failure != nil {
		return nil, s.failure
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	grants := make([]quota.Grant, len(claims))
	for i := range claims {
		s.calls++
		grants[i] = s.exchange(&claims[i])
	}
	return grants, nil
}

func (s *Store) exchange(c *quota.Claim) quota.Grant {
	t := s.tenants[c.Tenant]
	if t == nil {
		t = &tenant{lines: make(map[string]*quota.Share), nodes: make(map[string]*node)}
		s.tenants[c.Tenant] = t
	}
	now := max(s.clock().UnixMilli(), t.latest)
	n := t.nodes[c.Node]
	if n == nil {
		n = new(node)
		t.nodes[c.Node] = n
	}
	if n.epoch == c.Epoch && c.Sequence <= n.sequence {
		return quota.Grant{Nodes: n.answer.Nodes, Lines: slices.Clone(n.answer.Lines)}
	}
	t.latest = now
	n.epoch, n.sequence, n.seen = c.Epoch, c.Sequence, now
	grant := quota.Grant{Nodes: t.living(now, c)}
	for i := range c.Lines {
		line := t.lines[c.Lines[i].Name]
		if line == nil {
			line = new(quota.Share)
			t.lines[c.Lines[i].Name] = line
		}
		grant.Lines = append(grant.Lines, line.Exchange(now, c.Node, &c.Lines[i], c.PeriodMs, c.SlotsMs, grant.Nodes))
	}
	n.answer = grant
	return quota.Grant{Nodes: grant.Nodes, Lines: slices.Clone(grant.Lines)}
}

// rememberMs is how long a node's last claim is known, so that a repeated one
// is recognised: longer than any node goes on repeating one.
const rememberMs = 3_600_000

// living counts the nodes that claimed within the time for which slots are
// lent.
func (t *tenant) living(now int64, c *quota.Claim) int64 {
	var living int64
	for name, n := range t.nodes {
		switch {
		case n.seen+c.SlotsMs >= now:
			living++
		case n.seen+rememberMs < now:
			delete(t.nodes, name)
		}
	}
	return living
}
