package wire_test

import (
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

// rawDatabase reaches a database past the service, with nothing in the way of
// bad values. No service may have it open while it is opened.
type rawDatabase struct {
	*sql.DB
	columns map[string][]rawColumn // by table, without those of the migration tool
	id      func(uuid string) string
	bytes   func(text string) string
	differs string // the operator that compares NULL, too
}

// rawColumn is a column and what it may turn out to hold, as SQL.
type rawColumn struct {
	name   string
	values []string
}

// What a column of a type may turn out to hold: NULL, blank, unknown and, in
// SQLite, values of other types.
var (
	sqliteValues = map[string][]string{
		"TEXT":    {"NULL", "''", "'WHATEVER'", "x'00ff'"},
		"INTEGER": {"NULL", "0", "4611686018427387904", "'WHATEVER'"},
		"BLOB":    {"NULL", "x''", "x'00ff'", "'WHATEVER'"},
	}
	postgresValues = map[string][]string{
		"text":                     {"NULL", "''", "'WHATEVER'"},
		"bigint":                   {"NULL", "0", "4611686018427387904"},
		"integer":                  {"NULL", "0", "2147483647"},
		"bytea":                    {"NULL", "''", `'\x00ff'`},
		"boolean":                  {"NULL", "true", "false"},
		"uuid":                     {"NULL", "'00000000-0000-0000-0000-000000000000'"},
		"timestamp with time zone": {"NULL", "'epoch'", "'infinity'"},
		"xid8":                     {"NULL", "'0'"},
	}
)

func openRaw(t *testing.T, driver, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(1)
	t.Cleanup(func() { db.Close() })
	return db
}

func (r *rawDatabase) exec(t *testing.T, statement string) {
	t.Helper()
	if _, err := r.Exec(statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

// rows returns the rows of a query of texts.
func (r *rawDatabase) rows(t *testing.T, query string, columns int) [][]string {
	t.Helper()
	rows, err := r.Query(query)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var all [][]string
	for rows.Next() {
		row := make([]string, columns)
		into := make([]any, columns)
		for i := range row {
			into[i] = &row[i]
		}
		if err := rows.Scan(into...); err != nil {
			t.Fatal(err)
		}
		all = append(all, row)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

func (r *rawDatabase) addColumns(t *testing.T, rows [][]string, values map[string][]string) {
	t.Helper()
	r.columns = map[string][]rawColumn{}
	for _, row := range rows {
		table, column, kind := row[0], row[1], row[2]
		if values[kind] == nil {
			t.Fatalf("%s.%s is of type %s, of which there are no bad values", table, column, kind)
		}
		r.columns[table] = append(r.columns[table], rawColumn{column, values[kind]})
	}
}

// rawSQLite takes NOT NULL and STRICT out of the schema and switches checks
// off.
func rawSQLite(t *testing.T, path string) *rawDatabase {
	t.Helper()
	dsn := url.URL{Scheme: "file", Path: path, RawQuery: "_pragma=ignore_check_constraints(1)"}
	r := &rawDatabase{DB: openRaw(t, "sqlite", dsn.String()), differs: "IS NOT",
		id:    func(uuid string) string { return "x'" + strings.ReplaceAll(uuid, "-", "") + "'" },
		bytes: func(text string) string { return "CAST('" + text + "' AS BLOB)" }}
	version := r.rows(t, `PRAGMA schema_version`, 1)[0][0]
	r.exec(t, `PRAGMA writable_schema = ON`)
	r.exec(t, `UPDATE sqlite_schema SET sql = replace(replace(replace(sql, 'IS NOT NULL', 'NOTNULL'), ' NOT NULL', ''), ') STRICT', ')') WHERE type = 'table'`)
	r.exec(t, fmt.Sprintf(`PRAGMA schema_version = %s1`, version))
	r.exec(t, `PRAGMA writable_schema = RESET`)
	r.addColumns(t, r.rows(t, `SELECT m.name, c.name, c.type FROM sqlite_schema m JOIN pragma_table_info(m.name) c
		WHERE m.type = 'table' AND m.name NOT LIKE 'goose%' AND m.name NOT LIKE 'sqlite_%'`, 3), sqliteValues)
	return r
}

// rawPostgres connects past the policies and takes away every constraint but
// those that keep rows apart.
func rawPostgres(t *testing.T, admin string) *rawDatabase {
	t.Helper()
	r := &rawDatabase{DB: openRaw(t, "pgx", admin+"&search_path=sluice"), differs: "IS DISTINCT FROM",
		id:    func(uuid string) string { return "'" + uuid + "'" },
		bytes: func(text string) string { return "convert_to('" + text + "', 'UTF8')" }}
	for _, statement := range r.rows(t, `
		SELECT format('ALTER TABLE %s DROP CONSTRAINT %I', conrelid::regclass, conname) FROM pg_constraint
		WHERE connamespace = 'sluice'::regnamespace AND contype IN ('c', 'f')
		UNION ALL
		SELECT format('ALTER TABLE sluice.%I ALTER COLUMN %I DROP NOT NULL', a.table_name, a.column_name)
		FROM information_schema.columns a WHERE table_schema = 'sluice' AND is_nullable = 'NO'
		AND NOT EXISTS (SELECT FROM information_schema.key_column_usage k JOIN information_schema.table_constraints c
			USING (constraint_schema, constraint_name) WHERE c.constraint_type = 'PRIMARY KEY'
			AND k.table_schema = 'sluice' AND k.table_name = a.table_name AND k.column_name = a.column_name)`, 1) {
		r.exec(t, statement[0])
	}
	r.addColumns(t, r.rows(t, `SELECT table_name, column_name, data_type FROM information_schema.columns
		WHERE table_schema = 'sluice' AND table_name NOT LIKE 'goose%' ORDER BY table_name, ordinal_position`, 3), postgresValues)
	return r
}

// damage overwrites a column of the rows that a condition names. It returns
// false when the database cannot hold the value there, or held it before.
func (r *rawDatabase) damage(t *testing.T, table, column, value, where string) bool {
	t.Helper()
	result, err := r.Exec(fmt.Sprintf(`UPDATE %s SET %s = %s WHERE %s AND %s %s %s`, table, column, value, where, column, r.differs, value))
	if e, ok := errors.AsType[*pgconn.PgError](err); ok && (e.Code == "23502" || e.Code == "23505") {
		return false // NOT NULL and UNIQUE of a primary key stay
	}
	if err != nil && (strings.Contains(err.Error(), "UNIQUE constraint failed") || strings.Contains(err.Error(), "datatype mismatch")) {
		return false // the second: of a row number
	}
	if err != nil {
		t.Fatalf("damaging %s.%s: %v", table, column, err)
	}
	n, err := result.RowsAffected()
	if err != nil {
		t.Fatal(err)
	}
	return n > 0
}
