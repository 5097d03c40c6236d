package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-kms/sluice/cmd/sluice/wire/wiretest"
)

// sluice runs a command in the process and returns what it printed.
func sluice(t *testing.T, args ...string) (out, complaints string, err error) {
	t.Helper()
	var o, e bytes.Buffer
	root := newRoot()
	root.SetOut(&o)
	root.SetErr(&e)
	root.SetArgs(args)
	err = root.ExecuteContext(t.Context())
	return o.String(), e.String(), err
}

// The auditor has the public keys and, for the tail, the anchors; the attacker
// has the folder.
func TestAuditVerifyFindsWhatAPinnedKeyProves(t *testing.T) {
	wiretest.Require(t)
	s, err := wiretest.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	journal := s.Config.Journal.Dir
	text, _, err := sluice(t, "audit", "key", "--journal", journal)
	if err != nil || strings.Count(text, "BEGIN PUBLIC KEY") != 1 {
		t.Fatalf("the keys are %q, %v", text, err)
	}
	elsewhere := t.TempDir()
	keys := filepath.Join(elsewhere, "keys.pem")
	config := filepath.Join(elsewhere, "sluice.yaml")
	for path, content := range map[string]string{keys: text, config: fmt.Sprintf(
		"node: dev\ndata_dir: %s\nhsm:\n  domains:\n  - file: x\n    tokens: [{id: a, module: /x, label: x, pin_file: x}]\n", s.Dir)} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	heads, err := filepath.Glob(filepath.Join(journal, "heads-*.slh"))
	if err != nil || len(heads) != 1 {
		t.Fatal(heads, err)
	}
	verify := func(args ...string) (string, string, error) {
		return sluice(t, append([]string{"audit", "verify", "--journal", journal, "--public-key", keys}, args...)...)
	}
	for _, args := range [][]string{nil, {"--heads", heads[0]}, {"--config", config}} {
		out, complaints, err := verify(args...)
		if err != nil || !strings.Contains(out, "; 0 entries after it are not") {
			t.Errorf("with %q: %q, %q, %v", args, out, complaints, err)
		}
	}

	// Cut off to half, with no trace in the folder of what was there.
	segment := filepath.Join(journal, fmt.Sprintf("journal-%020d.slj", 1))
	content, err := os.ReadFile(segment)
	if err != nil {
		t.Fatal(err)
	}
	half := 128 // the header
	for half < len(content)/2 {
		half += 8 + 32 + int(content[half])<<24 + int(content[half+1])<<16 + int(content[half+2])<<8 + int(content[half+3])
	}
	if err := os.WriteFile(segment, content[:half], 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(heads[0]); err != nil {
		t.Fatal(err)
	}
	if _, _, err := sluice(t, "audit", "verify", "--journal", journal); err != nil {
		t.Errorf("without the keys nothing is wrong with it, but: %v", err)
	}
	if _, complaints, err := verify(); err == nil || !strings.Contains(complaints, "the records are not signed") {
		t.Errorf("with the keys: %q, %v", complaints, err)
	}
	if _, complaints, err := verify("--running", "--config", config); err == nil || !strings.Contains(complaints, "ends before the expected head") {
		t.Errorf("with keys and anchor: %q, %v", complaints, err)
	}
	for _, args := range [][]string{
		{"--config", config}, {"--heads", keys}, {"--public-key", segment}, {"--public-key", keys, "--heads", keys},
	} {
		if _, _, err := sluice(t, append([]string{"audit", "verify", "--journal", journal}, args...)...); err == nil {
			t.Errorf("with %q it verified", args)
		}
	}
}
