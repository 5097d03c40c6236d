package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/sluice-kms/sluice/cmd/sluice/wire/wiretest"
)

// exampleBlock finds the shell blocks of the README that are marked as
// examples.
var exampleBlock = regexp.MustCompile("(?s)<!-- example -->\n```sh\n(.*?)```")

// The README's examples are run as they stand, against a service that
// `sluice dev` started; only the address and the data folder are others.
func TestREADMEExamplesWork(t *testing.T) {
	wiretest.Require(t)
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := exampleBlock.FindAllStringSubmatch(string(readme), -1)
	if len(blocks) < 4 {
		t.Fatalf("found %d examples", len(blocks))
	}
	dir := t.TempDir()
	program := buildProgram(t, filepath.Join(dir, "bin"))
	dev := startDev(t, program, filepath.Join(dir, ".sluice"), "--nodes", "2")
	// One shell for all, as a reader would paste them.
	var script strings.Builder
	for _, block := range blocks {
		script.WriteString(strings.ReplaceAll(block[1], "127.0.0.1:8440", dev.address))
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", script.String())
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "SLUICE_ADDRESS=http://"+dev.address)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for what, want := range map[string]int{`"valid":true`: 3, `{"plaintext":"aGVsbG8="`: 4, "\nvalid\n": 1} {
		if got := strings.Count(string(out), what); got != want {
			t.Errorf("%q appears %d times, want %d", what, got, want)
		}
	}
}
