package audit

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-kms/sluice/kms"
)

// lossWindow is what is promised of grouped entries.
const lossWindow = 50 * time.Millisecond

func groupedConfig(t testing.TB) Config {
	c := testConfig(t)
	c.Grouped = []kms.Op{kms.OpVerify, kms.OpEncrypt}
	return c
}

func verifyEntry(n int) *kms.Entry {
	e := testEntry(n)
	e.Op = kms.OpVerify
	return e
}

func TestGroupedEntryIsDurableWithinItsWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := groupedConfig(t)
		l := mustOpen(t, c)
		for i := range 20 {
			begun := time.Now()
			mustRecord(t, l, verifyEntry(i))
			if took := time.Since(begun); took != 0 {
				t.Errorf("the answer waited %v", took)
			}
			if i == 0 && l.Head().Sequence != 0 {
				t.Error("it was written at once")
			}
			time.Sleep(lossWindow)
			synctest.Wait()
			if got := l.Head().Sequence; got != uint64(i+1) {
				t.Fatalf("%v after its answer entry %d is not durable: the head is %d", lossWindow, i+1, got)
			}
		}
		mustClose(t, l)
		for _, e := range readAll(t, c.Dir) {
			if !e.Grouped {
				t.Error("an entry is not marked")
			}
		}
	})
}

// The power goes at every point of a run of both classes: what was answered as
// durable is there, and of the rest only grouped entries of the last window
// are not.
func TestPowerCutLosesGroupedEntriesOfTheLastWindowAndNothingElse(t *testing.T) {
	lost := 0
	for cut := 2; cut < 40; cut++ {
		synctest.Test(t, func(t *testing.T) {
			c := groupedConfig(t)
			s := newFaultStorage(t, c)
			s.durable = make(map[string][]byte)
			l, err := s.openLog(c)
			if err != nil {
				t.Fatal(err)
			}
			durable, grouped := make(map[int]bool), make(map[int]time.Time)
			for i := range cut {
				if i%7 == 3 {
					mustRecord(t, l, testEntry(i))
					durable[i] = true
				} else {
					mustRecord(t, l, verifyEntry(i))
					grouped[i] = time.Now()
				}
				time.Sleep(time.Duration(i%5) * 4 * time.Millisecond)
			}
			synctest.Wait()
			cutAt := time.Now()
			left := make(map[string][]byte) // what is on the disk now
			s.mu.Lock()
			for name, content := range s.durable {
				left[name] = content
			}
			s.mu.Unlock()
			l.Close()
			s.mu.Lock()
			s.durable = left
			s.mu.Unlock()
			s.powerCut(t)
			found := make(map[string]bool)
			for _, e := range readAll(t, c.Dir) {
				found[e.RequestID.String()] = true
			}
			for i := range durable {
				if !found[requestID(i).String()] {
					t.Errorf("cut after %d: durable entry %d is lost", cut, i)
				}
			}
			for i, at := range grouped {
				if found[requestID(i).String()] {
					continue
				}
				lost++
				if age := cutAt.Sub(at); age >= lossWindow {
					t.Errorf("cut after %d: grouped entry %d is lost, %v old", cut, i, age)
				}
			}
		})
	}
	if lost == 0 {
		t.Error("no grouped entry was lost: the test cuts nothing")
	}
	t.Logf("%d grouped entries were lost in 38 power cuts", lost)
}

func TestOnlySuccessesOfGroupedOperationsAreGrouped(t *testing.T) {
	l := mustOpen(t, groupedConfig(t))
	defer mustClose(t, l)
	for name, change := range map[string]func(*kms.Entry){
		"another operation": func(e *kms.Entry) { e.Op = kms.OpSign },
		"an intent":         func(e *kms.Entry) { e.Phase, e.Outcome = kms.PhaseIntent, "" },
		"a failure":         func(e *kms.Entry) { e.Outcome = kms.KindDecryptionFailed.String() },
		"a denial":          func(e *kms.Entry) { e.Outcome, e.Cost = kms.KindPermissionDenied.String(), 0 },
	} {
		e := verifyEntry(1)
		change(e)
		if l.isGrouped(e) {
			t.Errorf("%s is grouped", name)
		}
	}
	if !l.isGrouped(verifyEntry(1)) {
		t.Error("a success is not grouped")
	}
	for _, op := range []kms.Op{kms.OpCreateKey, kms.OpDeleteKey, kms.OpDecrypt, kms.OpDataKey, kms.OpUnwrap, kms.OpRandom,
		kms.OpRevokeCredential, kms.OpPutPolicy, "nothing"} {
		c := testConfig(t)
		c.Grouped = []kms.Op{op}
		if l, err := Open(t.Context(), c); err == nil {
			mustClose(t, l)
			t.Errorf("%s may be grouped", op)
		}
	}
	for _, op := range groupable {
		if info := op.Info(); info == nil || info.Changes || info.Class != kms.ClassUse {
			t.Errorf("%s can be grouped, and is %+v", op, info)
		}
	}
}

// A full disk: grouped entries that were answered are written when there is
// space again, and until then answers of grouped operations are withheld.
func TestNoGroupedEntryIsDroppedByAFullDisk(t *testing.T) {
	c := groupedConfig(t)
	var broken atomic.Bool
	l, _ := openFault(t, c, func(op string) error {
		if op == opWrite && broken.Load() {
			return syscall.ENOSPC
		}
		return nil
	})
	broken.Store(true)
	mustRecord(t, l, verifyEntry(1))     // answered; the write fails later
	for err := error(nil); err == nil; { // until the log has noticed
		err = l.Record(t.Context(), verifyEntry(2))
		if err == nil {
			runtime.Gosched()
		} else if kms.KindOf(err) != kms.KindAuditUnavailable {
			t.Fatal(err)
		}
	}
	broken.Store(false)
	mustRecord(t, l, testEntry(3))
	mustClose(t, l)
	found := false
	for _, e := range readAll(t, c.Dir) {
		found = found || e.RequestID == requestID(1)
	}
	if !found {
		t.Error("an entry that was answered is not in the journal")
	}
}

func benchmarkGrouped(b *testing.B, writers int) {
	c := groupedConfig(b)
	c.ReserveBytes = 0
	l := mustOpen(b, c)
	ctx := context.Background()
	var refused atomic.Int64
	b.SetParallelism(max(1, writers/runtime.GOMAXPROCS(0)))
	b.ReportAllocs()
	b.ResetTimer()
	begun := time.Now()
	b.RunParallel(func(pb *testing.PB) {
		e := verifyEntry(1)
		for pb.Next() {
			for l.Record(ctx, e) != nil { // the backlog is full: the client comes again
				refused.Add(1)
				runtime.Gosched()
			}
		}
	})
	mustClose(b, l) // all are on the disk
	b.ReportMetric(float64(b.N)/time.Since(begun).Seconds(), "entries/s")
}

func BenchmarkRecordGrouped256Writers(b *testing.B) { benchmarkGrouped(b, 256) }

func BenchmarkRecordGroupedAlone(b *testing.B) { benchmarkGrouped(b, 1) }

func TestGroupedEntriesOfManyWritersAreAllThere(t *testing.T) {
	const writers, each = 64, 200
	c := groupedConfig(t)
	l := mustOpen(t, c)
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				for l.Record(t.Context(), verifyEntry(w*each+i)) != nil {
					runtime.Gosched()
				}
			}
		})
	}
	wg.Wait()
	mustClose(t, l)
	mustVerify(t, c.Dir, writers*each)
}
