package audit

import (
	"slices"
	"time"

	"github.com/sluice-kms/sluice/kms"
)

const (
	// maxBatchBytes bounds one write, and so what a crash can leave
	// unfinished; a thousand entries share a sync well enough.
	maxBatchBytes = 1 << 20
	// keptRecord is the capacity in bytes of a waiter's buffer that is worth
	// keeping; ordinary entries take a third of it.
	keptRecord = 2 << 10
)

// waiter is an entry on its way to the disk. Waiters are pooled: until it is
// enqueued and after done is read it is its request's, between them the
// writing goroutine's.
type waiter struct {
	record []byte // frame and payload
	phase  kms.Phase
	// change tells whether the entry may use the reserve.
	change bool
	// grouped says that no request waits: the writing goroutine recycles it.
	grouped bool
	// follows says that the request waits for an earlier entry of the same
	// commit as well: see pace.
	follows bool
	err     error
	done    chan error // capacity 1
}

// waiter encodes e.
func (l *Log) waiter(e *kms.Entry) *waiter {
	w := l.waiters.Get().(*waiter)
	if w.record == nil {
		w.record = make([]byte, frameSize, keptRecord)
	}
	w.record = appendEntry(w.record[:frameSize], e)
	sealFrame(w.record)
	w.phase = e.Phase
	w.change, w.grouped, w.follows = isChange(e), false, false
	w.err = nil
	return w
}

func (l *Log) recycle(w *waiter) {
	if cap(w.record) > keptRecord {
		w.record = nil
	}
	l.waiters.Put(w)
}

// isChange tells whether e records a state change. One that was refused
// before it began is none: a flood of those must not use up the reserve.
func isChange(e *kms.Entry) bool {
	info := e.Op.Info()
	return info != nil && info.Changes && !isRefusal(e)
}

// run is the writing goroutine: it ends after Close, and after a failure that
// the log must not survive.
func (l *Log) run() {
	defer close(l.stopped)
	tick := time.NewTicker(floodWindow)
	defer tick.Stop()
	var spare []*waiter
	for {
		ticked := false
		var flushed chan struct{}
		select {
		case <-l.wake:
		case <-tick.C:
			ticked = true
		case flushed = <-l.flushes:
			ticked = true
		}
		if !ticked {
			l.gather()
		}
		batch, closing := l.take(spare)
		requests := requestsIn(batch)
		started := time.Now()
		if err := l.write(batch); err != nil {
			return
		}
		l.lag.end()
		l.pace.committed(requests, time.Since(started))
		clear(batch)
		spare = batch
		if ticked || closing {
			if err := l.writeFlood(); err != nil {
				return
			}
		}
		if closing {
			l.giveUp()
			return
		}
		if ticked {
			if err := l.writer.rotateIfDue(0); err != nil {
				l.fail(err, nil)
				return
			}
		}
		if flushed != nil {
			close(flushed)
		}
	}
}

// gather lets more entries come before a commit when the log is busy: as many
// as the last one had, since those who waited for it are back by then, or what
// comes in the time that pace allows.
func (l *Log) gather() {
	d := l.pace.delay()
	if d == 0 || !l.expect(l.pace.last) {
		return
	}
	l.gatherer.Reset(d)
	select {
	case <-l.gatherer.C:
	case <-l.enough:
		l.gatherer.Stop()
	case <-l.closeSignal:
		l.gatherer.Stop()
	}
}

// expect has enough signalled when n entries are pending, and tells whether
// there are fewer now.
func (l *Log) expect(n int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.expected = n
	select {
	case <-l.enough: // of an earlier time
	default:
	}
	return len(l.pending) < n
}

// take takes all that is pending, leaving spare in its place, and tells
// whether nothing more will come.
func (l *Log) take(spare []*waiter) (batch []*waiter, closing bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	batch, l.pending = l.pending, spare[:0]
	l.lag.begin(len(batch), l.config.Clock)
	l.metrics.backlog.Set(float64(l.backlog))
	return batch, l.closed
}

// write commits the batch and answers its requests. An error has stopped the
// log.
func (l *Log) write(batch []*waiter) error {
	for len(batch) > 0 {
		n := fitting(batch)
		if err := l.writer.commit(batch[:n]); err != nil {
			l.fail(err, batch)
			return err
		}
		l.mu.Lock()
		l.head, l.segment = l.writer.head, l.writer.headSegment
		l.backlog -= n
		l.mu.Unlock()
		waiting := batch[:n]
		if len(l.config.Grouped) > 0 {
			waiting = l.settleGrouped(slices.Clone(waiting))
		}
		for _, w := range waiting {
			w.done <- w.err
		}
		batch = batch[n:]
	}
	return nil
}

// fitting returns how many of the waiters, one at least, go into one write.
func fitting(batch []*waiter) int {
	size := 0
	for i, w := range batch {
		if size += len(w.record) + hashSize; size > maxBatchBytes && i > 0 {
			return i
		}
	}
	return len(batch)
}

// writeFlood commits what the flood counted; what cannot be written goes back
// to it. An error has stopped the log.
func (l *Log) writeFlood() error {
	entries := l.flood.drain()
	batch := make([]*waiter, len(entries))
	for i, e := range entries {
		batch[i] = l.waiter(e)
	}
	var refused []*kms.Entry
	for len(batch) > 0 {
		n := fitting(batch)
		if err := l.writer.commit(batch[:n]); err != nil {
			l.fail(err, nil)
			return err
		}
		for i, w := range batch[:n] {
			if w.err != nil {
				refused = append(refused, entries[i])
			}
			l.recycle(w)
		}
		batch, entries = batch[n:], entries[n:]
	}
	l.mu.Lock()
	l.head, l.segment = l.writer.head, l.writer.headSegment
	l.mu.Unlock()
	l.flood.restore(refused)
	return nil
}

// fail stops the log: batch, what is pending and every later Record get err.
func (l *Log) fail(err error, batch []*waiter) {
	l.flood.close()
	failure := kms.Wrap(kms.KindAuditUnavailable, err, "the journal has stopped")
	l.mu.Lock()
	l.failure = failure
	rest := l.pending
	l.pending, l.backlog = nil, 0
	l.mu.Unlock()
	l.metrics.failed(causeStop, len(batch)+len(rest))
	for _, waiters := range [][]*waiter{batch, rest} {
		for _, w := range waiters {
			if !w.grouped {
				w.done <- failure
			}
		}
	}
}
