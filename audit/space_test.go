package audit

import (
	"context"
	"errors"
	"syscall"
	"testing"

	"github.com/sluice-kms/sluice/kms"
)

// fill and empty leave no and much space on the disk.
func (s *faultStorage) fill()  { s.setFree(0) }
func (s *faultStorage) empty() { s.setFree(plenty) }

func (s *faultStorage) setFree(bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free = bytes
}

// change is the entry of a state change.
func change(n int, phase kms.Phase) *kms.Entry {
	e := testEntry(n)
	e.Op, e.Phase, e.Cost = kms.OpDisableKey, phase, 5*kms.Credit
	return e
}

// fillJournal records ordinary entries until one is refused for want of
// space, and returns how many were recorded.
func fillJournal(t *testing.T, l *Log) int {
	t.Helper()
	for n := range 100_000 {
		err := l.Record(context.Background(), testEntry(n))
		if err == nil {
			continue
		}
		if kms.KindOf(err) != kms.KindAuditUnavailable || !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("refused by %v", err)
		}
		return n
	}
	t.Fatal("the disk does not run full")
	return 0
}

// checkFullDisk runs a journal into a full disk and out of it again.
func checkFullDisk(t *testing.T, c Config, l *Log, makeSpace func()) {
	t.Helper()
	recorded := fillJournal(t, l)
	refused := change(0, kms.PhaseOutcome)
	refused.Outcome, refused.Refused = "permission_denied", true
	if err := l.Record(t.Context(), refused); kms.KindOf(err) != kms.KindAuditUnavailable {
		t.Errorf("a refused change took from the reserve: %v", err)
	}
	changes := 0
	for ; ; changes++ {
		if err := l.Record(t.Context(), change(changes, kms.PhaseIntent)); err != nil {
			if kms.KindOf(err) != kms.KindAuditUnavailable {
				t.Errorf("refused by %v", err)
			}
			break
		}
		if err := l.Record(t.Context(), testEntry(1)); err == nil {
			t.Fatal("an ordinary entry took from the reserve")
		}
	}
	if used := int64(changes) * 600; used < c.ReserveBytes*9/10 {
		t.Errorf("%d changes were recorded, some %d of %d bytes reserved", changes, used, c.ReserveBytes)
	}
	if l.Err() != nil {
		t.Errorf("the log stopped: %v", l.Err())
	}
	makeSpace()
	mustRecord(t, l, testEntry(2), change(1, kms.PhaseOutcome))
	mustClose(t, l)
	mustVerify(t, c.Dir, recorded+changes+2)
	t.Logf("%d entries, then %d changes from a reserve of %d bytes", recorded, changes, c.ReserveBytes)
}

func TestFullDiskTakesStateChangesOnly(t *testing.T) {
	c := testConfig(t)
	l, s := openFault(t, c, nil)
	s.setFree(200 << 10)
	checkFullDisk(t, c, l, s.empty)
}

func TestFullDiskPostponesRotation(t *testing.T) {
	c := testConfig(t)
	c.SegmentBytes = 16 << 10
	l, s := openFault(t, c, nil)
	s.setFree(100 << 10) // less than two reserves: there is no second segment
	checkFullDisk(t, c, l, s.empty)
	if got := len(segments(t, c.Dir)); got < 2 {
		t.Errorf("with space again there are %d segments", got)
	}
}

func TestMixedBatchOnAFullDiskKeepsTheChanges(t *testing.T) {
	c := testConfig(t)
	l, s := openFault(t, c, nil)
	s.fill()
	fillJournal(t, l)
	before := l.Head().Sequence
	batch := []*waiter{l.waiter(testEntry(1)), l.waiter(change(2, kms.PhaseIntent)), l.waiter(testEntry(3)), l.waiter(change(4, kms.PhaseOutcome))}
	if err := l.writer.commit(batch); err != nil {
		t.Fatal(err)
	}
	for i, w := range batch {
		if ordinary := i%2 == 0; ordinary != (w.err != nil) {
			t.Errorf("entry %d of the batch: %v", i, w.err)
		}
	}
	if got := l.writer.head.Sequence; got != before+2 {
		t.Errorf("%d entries were recorded", got-before)
	}
	mustClose(t, l)
	if _, err := Verify(c.Dir, VerifyOptions{}); err != nil {
		t.Error(err)
	}
}

func TestFileSystemThatHoldsNoSpace(t *testing.T) {
	c := testConfig(t)
	l, s := openFault(t, c, func(op string) error {
		if op == opAllocate {
			return syscall.EOPNOTSUPP
		}
		return nil
	})
	s.setFree(50 << 10)
	recorded := fillJournal(t, l)
	if err := l.Record(t.Context(), change(1, kms.PhaseIntent)); kms.KindOf(err) != kms.KindAuditUnavailable {
		t.Errorf("a change on a full disk without a reserve: %v", err)
	}
	s.empty()
	mustRecord(t, l, testEntry(1))
	mustClose(t, l)
	mustVerify(t, c.Dir, recorded+1)
}
