package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A verb that was killed while it wrote leaves a line that is not whole: it is
// cut off, and what follows is the item that it was of.
func TestResultsGoOnBehindTheLastWholeLine(t *testing.T) {
	long := strings.Repeat("x", 10_000)
	for name, tc := range map[string]struct {
		was, kept string
		lines     int64
	}{
		"nothing":            {"", "", 0},
		"whole lines":        {"one\ntwo\n", "one\ntwo\n", 2},
		"a broken line":      {"one\ntwo\nthr", "one\ntwo\n", 2},
		"nothing whole":      {"one", "", 0},
		"a long line":        {long + "\ntwo", long + "\n", 1},
		"a long broken line": {"one\n" + long, "one\n", 1},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "results")
			if err := os.WriteFile(path, []byte(tc.was), 0o600); err != nil {
				t.Fatal(err)
			}
			f, lines, err := openResults(path)
			if err != nil || lines != tc.lines {
				t.Fatalf("%d lines, %v", lines, err)
			}
			f.WriteString("next\n")
			f.Close()
			if got, err := os.ReadFile(path); err != nil || string(got) != tc.kept+"next\n" {
				t.Errorf("%.40q, %v", got, err)
			}
		})
	}
}
