package kms

import (
	"context"
	"time"
	"uuid"
)

// NodePool is what operators see and decide of the nodes of a Device.
type NodePool interface {
	// Status reports every node.
	Status() []NodeStatus
	// CheckMode tells whether a node can take a mode without harm:
	// ErrNotFound when there is no such HSM node, KindConflict when its domain
	// would have no node left for some of its keys.
	CheckMode(node NodeID, mode NodeMode) error
	// SetMode changes what a node is for; what that takes happens after it
	// returns and shows in Status. ErrNotFound when there is no such HSM node.
	SetMode(node NodeID, mode NodeMode) error
	// SelfTest tests a node that is open, beside its work, and returns the
	// families of keys that it can hold; KindHSMUnavailable when it is not
	// open or fails.
	SelfTest(ctx context.Context, node NodeID) ([]Family, error)
	// Domains lists the domains, the default one first.
	Domains() []DomainStatus
	// Placements returns up to limit keys that are at home on another node
	// than their hash says, the newest first, and how many there are.
	Placements(limit int) (list []KeyPlacement, all int)
}

// NodeMode is what operators want of a node.
type NodeMode string

// The modes. Work on a node goes on to its end whatever its mode becomes.
const (
	// NodeActive: it serves, and keys are at home on it.
	NodeActive NodeMode = "active"
	// NodeStandby: it is open, and serves what the active nodes of its domain
	// cannot: all when they are lost, some when none of them has a free slot.
	NodeStandby NodeMode = "standby"
	// NodeCold: it stays closed until an operator wants it.
	NodeCold NodeMode = "cold"
	// NodeDrained: it is out for maintenance: its keys are loaded elsewhere,
	// its work ends, and it is closed.
	NodeDrained NodeMode = "drained"
)

// NodeModes returns the modes.
func NodeModes() []NodeMode { return []NodeMode{NodeActive, NodeStandby, NodeCold, NodeDrained} }

// NodeState is what a node does now.
type NodeState string

// The states.
const (
	NodeUp       NodeState = "up"
	NodeWarming  NodeState = "warming"  // is open and loads its keys, or is about to be recycled
	NodeDraining NodeState = "draining" // ends its work
	NodeClosed   NodeState = "closed"   // by its mode
	NodeDown     NodeState = "down"     // failed; it is tried again
	NodeOut      NodeState = "out"      // failed, until an operator enables it
)

// BreakerState is the state of a node's circuit breaker.
type BreakerState string

// The states of a breaker.
const (
	BreakerClosed   BreakerState = "closed"    // work goes to the node
	BreakerOpen     BreakerState = "open"      // none does
	BreakerHalfOpen BreakerState = "half-open" // its self-test runs
)

// NodeStatus is one node as operators see it.
type NodeStatus struct {
	ID         NodeID
	Domain     uuid.UUID // zero for the in-process engine
	DomainName string
	Generation uint32 // of the domain's newest roots; 0 for the in-process engine
	// OldestGeneration is that of the oldest roots which exist still: of
	// Generation, but while roots are being replaced.
	OldestGeneration uint32
	Driver           string // "pkcs11" or "soft"
	Model            string
	Serial           string
	Label            string
	Mode             NodeMode
	State            NodeState
	Breaker          BreakerState
	Enforced         bool // the token enforces the roots' unwrap templates
	Slots            int  // that the token granted
	SlotsNow         int  // given out now: fewer after the token was out of something
	Busy             int
	// Utilisation is the share of the slot time used in the last second, 0 to 1.
	Utilisation float64
	BusyTime    time.Duration // slot time used in all
	Epoch       uint64        // counts how often the token was opened
	Families    []Family      // that passed the self-test
	Handles     int           // keys loaded now
	MaxHandles  int
	Hits        uint64 // handle cache
	Misses      uint64
	Loads       uint64 // keys loaded in all
	EpochLoads  uint64 // keys loaded since the token was opened
	// MaxEpochLoads is after how many of them the token is opened anew; 0:
	// never.
	MaxEpochLoads uint64
	LoadCosts     map[Family]time.Duration // average time to load a key
	Operations    uint64
	Errors        uint64
	Faults        map[string]uint64 // errors by class
	LastError     string
}

// DomainStatus is a domain as operators see it.
type DomainStatus struct {
	ID         uuid.UUID
	Name       string
	Generation uint32 // of its roots
	Nodes      []NodeID
}

// KeyPlacement is a row of the placement table.
type KeyPlacement struct {
	Key   uuid.UUID
	Node  NodeID
	Since time.Time
	Why   string
}

// PlacedByLoad is why a new key is at home elsewhere: the node that its hash
// names was busier than the others.
const PlacedByLoad = "load"

// PlacedByRebalancing is why a key in use is at home elsewhere: the node that it
// was at home on stayed busier than the others, and it was among its hottest.
const PlacedByRebalancing = "rebalancing"
