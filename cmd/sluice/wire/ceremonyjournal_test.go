package wire_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/audit"
	"github.com/sluice-kms/sluice/cmd/sluice/wire"
	"github.com/sluice-kms/sluice/cmd/sluice/wire/wiretest"
	"github.com/sluice-kms/sluice/kms"
	"github.com/sluice-kms/sluice/softhsm"
)

// rite is a domain's tokens with a ceremony file that names them.
type rite struct{ dir, path, journal string }

// newRite makes two backup tokens and members. more is of the ceremony file.
func newRite(t *testing.T, more string, members ...string) *rite {
	t.Helper()
	dir := t.TempDir()
	r := &rite{dir, filepath.Join(dir, "ceremony.yaml"), filepath.Join(dir, "domain.journal")}
	r.name(t, more, members...)
	return r
}

// name writes the ceremony file.
func (r *rite) name(t *testing.T, more string, members ...string) {
	t.Helper()
	text := "name: rite\nfile: " + r.dir + "/domain.json\n" + more + "members:\n"
	for _, id := range append(members, "backup-1", "backup-2") {
		token, err := softhsm.Provision(filepath.Join(r.dir, id), id)
		if err != nil {
			t.Fatal(err)
		}
		if id == "backup-1" {
			text += "backups:\n"
		}
		text += fmt.Sprintf("  - {id: %s, module: %s, serial: %q, pin_file: %s/%s/user.pin, so_pin_file: %s/%s/so.pin, env: {SOFTHSM2_CONF: %s}}\n",
			id, token.Module, token.Serial, r.dir, id, r.dir, id, token.Env["SOFTHSM2_CONF"])
	}
	put(t, r.dir, "ceremony.yaml", []byte(text))
}

// entries reads the journal, which must verify, and forgets nothing of it.
func (r *rite) entries(t *testing.T) (lines []string, entries []*kms.Entry) {
	t.Helper()
	if _, err := audit.Verify(r.journal, audit.VerifyOptions{}); err != nil {
		t.Errorf("the journal does not verify: %v", err)
	}
	if err := audit.Read(r.journal, 1, func(e *kms.Entry, _ audit.Position) error {
		entries = append(entries, e)
		lines = append(lines, strings.TrimSpace(fmt.Sprint(e.Op, " ", e.Phase, " ", e.Outcome)))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return lines, entries
}

// What people do with the tokens is in a journal of its own, whether they agree
// or not, with each token that got the roots and the fingerprint compared.
func TestEveryStepOfACeremonyIsInItsJournal(t *testing.T) {
	wiretest.Require(t)
	r, ctx, quiet := newRite(t, "", "node-1"), context.Background(), func(string) {}
	prints := map[string]string{}
	agree := func(token, print string) error { prints[token] = print; return nil }
	asked := 0
	doubt := func(token, print string) error {
		if asked++; asked == 2 {
			return errors.New("the display shows another one")
		}
		return agree(token, print)
	}
	if _, err := wire.InitDomain(ctx, r.path, doubt, quiet); err == nil || !strings.Contains(err.Error(), "another one") {
		t.Fatalf("with a fingerprint that differs: %v", err)
	}
	if _, err := wire.InitDomain(ctx, r.path, agree, quiet); err != nil {
		t.Fatal(err)
	}
	r.name(t, "", "node-1", "node-2")
	if err := wire.JoinDomain(ctx, r.path, agree, quiet); err != nil {
		t.Fatal(err)
	}
	domain, _, err := wire.ReplaceRoots(ctx, r.path, agree, quiet)
	if err != nil {
		t.Fatal(err)
	}
	if checks, err := wire.CheckBackups(ctx, r.path); err != nil || len(checks) != 2 {
		t.Fatal(checks, err)
	}
	lines, entries := r.entries(t)
	want := []string{
		"init-domain intent", "give-roots outcome ok", "give-roots outcome permission_denied", "init-domain outcome internal",
		"init-domain intent", "give-roots outcome ok", "init-domain outcome ok",
		"join-domain intent", "give-roots outcome ok", "join-domain outcome ok",
		"replace-roots intent", "give-roots outcome ok", "give-roots outcome ok", "give-roots outcome ok", "replace-roots outcome ok",
		"check-backups intent", "check-backups outcome ok", "check-backups outcome ok", "check-backups outcome ok",
	}
	if !slices.Equal(lines, want) {
		t.Errorf("the journal has\n%s\nwant\n%s", strings.Join(lines, "\n"), strings.Join(want, "\n"))
	}
	for i, e := range entries {
		if e.Subject == "" || e.Component != "ceremony" {
			t.Errorf("%s is of %q, component %q", lines[i], e.Subject, e.Component)
		}
		if e.Op == kms.OpGiveRoots && e.Outcome == "ok" && prints[string(e.Node)] == "" {
			t.Errorf("roots went to %q, which nobody was asked about", e.Node)
		}
	}
	replaced := entries[len(entries)-5]
	if replaced.Resource != domain.ID.String() || replaced.Version != 2 {
		t.Errorf("the replacement is of %s, generation %d", replaced.Resource, replaced.Version)
	}
	if last := entries[len(entries)-6]; last.KeyName != prints[string(last.Node)] {
		t.Errorf("the fingerprint %q of %s is not the one that was compared", last.KeyName, last.Node)
	}
	r.holdsNoPIN(t)
}

func (r *rite) holdsNoPIN(t *testing.T) {
	t.Helper()
	segments, err := filepath.Glob(filepath.Join(r.journal, "*"))
	if err != nil || len(segments) == 0 {
		t.Fatal(segments, err)
	}
	for _, name := range []string{"node-1/user.pin", "backup-1/so.pin"} {
		pin := bytes.TrimSpace(read(t, r.dir, name))
		for _, segment := range segments {
			if raw, err := os.ReadFile(segment); err == nil && bytes.Contains(raw, pin) {
				t.Errorf("%s is in the journal", name)
			}
		}
	}
}

// A ceremony that was interrupted has no outcome; the next one notes that.
func TestAnInterruptedCeremonyIsClosedByTheNext(t *testing.T) {
	wiretest.Require(t)
	r := newRite(t, "", "node-1")
	cut, err := audit.Open(t.Context(), audit.Config{Dir: r.journal, Node: "ceremony"})
	if err != nil {
		t.Fatal(err)
	}
	if err := cut.Record(t.Context(), &kms.Entry{Time: time.Now(), RequestID: uuid.NewV7(), Op: kms.OpInitDomain, Phase: kms.PhaseIntent}); err != nil {
		t.Fatal(err)
	}
	if err := cut.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := wire.InitDomain(t.Context(), r.path, func(string, string) error { return nil }, func(string) {}); err != nil {
		t.Fatal(err)
	}
	if lines, _ := r.entries(t); lines[1] != "init-domain outcome found_unknown" {
		t.Errorf("after the interruption: %q", lines)
	}
	if open, err := audit.OpenIntents(t.Context(), r.journal); err != nil || len(open) > 0 {
		t.Errorf("%d intents are open: %v", len(open), err)
	}
}

// Nobody is asked and no root is made where the journal cannot be written.
func TestACeremonyWithoutItsJournalDoesNothing(t *testing.T) {
	wiretest.Require(t)
	r := newRite(t, "", "node-1")
	r.name(t, "journal: "+filepath.Join(r.dir, "ceremony.yaml")+"\n", "node-1")
	_, err := wire.InitDomain(t.Context(), r.path, func(string, string) error { t.Error("asked"); return nil }, func(step string) { t.Error(step) })
	if err == nil || !strings.Contains(err.Error(), "journal") {
		t.Errorf("the answer is %v", err)
	}
}
