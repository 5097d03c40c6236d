// Package migrations holds the database schema as numbered SQL files, one
// folder per dialect, in the format of goose.
//
// A number means the same step in every dialect, so that code may rely on
// "schema 7" whatever database it runs on; a dialect with nothing to do for a
// step still has the file. Files that were released are never changed: a
// correction is a new number. Every step can be undone, because an upgrade by
// one version must be reversible with traffic on.
package migrations

import (
	"embed"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
)

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

func dialect(name string) fs.FS {
	sub, err := fs.Sub(files, name)
	if err != nil {
		// Only a malformed name can fail, and names are constants above.
		panic("migrations: " + err.Error())
	}
	return sub
}
