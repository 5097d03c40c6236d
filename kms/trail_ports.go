package kms

import (
	"context"
	"time"
	"uuid"
)

// The audit trail is a copy of all API nodes' journals in the database, where
// it can be searched and summed up. What counts is the journal: each entry of
// the trail says where it stands there.

// TrailEntry is an entry of the trail.
type TrailEntry struct {
	// Node is the API node whose journal holds it, Sequence its number there.
	Node     string
	Sequence uint64
	Time     time.Time
	Tenant   uuid.UUID
	Project  string
	// The entry as the journal has it, byte for byte.
	Payload []byte

	// Filled in when it is stored, or by who reads the payload.
	Entry *Entry
}

// TrailHead is up to where a node's journal is in the trail.
type TrailHead struct {
	Sequence uint64
	Hash     [32]byte // of the journal's chain at that record
}

// ShippedNode tells how far a node's journal is in the trail.
type ShippedNode struct {
	Node string
	Head TrailHead
	// Until is the time up to which all that the node recorded is there; zero:
	// nothing was ever shipped.
	Until time.Time
	// Ended says that the node stopped in order, with nothing left to ship.
	Ended bool
}

// TrailBatch is a piece of a node's journal with what it adds to usage.
type TrailBatch struct {
	Node string
	// After is the node's head in the trail before the batch, Head the one
	// after it.
	After, Head TrailHead
	Until       time.Time
	Ended       bool
	Entries     []TrailEntry
	Usage       map[Granularity][]UsageRow
}

// TrailWriter is what the shipper of a node's journal needs.
type TrailWriter interface {
	// Shipped returns how far a node is; nothing is a zero head.
	Shipped(ctx context.Context, node string) (ShippedNode, error)
	// Ship stores a batch and adds its usage, both or nothing. It keeps nothing
	// of the batch, whose memory is used again.
	// KindPreconditionFailed when the node's head is not After: the batch, or
	// another, is there already. So each counts once.
	Ship(ctx context.Context, batch *TrailBatch) error
	// TrimTrail removes up to limit entries, and as many rows of usage of each
	// granularity, that are older than what is kept. more tells whether there
	// may be others.
	TrimTrail(ctx context.Context, before TrailBounds, limit int) (more bool, err error)
}

// TrailBounds are the times before which the trail is removed.
type TrailBounds struct {
	Entries time.Time
	Usage   map[Granularity]time.Time
}

// TrailOrder is the order of the trail's entries.
type TrailOrder uint8

// The orders.
const (
	// NewestFirst is by the time of the entries, the latest first.
	NewestFirst TrailOrder = iota
	// ByArrival is that in which entries came into the trail, which for each
	// tenant and node is that of the journal. Who goes on from a position
	// misses none.
	ByArrival
)

// TrailQuery asks for entries. Zero fields ask for any.
type TrailQuery struct {
	// Tenant is whose entries; zero: everybody's, for operators.
	Tenant uuid.UUID
	Order  TrailOrder
	// After begins behind an entry, AtEnd behind the last one, both ByArrival.
	After *TrailPosition
	AtEnd bool

	From, To   time.Time // From or later, before To
	Op         Op
	Key        uuid.UUID
	Credential uuid.UUID
	Outcome    string
	Project    string
	Component  string
	Node       string
	Request    uuid.UUID
	Page       Page
}

// TrailPosition is a place in a node's journal.
type TrailPosition struct {
	Node     string
	Sequence uint64
}

// TrailPage is a page of entries.
type TrailPage struct {
	Entries []TrailEntry
	// Next is the token of the next page, "" at the end. A page can be short,
	// or empty, and have a next one: not all that was looked at was asked for.
	Next string
	// Resume is, ByArrival, the token of what will follow this page.
	Resume string
}

// Trail reads the trail.
type Trail interface {
	// TrailEntries returns a page. KindInvalidArgument for an After that is not
	// in the trail, or not the tenant's.
	TrailEntries(ctx context.Context, q *TrailQuery) (*TrailPage, error)
	// ShippedNodes returns all nodes, ordered by name.
	ShippedNodes(ctx context.Context) ([]ShippedNode, error)
	// Usage returns rows in the order of period and dimensions.
	// KindInvalidArgument when they are more than MaxUsageRows.
	Usage(ctx context.Context, q *UsageQuery) ([]UsageRow, error)
}
