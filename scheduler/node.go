package scheduler

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Node describes a node to the scheduler.
type Node struct {
	ID    string // not empty
	Slots int    // 0 to MaxSlots; with 0 the node does not serve
	Down  bool   // the node does not serve
}

// node is a node's state, guarded by the Scheduler's lock; id never changes.
type node struct {
	id         string
	slots      int
	busy       int
	down       bool
	removed    bool // stays in the map while work runs on it
	granted    uint64
	waiting    int // links on the list
	head, tail *link
}

func (n *node) serving() bool { return !n.down && !n.removed && n.slots > 0 }

func (n *node) take() {
	n.busy++
	n.granted++
}

func (n *node) push(l *link) {
	l.prev = n.tail
	if n.tail == nil {
		n.head = l
	} else {
		n.tail.next = l
	}
	n.tail = l
	n.waiting++
}

func (n *node) remove(l *link) {
	if l.prev == nil {
		n.head = l.next
	} else {
		l.prev.next = l.next
	}
	if l.next == nil {
		n.tail = l.prev
	} else {
		l.next.prev = l.prev
	}
	*l = link{waiter: l.waiter}
	n.waiting--
}

// SetNode adds a node or changes one. New slots serve those who wait at once.
// Of a node that shrinks, goes down or leaves, running work goes on to its
// end; those who wait for it stay in line for the other nodes they listed,
// and those who listed no other that serves get ErrNoNodes. It fails on an
// empty ID and on Slots out of range.
func (s *Scheduler) SetNode(n Node) error {
	switch {
	case n.ID == "":
		return fmt.Errorf("scheduler: a node needs an ID")
	case n.Slots < 0 || n.Slots > MaxSlots:
		return fmt.Errorf("scheduler: node %q has %d slots; give 0 to %d", n.ID, n.Slots, MaxSlots)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	have := s.nodes[n.ID]
	if have == nil {
		have = &node{id: n.ID}
		s.nodes[n.ID] = have
	}
	have.slots, have.down, have.removed = n.Slots, n.Down, false
	s.settleLocked(have)
	return nil
}

// RemoveNode takes a node out; it is no error if there is none. A node on
// which work still runs stays in Snapshot until that ends, and SetNode brings
// it back with its running work counted.
func (s *Scheduler) RemoveNode(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.nodes[id]
	if n == nil {
		return
	}
	n.removed = true
	s.settleLocked(n)
	for n.head != nil {
		n.remove(n.head)
	}
	if n.busy == 0 {
		delete(s.nodes, id)
	}
}

// settleLocked restores the invariants after n changed.
func (s *Scheduler) settleLocked(n *node) {
	if n.serving() {
		s.dispatchLocked(n)
	} else {
		s.strandLocked(n)
	}
}

// Snapshot is the scheduler's state at one moment, for operators.
type Snapshot struct {
	Nodes     []NodeSnapshot // by ID
	Queued    int            // requests that wait
	MaxQueue  int            // that may wait in all
	MaxTenant int            // that may wait of one tenant
	Tenants   int            // tenants with requests that wait
	Oldest    time.Duration  // how long the first in line has waited
}

// NodeSnapshot is one node in a Snapshot.
type NodeSnapshot struct {
	Node
	Removed bool   // gone once Busy is 0
	Busy    int    // slots in use
	Waiting int    // requests that listed the node; one may count on several
	Granted uint64 // slots taken since the node joined
}

// Snapshot returns the present state.
func (s *Scheduler) Snapshot() Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	snap := Snapshot{
		Nodes:     make([]NodeSnapshot, 0, len(s.nodes)),
		Queued:    s.queued,
		MaxQueue:  s.maxQueue,
		MaxTenant: s.maxTenant,
		Tenants:   len(s.tenants),
	}
	now := s.clock()
	for _, n := range s.nodes {
		snap.Nodes = append(snap.Nodes, NodeSnapshot{
			Node:    Node{ID: n.id, Slots: n.slots, Down: n.down},
			Removed: n.removed,
			Busy:    n.busy,
			Waiting: n.waiting,
			Granted: n.granted,
		})
		if n.head != nil {
			snap.Oldest = max(snap.Oldest, now.Sub(n.head.waiter.since))
		}
	}
	slices.SortFunc(snap.Nodes, func(a, b NodeSnapshot) int { return cmp.Compare(a.ID, b.ID) })
	return snap
}
