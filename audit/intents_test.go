package audit

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// Every change of the journal is told with whether it was made, also when its
// outcome lies in another segment, when it failed, and when it has none.
func TestChangesPairsIntentsWithTheirOutcomes(t *testing.T) {
	c := testConfig(t)
	c.SegmentBytes = MinSegmentBytes
	l := mustOpen(t, c)
	want := map[uuid.UUID]bool{}
	outcomes := []string{"ok", kms.OutcomeFoundDone, "conflict", kms.OutcomeFoundUndone, kms.OutcomeFoundChanged, kms.OutcomeFoundUnknown, ""}
	made := map[string]bool{"ok": true, kms.OutcomeFoundDone: true, kms.OutcomeFoundChanged: true}
	var later []*kms.Entry
	for i := range 140 {
		intent := testEntry(i)
		intent.Phase, intent.Outcome, intent.Op, intent.Revision = kms.PhaseIntent, "", kms.OpDisableKey, uint64(i+1)
		mustRecord(t, l, intent)
		outcome := *intent
		outcome.Phase, outcome.Outcome, outcome.Revision = kms.PhaseOutcome, outcomes[i%len(outcomes)], 0
		want[intent.RequestID] = made[outcome.Outcome]
		if outcome.Outcome != "" {
			later = append(later, &outcome)
		}
		if len(later) > 30 {
			mustRecord(t, l, later[0])
			later = later[1:]
		}
	}
	for _, e := range later {
		mustRecord(t, l, e)
	}
	head := l.Head().Sequence
	mustRecord(t, l, &kms.Entry{Time: testEntry(1).Time, Phase: kms.PhaseIntent, RequestID: uuid.NewV7(), Op: kms.OpDisableKey}) // behind the head
	mustClose(t, l)
	got := map[uuid.UUID]bool{}
	err := Changes(t.Context(), c.Dir, head, func(intent *kms.Entry, made bool) {
		if intent.Phase != kms.PhaseIntent || intent.Revision == 0 {
			t.Errorf("%+v is no intent of the journal", intent)
		}
		got[intent.RequestID] = made
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != len(want) {
		t.Errorf("%d changes, want %d", len(got), len(want))
	}
	for id, made := range want {
		if got[id] != made {
			t.Errorf("a change is told as made %v, want %v", got[id], made)
		}
	}
	all := 0
	if err := Changes(t.Context(), c.Dir, ToTheEnd, func(*kms.Entry, bool) { all++ }); err != nil || all != len(want)+1 {
		t.Errorf("to the end there are %d changes, %v", all, err)
	}
	names := segments(t, c.Dir)
	tail := filepath.Join(c.Dir, names[len(names)-1])
	if info, err := os.Stat(tail); err != nil || os.Truncate(tail, info.Size()-1) != nil {
		t.Fatal(err)
	}
	all = 0
	if err := Changes(t.Context(), c.Dir, ToTheEnd, func(*kms.Entry, bool) { all++ }); err != nil || all != len(want) {
		t.Errorf("up to a torn record there are %d changes, %v", all, err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Changes(ended, c.Dir, head, func(*kms.Entry, bool) {}); !errors.Is(err, context.Canceled) {
		t.Errorf("after the context ended: %v", err)
	}
	if err := Changes(t.Context(), t.TempDir(), 1, func(*kms.Entry, bool) {}); err != nil {
		t.Errorf("of no journal: %v", err)
	}
}
