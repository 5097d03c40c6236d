package main

import (
	"io"
	"strings"
	"testing"
)

// Who restores a backup has to give the journal or say that later revocations
// may be lost, and is told so.
func TestRestoreWithoutTheJournalHasToBeAskedFor(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"no journal":        {[]string{"--from", "b.tar", "--data-dir", "d"}, "--without-journal"},
		"journal and none":  {[]string{"--from", "b.tar", "--data-dir", "d", "--journal", "j", "--without-journal"}, "none of the others can be"},
		"nothing to do":     {nil, "at least one of the flags"},
		"two sources":       {[]string{"--from", "b.tar", "--data-dir", "d", "--config", "c", "--as-of", "x"}, "none of the others can be"},
		"no time":           {[]string{"--config", "c"}, "as-of"},
		"no such backup":    {[]string{"--from", "/nowhere/b.tar", "--data-dir", t.TempDir() + "/d", "--without-journal"}, "/nowhere/b.tar"},
		"a time is no time": {[]string{"--config", "c", "--as-of", "yesterday"}, "as-of: must be a time"},
	} {
		restore := newRestore()
		restore.SetArgs(c.args)
		restore.SetOut(io.Discard)
		restore.SetErr(io.Discard)
		if err := restore.Execute(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
