package kms

import (
	"context"
	"time"
)

// MaxHeadSignature is the length in bytes of the longest signature of a head:
// those of ECDSA and SM2 take 72.
const MaxHeadSignature = 512

// JournalHead is a signed head of a node's journal as it is anchored in the
// store. Who reads it checks the signature; the store does not.
type JournalHead struct {
	Node       string
	Sequence   uint64 // of the record, 1 to 2⁶³-1
	Hash       [32]byte
	Signed     time.Time // whole microseconds
	Algorithm  Algorithm
	KeyVersion uint32
	Signature  []byte // 1 to MaxHeadSignature bytes
}

// JournalHeads keeps the newest signed head of each hour and node.
type JournalHeads interface {
	// PutJournalHead stores the head in place of that of its hour;
	// KindPreconditionFailed when that is a later one, or another one of the
	// same record.
	PutJournalHead(ctx context.Context, h *JournalHead) error
	// JournalHeads returns the node's heads of up to limit hours, the last
	// first. Damaged ones are reported and left out.
	JournalHeads(ctx context.Context, node string, limit int) ([]JournalHead, error)
}
