package audit

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-kms/sluice/kms"
)

// maxBacklog bounds the entries that wait for the disk: twice the requests
// that may wait for a slot, so that it is only reached when the disk stalls.
// At the longest entry that a client can cause (9 KiB) it is 72 MiB.
const maxBacklog = 8192

// Defaults and bounds of Config.
const (
	// DefaultSegmentBytes holds some 90,000 entries: verified in a fraction
	// of a second at start, archived in one piece.
	DefaultSegmentBytes = 64 << 20
	// MinSegmentBytes has room for a header and some entries;
	// MaxSegmentBytes is verified at start in seconds.
	MinSegmentBytes = 4 << 10
	MaxSegmentBytes = 1 << 30

	// DefaultSegmentAge makes a segment a day even where little happens.
	DefaultSegmentAge = 24 * time.Hour

	// DefaultReserveBytes records some 3,000 state changes on a full disk.
	DefaultReserveBytes = 4 << 20
	// MaxReserveBytes bounds the reserve; more is a mistake in the unit.
	MaxReserveBytes = 1 << 30
)

// Config configures a Log. Dir and Node are required; zero values of the
// others mean their defaults.
type Config struct {
	// Dir is the journal's folder. Its parent must exist; Open makes the
	// folder itself, with mode 0700.
	Dir string
	// Node names the writer, for good: a kms.ValidName of at most 64 bytes.
	Node string
	// Clock gives the present time; nil means time.Now.
	Clock func() time.Time
	// SegmentBytes is the size, MinSegmentBytes to MaxSegmentBytes, that a
	// segment of more than one write keeps below; while no new one can be
	// made, the present one grows beyond it.
	SegmentBytes int64
	// SegmentAge is the age at which a segment ends that holds anything, a
	// second at least.
	SegmentAge time.Duration
	// ReserveBytes of disk space are held for entries of state changes, at
	// most MaxReserveBytes.
	ReserveBytes int64
	// Chain is the hash function of the chain in new segments; a change takes
	// effect with the next one.
	Chain ChainHash
	// SM3 is needed for ChainSM3, and where there are such segments; nil: none.
	SM3 NewHash
	// Grouped are the operations whose successes are answered before their
	// entries are durable; see CheckGrouped for which may be.
	Grouped []kms.Op
	// Registerer takes the log's metrics; nil means none.
	Registerer prometheus.Registerer

	chained NewHash // computes Chain
}

func (c *Config) complete() error {
	if c.Clock == nil {
		c.Clock = time.Now
	}
	if c.SegmentBytes == 0 {
		c.SegmentBytes = DefaultSegmentBytes
	}
	if c.SegmentAge == 0 {
		c.SegmentAge = DefaultSegmentAge
	}
	if c.ReserveBytes == 0 {
		c.ReserveBytes = DefaultReserveBytes
	}
	if c.Chain == 0 {
		c.Chain = ChainSHA256
	}
	var err error
	if c.chained, err = c.Chain.in(c.SM3); err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	if err := CheckGrouped(c.Grouped); err != nil {
		return fmt.Errorf("audit: Grouped: %w", err)
	}
	switch {
	case c.Dir == "":
		return errors.New("audit: Dir is empty")
	case !validNode(c.Node):
		return fmt.Errorf("audit: Node %q is no name of 1 to %d bytes", c.Node, maxNodeLength)
	case c.SegmentBytes < MinSegmentBytes || c.SegmentBytes > MaxSegmentBytes:
		return fmt.Errorf("audit: SegmentBytes is %d; give %d to %d", c.SegmentBytes, MinSegmentBytes, MaxSegmentBytes)
	case c.SegmentAge < time.Second:
		return fmt.Errorf("audit: SegmentAge is %v; give a second at least", c.SegmentAge)
	case c.ReserveBytes < 0 || c.ReserveBytes > MaxReserveBytes:
		return fmt.Errorf("audit: ReserveBytes is %d; give 1 to %d, or 0 for the default", c.ReserveBytes, MaxReserveBytes)
	}
	return nil
}

// Log is the journal of one node. All methods are safe for concurrent use.
type Log struct {
	config   Config
	metrics  *metrics
	flood    *flood
	writer   *writer // the writing goroutine's, and Close's after it
	recovery Recovery
	waiters  sync.Pool
	wake     chan struct{} // capacity 1: something is pending, or Close was called
	flushes  chan chan struct{}

	// The writing goroutine's.
	pace        pace
	gatherer    *time.Timer
	enough      chan struct{} // capacity 1: as much is pending as is expected
	closeSignal chan struct{} // closed by Close

	lag     lag
	stopped chan struct{}

	closing  sync.Once
	closeErr error

	mu       sync.Mutex // guards the rest; nothing else is locked under it
	pending  []*waiter
	expected int    // how many pending entries end the wait for more
	backlog  int    // accepted and not answered
	head     Head   // of what is durable
	segment  uint64 // the first record of the one that holds head
	refusing bool   // the disk refused grouped entries, which wait in pending
	closed   bool   // Close was called
	failure  error  // why the log stopped
}

var _ kms.Journal = (*Log)(nil)

// Open opens the journal in c.Dir, or begins one, and continues its chain. It
// verifies the last segment; what a crash left of an unfinished write is cut
// off (see Recovery). A *CorruptError says that the segment was altered in
// another way. ctx ends the verification. Only one Log can have a folder
// open.
func Open(ctx context.Context, c Config) (*Log, error) {
	if err := c.complete(); err != nil {
		return nil, err
	}
	f, err := openFolder(c.Dir)
	if err != nil {
		return nil, err
	}
	return openOn(ctx, c, f)
}

// openOn opens the journal on a storage, which it closes when it fails.
func openOn(ctx context.Context, c Config, s storage) (*Log, error) {
	m := newMetrics()
	w, recovery, err := openWriter(ctx, c, s, m)
	if err != nil {
		s.close()
		return nil, err
	}
	if err := m.register(c.Registerer); err != nil {
		return nil, errors.Join(fmt.Errorf("audit: registering metrics: %w", err), w.close())
	}
	l := &Log{
		config:   c,
		metrics:  m,
		flood:    newFlood(),
		writer:   w,
		recovery: recovery,
		wake:     make(chan struct{}, 1),
		flushes:  make(chan chan struct{}),
		stopped:  make(chan struct{}),
		head:     w.head,
		segment:  w.headSegment,

		gatherer:    newStoppedTimer(),
		enough:      make(chan struct{}, 1),
		closeSignal: make(chan struct{}),
	}
	l.waiters.New = func() any { return &waiter{done: make(chan error, 1)} }
	go l.run()
	return l, nil
}

// Record appends e and returns nil when it is durable. Any error carries
// kms.KindAuditUnavailable and means that the answer must be withheld. The end
// of ctx does not end the wait: whether the client has left or not, the entry
// is recorded, and what its caller does next depends on it.
//
// Refusals of a flood are counted instead and recorded together, within about
// a second; for these Record returns nil at once.
func (l *Log) Record(_ context.Context, e *kms.Entry) error {
	if isRefusal(e) && l.flood.absorb(l.config.Clock(), e) {
		l.metrics.aggregated.Inc()
		return nil
	}
	if l.isGrouped(e) {
		return l.recordGrouped(e)
	}
	w := l.waiter(e)
	if err := l.enqueue(w); err != nil {
		l.recycle(w)
		return err
	}
	err := <-w.done
	l.recycle(w)
	return err
}

// RecordAll is Record of several entries at once: they are written together,
// and it waits once. The errors stand in the order of the entries.
func (l *Log) RecordAll(_ context.Context, entries []*kms.Entry) []error {
	errs := make([]error, len(entries))
	waiters := make([]*waiter, len(entries)) // nil: the entry needs none
	first := true
	for i, e := range entries {
		switch {
		case isRefusal(e) && l.flood.absorb(l.config.Clock(), e):
			l.metrics.aggregated.Inc()
		case l.isGrouped(e):
			errs[i] = l.recordGrouped(e)
		default:
			waiters[i] = l.waiter(e)
			waiters[i].follows, first = !first, false
		}
	}
	l.enqueueAll(waiters, errs)
	for i, w := range waiters {
		if w == nil {
			continue
		}
		if errs[i] == nil {
			errs[i] = <-w.done
		}
		l.recycle(w)
	}
	return errs
}

// enqueueAll enqueues under one lock, so that the writing goroutine takes all
// or none.
func (l *Log) enqueueAll(waiters []*waiter, errs []error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, w := range waiters {
		if w != nil {
			errs[i] = l.enqueueLocked(w)
		}
	}
}

var (
	errBacklog = kms.Errorf(kms.KindAuditUnavailable, "more entries wait for the journal than may")
	errClosed  = kms.Errorf(kms.KindAuditUnavailable, "the journal is closed")
)

func (l *Log) enqueue(w *waiter) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.enqueueLocked(w)
}

func (l *Log) enqueueLocked(w *waiter) error {
	switch {
	case l.failure != nil:
		return l.failure
	case l.closed:
		return errClosed
	case l.backlog >= maxBacklog:
		l.metrics.failed(causeBacklog, 1)
		return errBacklog
	}
	l.pending = append(l.pending, w)
	l.backlog++
	if w.grouped {
		l.signalGroupedLocked()
		return nil
	}
	l.signal()
	if len(l.pending) == l.expected {
		select {
		case l.enough <- struct{}{}:
		default:
		}
	}
	return nil
}

// signal wakes the writing goroutine, or makes its next wait short.
func (l *Log) signal() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// Head returns the last durable record. What a reader finds beyond it may
// still be withdrawn.
func (l *Log) Head() Head {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.head
}

// position returns the last durable record and the first record of its segment.
func (l *Log) position() (head Head, segment uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.head, l.segment
}

// flush returns when all that was recorded before, refusals of a flood too, is
// durable, or the log has stopped.
func (l *Log) flush() {
	done := make(chan struct{})
	select {
	case l.flushes <- done:
	case <-l.stopped:
		return
	}
	select {
	case <-done:
	case <-l.stopped:
	}
}

// Recovery tells what Open cut off.
func (l *Log) Recovery() Recovery { return l.recovery }

// Done is closed when the log has stopped, by Close or by a failure after
// which it must not go on; Err tells which. The process should then end.
func (l *Log) Done() <-chan struct{} { return l.stopped }

// Err returns why the log stopped, nil while it runs and after a Close that
// found nothing wrong.
func (l *Log) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failure
}

// Close records what was accepted, and the refusals counted, and releases the
// folder. It returns Err, or what went wrong while closing. Further calls wait
// for the first and return the same.
func (l *Log) Close() error {
	l.closing.Do(func() {
		l.flood.close()
		l.mu.Lock()
		l.closed = true
		l.mu.Unlock()
		close(l.closeSignal)
		l.signal()
		<-l.stopped
		l.metrics.unregister(l.config.Registerer)
		if l.closeErr = l.Err(); l.closeErr != nil {
			l.closeErr = errors.Join(l.closeErr, l.writer.abandon())
		} else {
			l.closeErr = l.writer.close()
		}
	})
	return l.closeErr
}
