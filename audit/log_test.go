package audit

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/sluice-kms/sluice/kms"
)

func TestJournalIsReadBackInOrderThroughRestarts(t *testing.T) {
	c := testConfig(t)
	c.SegmentBytes = MinSegmentBytes
	var want []*kms.Entry
	for range 3 {
		l := mustOpen(t, c)
		for range 20 {
			e := testEntry(len(want))
			want = append(want, e)
			mustRecord(t, l, e)
		}
		if l.Recovery() != (Recovery{}) {
			t.Errorf("a closed journal was cut: %+v", l.Recovery())
		}
		mustClose(t, l)
	}
	got := readAll(t, c.Dir)
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%d entries read back differ from the %d recorded", len(got), len(want))
	}
	report := mustVerify(t, c.Dir, len(want))
	if report.Segments < 5 {
		t.Errorf("%d segments of %d bytes", report.Segments, c.SegmentBytes)
	}
	for _, name := range segments(t, c.Dir) {
		info, err := os.Stat(filepath.Join(c.Dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if info.Size() > c.SegmentBytes {
			t.Errorf("segment %s has %d bytes", name, info.Size())
		}
	}
}

func TestReadBeginsWhereItIsTold(t *testing.T) {
	const entries = 30
	c := testConfig(t)
	c.SegmentBytes = MinSegmentBytes
	l := mustOpen(t, c)
	defer mustClose(t, l)
	for i := range entries {
		mustRecord(t, l, testEntry(i))
	}
	for from := range uint64(entries + 3) {
		next := max(from, 1)
		err := Read(c.Dir, from, func(e *kms.Entry, p Position) error {
			if p.Sequence != next || e.RequestID != requestID(int(next-1)) {
				return fmt.Errorf("sequence %d with entry %v, want %d", p.Sequence, e.RequestID, next)
			}
			next++
			return nil
		})
		if err != nil || next != max(entries+1, from) {
			t.Errorf("from %d the reading ended before %d: %v", from, next, err)
		}
	}
	stop := fmt.Errorf("enough")
	if err := Read(c.Dir, 5, func(*kms.Entry, Position) error { return stop }); err != stop {
		t.Errorf("the function's error came back as %v", err)
	}
	if err := os.Remove(filepath.Join(c.Dir, segments(t, c.Dir)[0])); err != nil {
		t.Fatal(err)
	}
	if err := Read(c.Dir, 1, func(*kms.Entry, Position) error { return nil }); err != ErrNoSuchRecord {
		t.Errorf("a record of a segment that was taken away: %v", err)
	}
}

func TestHeadIsThatOfTheReader(t *testing.T) {
	c := testConfig(t)
	l := mustOpen(t, c)
	if l.Head() != (Head{}) {
		t.Errorf("the head of an empty journal is %v", l.Head())
	}
	for i := range 5 {
		mustRecord(t, l, testEntry(i))
	}
	head := l.Head()
	mustClose(t, l)
	if report := mustVerify(t, c.Dir, 5); report.Head != head {
		t.Errorf("the log's head is %v, the reader's %v", head, report.Head)
	}
	l = mustOpen(t, c)
	defer mustClose(t, l)
	if l.Head() != head {
		t.Errorf("after a restart the head is %v, want %v", l.Head(), head)
	}
}

func TestModesWhateverTheUmask(t *testing.T) {
	for _, umask := range []int{0, 0o777} {
		t.Run(fmt.Sprintf("%03o", umask), func(t *testing.T) {
			c := testConfig(t)
			old := syscall.Umask(umask)
			l, err := Open(t.Context(), c)
			syscall.Umask(old)
			if err != nil {
				t.Fatal(err)
			}
			mustRecord(t, l, testEntry(1))
			mustClose(t, l)
			info, err := os.Stat(c.Dir)
			if err != nil || info.Mode() != fs.ModeDir|0o700 {
				t.Errorf("the folder has mode %v, %v", info.Mode(), err)
			}
			for _, name := range segments(t, c.Dir) {
				info, err := os.Stat(filepath.Join(c.Dir, name))
				if err != nil || info.Mode() != 0o600 {
					t.Errorf("segment %s has mode %v, %v", name, info.Mode(), err)
				}
			}
		})
	}
}

func TestOpenRefuses(t *testing.T) {
	tests := []struct {
		name   string
		change func(t *testing.T, c *Config)
		want   string
	}{
		{"no folder named", func(_ *testing.T, c *Config) { c.Dir = "" }, "Dir"},
		{"folder without parent", func(_ *testing.T, c *Config) { c.Dir += "/a/b" }, "no such file"},
		{"folder open to others", func(t *testing.T, c *Config) {
			if err := os.Mkdir(c.Dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}, "others"},
		{"no node", func(_ *testing.T, c *Config) { c.Node = "" }, "Node"},
		{"long node", func(_ *testing.T, c *Config) { c.Node = strings.Repeat("n", 65) }, "Node"},
		{"node of another name", func(t *testing.T, c *Config) {
			mustClose(t, mustOpen(t, *c))
			c.Node = "node-2"
		}, "node-1"},
		{"small segment", func(_ *testing.T, c *Config) { c.SegmentBytes = 1 }, "SegmentBytes"},
		{"large segment", func(_ *testing.T, c *Config) { c.SegmentBytes = 1 << 40 }, "SegmentBytes"},
		{"short age", func(_ *testing.T, c *Config) { c.SegmentAge = 1 }, "SegmentAge"},
		{"negative reserve", func(_ *testing.T, c *Config) { c.ReserveBytes = -1 }, "ReserveBytes"},
		{"large reserve", func(_ *testing.T, c *Config) { c.ReserveBytes = 1 << 40 }, "ReserveBytes"},
		{"registry that has the metrics", func(t *testing.T, c *Config) {
			c.Registerer = prometheus.NewRegistry()
			if err := newMetrics().register(c.Registerer); err != nil {
				t.Fatal(err)
			}
		}, "metrics"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := testConfig(t)
			tt.change(t, &c)
			l, err := Open(t.Context(), c)
			if err == nil {
				l.Close()
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want an error with %q", err, tt.want)
			}
		})
	}
}

func TestOneLogPerFolder(t *testing.T) {
	c := testConfig(t)
	l := mustOpen(t, c)
	if second, err := Open(t.Context(), c); err == nil {
		second.Close()
		t.Error("the folder was opened twice")
	}
	mustClose(t, l)
	mustClose(t, mustOpen(t, c))
}

func TestOpenRemovesASegmentThatWasNeverPublished(t *testing.T) {
	c := testConfig(t)
	mustClose(t, mustOpen(t, c))
	stray := filepath.Join(c.Dir, segmentName(5)+temporarySuffix)
	other := filepath.Join(c.Dir, "notes.tmp")
	for _, path := range []string{stray, other} {
		if err := os.WriteFile(path, []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	mustClose(t, mustOpen(t, c))
	if _, err := os.Stat(stray); !os.IsNotExist(err) {
		t.Errorf("the unpublished segment is still there: %v", err)
	}
	if _, err := os.Stat(other); err != nil {
		t.Errorf("a file of somebody else was removed: %v", err)
	}
}

func TestVerificationAtStartCanBeCancelled(t *testing.T) {
	c := testConfig(t)
	l := mustOpen(t, c)
	mustRecord(t, l, testEntry(1))
	mustClose(t, l)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if l, err := Open(ctx, c); err == nil {
		l.Close()
		t.Error("opened with a cancelled context")
	}
	mustClose(t, mustOpen(t, c)) // and the lock was given back
}

// gate is a before that lets syncs through one by one once it is shut.
type gate struct {
	mu    sync.Mutex
	shut  bool
	open  chan struct{}
	syncs int
}

func newGate() *gate { return &gate{open: make(chan struct{})} }

func (g *gate) before(op string) error {
	g.mu.Lock()
	if op == opSync {
		g.syncs++
	}
	wait := op == opSync && g.shut
	g.mu.Unlock()
	if wait {
		<-g.open
	}
	return nil
}

func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut, g.syncs = true, 0
}

// openGated opens a journal on a storage whose syncs then wait for the gate.
func openGated(t *testing.T) (*Log, *gate, Config) {
	t.Helper()
	g, c := newGate(), testConfig(t)
	l, _ := openFault(t, c, g.before)
	g.close()
	return l, g, c
}

func TestEntriesThatWaitShareOneSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const entries = 64
		l, g, c := openGated(t)
		acknowledged := 0
		var mu sync.Mutex
		for i := range entries {
			go func() {
				if err := l.Record(t.Context(), testEntry(i)); err != nil {
					t.Error(err)
				}
				mu.Lock()
				acknowledged++
				mu.Unlock()
			}()
			if i == 0 {
				synctest.Wait() // the first is being synced, the others wait
			}
		}
		synctest.Wait()
		if acknowledged != 0 {
			t.Errorf("%d entries were acknowledged before any sync", acknowledged)
		}
		g.open <- struct{}{}
		synctest.Wait()
		if acknowledged != 1 {
			t.Errorf("%d entries were acknowledged after the first sync, want 1", acknowledged)
		}
		g.open <- struct{}{}
		synctest.Wait()
		if acknowledged != entries || g.syncs != 2 {
			t.Errorf("%d entries were acknowledged after %d syncs, want %d after 2", acknowledged, g.syncs, entries)
		}
		mustClose(t, l)
		mustVerify(t, c.Dir, entries)
	})
}

func TestBacklogIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, g, c := openGated(t)
		for i := range maxBacklog {
			go func() {
				if err := l.Record(t.Context(), testEntry(i)); err != nil {
					t.Error(err)
				}
			}()
		}
		synctest.Wait()
		// Nothing waits for the gate here: the answer comes at once.
		if err := l.Record(t.Context(), testEntry(maxBacklog)); kms.KindOf(err) != kms.KindAuditUnavailable {
			t.Errorf("an entry beyond the bound: %v", err)
		}
		close(g.open)
		synctest.Wait()
		mustRecord(t, l, testEntry(maxBacklog+1))
		mustClose(t, l)
		mustVerify(t, c.Dir, maxBacklog+1)
	})
}

func TestRecordWaitsForTheDiskThoughTheClientHasLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, g, c := openGated(t)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		returned := false
		go func() {
			if err := l.Record(ctx, testEntry(1)); err != nil {
				t.Error(err)
			}
			returned = true
		}()
		synctest.Wait()
		if returned {
			t.Error("Record returned before the entry was durable")
		}
		close(g.open)
		synctest.Wait()
		if !returned {
			t.Error("Record has not returned")
		}
		mustClose(t, l)
		mustVerify(t, c.Dir, 1)
	})
}

func TestCloseRecordsWhatWasAccepted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const entries = 20
		l, g, c := openGated(t)
		for i := range entries {
			go func() {
				if err := l.Record(t.Context(), testEntry(i)); err != nil {
					t.Error(err)
				}
			}()
		}
		synctest.Wait()
		closed := false
		go func() {
			if err := l.Close(); err != nil {
				t.Error(err)
			}
			closed = true
		}()
		synctest.Wait()
		if err := l.Record(t.Context(), testEntry(entries)); kms.KindOf(err) != kms.KindAuditUnavailable {
			t.Errorf("recorded after Close: %v", err)
		}
		if closed {
			t.Error("Close did not wait")
		}
		close(g.open)
		synctest.Wait()
		<-l.Done()
		if !closed || l.Err() != nil {
			t.Errorf("Close returned: %v; the log stopped with %v", closed, l.Err())
		}
		mustClose(t, l) // again: no harm
		mustVerify(t, c.Dir, entries)
	})
}

func TestSegmentEndsAtItsAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := testConfig(t)
		c.SegmentAge = time.Hour
		l := mustOpen(t, c)
		<-time.After(3 * time.Hour)
		if got := len(segments(t, c.Dir)); got != 1 {
			t.Errorf("an empty segment grew old and became %d", got)
		}
		mustRecord(t, l, testEntry(1))
		<-time.After(2 * time.Second) // the segment was old already
		mustRecord(t, l, testEntry(2))
		<-time.After(time.Hour + 2*time.Second)
		synctest.Wait()
		if got := len(segments(t, c.Dir)); got != 3 {
			t.Errorf("%d segments, want one per entry and a new one", got)
		}
		mustClose(t, l)
		mustVerify(t, c.Dir, 2)
	})
}

func TestMetricsTellWhatHappened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := testConfig(t)
		registry := prometheus.NewRegistry()
		c.Registerer = registry
		l := mustOpen(t, c)
		intent := testEntry(1)
		intent.Phase = kms.PhaseIntent
		mustRecord(t, l, intent, testEntry(2), testEntry(3))
		for range floodRate + 5 {
			mustRecord(t, l, refusal(1))
		}
		mustRecordAfter(t, l)
		err := testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP sluice_audit_entries_total Entries made durable, by phase.
# TYPE sluice_audit_entries_total counter
sluice_audit_entries_total{phase="intent"} 1
sluice_audit_entries_total{phase="outcome"} 13
# HELP sluice_audit_aggregated_requests_total Refused requests that share an entry with others.
# TYPE sluice_audit_aggregated_requests_total counter
sluice_audit_aggregated_requests_total 5
# HELP sluice_audit_reserve_bytes Disk space held for entries of state changes; 0 also where the file system cannot hold any.
# TYPE sluice_audit_reserve_bytes gauge
sluice_audit_reserve_bytes 65536
`), "sluice_audit_entries_total", "sluice_audit_aggregated_requests_total", "sluice_audit_reserve_bytes")
		if err != nil {
			t.Error(err)
		}
		for _, name := range []string{
			"sluice_audit_batch_entries", "sluice_audit_fsync_seconds", "sluice_audit_backlog_entries", "sluice_audit_errors_total",
		} {
			if n, err := testutil.GatherAndCount(registry, name); n == 0 || err != nil {
				t.Errorf("%s: %d series, %v", name, n, err)
			}
		}
		if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) > 0 {
			t.Errorf("lint: %v %v", problems, err)
		}
		mustClose(t, l)
		mustClose(t, mustOpen(t, c)) // Close has unregistered them
	})
}

// mustRecordAfter waits in virtual time until a flood was written.
func mustRecordAfter(t *testing.T, l *Log) {
	t.Helper()
	head := l.Head()
	<-time.After(floodWindow + time.Millisecond)
	synctest.Wait()
	if l.Head() == head {
		t.Fatal("the flood was not written")
	}
}
