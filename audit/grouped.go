package audit

import (
	"fmt"
	"slices"
	"time"

	"github.com/sluice-kms/sluice/kms"
)

// Operations are recorded in one of two classes. Durable: the answer waits
// until the entry is on the disk. Grouped: the answer does not wait, and the
// entry is on the disk within 50 ms while the disk works. A crash or a power cut
// can lose the grouped entries of that time, and the charges in them; it loses
// no other. Which operations are grouped is configured, and only those can be
// that change nothing, destroy nothing and give no secret away. Only successes
// are grouped: refusals and failures are durable whatever the operation.
//
// No grouped entry is dropped: one that the disk refused is written when that
// works again, and until then, and while the backlog is full, the answers of
// grouped operations wait or are withheld like the others.

const (
	// GroupWindow is how long a grouped entry waits for more of them. The rest
	// of the 50 ms is for gathering and one sync.
	GroupWindow = 20 * time.Millisecond
	// groupEnough entries are written before the window is over: half of what
	// one write takes, so that the next ones find it begun.
	groupEnough = 512
)

// groupable are the operations that may be grouped.
var groupable = []kms.Op{
	kms.OpEncrypt, kms.OpReencrypt, kms.OpSign, kms.OpVerify, kms.OpMAC, kms.OpVerifyMAC,
	kms.OpWrap, kms.OpDigest,
}

// CheckGrouped tells whether all of the operations may be grouped.
func CheckGrouped(ops []kms.Op) error {
	for i, op := range ops {
		if !slices.Contains(groupable, op) {
			return fmt.Errorf("%q cannot be grouped; these can: %v", op, groupable)
		}
		if slices.Contains(ops[:i], op) {
			return fmt.Errorf("%q is there twice", op)
		}
	}
	return nil
}

// isGrouped tells whether the answer for e need not wait.
func (l *Log) isGrouped(e *kms.Entry) bool {
	return len(l.config.Grouped) > 0 && !e.Durable && e.Outcome == outcomeOK && e.Phase == kms.PhaseOutcome && slices.Contains(l.config.Grouped, e.Op)
}

// outcomeOK is that of a request that succeeded.
const outcomeOK = "ok"

// recordGrouped accepts e without waiting for it, unless the disk refuses
// entries: then it waits like any other.
func (l *Log) recordGrouped(e *kms.Entry) error {
	marked := *e
	marked.Grouped = true
	w := l.waiter(&marked)
	l.mu.Lock()
	w.grouped = !l.refusing
	err := l.enqueueLocked(w)
	wait := err == nil && !w.grouped
	l.mu.Unlock()
	switch {
	case err != nil:
		l.recycle(w)
	case wait:
		err = <-w.done
		l.recycle(w)
	}
	return err
}

// signalGroupedLocked wakes the writing goroutine when the window of the
// first grouped entry is over, or when there are enough.
func (l *Log) signalGroupedLocked() {
	switch len(l.pending) {
	case 1:
		time.AfterFunc(GroupWindow, l.signal)
	case groupEnough:
		l.signal()
	}
}

// settleGrouped ends the part of a committed batch that nobody waits for, and
// returns the rest: the written are done, the refused are to be written again,
// with the next entry or the next tick.
func (l *Log) settleGrouped(batch []*waiter) (waiting []*waiter) {
	if durableIn(batch) == len(batch) {
		return batch
	}
	waiting = batch[:0]
	var refused []*waiter
	for _, w := range batch {
		switch {
		case !w.grouped:
			waiting = append(waiting, w)
		case w.err == nil:
			l.recycle(w)
		default:
			w.err = nil
			refused = append(refused, w)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refusing = len(refused) > 0
	l.backlog += len(refused)
	l.pending = append(refused, l.pending...)
	return waiting
}

// giveUp stops the log, for good, when entries that nobody waits for are left
// at its end: the disk refused them to the last.
func (l *Log) giveUp() {
	l.mu.Lock()
	left := len(l.pending)
	l.mu.Unlock()
	if left > 0 {
		l.fail(fmt.Errorf("the disk refused the last %d grouped entries", left), nil)
	}
}

// requestsIn counts the requests that wait: one of many entries is one.
func requestsIn(batch []*waiter) (n int) {
	for _, w := range batch {
		if !w.grouped && !w.follows {
			n++
		}
	}
	return n
}

// durableIn counts the waiters whose requests wait.
func durableIn(batch []*waiter) (n int) {
	for _, w := range batch {
		if !w.grouped {
			n++
		}
	}
	return n
}
