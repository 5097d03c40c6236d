package postgres

import (
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"go.uber.org/goleak"

	"github.com/sluice-kms/sluice/keystore"
	"github.com/sluice-kms/sluice/keystore/postgres/pgtest"
	"github.com/sluice-kms/sluice/keystore/storetest"
)

func TestMain(m *testing.M) {
	storetest.CrashVictim(openAt)
	code := m.Run()
	if err := pgtest.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func TestConformance(t *testing.T) {
	pgtest.Require(t)
	storetest.Run(t, func(t *testing.T) keystore.Driver { return openHarness(t) })
}

func TestAcknowledgedCreatesSurviveKill(t *testing.T) {
	urls := newDatabase(t)
	storetest.RunCrash(t, urls.Service, openAt)
}

func BenchmarkStore(b *testing.B) {
	pgtest.Require(b)
	storetest.Benchmark(b, func(b *testing.B) keystore.Driver { return openHarness(b) })
}

// openAt opens the database that a URL names, as the service.
func openAt(ctx context.Context, url string) (keystore.Driver, error) {
	return Open(ctx, Config{URL: url})
}

func newDatabase(t testing.TB) pgtest.URLs {
	t.Helper()
	return pgtest.Require(t).Database(t, func(owner string) error { return migrate(t.Context(), owner) })
}

func openTest(t testing.TB, url string) *DB {
	t.Helper()
	db, err := Open(t.Context(), Config{URL: url})
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

// harness is a database that can be damaged. Its columns are found out once,
// its constraints are gone once it is damaged.
type harness struct {
	*DB
	urls pgtest.URLs
	raw  func() *unchecked
}

type unchecked struct {
	db    *sql.DB
	types map[string]string // :: table.column → type
}

func openHarness(t testing.TB) *harness {
	urls := newDatabase(t)
	h := &harness{DB: openTest(t, urls.Service), urls: urls}
	h.raw = sync.OnceValue(func() *unchecked { return openUnchecked(t, urls.Admin) })
	return h
}

// openUnchecked connects past the policies and takes away every constraint but
// those that keep rows apart.
func openUnchecked(t testing.TB, admin string) *unchecked {
	db := openSQL(t, admin)
	u := &unchecked{db: db, types: map[string]string{}}
	for _, statement := range strings.Split(strings.Join(queryStrings(t, db, `
		SELECT format('ALTER TABLE %s DROP CONSTRAINT %I', conrelid::regclass, conname) FROM pg_constraint
		WHERE connamespace = 'sluice'::regnamespace AND contype IN ('c', 'f')
		UNION ALL
		SELECT format('ALTER TABLE sluice.%I ALTER COLUMN %I DROP NOT NULL', a.table_name, a.column_name)
		FROM information_schema.columns a WHERE table_schema = 'sluice' AND is_nullable = 'NO'
		AND NOT EXISTS (SELECT FROM information_schema.key_column_usage k JOIN information_schema.table_constraints c
			USING (constraint_schema, constraint_name) WHERE c.constraint_type = 'PRIMARY KEY'
			AND k.table_schema = 'sluice' AND k.table_name = a.table_name AND k.column_name = a.column_name)`), ";"), ";") {
		if _, err := db.Exec(statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	for _, column := range queryStrings(t, db, `SELECT table_name || '.' || column_name || ' ' || data_type
		FROM information_schema.columns WHERE table_schema = 'sluice'`) {
		name, kind, _ := strings.Cut(column, " ")
		u.types[name] = kind
	}
	return u
}

// openSQL connects without a pool of the driver under test.
func openSQL(t testing.TB, connection string) *sql.DB {
	t.Helper()
	u, err := url.Parse(connection)
	if err != nil {
		t.Fatal(err)
	}
	query := u.Query()
	query.Set("search_path", "sluice")
	u.RawQuery = query.Encode()
	db, err := sql.Open("pgx", u.String())
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(1)
	t.Cleanup(func() { db.Close() })
	return db
}

func queryStrings(t testing.TB, db *sql.DB, query string, args ...any) (all []string) {
	t.Helper()
	rows, err := db.Query(query, args...)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var s string
		if err := rows.Scan(&s); err != nil {
			t.Fatal(err)
		}
		all = append(all, s)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

// argument returns an expression for a value of the suite in a column's type.
// Values of harness.Value are texts of a type of their own.
func (u *unchecked) argument(table, column string, value any, place int) (string, any) {
	kind := u.types[table+"."+column]
	switch v := value.(type) {
	case found:
		return fmt.Sprintf("$%d::text::%s", place, kind), v.text
	case []byte:
		switch kind {
		case "uuid":
			return fmt.Sprintf("$%d::text::uuid", place), hex.EncodeToString(v)
		case "bytea":
			return fmt.Sprintf("$%d::bytea", place), v
		}
		return fmt.Sprintf("$%d::text::%s", place, kind), string(v)
	case int64:
		switch kind {
		case "timestamp with time zone":
			return fmt.Sprintf("timestamptz 'epoch' + $%d::bigint * interval '1 microsecond'", place), v
		case "boolean":
			return fmt.Sprintf("$%d::text::boolean", place), fmt.Sprint(v)
		}
		return fmt.Sprintf("$%d::text::%s", place, kind), fmt.Sprint(v)
	}
	return fmt.Sprintf("$%d::text::%s", place, kind), value
}

// found is what a column holds, as text; NULL is nil.
type found struct{ text *string }

// Damage implements storetest.Damager.
func (h *harness) Damage(t testing.TB, d storetest.Damage) bool {
	t.Helper()
	u := h.raw()
	if _, isText := d.Value.(string); isText && u.types[d.Table+"."+d.Column] == "bytea" {
		return false // it would be bytes
	}
	value, arg := u.argument(d.Table, d.Column, d.Value, 1)
	key, keyArg := u.argument(d.Table, d.Key, d.KeyValue, 2)
	result, err := u.db.Exec(fmt.Sprintf(`UPDATE %s SET %s = %s WHERE %s = %s`, d.Table, d.Column, value, d.Key, key), arg, keyArg)
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		// Types, UTF-8 and NOT NULL of a key are what this database cannot be
		// talked out of.
		if strings.HasPrefix(e.Code, classData) || e.Code == "42846" || e.Code == "23502" {
			return false
		}
	}
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
	u := h.raw()
	where, arg := u.argument(table, key, value, 1)
	if _, err := u.db.Exec(fmt.Sprintf(`DELETE FROM %s WHERE %s = %s`, table, key, where), arg); err != nil {
		t.Fatalf("deleting from %s: %v", table, err)
	}
}

// Value implements storetest.Damager.
func (h *harness) Value(t testing.TB, table, column, key string, value any) any {
	t.Helper()
	u := h.raw()
	where, arg := u.argument(table, key, value, 1)
	var text *string
	if err := u.db.QueryRow(fmt.Sprintf(`SELECT %s::text FROM %s WHERE %s = %s`, column, table, key, where), arg).Scan(&text); err != nil {
		t.Fatalf("reading %s.%s: %v", table, column, err)
	}
	return found{text}
}

// Columns implements storetest.Damager.
func (h *harness) Columns(t testing.TB) map[string][]string {
	columns := map[string][]string{}
	for name := range h.raw().types {
		table, column, _ := strings.Cut(name, ".")
		if !strings.HasPrefix(table, "goose") {
			columns[table] = append(columns[table], column)
		}
	}
	return columns
}

// Reopen implements storetest.Damager.
func (h *harness) Reopen(t testing.TB) keystore.Driver { return openTest(t, h.urls.Service) }
