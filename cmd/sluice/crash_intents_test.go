package main

import (
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
	err := audit.Read(folder, 1, func(e *kms.Entry, _ audit.Position) error {
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
			t.Errorf("%s of request %s was begun and has %d outcomes", op, id, outcomes[id])
		}
	}
	return found
}
