package main

import (
	"fmt"
	"strings"
	"testing"
	"uuid"

	"github.com/sluice-kms/sluice/audit"
	"github.com/sluice-kms/sluice/kms"
)

// checkIntents checks that every change that was begun has one outcome in the
// journal, and returns how many of them only the next start could tell.
func checkIntents(t *testing.T, folder string) (found int) {
	t.Helper()
	intents, outcomes := map[uuid.UUID]kms.Op{}, map[uuid.UUID]int{}
	told := map[uuid.UUID][]string{} // where what of a request stands
	err := audit.Read(folder, 1, func(e *kms.Entry, at audit.Position) error {
		told[e.RequestID] = append(told[e.RequestID], fmt.Sprintf("%d %s %s", at.Sequence, e.Phase, e.Outcome))
		if e.Phase == kms.PhaseIntent {
			intents[e.RequestID] = e.Op
			return nil
		}
		outcomes[e.RequestID]++
		if strings.HasPrefix(e.Outcome, "found_") {
			found++
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for id, op := range intents {
		if outcomes[id] != 1 {
			t.Errorf("%s of request %s was begun and has %d outcomes: %q", op, id, outcomes[id], told[id])
		}
	}
	return found
}
