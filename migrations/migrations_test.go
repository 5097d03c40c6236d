package migrations

import (
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var fileName = regexp.MustCompile(`^(\d{5})_[a-z_]+\.sql$`)

// numbers returns the numbers of a folder's steps, after checking each file.
func numbers(t *testing.T, folder string) []string {
	t.Helper()
	entries, err := fs.ReadDir(files, folder)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, entry := range entries {
		m := fileName.FindStringSubmatch(entry.Name())
		if m == nil {
			t.Errorf("%s/%s: the name is not a number and words", folder, entry.Name())
			continue
		}
		all = append(all, m[1])
		content, err := fs.ReadFile(files, folder+"/"+entry.Name())
		if err != nil {
			t.Fatal(err)
		}
		up, down, found := strings.Cut(string(content), "-- +goose Down\n")
		if !found || !strings.Contains(up, "-- +goose Up\n") || strings.TrimSpace(down) == "" {
			t.Errorf("%s/%s cannot be done and undone", folder, entry.Name())
		}
	}
	return all
}

func TestStepsAreNumberedWithoutGaps(t *testing.T) {
	for i, number := range numbers(t, "sqlite") {
		if want := fmt.Sprintf("%05d", i+1); number != want {
			t.Errorf("step %d has the number %s, want %s", i+1, number, want)
		}
	}
}

func TestDialectsHaveTheSameSteps(t *testing.T) {
	folders, err := fs.ReadDir(files, ".")
	if err != nil {
		t.Fatal(err)
	}
	want := numbers(t, "sqlite")
	if len(want) == 0 {
		t.Fatal("there are no steps")
	}
	for _, folder := range folders {
		if got := numbers(t, folder.Name()); !slices.Equal(got, want) {
			t.Errorf("%s has the steps %v, want %v", folder.Name(), got, want)
		}
	}
}

func TestLatestIsTheLastStep(t *testing.T) {
	for name, steps := range map[string]fs.FS{"sqlite": SQLite(), "postgres": PostgreSQL()} {
		want := numbers(t, name)
		got, err := Latest(steps)
		if err != nil || fmt.Sprintf("%05d", got) != want[len(want)-1] {
			t.Errorf("%s: %d, %v; want %s", name, got, err, want[len(want)-1])
		}
	}
}

// The release before works with the schema of this one, and nothing that is too
// old does.
func TestWindowIsOneReleaseAtLeast(t *testing.T) {
	latest, err := Latest(SQLite())
	if err != nil {
		t.Fatal(err)
	}
	if Oldest >= latest {
		t.Errorf("programs that know step %d are too old for the schema after step %d: an upgrade could not be rolled", latest-1, latest)
	}
	for oldest, works := range map[int64]bool{0: true, Oldest: true, latest: true, latest + 1: false} {
		if err := Window(latest, oldest); (err == nil) != works {
			t.Errorf("a database for programs from step %d on: %v", oldest, err)
		}
	}
}
