package audit

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/sluice-kms/sluice/kms"
)

// The operations of a faultStorage.
const (
	opCreate   = "create"
	opWrite    = "write"
	opSync     = "sync"
	opTruncate = "truncate"
	opAllocate = "allocate"
	opPublish  = "publish"
)

// faultStorage is a real folder that fails, blocks and runs full on demand,
// and that can lose what was never synced, as a power cut does.
type faultStorage struct {
	*folder
	// before is called before each operation; its error becomes that of the
	// operation. It may block.
	before func(operation string) error

	mu   sync.Mutex // guards the rest
	free int64      // bytes left on the disk
	// durable is the content, by name, of what a power cut leaves; nil to
	// keep no account of it.
	durable map[string][]byte
}

const plenty = 1 << 40

func newFaultStorage(t testing.TB, c Config) *faultStorage {
	t.Helper()
	f, err := openFolder(c.Dir)
	if err != nil {
		t.Fatal(err)
	}
	return &faultStorage{
		folder: f,
		before: func(string) error { return nil },
		free:   plenty,
	}
}

// openLog opens the journal on the storage.
func (s *faultStorage) openLog(c Config) (*Log, error) {
	if err := c.complete(); err != nil {
		return nil, err
	}
	return openOn(context.Background(), c, s)
}

// openFault opens a journal on a faultStorage that before controls.
func openFault(t testing.TB, c Config, before func(string) error) (*Log, *faultStorage) {
	t.Helper()
	s := newFaultStorage(t, c)
	if before != nil {
		s.before = before
	}
	l, err := s.openLog(c)
	if err != nil {
		t.Fatal(err)
	}
	return l, s
}

func (s *faultStorage) create(name string) (segmentFile, error) {
	if err := s.before(opCreate); err != nil {
		return nil, err
	}
	f, err := s.folder.create(name)
	if err != nil {
		return nil, err
	}
	return &faultFile{segmentFile: f, storage: s, name: strings.TrimSuffix(name, temporarySuffix)}, nil
}

// open takes what stands in the file for durable.
func (s *faultStorage) open(name string) (segmentFile, error) {
	f, err := s.folder.open(name)
	if err != nil {
		return nil, err
	}
	content, err := os.ReadFile(filepath.Join(s.path, name))
	if err != nil {
		return nil, err
	}
	if s.durable != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.durable[name] = content
	}
	return &faultFile{segmentFile: f, storage: s, name: name, allocated: int64(len(content))}, nil
}

// publish, when it fails, has changed the name and not synced that.
func (s *faultStorage) publish(temporary, name string) error {
	err := s.before(opPublish)
	if err == nil && s.durable != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.durable[name], err = os.ReadFile(filepath.Join(s.path, temporary))
	}
	if failed := s.folder.publish(temporary, name); failed != nil {
		return failed
	}
	if err != nil {
		return &syncError{err}
	}
	return nil
}

// powerCut leaves of the folder what was synced.
func (s *faultStorage) powerCut(t testing.TB) {
	t.Helper()
	entries, err := os.ReadDir(s.path)
	if err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range entries {
		path := filepath.Join(s.path, e.Name())
		if content, ok := s.durable[e.Name()]; ok {
			err = os.WriteFile(path, content, fileMode)
		} else {
			err = os.Remove(path)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// faultFile is a segment on a faultStorage.
type faultFile struct {
	segmentFile
	storage   *faultStorage
	name      string // once it is published
	allocated int64  // guarded by storage.mu
}

// take uses up disk space up to the end; the error is ENOSPC.
func (f *faultFile) take(end int64) error {
	f.storage.mu.Lock()
	defer f.storage.mu.Unlock()
	need := end - f.allocated
	if need <= 0 {
		return nil
	}
	if need > f.storage.free {
		return &fs.PathError{Op: "write", Path: "segment", Err: syscall.ENOSPC}
	}
	f.storage.free -= need
	f.allocated = end
	return nil
}

// WriteAt writes half when it fails.
func (f *faultFile) WriteAt(p []byte, offset int64) (int, error) {
	err := f.storage.before(opWrite)
	if err == nil {
		err = f.take(offset + int64(len(p)))
	}
	if err != nil {
		n, _ := f.segmentFile.WriteAt(p[:len(p)/2], offset)
		return n, err
	}
	return f.segmentFile.WriteAt(p, offset)
}

// Sync, when it fails, has synced nothing.
func (f *faultFile) Sync() error {
	if err := f.storage.before(opSync); err != nil {
		return &syncError{err}
	}
	if err := f.segmentFile.Sync(); err != nil {
		return err
	}
	f.storage.mu.Lock()
	defer f.storage.mu.Unlock()
	if _, published := f.storage.durable[f.name]; !published {
		return nil
	}
	content, err := os.ReadFile(filepath.Join(f.storage.path, f.name))
	f.storage.durable[f.name] = content
	return err
}

func (f *faultFile) Truncate(size int64) error {
	if err := f.storage.before(opTruncate); err != nil {
		return err
	}
	f.storage.mu.Lock()
	f.storage.free += max(0, f.allocated-size)
	f.allocated = min(f.allocated, size)
	f.storage.mu.Unlock()
	return f.segmentFile.Truncate(size)
}

func (f *faultFile) Allocate(offset, length int64) error {
	if err := f.storage.before(opAllocate); err != nil {
		return err
	}
	return f.take(offset + length)
}

// fault fails the n-th operation with EIO.
type fault struct {
	mu        sync.Mutex
	n         int // operations until then, or 0
	operation string
}

func (f *fault) before(op string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.n--; f.n == 0 {
		f.operation = op
		return syscall.EIO
	}
	return nil
}

// disarm makes nothing more fail and returns the operation that has failed.
func (f *fault) disarm() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.n = 0
	return f.operation
}

// TestFailedOperationLosesNothingAcknowledged fails the first operation, the
// second, and so on until nothing is left to fail, cuts the power after each
// run and starts again.
func TestFailedOperationLosesNothingAcknowledged(t *testing.T) {
	tests := []struct {
		name    string
		torn    bool // the run begins with a journal whose tail is torn
		operate []string
	}{
		{"new journal", false, []string{opCreate, opWrite, opSync, opTruncate, opAllocate, opPublish}},
		{"after a crash", true, []string{opTruncate, opSync, opAllocate, opWrite}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			seen := make(map[string]int)
			n := 1
			for ; ; n++ {
				operation := ""
				t.Run(fmt.Sprintf("operation %d", n), func(t *testing.T) { operation = recordWithFault(t, n, tt.torn) })
				if t.Failed() || operation == "" {
					break
				}
				seen[operation]++
			}
			for _, op := range tt.operate {
				if seen[op] == 0 {
					t.Errorf("no %s was failed", op)
				}
			}
			t.Logf("%d operations failed in turn: %v", n-1, seen)
		})
	}
}

// recordWithFault records entries while the n-th operation fails, cuts the
// power and checks what is left. It returns the operation that failed, "" if
// there were fewer.
func recordWithFault(t *testing.T, n int, torn bool) (operation string) {
	const entries = 24
	c := testConfig(t)
	acknowledged := make(map[int]bool)
	if torn {
		path, content, _ := closedJournal(t, c, 3)
		write(t, path, content[:len(content)-10])
		acknowledged[0], acknowledged[1] = true, true
	} else {
		c.SegmentBytes = MinSegmentBytes
	}
	f := &fault{n: n}
	s := newFaultStorage(t, c)
	s.before, s.durable = f.before, make(map[string][]byte)
	l, err := s.openLog(c)
	if err == nil {
		recorded := recordMany(t, l, 10, 10+entries)
		checkAfterFault(t, l, f.disarm(), len(recorded) < entries)
		l.Close()
		maps.Copy(acknowledged, recorded)
	} else if !errors.Is(err, syscall.EIO) {
		t.Fatalf("opening failed by %v", err)
	}
	operation = f.disarm()
	s.powerCut(t)

	l = mustOpen(t, c)
	mustRecord(t, l, testEntry(10+entries)) // the journal goes on
	mustClose(t, l)
	times := make(map[string]int)
	for _, e := range readAll(t, c.Dir) {
		times[e.RequestID.String()]++
	}
	for i := range acknowledged {
		if got := times[requestID(i).String()]; got != 1 {
			t.Errorf("after a failed %s, acknowledged entry %d is in the journal %d times", operation, i, got)
		}
	}
	if _, err := Verify(c.Dir, VerifyOptions{Head: l.Head()}); err != nil {
		t.Errorf("after a failed %s: %v", operation, err)
	}
	return operation
}

// recordMany records the entries of the numbers from a few goroutines and
// returns those that were acknowledged.
func recordMany(t *testing.T, l *Log, from, to int) map[int]bool {
	const workers = 4
	acknowledged := make(map[int]bool)
	var mu sync.Mutex
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := from + w; i < to; i += workers {
				err := l.Record(context.Background(), testEntry(i))
				if err == nil {
					mu.Lock()
					acknowledged[i] = true
					mu.Unlock()
				} else if kms.KindOf(err) != kms.KindAuditUnavailable {
					t.Errorf("refused by %v", err)
				}
			}
		})
	}
	wg.Wait()
	return acknowledged
}

// checkAfterFault checks that a failed fsync, and nothing else but a write
// that cannot be taken back, has stopped the log.
func checkAfterFault(t *testing.T, l *Log, operation string, refused bool) {
	t.Helper()
	err := l.Record(context.Background(), testEntry(1000))
	switch operation {
	case opSync, opPublish:
		if l.Err() == nil || kms.KindOf(err) != kms.KindAuditUnavailable {
			t.Fatalf("after a failed %s the log goes on: %v, %v", operation, l.Err(), err)
		}
		<-l.Done()
		if err := l.Close(); !errors.Is(err, syscall.EIO) {
			t.Errorf("after a failed %s the log closed with %v", operation, err)
		}
	default:
		if l.Err() != nil || err != nil {
			t.Errorf("after a failed %s the log does not go on: %v, %v", operation, l.Err(), err)
		}
		// A write or an allocation is for entries or for a new segment, which
		// is then made later.
		if refused && operation != opWrite && operation != opAllocate {
			t.Errorf("after a failed %s, entries were refused", operation)
		}
	}
}

func TestFsyncIsNeverTriedAgain(t *testing.T) {
	syncs := 0
	l, _ := openFault(t, testConfig(t), func(op string) error {
		if op == opSync {
			if syncs++; syncs > 1 { // the first is the header's
				return syscall.EIO
			}
		}
		return nil
	})
	for range 3 {
		if err := l.Record(t.Context(), testEntry(1)); kms.KindOf(err) != kms.KindAuditUnavailable || !errors.Is(err, syscall.EIO) {
			t.Errorf("recorded with %v", err)
		}
	}
	<-l.Done()
	for range 2 * floodRate { // nor are refusals counted that nothing will write
		if err := l.Record(t.Context(), refusal(1)); kms.KindOf(err) != kms.KindAuditUnavailable {
			t.Errorf("a refusal was answered with %v", err)
		}
	}
	if err := l.Close(); !errors.Is(err, syscall.EIO) {
		t.Errorf("closed with %v", err)
	}
	if syncs != 2 {
		t.Errorf("%d syncs", syncs)
	}
}

func TestWriteThatCannotBeTakenBackStopsTheLog(t *testing.T) {
	broken := false
	l, _ := openFault(t, testConfig(t), func(op string) error {
		if broken && (op == opWrite || op == opTruncate) {
			return syscall.EIO
		}
		return nil
	})
	mustRecord(t, l, testEntry(1))
	broken = true
	if err := l.Record(t.Context(), testEntry(2)); kms.KindOf(err) != kms.KindAuditUnavailable {
		t.Errorf("recorded with %v", err)
	}
	<-l.Done()
	if l.Err() == nil || l.Close() == nil {
		t.Error("the log stopped without an error")
	}
}
