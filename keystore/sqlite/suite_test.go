package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"path/filepath"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/sluice-kms/sluice/keystore"
	"github.com/sluice-kms/sluice/keystore/storetest"
)

func TestMain(m *testing.M) {
	storetest.CrashVictim(openAt)
	goleak.VerifyTestMain(m)
}

func TestConformance(t *testing.T) {
	storetest.Run(t, func(t *testing.T) keystore.Driver { return openHarness(t) })
}

func TestAcknowledgedCreatesSurviveKill(t *testing.T) {
	storetest.RunCrash(t, filepath.Join(t.TempDir(), "crash.db"), openAt)
}

func BenchmarkStore(b *testing.B) {
	storetest.Benchmark(b, func(b *testing.B) keystore.Driver { return openHarness(b) })
}

func openAt(ctx context.Context, location string) (keystore.Driver, error) {
	return Open(ctx, location)
}

// harness is a database that can be damaged.
type harness struct {
	*DB
	path string
	raw  func() *sql.DB
}

func openHarness(t testing.TB) *harness {
	path := filepath.Join(t.TempDir(), "data", "sluice.db")
	h := &harness{DB: openTest(t, path), path: path}
	h.raw = sync.OnceValue(func() *sql.DB { return openUnchecked(t, path) })
	return h
}

func openTest(t testing.TB, path string) *DB {
	db, err := Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

// openUnchecked opens the file with nothing in the way of bad values: it takes
// NOT NULL and STRICT out of the schema and switches constraints off.
func openUnchecked(t testing.TB, path string) *sql.DB {
	dsn := url.URL{Scheme: "file", Path: path, RawQuery: url.Values{
		"_busy_timeout": {busyTimeout},
		"_pragma":       {"ignore_check_constraints(1)"},
	}.Encode()}
	db, err := sql.Open("sqlite", dsn.String())
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(1)
	t.Cleanup(func() { db.Close() })
	var version int
	if err := db.QueryRow(`PRAGMA schema_version`).Scan(&version); err != nil {
		t.Fatal(err)
	}
	for _, statement := range []string{
		`PRAGMA writable_schema = ON`,
		`UPDATE sqlite_schema SET sql = replace(replace(replace(sql, 'IS NOT NULL', 'NOTNULL'), ' NOT NULL', ''), ') STRICT', ')') WHERE type = 'table'`,
		fmt.Sprintf(`PRAGMA schema_version = %d`, version+1),
		`PRAGMA writable_schema = RESET`,
	} {
		if _, err := db.Exec(statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	return db
}

// Damage implements storetest.Damager. SQLite can be made to hold anything.
func (h *harness) Damage(t testing.TB, d storetest.Damage) bool {
	t.Helper()
	result, err := h.raw().Exec(fmt.Sprintf(`UPDATE %s SET %s = ? WHERE %s = ?`, d.Table, d.Column, d.Key), d.Value, d.KeyValue)
	if err != nil {
		t.Fatalf("damaging %s.%s: %v", d.Table, d.Column, err)
	}
	if n, err := result.RowsAffected(); n != 1 || err != nil {
		t.Fatalf("damaging %s.%s met %d rows, %v", d.Table, d.Column, n, err)
	}
	return true
}

// Delete implements storetest.Damager.
func (h *harness) Delete(t testing.TB, table, key string, value any) {
	t.Helper()
	if _, err := h.raw().Exec(fmt.Sprintf(`DELETE FROM %s WHERE %s = ?`, table, key), value); err != nil {
		t.Fatalf("deleting from %s: %v", table, err)
	}
}

// Value implements storetest.Damager.
func (h *harness) Value(t testing.TB, table, column, key string, value any) (found any) {
	t.Helper()
	if err := h.raw().QueryRow(fmt.Sprintf(`SELECT %s FROM %s WHERE %s = ?`, column, table, key), value).Scan(&found); err != nil {
		t.Fatalf("reading %s.%s: %v", table, column, err)
	}
	return found
}

// Columns implements storetest.Damager.
func (h *harness) Columns(t testing.TB) map[string][]string {
	rows, err := h.raw().Query(`SELECT m.name, c.name FROM sqlite_schema m JOIN pragma_table_info(m.name) c
		WHERE m.type = 'table' AND m.name NOT LIKE 'goose%' AND m.name NOT LIKE 'sqlite_%'`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	columns := map[string][]string{}
	for rows.Next() {
		var table, column string
		if err := rows.Scan(&table, &column); err != nil {
			t.Fatal(err)
		}
		columns[table] = append(columns[table], column)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return columns
}

// Reopen implements storetest.Damager.
func (h *harness) Reopen(t testing.TB) keystore.Driver { return openTest(t, h.path) }
