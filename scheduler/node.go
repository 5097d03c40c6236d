package scheduler

import (
	"fmt"
	"math/bits"
)

// maxNodes bounds the nodes of one domain: a request's nodes are a bit set.
const maxNodes = 64

// Node describes a node to the scheduler.
type Node struct {
	ID    string // not empty
	Slots int    // 0 to MaxSlots; with 0 the node does not serve
	Down  bool   // the node does not serve
	// Domain names the nodes that share their work, their clock, their gate
	// and their caps; "" is a domain like any other. It cannot change while
	// the node is known. A lane of its own, such as slots that only generate
	// keys, is a node in a domain of its own.
	Domain string
	// Model groups nodes that take the same time for the same operation.
	Model string
}

// node is a node's state, guarded by the Scheduler's lock; the first group
// never changes.
type node struct {
	id     string
	domain *domain
	bit    int

	model    string
	slots    int
	busy     int
	others   int // of busy, by other ranks than High
	down     bool
	removed  bool // stays in the map while work runs on it
	clock    int64
	queued   int64    // ns that wait for it, estimated
	inFlight int64    // ns that run on it, estimated
	moved    int64    // ns, when a slot of it was last taken or freed
	running  *request // the first of what runs on it
	granted  uint64
	away     uint64 // granted of those that prefer another node
}

func (n *node) serving() bool { return !n.down && !n.removed && n.slots > 0 }

// free is the number of slots that could take work.
func (n *node) free() int {
	if !n.serving() {
		return 0
	}
	return max(0, n.slots-n.busy)
}

// SetNode adds a node or changes one. New slots serve those who wait at once.
// Of a node that shrinks, goes down or leaves, running work goes on to its
// end; those who wait for it wait for the other nodes they listed, in their
// order of arrival, and those who listed no other that serves get ErrNoNodes.
// It fails on an empty ID, on Slots out of range, on a change of Domain and on
// more than 64 nodes of one domain.
func (s *Scheduler) SetNode(n Node) error {
	switch {
	case n.ID == "":
		return fmt.Errorf("scheduler: a node needs an ID")
	case n.Slots < 0 || n.Slots > MaxSlots:
		return fmt.Errorf("scheduler: node %q has %d slots; give 0 to %d", n.ID, n.Slots, MaxSlots)
	}
	s.lock()
	defer s.unlock()
	have := s.nodes[n.ID]
	if have == nil {
		d := s.domainOf(n.Domain)
		bit := bits.TrailingZeros64(^d.known)
		if bit == maxNodes {
			return fmt.Errorf("scheduler: domain %q has %d nodes already", n.Domain, maxNodes)
		}
		have = &node{id: n.ID, domain: d, bit: bit, clock: d.clock}
		d.known |= 1 << bit
		d.nodes[bit] = have
		s.nodes[n.ID] = have
	}
	if have.domain.name != n.Domain {
		return fmt.Errorf("scheduler: node %q is in domain %q and cannot move to %q", n.ID, have.domain.name, n.Domain)
	}
	d := have.domain
	d.refresh(s.now)
	before := have.serving()
	have.slots, have.down, have.removed, have.model = n.Slots, n.Down, false, n.Model
	d.resized(have, before, false)
	return nil
}

// RemoveNode takes a node out; it is no error if there is none. A node on
// which work still runs stays in Snapshot until that ends, and SetNode brings
// it back with its running work counted.
func (s *Scheduler) RemoveNode(id string) {
	s.lock()
	defer s.unlock()
	n := s.nodes[id]
	if n == nil {
		return
	}
	d := n.domain
	d.refresh(s.now)
	before := n.serving()
	n.removed = true
	d.resized(n, before, true)
	s.drop(n)
}

// drop forgets n if it has left and nothing runs on it.
func (s *Scheduler) drop(n *node) {
	if n.removed && n.busy == 0 && s.nodes[n.id] == n {
		delete(s.nodes, n.id)
		n.domain.nodes[n.bit] = nil
		n.domain.known &^= 1 << n.bit
	}
}

// resized restores the invariants after n changed.
func (d *domain) resized(n *node, served, gone bool) {
	d.slots = 0
	for _, m := range d.members(d.known) {
		if m.serving() {
			d.slots += m.slots
		}
	}
	switch {
	case gone || !n.serving():
		d.strand(n, gone)
	case !served:
		n.clock = max(n.clock, d.clock)
		d.welcome(n)
	}
	d.drawLines()
	d.reviewParked()
	d.dispatch()
}
