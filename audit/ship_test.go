package audit

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-kms/sluice/keystore"
	"github.com/sluice-kms/sluice/keystore/sqlite"
	"github.com/sluice-kms/sluice/kms"
)

// testTrail is a trail in a new SQLite database.
func testTrail(t testing.TB) *keystore.Store {
	t.Helper()
	db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "trail.db"))
	if err != nil {
		t.Fatal(err)
	}
	store := keystore.New(db, keystore.Options{})
	t.Cleanup(func() { store.Close() })
	return store
}

// messages are what a shipper logs.
type messages struct {
	mu   sync.Mutex
	text strings.Builder
}

func (m *messages) Write(b []byte) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.text.Write(b)
}

func (m *messages) String() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.text.String()
}

func shipperOf(t testing.TB, l *Log, trail kms.TrailWriter, said *messages) ShipperConfig {
	t.Helper()
	const kept = 100 * 365 * 24 * time.Hour
	c := ShipperConfig{Journal: l, Trail: trail, Log: slog.New(slog.DiscardHandler), Clock: time.Now, Registerer: prometheus.NewRegistry(),
		Keep: Retention{Entries: kept, Usage: map[kms.Granularity]time.Duration{kms.ByMinute: kept, kms.ByHour: kept, kms.ByDay: kept}}}
	if said != nil {
		c.Log = slog.New(slog.NewTextHandler(said, nil))
	}
	return c
}

func mustShip(t testing.TB, c ShipperConfig) *Shipper {
	t.Helper()
	s, err := StartShipper(c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// shippedAll reads the whole trail, in the order of arrival.
func shippedAll(t testing.TB, trail kms.Trail) (all []kms.TrailEntry) {
	t.Helper()
	q := kms.TrailQuery{Order: kms.ByArrival, Page: kms.Page{Size: kms.MaxPageSize}}
	for {
		page, err := trail.TrailEntries(context.Background(), &q)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, page.Entries...)
		if q.Page.Token = page.Next; page.Next == "" {
			return all
		}
	}
}

// wantTrail fails unless the trail has what the journal has, in its order, and
// its usage is the sum of that, by every granularity.
func wantTrail(t testing.TB, dir string, trail kms.Trail, entries int) {
	t.Helper()
	shipped := shippedAll(t, trail)
	n := 0
	var sum kms.UsageSum
	err := Read(dir, 1, func(e *kms.Entry, p Position) error {
		if n < len(shipped) && (shipped[n].Sequence != p.Sequence || string(shipped[n].Payload) != string(appendEntry(nil, e))) {
			return errors.New("the trail has another entry")
		}
		n++
		if _, s, ok := e.Usage(); ok {
			sum.Add(s)
		}
		return nil
	})
	if err != nil || n != len(shipped) || n != entries {
		t.Fatalf("the trail has %d entries, the journal %d, want %d: %v", len(shipped), n, entries, err)
	}
	for _, g := range kms.Granularities() {
		rows, err := trail.Usage(context.Background(), &kms.UsageQuery{Granularity: g, From: time.Unix(0, 0), To: time.Now().AddDate(10, 0, 0)})
		if err != nil {
			t.Fatal(err)
		}
		var usage kms.UsageSum
		for _, u := range rows {
			usage.Add(u.UsageSum)
		}
		if usage != sum {
			t.Errorf("usage by %s is %+v, the journal says %+v", g, usage, sum)
		}
	}
}

// Every entry comes into the trail once, through all segments, whenever the
// shipper is stopped and started; usage is their sum.
func TestTheJournalIsShippedOnce(t *testing.T) {
	c := testConfig(t)
	c.SegmentBytes = MinSegmentBytes
	trail := testTrail(t)
	const lives, each = 6, 300
	for life := range lives {
		l := mustOpen(t, c)
		s := mustShip(t, shipperOf(t, l, trail, nil))
		for i := range each {
			e := testEntry(life*each + i)
			switch i % 5 {
			case 1:
				e.Phase, e.Outcome, e.Charged = kms.PhaseIntent, "", 0
			case 2:
				e.Outcome, e.Cost, e.Charged, e.Count = "not_found", 0, 0, 17
			}
			if i%5 == 2 {
				// Aggregated ones are written as they are.
				if err := l.enqueueForTest(e); err != nil {
					t.Fatal(err)
				}
				continue
			}
			mustRecord(t, l, e)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		mustClose(t, l)
	}
	if n := len(segments(t, c.Dir)); n < 10 {
		t.Fatalf("only %d segments: the test crosses too few", n)
	}
	wantTrail(t, c.Dir, trail, lives*each)
	nodes, err := trail.ShippedNodes(t.Context())
	if err != nil || len(nodes) != 1 || !nodes[0].Ended || nodes[0].Head.Sequence != lives*each {
		t.Errorf("%+v, %v", nodes, err)
	}
}

// enqueueForTest records an entry whatever floods there are.
func (l *Log) enqueueForTest(e *kms.Entry) error {
	w := l.waiter(e)
	if err := l.enqueue(w); err != nil {
		return err
	}
	return <-w.done
}

// shaky is a trail that fails before or after it has done what it is asked.
type shaky struct {
	*keystore.Store
	calls atomic.Int64
}

var errShaky = errors.New("the connection broke")

func (s *shaky) Ship(ctx context.Context, b *kms.TrailBatch) error {
	switch s.calls.Add(1) % 3 {
	case 0:
		return errShaky
	case 1:
		if err := s.Store.Ship(ctx, b); err != nil {
			return err
		}
		return errShaky // but it is stored
	}
	return s.Store.Ship(ctx, b)
}

// Batches that fail, and batches of which nobody learns that they were stored,
// are shipped once; the log has a failure once.
func TestBatchesOfUnknownOutcomeCountOnce(t *testing.T) {
	c := testConfig(t)
	l := mustOpen(t, c)
	defer mustClose(t, l)
	const all = 5000
	var writers sync.WaitGroup
	for w := range 50 {
		writers.Go(func() {
			for i := range all / 50 {
				mustRecord(t, l, testEntry(w*all/50+i))
			}
		})
	}
	writers.Wait()
	trail := &shaky{Store: testTrail(t)}
	said := new(messages)
	s := mustShip(t, shipperOf(t, l, trail, said))
	for s.Lag() > 0 || trail.calls.Load() < 6 {
		<-time.After(10 * time.Millisecond)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	wantTrail(t, c.Dir, trail, all)
	if n := strings.Count(said.String(), "is not shipped"); n == 0 || n > int(trail.calls.Load()) {
		t.Errorf("it was said %d times in %d calls:\n%s", n, trail.calls.Load(), said)
	}
}

// A trail that has other records than the journal is left as it is, and why is
// told; a journal whose first segments are archived elsewhere goes on.
func TestATrailThatDoesNotFitIsRefused(t *testing.T) {
	c := testConfig(t)
	c.SegmentBytes = MinSegmentBytes
	l := mustOpen(t, c)
	trail := testTrail(t)
	for i := range 100 {
		mustRecord(t, l, testEntry(i))
	}
	s := mustShip(t, shipperOf(t, l, trail, nil))
	s.Close()
	mustClose(t, l)

	first := segments(t, c.Dir)[0]
	t.Run("ArchivedSegmentsAreNotMissed", func(t *testing.T) {
		if err := os.Rename(filepath.Join(c.Dir, first), filepath.Join(t.TempDir(), first)); err != nil {
			t.Fatal(err)
		}
		l := mustOpen(t, c)
		defer mustClose(t, l)
		mustRecord(t, l, testEntry(100))
		s := mustShip(t, shipperOf(t, l, trail, nil))
		s.Close()
		if n := len(shippedAll(t, trail)); n != 101 {
			t.Errorf("%d entries, want 101", n)
		}
	})
	t.Run("AnotherJournal", func(t *testing.T) {
		other := testConfig(t)
		l := mustOpen(t, other)
		defer mustClose(t, l)
		for i := range 200 {
			mustRecord(t, l, testEntry(1000+i))
		}
		said := new(messages)
		s := mustShip(t, shipperOf(t, l, trail, said))
		s.Close()
		if n := len(shippedAll(t, trail)); n != 101 || s.Lag() == 0 {
			t.Errorf("the trail has %d entries, the lag is %v", n, s.Lag())
		}
		if !strings.Contains(said.String(), "give a node with a new journal a new name") {
			t.Errorf("it says %s", said)
		}
	})
	t.Run("AShorterJournal", func(t *testing.T) {
		l := mustOpen(t, testConfig(t))
		defer mustClose(t, l)
		mustRecord(t, l, testEntry(0))
		said := new(messages)
		s := mustShip(t, shipperOf(t, l, trail, said))
		s.Close()
		if n := len(shippedAll(t, trail)); n != 101 || !strings.Contains(said.String(), string(FaultTail)) {
			t.Errorf("the trail has %d entries; it says %s", n, said)
		}
	})
}

// stuck is a trail that does not answer.
type stuck struct {
	kms.TrailWriter
	asked chan struct{}
}

func (s *stuck) Shipped(ctx context.Context, _ string) (kms.ShippedNode, error) {
	select {
	case s.asked <- struct{}{}:
	default:
	}
	<-ctx.Done()
	return kms.ShippedNode{}, ctx.Err()
}

// Requests do not wait for the database, however long that takes.
func TestADatabaseThatHangsHoldsUpNoRequest(t *testing.T) {
	l := mustOpen(t, testConfig(t))
	defer mustClose(t, l)
	trail := &stuck{asked: make(chan struct{}, 1)}
	s := mustShip(t, shipperOf(t, l, trail, nil))
	<-trail.asked
	began := time.Now()
	for i := range 500 {
		mustRecord(t, l, testEntry(i))
	}
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("500 entries took %v", took)
	}
	if s.Lag() == 0 {
		t.Error("nothing is behind")
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// BenchmarkShip ships a journal into SQLite: of few keys, as under heavy use, and
// of many, where usage is most of it. Other work on the machine does not count:
// cpu-entries/s is by the processor time that it took.
func BenchmarkShip(b *testing.B) {
	for _, keys := range []int{1, 200} {
		b.Run(fmt.Sprint(keys, "keys"), func(b *testing.B) { benchmarkShip(b, keys) })
	}
}

func benchmarkShip(b *testing.B, keys int) {
	c := testConfig(b)
	l := mustOpen(b, c)
	const writers = 64
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			for i := w; i < b.N; i += writers {
				e := testEntry(i)
				e.Key[5], e.Component = byte(i%keys/2), []string{"checkout", "gateway"}[i%keys%2]
				// A UUIDv7 of when it arrived, as the service gives (RFC 9562, 5.7).
				binary.BigEndian.PutUint64(e.RequestID[:], uint64(e.Time.UnixMilli())<<16|7<<12)
				mustRecord(b, l, e)
			}
		})
	}
	all.Wait()
	trail := testTrail(b)
	before := processorTime(b)
	b.ResetTimer()
	s := mustShip(b, shipperOf(b, l, trail, nil))
	for s.Lag() > 0 {
		<-time.After(time.Millisecond)
	}
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "entries/s")
	b.ReportMetric(float64(b.N)/(processorTime(b)-before).Seconds(), "cpu-entries/s")
	s.Close()
	mustClose(b, l)
}

// processorTime is what the process has used.
func processorTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
