package audit

import (
	"bytes"
	"context"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

// unsynced is a journal in the moment of a power cut: for each file what is
// durable, and what was written, of which any part may be.
type unsynced struct {
	config       Config
	durable      map[string][]byte
	written      map[string][]byte
	acknowledged []int
}

// cutWhileSyncing records entries until the n-th sync, whose write is not
// durable yet, and returns what the disk has then.
func cutWhileSyncing(t *testing.T, n int) unsynced {
	t.Helper()
	c := testConfig(t)
	c.SegmentBytes = MinSegmentBytes
	s := newFaultStorage(t, c)
	s.durable = make(map[string][]byte)
	reached, goOn := make(chan struct{}), make(chan struct{})
	syncs := 0
	s.before = func(op string) error {
		if op == opSync {
			if syncs++; syncs == n {
				close(reached)
				<-goOn
			}
		}
		return nil
	}
	l, err := s.openLog(c)
	if err != nil {
		t.Fatal(err)
	}
	u := unsynced{config: c, written: make(map[string][]byte)}
	var mu sync.Mutex // guards acknowledged
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := w; i < 60; i += 4 {
				if l.Record(context.Background(), testEntry(i)) == nil {
					mu.Lock()
					u.acknowledged = append(u.acknowledged, i)
					mu.Unlock()
				}
			}
		})
	}
	<-reached
	mu.Lock()
	u.acknowledged = append([]int(nil), u.acknowledged...)
	acknowledged := u.acknowledged
	mu.Unlock()
	s.mu.Lock()
	u.durable = maps.Clone(s.durable)
	s.mu.Unlock()
	for name := range u.durable {
		if u.written[name], err = os.ReadFile(filepath.Join(c.Dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	close(goOn)
	wg.Wait()
	mustClose(t, l)
	u.acknowledged = acknowledged
	return u
}

// left draws what a disk may have left of a file: the old size or any up to
// the new, and of what was not synced each sector or what was there before.
func (u *unsynced) left(t *rapid.T, name string) []byte {
	old, now := u.durable[name], u.written[name]
	size := max(len(old), rapid.IntRange(min(len(old), len(now)), len(now)).Draw(t, "size"))
	before := append(bytes.Clone(old), make([]byte, max(0, len(now)-len(old)))...)
	content := append(bytes.Clone(now), before[len(now):]...)[:size]
	for at := 0; at < size; at += sectorSize {
		end := min(at+sectorSize, size)
		if !bytes.Equal(before[at:end], content[at:end]) && rapid.IntRange(0, 3).Draw(t, "sector") == 0 {
			copy(content[at:end], before[at:])
		}
	}
	return content
}

func TestPowerCutThatDropsOrTearsUnsyncedWritesLosesNoAcknowledgedEntry(t *testing.T) {
	torn := 0
	for n := 2; n <= 14; n++ {
		u := cutWhileSyncing(t, n)
		rapid.Check(t, func(r *rapid.T) {
			dir, err := os.MkdirTemp(t.TempDir(), "cut")
			if err != nil {
				r.Fatal(err)
			}
			if err := os.Chmod(dir, folderMode); err != nil {
				r.Fatal(err)
			}
			for name := range u.durable {
				if err := os.WriteFile(filepath.Join(dir, name), u.left(r, name), fileMode); err != nil {
					r.Fatal(err)
				}
			}
			c := u.config
			c.Dir = dir
			l, err := Open(context.Background(), c)
			if err != nil {
				r.Fatalf("the journal does not open after a power cut: %v", err)
			}
			if l.Recovery() != (Recovery{}) {
				torn++
			}
			if err := l.Record(context.Background(), testEntry(1000)); err != nil {
				r.Fatal(err)
			}
			if err := l.Close(); err != nil {
				r.Fatal(err)
			}
			found := make(map[string]int)
			for _, e := range readAll(t, dir) {
				found[e.RequestID.String()]++
			}
			for _, i := range u.acknowledged {
				if got := found[requestID(i).String()]; got != 1 {
					r.Fatalf("acknowledged entry %d is in the journal %d times", i, got)
				}
			}
			if _, err := Verify(dir, VerifyOptions{}); err != nil {
				r.Fatal(err)
			}
		})
	}
	if torn == 0 {
		t.Error("no write was torn: the test cuts nothing")
	}
	t.Logf("%d cuts left a torn write", torn)
}

// A file that has grown by a few bytes of a sector that was not written.
func TestShortHoleAtTheEndOfATornWriteIsCut(t *testing.T) {
	c := testConfig(t)
	path, content, _ := closedJournal(t, c, 3)
	offsets := recordOffsets(t, content)
	from := offsets[len(offsets)-1]
	boundary := from - from%sectorSize + sectorSize
	if boundary >= int64(len(content)) {
		t.Fatal("the last record lies in one sector")
	}
	for zeros := range 8 {
		write(t, path, append(bytes.Clone(content[:boundary]), make([]byte, zeros)...))
		l := mustOpen(t, c)
		if got := l.Recovery(); got.Offset != from || got.Bytes != boundary+int64(zeros)-from {
			t.Errorf("%d zeros: %+v was cut off, want all from %d on", zeros, got, from)
		}
		mustClose(t, l)
		mustVerify(t, c.Dir, 2)
	}
}
