package kms

import (
	"fmt"
	"testing"
	"time"
	"uuid"

	"pgregory.net/rapid"
)

// secretHistory are changes of a secret with three versions, by whom the journal
// tells.
type secretHistory struct {
	now     time.Time
	secret  *ProviderSecret
	entries []*Entry
}

// change draws a change and makes it, if it is one that can be made.
func (h *secretHistory) change(t *rapid.T) {
	h.now = h.now.Add(time.Minute)
	next, number := h.secret.Clone(), rapid.Uint32Range(1, 3).Draw(t, "version")
	e := &Entry{Time: h.now, Op: rapid.SampledFrom([]Op{OpActivateSecret, OpRollbackSecret, OpDisableSecret, OpDestroySecret, OpRestoreSecret,
		OpDeleteSecret, OpKeeperDestroySecret}).Draw(t, "op"), Resource: next.ID.String(), Version: number}
	var err error
	switch e.Op {
	case OpActivateSecret:
		err = next.activate(h.now, ActivateInput{Version: number})
	case OpRollbackSecret:
		if err = next.rollback(h.now); err == nil {
			e.Version = next.active().Number
		}
	case OpDisableSecret:
		err = next.disable(h.now, number)
	case OpDestroySecret:
		err = next.scheduleDestruction(h.now, number, MinDeletionDays)
	case OpRestoreSecret:
		err = next.restore(number)
	case OpDeleteSecret:
		e.Version, err = 0, next.scheduleDeletion(h.now, MinDeletionDays)
	case OpKeeperDestroySecret:
		any := false
		if e.Version, any = next.destroyDue(h.now.Add(2 * MinDeletionDays * 24 * time.Hour)); !any {
			return
		}
	}
	if err == nil {
		h.secret, h.entries = next, append(h.entries, e)
	}
}

// states are what a restored secret has to be in.
func states(s *ProviderSecret) string {
	text := fmt.Sprint(s.State)
	for _, v := range s.Versions {
		text += fmt.Sprint(" ", v.Number, v.State, v.Weight)
	}
	return text
}

// A database is as of any moment of a secret's history, and the journal is read
// from some time before it: the clocks of API nodes differ. Doing it twice, as a
// start that is cut short does, changes nothing.
func TestARestoredSecretComesToTheStateThatItHad(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := &secretHistory{now: time.Unix(1_800_000_000, 0)}
		h.secret = &ProviderSecret{ID: uuid.New(), State: SecretInUse, Versions: []*SecretVersion{
			{Number: 1, State: SecretActive, Weight: 100}, {Number: 2, State: SecretStaged}, {Number: 3, State: SecretStaged}}}
		was := []*ProviderSecret{h.secret}
		for range rapid.IntRange(1, 20).Draw(t, "changes") {
			h.change(t)
			was = append(was[:len(h.entries)], h.secret)
		}
		saved := rapid.IntRange(0, len(h.entries)).Draw(t, "saved")
		from := rapid.IntRange(0, saved).Draw(t, "from")
		restored := was[saved].Clone()
		for run := range 2 {
			for _, e := range h.entries[from:] {
				restored.again(e)
			}
			if got, want := states(restored), states(h.secret); got != want {
				t.Fatalf("run %d: %s, want %s", run, got, want)
			}
		}
	})
}
