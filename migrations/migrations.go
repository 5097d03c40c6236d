// Package migrations holds the database schema as numbered SQL files, one
// folder per dialect, in the format of goose.
//
// A number means the same step in every dialect, so that code may rely on
// "schema 7" whatever database it runs on; a dialect with nothing to do for a
// step still has the file. Files that were released are never changed: a
// correction is a new number. Every step can be undone.
//
// # Upgrade and downgrade with traffic on
//
// While API nodes are replaced one by one, those of the release before work with
// the schema of the new one, and so they do when the upgrade is taken back: the
// schema stays. So a step must leave what the programs of the release before do
// with the database as it was: it adds tables, indexes, functions, and columns
// with a default; what it takes away, renames, or makes narrower was used by no
// program of the release before. A change that cannot be made so takes two
// releases: the first adds and writes both, the second takes away.
//
// Oldest declares how far that goes. Who migrates a database writes it there,
// and a program that is older refuses to start on it, instead of working wrongly.
package migrations

import (
	"embed"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
)

// Oldest is the number of the last step that a program must know to work with
// the schema after the last step here: that of the release before, or of an
// earlier one.
const Oldest = 14

//go:embed postgres/*.sql sqlite/*.sql
var files embed.FS

// PostgreSQL returns the steps for PostgreSQL, which need version 15 or later.
func PostgreSQL() fs.FS { return dialect("postgres") }

// SQLite returns the steps for SQLite.
func SQLite() fs.FS { return dialect("sqlite") }

// Latest returns the number of the last step.
func Latest(steps fs.FS) (int64, error) {
	entries, err := fs.ReadDir(steps, ".")
	if err != nil || len(entries) == 0 {
		return 0, fmt.Errorf("migrations: there are no steps: %w", err)
	}
	number, _, _ := strings.Cut(entries[len(entries)-1].Name(), "_")
	return strconv.ParseInt(number, 10, 64)
}

// Window tells, with the Oldest that was written into a database, whether a
// program that knows the steps up to its own latest may work with it. 0 was
// written by programs from before there was one.
func Window(latest, oldest int64) error {
	if latest < oldest {
		return fmt.Errorf("the database was migrated for programs that know step %d; this one knows %d: it is too old", oldest, latest)
	}
	return nil
}

func dialect(name string) fs.FS {
	sub, err := fs.Sub(files, name)
	if err != nil {
		// Only a malformed name can fail, and names are constants above.
		panic("migrations: " + err.Error())
	}
	return sub
}
