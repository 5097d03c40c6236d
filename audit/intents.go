package audit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// intentSegments is how many of the last segments OpenIntents reads. A change
// takes seconds and a segment holds minutes at the least, so an intent without
// outcome lies in the segment that was written when the process ended, or in
// the one before when a new one had just begun.
const intentSegments = 2

// OpenIntents returns, in their order, the intents in dir that no outcome
// follows: changes during which the process ended. It is for the start, after
// Open and before the first Record, and reads the last segments only. ctx ends
// the reading. Errors are those of Read.
func OpenIntents(ctx context.Context, dir string, sm3 ...NewHash) ([]*kms.Entry, error) {
	names, err := listSegments(dir)
	if err != nil {
		return nil, err
	}
	open := make(map[uuid.UUID]*kms.Entry)
	var order []uuid.UUID
	for _, name := range names[max(0, len(names)-intentSegments):] {
		order, err = intentsOf(ctx, dir, name, open, order, first(sm3))
		if err != nil {
			return nil, err
		}
	}
	var intents []*kms.Entry
	for _, id := range order {
		if e := open[id]; e != nil {
			intents = append(intents, e)
		}
	}
	return intents, nil
}

// intentsOf adds the intents of one segment to open and order, and takes those
// that an outcome follows out of open.
func intentsOf(ctx context.Context, dir, name string, open map[uuid.UUID]*kms.Entry, order []uuid.UUID, sm3 NewHash) ([]uuid.UUID, error) {
	r, err := openSegment(dir, name, sm3)
	if err != nil {
		return nil, err
	}
	defer r.close()
	for {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("reading the journal: %w", err)
		}
		rec, err := r.next()
		if err == io.EOF {
			return order, nil
		}
		if err != nil {
			return nil, err
		}
		phase, id := phaseOf(rec.payload)
		if phase != kms.PhaseIntent {
			delete(open, id)
			continue
		}
		e, err := parseEntry(rec.payload)
		if err != nil {
			return nil, r.corrupt(rec.position.Offset, rec.position.Sequence, FaultPayload)
		}
		open[id] = e
		order = append(order, id)
	}
}

// phaseOf reads no more of a payload than its phase and request id.
func phaseOf(payload []byte) (kms.Phase, uuid.UUID) {
	p := parser{rest: payload}
	p.expect(`{"t":`)
	p.quoted()
	phase := kms.Phase(p.text("p"))
	return phase, p.id("id")
}

// Changes calls fn with the intents of the journal in dir and whether an outcome
// says that the change was made, from the beginning to the record of a sequence,
// which must be durable, or with ToTheEnd to the end of a journal that nobody
// writes. Intents that no outcome follows come last. It parses the entries of
// changes only, so it costs little more than to hash the journal. Errors are
// those of Read, and that of ctx, which ends the reading.
func Changes(ctx context.Context, dir string, until uint64, fn func(intent *kms.Entry, made bool), sm3 ...NewHash) error {
	tail, err := OpenTail(dir, Head{}, sm3...)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { tail.Close() }()
	open := make(map[uuid.UUID]*kms.Entry)
	for tail.reader.sequence < until {
		rec, err := tail.reader.next()
		if until == ToTheEnd && (err == io.EOF || incomplete(err)) && tail.last() {
			break
		}
		if err == io.EOF {
			if err := ctx.Err(); err != nil {
				return fmt.Errorf("reading the journal: %w", err)
			}
			if err := tail.follow(); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return err
		}
		phase, id := phaseOf(rec.payload)
		intent := open[id]
		if phase != kms.PhaseIntent && intent == nil {
			continue
		}
		e, err := parseEntry(rec.payload)
		if err != nil {
			return tail.reader.corrupt(rec.position.Offset, rec.position.Sequence, FaultPayload)
		}
		if phase == kms.PhaseIntent {
			open[id] = e
			continue
		}
		delete(open, id)
		fn(intent, e.Made())
	}
	for _, intent := range open {
		fn(intent, false)
	}
	return nil
}

// ToTheEnd is the sequence up to which Changes reads all that there is.
const ToTheEnd uint64 = math.MaxUint64

// incomplete tells whether an error is that of a record at which a crash, or a
// copy that was taken while the journal was written, cut a segment off.
func incomplete(err error) bool {
	corrupt, ok := errors.AsType[*CorruptError](err)
	return ok && corrupt.Fault == FaultIncomplete
}

// last tells whether no segment follows the one that is read.
func (t *Tail) last() bool {
	names, err := listSegments(t.dir)
	return err == nil && len(names) > 0 && names[len(names)-1] == t.reader.name
}
