package audit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-kms/sluice/kms"
)

// The pace of shipping.
const (
	// shipInterval is how often the journal is looked at for what is new. It
	// bounds how old the trail is, and how many transactions a quiet node
	// makes.
	shipInterval = 500 * time.Millisecond
	// shipBatch and shipBatchBytes bound one transaction, and so how long
	// others wait to write to a database that takes one writer at a time.
	shipBatch      = 2000
	shipBatchBytes = 2 << 20
	// shipTimeout bounds one transaction.
	shipTimeout = 30 * time.Second
	// heartbeat is how often a node with nothing to ship tells that.
	heartbeat = 5 * time.Second
	// maxBackOff bounds the pause after failures, which doubles.
	maxBackOff = 10 * time.Second
	// closeTimeout bounds what Close still ships; the next start ships the rest.
	closeTimeout = 5 * time.Second
	// recordSlack is how long after its time an entry may come into the
	// journal: floods are counted for a second (flood.go).
	recordSlack = 2 * floodWindow

	// trimInterval is how often what is too old is removed, trimBatch how much
	// of each kind in one transaction. While there is more it goes on with
	// every batch, so that it keeps up with what comes.
	trimInterval = time.Minute
	trimBatch    = shipBatch
)

// Retention is how long the trail and usage are kept in the database. The
// journal's files are not touched.
type Retention struct {
	Entries time.Duration
	Usage   map[kms.Granularity]time.Duration
}

// ShipperConfig is what a Shipper needs; every field is required, but
// Registerer.
type ShipperConfig struct {
	Journal    *Log
	Trail      kms.TrailWriter
	Keep       Retention
	Log        *slog.Logger
	Clock      func() time.Time
	Registerer prometheus.Registerer
}

// Shipper copies a node's journal into the audit trail: from where the trail
// ends, in batches, each of which counts once whatever crashes. It reads the
// journal's files, so it holds up no request. While the database is away it
// waits, and while the trail does not fit the journal it refuses.
type Shipper struct {
	config ShipperConfig
	tail   *Tail // nil: to be opened where the trail ends
	load   load
	until  time.Time
	failed bool // the last attempt: the log has the first of a row
	back   time.Duration
	beat   time.Time // of the last batch
	trim   time.Time // when to trim next

	stop  context.CancelFunc
	ended chan struct{}

	entries, failures prometheus.Counter
	lag               prometheus.GaugeFunc

	mu      sync.Mutex // guards the rest; nothing else is locked under it
	shipped uint64     // sequence
	current time.Time  // when all that was durable was shipped last
}

// StartShipper starts to ship. Close ends it.
func StartShipper(c ShipperConfig) (*Shipper, error) {
	ctx, stop := context.WithCancel(context.Background())
	s := &Shipper{config: c, stop: stop, ended: make(chan struct{}), current: c.Clock(),
		entries: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "sluice_audit_shipped_entries_total", Help: "Entries of the journal that came into the audit trail."}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "sluice_audit_ship_failures_total", Help: "Attempts to ship the journal that failed."}),
	}
	s.lag = prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "sluice_audit_ship_lag_seconds",
		Help: "For how long the audit trail has been behind the journal; 0 when it is not. More than 10 is a reason to look."},
		func() float64 { return s.Lag().Seconds() })
	if c.Registerer != nil {
		for _, m := range s.collectors() {
			if err := c.Registerer.Register(m); err != nil {
				stop()
				return nil, fmt.Errorf("audit: registering metrics: %w", err)
			}
		}
	}
	go s.run(ctx)
	return s, nil
}

func (s *Shipper) collectors() []prometheus.Collector {
	return []prometheus.Collector{s.entries, s.failures, s.lag}
}

// Lag is for how long the trail has been behind the journal.
func (s *Shipper) Lag() time.Duration {
	head := s.config.Journal.Head().Sequence
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shipped >= head {
		return 0
	}
	return max(s.config.Clock().Sub(s.current), 0)
}

// Close ships what is left, if that takes seconds only, and ends. It comes
// before the journal's Close and the database's.
func (s *Shipper) Close() error {
	s.stop()
	<-s.ended
	if s.config.Registerer != nil {
		for _, m := range s.collectors() {
			s.config.Registerer.Unregister(m)
		}
	}
	return nil
}

func (s *Shipper) run(ctx context.Context) {
	defer close(s.ended)
	defer s.closeTail()
	tick := time.NewTimer(0)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.Background(), closeTimeout)
			defer cancel()
			for s.step(last, true) {
			}
			return
		case <-tick.C:
		}
		for s.step(ctx, false) && ctx.Err() == nil {
		}
		tick.Reset(max(shipInterval, s.back))
	}
}

// step ships one batch and tells whether to go on at once. last is that of
// Close.
func (s *Shipper) step(ctx context.Context, last bool) (more bool) {
	ctx, cancel := context.WithTimeout(ctx, shipTimeout)
	defer cancel()
	more, err := s.ship(ctx, last)
	if err == nil && !last {
		err = s.trimDue(ctx)
	}
	if err == nil {
		s.failed, s.back = false, 0
		return more
	}
	s.failures.Inc()
	s.closeTail()
	s.back = min(max(2*s.back, shipInterval), maxBackOff)
	if !s.failed && ctx.Err() != context.Canceled {
		s.failed = true
		s.config.Log.Error("the journal is not shipped to the audit trail", slog.Any("error", err))
	}
	return false
}

// ship ships the next batch, if there is one.
func (s *Shipper) ship(ctx context.Context, last bool) (more bool, err error) {
	if err := s.open(ctx); err != nil {
		return false, err
	}
	now := s.config.Clock()
	head := s.config.Journal.Head()
	batch := &kms.TrailBatch{Node: s.config.Journal.config.Node, After: trailHead(s.tail.Head())}
	if err := s.load.fill(batch, s.tail, head.Sequence); err != nil {
		return false, err
	}
	batch.Head = trailHead(s.tail.Head())
	current := batch.Head.Sequence >= head.Sequence
	switch {
	case current:
		s.until = later(s.until, now.Add(-recordSlack))
	case len(batch.Entries) > 0:
		s.until = later(s.until, batch.Entries[len(batch.Entries)-1].Entry.Time.Add(-recordSlack))
	}
	batch.Until, batch.Ended = s.until, last && current
	if len(batch.Entries) > 0 || last || now.Sub(s.beat) >= heartbeat {
		if err := s.config.Trail.Ship(ctx, batch); err != nil {
			return false, err
		}
		s.beat = now
		s.entries.Add(float64(len(batch.Entries)))
	}
	s.note(batch.Head.Sequence, now, current)
	return !current, nil
}

// open opens the journal where the trail ends.
func (s *Shipper) open(ctx context.Context) error {
	if s.tail != nil {
		return nil
	}
	c := &s.config.Journal.config
	shipped, err := s.config.Trail.Shipped(ctx, c.Node)
	if err != nil {
		return err
	}
	s.until = later(s.until, shipped.Until)
	s.tail, err = OpenTail(c.Dir, Head{shipped.Head.Sequence, shipped.Head.Hash}, c.SM3)
	if _, corrupt := errors.AsType[*CorruptError](err); corrupt || errors.Is(err, ErrNoSuchRecord) {
		return fmt.Errorf("the trail has record %d of this node's journal, which does not continue there; "+
			"put the missing segments back, or give a node with a new journal a new name: %w", shipped.Head.Sequence, err)
	}
	return err
}

// load is the memory of a batch, which is used for one after the other: some 3
// MiB, of a node that has had much to ship.
type load struct {
	list     []kms.TrailEntry
	entries  []*kms.Entry
	payloads []byte
}

// fill takes entries up to a sequence into a batch.
func (l *load) fill(batch *kms.TrailBatch, tail *Tail, until uint64) error {
	if err := tail.refresh(); err != nil {
		return err
	}
	var sums usageSums
	l.list, l.payloads = l.list[:0], l.payloads[:0]
	for n := 0; n < shipBatch && len(l.payloads) < shipBatchBytes; n++ {
		if n == len(l.entries) {
			l.entries = append(l.entries, new(kms.Entry))
		}
		e := l.entries[n]
		payload, sequence, err := tail.Next(until, e)
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		begin := len(l.payloads)
		l.payloads = append(l.payloads, payload...)
		l.list = append(l.list, kms.TrailEntry{Node: batch.Node, Sequence: sequence, Time: e.Time, Tenant: e.Tenant,
			Project: e.Project, Payload: l.payloads[begin:len(l.payloads):len(l.payloads)], Entry: e})
		sums.add(e)
	}
	batch.Entries, batch.Usage = l.list, sums.rows()
	return nil
}

// note tells Lag how far it is.
func (s *Shipper) note(sequence uint64, now time.Time, current bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shipped = sequence
	if current {
		s.current = now
	}
}

// trimDue removes what is too old, when it is time to.
func (s *Shipper) trimDue(ctx context.Context) error {
	now := s.config.Clock()
	if now.Before(s.trim) {
		return nil
	}
	before := kms.TrailBounds{Entries: now.Add(-s.config.Keep.Entries), Usage: make(map[kms.Granularity]time.Time)}
	for g, d := range s.config.Keep.Usage {
		before.Usage[g] = now.Add(-d)
	}
	more, err := s.config.Trail.TrimTrail(ctx, before, trimBatch)
	if err == nil && !more {
		s.trim = now.Add(trimInterval)
	}
	return err
}

func (s *Shipper) closeTail() {
	if s.tail != nil {
		s.tail.Close()
		s.tail = nil
	}
}

func trailHead(h Head) kms.TrailHead { return kms.TrailHead{Sequence: h.Sequence, Hash: h.Hash} }

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
