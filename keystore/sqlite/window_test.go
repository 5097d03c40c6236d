package sqlite

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-kms/sluice/migrations"
)

// A database that a later release has migrated for itself alone is not touched.
func TestAProgramThatIsTooOldForADatabaseRefusesIt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sluice.db")
	db := openTest(t, path)
	var oldest int64
	if err := db.writer.QueryRowContext(t.Context(), `PRAGMA user_version`).Scan(&oldest); err != nil || oldest != migrations.Oldest {
		t.Errorf("the database is for programs that know step %d, %v", oldest, err)
	}
	if _, err := db.writer.ExecContext(t.Context(), `PRAGMA user_version = 4711`); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := Open(t.Context(), path)
	if err == nil {
		again.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "know step 4711") {
		t.Errorf("it was opened: %v", err)
	}
}
