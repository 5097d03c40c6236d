package audit

import (
	"testing"
	"testing/synctest"

	"github.com/sluice-kms/sluice/kms"
)

// TestEntriesRecordedTogetherShareOneSync, in their order, whoever else waits.
func TestEntriesRecordedTogetherShareOneSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const entries = 500
		l, g, c := openGated(t)
		list := make([]*kms.Entry, entries)
		for i := range list {
			list[i] = testEntry(i)
		}
		done := false
		go func() {
			for i, err := range l.RecordAll(t.Context(), list) {
				if err != nil {
					t.Errorf("entry %d: %v", i, err)
				}
			}
			done = true
		}()
		synctest.Wait()
		if done {
			t.Error("acknowledged before any sync")
		}
		g.open <- struct{}{}
		synctest.Wait()
		if !done || g.syncs != 1 {
			t.Errorf("acknowledged: %v, after %d syncs", done, g.syncs)
		}
		if l.pace.last != 1 {
			t.Errorf("the log waits for %d requests, of which there was one", l.pace.last)
		}
		mustClose(t, l)
		for i, e := range readAll(t, c.Dir) {
			if e.RequestID != requestID(i) {
				t.Fatalf("entry %d is %s", i, e.RequestID)
			}
		}
		mustVerify(t, c.Dir, entries)
	})
}

// TestEachOfManyHasItsOwnFate: refusals of a flood are counted, grouped entries
// are not waited for, and what the backlog has no room for is refused alone.
func TestEachOfManyHasItsOwnFate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, c := newGate(), groupedConfig(t)
		l, _ := openFault(t, c, g.before)
		var list []*kms.Entry
		for i := range 3 * floodRate {
			list = append(list, refusal(1))
			if i < 4 {
				list = append(list, verifyEntry(i))
			}
		}
		for i, err := range l.RecordAll(t.Context(), list) {
			if err != nil {
				t.Errorf("entry %d: %v", i, err)
			}
		}
		mustClose(t, l)
		var refusals, grouped uint32
		for _, e := range readAll(t, c.Dir) {
			if e.Grouped {
				grouped++
				continue
			}
			refusals += max(e.Count, 1)
		}
		if refusals != 3*floodRate || grouped != 4 {
			t.Errorf("%d refusals and %d grouped entries", refusals, grouped)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		l, g, _ := openGated(t)
		list := make([]*kms.Entry, maxBacklog+3)
		for i := range list {
			list[i] = testEntry(i)
		}
		var errs []error
		go func() { errs = l.RecordAll(t.Context(), list) }()
		synctest.Wait()
		close(g.open)
		synctest.Wait()
		for i, err := range errs {
			if refused := kms.KindOf(err) == kms.KindAuditUnavailable && err != nil; refused != (i >= maxBacklog) {
				t.Fatalf("entry %d: %v", i, err)
			}
		}
		mustClose(t, l)
	})
}
