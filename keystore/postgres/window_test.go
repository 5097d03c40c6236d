package postgres

import (
	"strings"
	"testing"

	"github.com/sluice-kms/sluice/migrations"
)

// A database that a later release has migrated for itself alone is not touched,
// neither by who owns it nor by who uses it.
func TestAProgramThatIsTooOldForADatabaseRefusesIt(t *testing.T) {
	urls := newDatabase(t)
	owner, err := openOwner(t.Context(), urls.Owner)
	if err != nil {
		t.Fatal(err)
	}
	defer owner.Close()
	var oldest int64
	if err := owner.QueryRowContext(t.Context(), selectOldest).Scan(&oldest); err != nil || oldest != migrations.Oldest {
		t.Errorf("the database is for programs that know step %d, %v", oldest, err)
	}
	if _, err := owner.ExecContext(t.Context(), `COMMENT ON SCHEMA sluice IS 'oldest step: 4711'`); err != nil {
		t.Fatal(err)
	}
	if err := migrate(t.Context(), urls.Owner); err == nil || !strings.Contains(err.Error(), "know step 4711") {
		t.Errorf("it was migrated: %v", err)
	}
	db, err := Open(t.Context(), Config{URL: urls.Service})
	if err == nil {
		db.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "know step 4711") {
		t.Errorf("it was opened: %v", err)
	}
}
