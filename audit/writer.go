package audit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-kms/sluice/kms"
)

// allocationStep is how much is allocated ahead of the reserve at a time, so
// that one system call serves some thousand entries.
const allocationStep = 1 << 20

// writer appends to the journal's last segment. It belongs to one goroutine.
type writer struct {
	config  Config
	storage storage
	metrics *metrics
	head    Head // of what is durable
	// headSegment is the first record of the segment that holds head.
	headSegment uint64
	segment     *segment
	// unheld says that the file system cannot hold space for a file: there
	// is no reserve, and a full disk shows when it is written to.
	unheld bool

	buffer []byte    // of one write
	kept   []*waiter // of one batch
}

// segment is the segment being written.
type segment struct {
	file     segmentFile
	header   header
	chain    *chain
	previous Hash // what the next record's chain hash builds on
	end      int64
	// allocated is the offset up to which writes find space, blanked that up
	// to which the file reaches, with zeros behind end: see blank.
	allocated, blanked int64
}

func (s *segment) empty() bool { return s.end == headerSize }

// openWriter continues the journal on the storage, or begins it.
func openWriter(ctx context.Context, c Config, s storage, m *metrics) (*writer, Recovery, error) {
	w := &writer{config: c, storage: s, metrics: m}
	names, err := listSegments(c.Dir)
	if err != nil {
		return nil, Recovery{}, err
	}
	if len(names) == 0 {
		if w.segment, err = w.newSegment(); err != nil {
			return nil, Recovery{}, fmt.Errorf("beginning the journal: %w", err)
		}
		return w, Recovery{}, nil
	}
	t, err := readTail(ctx, c.Dir, names, c.SM3)
	if err != nil {
		return nil, Recovery{}, err
	}
	if t.header.node != c.Node {
		return nil, Recovery{}, fmt.Errorf("the journal is that of node %q", t.header.node)
	}
	w.head, w.headSegment = t.head, t.holder
	if w.segment, err = w.reopen(t); err != nil {
		return nil, Recovery{}, fmt.Errorf("continuing the journal: %w", err)
	}
	return w, t.cut, nil
}

// reopen opens the last segment for writing and cuts off what is not whole.
func (w *writer) reopen(t tail) (*segment, error) {
	file, err := w.storage.open(segmentName(t.header.first))
	if err != nil {
		return nil, err
	}
	if t.cut.Bytes > 0 || t.blank {
		err = file.Truncate(t.end)
	}
	if err == nil {
		// Makes the cut durable, and whole records that a killed process
		// wrote and did not sync: from here on they count.
		err = file.Sync()
	}
	if err != nil {
		file.Close()
		return nil, err
	}
	chained, err := t.header.chain.in(w.config.SM3)
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &segment{file: file, header: t.header, chain: newChain(chained), previous: t.previous, end: t.end, allocated: t.end, blanked: t.end}, nil
}

// newSegment makes the segment that follows the head. Its file has its name
// only once the header is durable, so every segment has a whole one. An error
// other than a *syncError has changed nothing.
func (w *writer) newSegment() (*segment, error) {
	h := header{
		chain:    w.config.Chain,
		node:     w.config.Node,
		first:    w.head.Sequence + 1,
		previous: w.head.Hash,
		created:  w.config.Clock(),
	}
	name := segmentName(h.first)
	temporary := name + temporarySuffix
	file, err := w.storage.create(temporary)
	if err != nil {
		return nil, err
	}
	s := &segment{file: file, header: h, chain: newChain(w.config.chained), end: headerSize, allocated: headerSize, blanked: headerSize}
	if err := w.fill(s, temporary, name); err != nil {
		file.Close()
		if !isSyncError(err) {
			err = errors.Join(err, w.storage.remove(temporary))
		}
		return nil, err
	}
	return s, nil
}

// fill writes the header of a new segment, holds its reserve and publishes it,
// once the segment before has its end.
func (w *writer) fill(s *segment, temporary, name string) error {
	if err := w.hold(s, w.config.ReserveBytes); err != nil {
		return err
	}
	b := s.header.encode()
	if _, err := s.file.WriteAt(b[:], 0); err != nil {
		return err
	}
	if err := s.file.Sync(); err != nil {
		return err
	}
	s.previous = s.chain.seed(b)
	if w.segment != nil {
		if err := w.segment.unblank(); err != nil {
			return err
		}
	}
	return w.storage.publish(temporary, name)
}

func isSyncError(err error) bool {
	_, ok := errors.AsType[*syncError](err)
	return ok
}

// rotateIfDue begins a new segment if the present one holds anything and is
// too old, or too full for size more bytes. If that fails the present one goes
// on. An error is fatal.
func (w *writer) rotateIfDue(size int64) error {
	old := w.segment
	full := old.end+size > w.config.SegmentBytes
	aged := w.config.Clock().Sub(old.header.created) >= w.config.SegmentAge
	if old.empty() || !full && !aged {
		return nil
	}
	s, err := w.newSegment()
	if err != nil {
		w.metrics.failed(causeRotate, 1)
		if isSyncError(err) {
			return err
		}
		return nil
	}
	w.segment = s
	if err := w.retire(old); err != nil {
		w.metrics.failed(causeTrim, 1)
	}
	return nil
}

// retire gives back the space that a full segment holds, and closes it.
func (w *writer) retire(s *segment) error {
	return errors.Join(s.cut(), s.file.Close())
}

// commit makes the entries durable, or sets err on those that it refuses. A
// returned error is fatal: it is not known what of the batch is durable.
func (w *writer) commit(batch []*waiter) error {
	size := sizeOf(batch)
	if err := w.rotateIfDue(size); err != nil {
		return err
	}
	batch = w.admit(batch, size)
	if len(batch) == 0 {
		return nil
	}
	s := w.segment
	head := Head{Sequence: w.head.Sequence, Hash: s.previous}
	w.buffer = w.buffer[:0]
	for _, e := range batch {
		head.Sequence++
		head.Hash = s.chain.next(head.Hash, head.Sequence, e.record[frameSize:])
		w.buffer = append(w.buffer, e.record...)
		w.buffer = append(w.buffer, head.Hash[:]...)
	}
	if err := w.blank(s, int64(len(w.buffer))); err != nil {
		return w.takeBack(batch, err)
	}
	if _, err := s.file.WriteAt(w.buffer, s.end); err != nil {
		return w.takeBack(batch, err)
	}
	start := time.Now()
	if err := s.file.Sync(); err != nil {
		return err
	}
	w.metrics.sync.Observe(time.Since(start).Seconds())
	s.end += int64(len(w.buffer))
	s.previous = head.Hash
	w.head, w.headSegment = head, s.header.first
	w.count(batch)
	return nil
}

// sizeOf returns the bytes that the batch takes in a segment.
func sizeOf(batch []*waiter) int64 {
	var size int64
	for _, e := range batch {
		size += int64(len(e.record)) + hashSize
	}
	return size
}

func (w *writer) count(batch []*waiter) {
	w.metrics.batch.Observe(float64(len(batch)))
	intents := 0
	for _, e := range batch {
		if e.phase == kms.PhaseIntent {
			intents++
		}
	}
	w.metrics.intents.Add(float64(intents))
	w.metrics.outcomes.Add(float64(len(batch) - intents))
	if !w.unheld {
		w.metrics.reserve.Set(float64(min(w.segment.allocated-w.segment.end, w.config.ReserveBytes)))
	}
}

// admit returns those of the batch for which there is space: all, or when the
// disk is full the state changes, for which the reserve is. It sets err on the
// others.
func (w *writer) admit(batch []*waiter, size int64) []*waiter {
	err := w.hold(w.segment, size+w.config.ReserveBytes)
	if err == nil {
		return batch
	}
	w.kept = w.kept[:0]
	refused := kms.Wrap(kms.KindAuditUnavailable, err, "the journal has no space")
	for _, e := range batch {
		if e.change {
			w.kept = append(w.kept, e)
		} else {
			e.err = refused
		}
	}
	if w.hold(w.segment, sizeOf(w.kept)) != nil {
		for _, e := range w.kept {
			e.err = refused
		}
		w.kept = w.kept[:0]
	}
	w.metrics.failed(causeSpace, len(batch)-len(w.kept))
	return w.kept
}

// hold makes sure that the segment has space for size more bytes.
func (w *writer) hold(s *segment, size int64) error {
	need := s.end + size
	if w.unheld || need <= s.allocated {
		return nil
	}
	var err error
	for _, upTo := range [...]int64{need + allocationStep, need} {
		err = s.file.Allocate(s.end, upTo-s.end)
		switch {
		case err == nil:
			s.allocated = upTo
			return nil
		case errors.Is(err, errors.ErrUnsupported):
			w.unheld = true
			return nil
		case !isNoSpace(err):
			return err
		}
	}
	return err
}

// takeBack undoes a failed write and refuses its entries. An error is fatal.
func (w *writer) takeBack(batch []*waiter, cause error) error {
	if err := w.segment.cut(); err != nil {
		return fmt.Errorf("taking back a failed write: %w", err)
	}
	refused := kms.Wrap(kms.KindAuditUnavailable, cause, "the journal cannot be written")
	for _, e := range batch {
		e.err = refused
	}
	w.metrics.failed(causeWrite, len(batch))
	return nil
}

// abandon releases the folder after a fatal error, leaving the segment as it
// is: what of it is durable is for the next start to find out.
func (w *writer) abandon() error {
	return errors.Join(w.segment.file.Close(), w.storage.close())
}

// close gives back the space held and releases the folder.
func (w *writer) close() error {
	err := errors.Join(w.retire(w.segment), w.storage.close())
	if err != nil {
		return fmt.Errorf("closing the journal: %w", err)
	}
	return nil
}
