package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"uuid"

	"github.com/sluice-kms/sluice/keystore"
	"github.com/sluice-kms/sluice/kms"
	"github.com/sluice-kms/sluice/migrations"
)

func TestFilesAreTheOwnersOnlyWhateverTheUmask(t *testing.T) {
	for _, umask := range []int{0, 0o022, 0o077} {
		t.Run(fmt.Sprintf("%#o", umask), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "data", "deep", "sluice.db")
			before := syscall.Umask(umask)
			defer syscall.Umask(before)
			checkModes(t, path)
			// A database that was copied with a looser mode is put right.
			if err := os.Chmod(path, 0o644); err != nil {
				t.Fatal(err)
			}
			checkModes(t, path)
		})
	}
}

// checkModes opens the database, writes, and looks at all files while it is
// open, when those beside it exist.
func checkModes(t *testing.T, path string) {
	t.Helper()
	db, err := Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	err = db.InsertSystemSecret(t.Context(), keystore.InsertSystemSecretParams{Name: "s" + uuid.New().String(), Version: 1, Blob: []byte{1}})
	if err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]fs.FileMode{
		path: 0o600, path + "-wal": 0o600, path + "-shm": 0o600,
		filepath.Dir(path): fs.ModeDir | 0o700, filepath.Dir(filepath.Dir(path)): fs.ModeDir | 0o700,
	} {
		info, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode() != want {
			t.Errorf("%s has mode %v, want %v", filepath.Base(file), info.Mode(), want)
		}
	}
}

func TestFolderThatExistsKeepsItsMode(t *testing.T) {
	folder := t.TempDir()
	if err := os.Chmod(folder, 0o750); err != nil {
		t.Fatal(err)
	}
	openTest(t, filepath.Join(folder, "sluice.db"))
	if info, err := os.Stat(folder); err != nil || info.Mode().Perm() != 0o750 {
		t.Errorf("the folder has mode %v, %v", info.Mode(), err)
	}
}

func TestPathMayHoldAnyCharacter(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "a?b=c#d%20 &_pragma=x")
	openTest(t, filepath.Join(folder, "sluice.db"))
	if _, err := os.Stat(filepath.Join(folder, "sluice.db")); err != nil {
		t.Error(err)
	}
}

func TestConnectionsAreDurableAndChecked(t *testing.T) {
	db := openTest(t, filepath.Join(t.TempDir(), "sluice.db"))
	for pragma, want := range map[string]string{
		"journal_mode": "wal", "synchronous": "2", "foreign_keys": "1", "busy_timeout": busyTimeout, "trusted_schema": "0",
	} {
		for name, pool := range map[string]*sql.DB{"writer": db.writer, "reader": db.reader} {
			var got string
			if err := pool.QueryRowContext(t.Context(), "PRAGMA "+pragma).Scan(&got); err != nil || got != want {
				t.Errorf("%s: %s = %q, %v; want %q", name, pragma, got, err, want)
			}
		}
	}
	if _, err := db.reader.ExecContext(t.Context(), "DELETE FROM system_secrets"); err == nil {
		t.Error("a reading connection can write")
	}
}

func TestMigrationsGoUpDownAndUpAgain(t *testing.T) {
	ctx := t.Context()
	db := openTest(t, filepath.Join(t.TempDir(), "sluice.db"))
	p, err := db.provider()
	if err != nil {
		t.Fatal(err)
	}
	latest := schema(t, db)
	if _, err := p.DownTo(ctx, 0); err != nil {
		t.Fatal(err)
	}
	if left := schema(t, db); len(left) != 0 {
		t.Errorf("going down leaves %q", left)
	}
	// Step by step, each step undone and done again.
	for range p.ListSources() {
		before := schema(t, db)
		if _, err := p.UpByOne(ctx); err != nil {
			t.Fatal(err)
		}
		after := schema(t, db)
		if _, err := p.Down(ctx); err != nil {
			t.Fatal(err)
		}
		if got := schema(t, db); !slices.Equal(got, before) {
			t.Errorf("undoing a step leaves %q, want %q", got, before)
		}
		if _, err := p.UpByOne(ctx); err != nil {
			t.Fatal(err)
		}
		if got := schema(t, db); !slices.Equal(got, after) {
			t.Errorf("doing a step again makes %q, want %q", got, after)
		}
	}
	if got := schema(t, db); !slices.Equal(got, latest) {
		t.Errorf("going up step by step makes %q, want %q", got, latest)
	}
}

// schema returns the statements that made the tables and indexes, without
// those of the migration tool.
func schema(t *testing.T, db *DB) []string {
	t.Helper()
	rows, err := db.writer.QueryContext(t.Context(), `SELECT sql FROM sqlite_schema
		WHERE sql IS NOT NULL AND tbl_name NOT LIKE 'goose%' AND name NOT LIKE 'sqlite_%' ORDER BY name`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var all []string
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

func TestEveryTableIsStrict(t *testing.T) {
	db := openTest(t, filepath.Join(t.TempDir(), "sluice.db"))
	for _, s := range schema(t, db) {
		if strings.HasPrefix(s, "CREATE TABLE") && !strings.HasSuffix(s, ") STRICT") && !strings.HasSuffix(s, ") STRICT, WITHOUT ROWID") {
			t.Errorf("not a strict table: %.40s", s)
		}
	}
	if files, err := fs.Glob(migrations.SQLite(), "*.sql"); err != nil || len(files) == 0 {
		t.Errorf("no migrations: %v", err)
	}
}

// statementsWithoutTenant lists the statements that may do without a tenant
// in their condition, and why.
var statementsWithoutTenant = map[string]string{
	"selectCredentialForAuthentication": "finds out the tenant",
	"selectTenantID":                    "finds the tenant of a name, for operators",
	"listTenants":                       "lists tenants, for operators",
	"countTenants":                      "counts tenants, for operators",
	"selectSystemSecrets":               "the service's own",
	"deleteExpiredClaims":               "housekeeping",
	"selectRowAuthentication":           "the database's own",
	"sealRowAuthentication":             "the database's own",
	"selectDueProviderSecrets":          "the keeper acts for all tenants",
	"deleteSecretChanges":               "housekeeping",
	"wantEndpoints":                     "one for all tenants",
	"selectEndpoints":                   "one for all tenants",
	"claimEndpoints":                    "one for all tenants",
	"endProbe":                          "one for all tenants",
	"deleteEndpoints":                   "housekeeping",
	"deleteCostIncidents":               "housekeeping",
	"selectDueKeys":                     "the keeper acts for all tenants",
	"selectDueDeletions":                "the keeper acts for all tenants",
	"selectApproval":                    "operators'",
	"listApprovals":                     "operators'",
	"updateApproval":                    "operators'",
	"selectNodeSetting":                 "operators'",
	"listNodeSettings":                  "operators'",
	"updateNodeSetting":                 "operators'",
	"selectNewestPolicy":                "operators'",
	"selectPolicy":                      "operators'",
	"listPolicies":                      "operators'",
	"listJournalHeads":                  "operators'",
	"putJournalHead":                    "operators'",
	"deleteExpiredApprovals":            "housekeeping",
	"claimDeliveries":                   "the sender acts for all tenants",
	"deleteEndedDeliveries":             "housekeeping",
	"selectDueJobs":                     "the job runner acts for all tenants",
	"selectExpiredJobs":                 "the job runner acts for all tenants",
	"selectComputedChunks":              "the job runner acts for all tenants",
	"releaseJobChunks":                  "the job runner acts for all tenants",
	"deleteExpiredRecords":              "housekeeping",
	"selectAnyRequestRecord":            "operators'",
	"selectShipped":                     "the API nodes'",
	"listShipped":                       "the API nodes'",
	"advanceShipped":                    "the API nodes'",
	"selectLastOrder":                   "a counter",
	"newestAuditEntriesOfAll":           "operators'",
	"arrivedAuditEntriesOfAll":          "operators'",
	"arrivedOfOp":                       "the row watch's",
	"auditEntriesOfAnyRequest":          "operators'",
	"anyAuditEntriesAt":                 "operators'",
	"selectUsageOfAll":                  "operators'",
	"deleteAuditEntries":                "housekeeping",
	"deleteUsage":                       "housekeeping",
}

var (
	startsStatement = regexp.MustCompile(`^(SELECT|UPDATE|DELETE|INSERT)\b`)
	tenantCondition = regexp.MustCompile(`(?s)WHERE .*\btenant = (\?\d?|excluded\.tenant)`)
	ownTenant       = regexp.MustCompile(`(?s)\btenants\b.* WHERE id = \?`)
	starColumn      = regexp.MustCompile(`SELECT\s+(\w+\.)?\*`)
)

// TestEveryStatementNamesTheTenant reads the statements out of the package's
// source, so that a new one cannot be forgotten.
func TestEveryStatementNamesTheTenant(t *testing.T) {
	statements := sqlConstants(t)
	if len(statements) < 20 {
		t.Fatalf("found %d statements only", len(statements))
	}
	for name, sql := range statements {
		if starColumn.MatchString(sql) {
			t.Errorf("%s does not list its columns", name)
		}
		if strings.HasPrefix(sql, "INSERT") && !strings.Contains(sql, "WHERE") {
			continue // names the tenant as a column, which NOT NULL enforces
		}
		named := tenantCondition.MatchString(sql) || ownTenant.MatchString(sql)
		if _, excused := statementsWithoutTenant[name]; named == excused {
			t.Errorf("%s: tenant in its condition: %v, excused: %v", name, named, excused)
		}
	}
}

// sqlConstants returns the constants of this package that are statements,
// with constants in them resolved.
func sqlConstants(t *testing.T) map[string]string {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	values := make(map[string]ast.Expr)
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			if spec, ok := n.(*ast.ValueSpec); ok && !strings.HasSuffix(file, "_test.go") {
				for i, value := range spec.Values {
					values[spec.Names[i].Name] = value
				}
			}
			return true
		})
	}
	var text func(ast.Expr) string
	text = func(e ast.Expr) string {
		switch e := e.(type) {
		case *ast.BasicLit:
			s, _ := strconv.Unquote(e.Value)
			return s
		case *ast.Ident:
			return text(values[e.Name])
		case *ast.BinaryExpr:
			return text(e.X) + text(e.Y)
		}
		return ""
	}
	statements := make(map[string]string)
	for name, value := range values {
		// Beginnings of statements have no condition of their own.
		if s := text(value); startsStatement.MatchString(s) && !strings.HasPrefix(name, "join") {
			statements[name] = s
		}
	}
	return statements
}

// codedError is an error with a result code of SQLite.
type codedError int

func (codedError) Error() string { return "secret detail" }
func (e codedError) Code() int   { return int(e) }

func TestResultCodesAreTranslated(t *testing.T) {
	for code, want := range map[int]error{
		2067: keystore.ErrExists, 1555: keystore.ErrExists, 787: keystore.ErrMissing,
		275 /* CHECK */ : keystore.ErrRefused, 1299 /* NOT NULL */ : keystore.ErrRefused, 3091 /* type */ : keystore.ErrRefused,
	} {
		db := &DB{failed: make(chan struct{})}
		if got := db.translate(fmt.Errorf("inserting: %w", codedError(code))); got != want {
			t.Errorf("code %d: %v, want %v itself", code, got, want)
		}
	}
}

func TestNothingIsWrittenAfterAFailedFsync(t *testing.T) {
	for _, code := range []codedError{codeIOErrFsync, codeIOErrDirFsync} {
		db := openTest(t, filepath.Join(t.TempDir(), "sluice.db"))
		secret := keystore.InsertSystemSecretParams{Name: "s", Version: 1, Blob: []byte{1}}
		if err := db.InsertSystemSecret(t.Context(), secret); err != nil {
			t.Fatal(err)
		}
		select {
		case <-db.Failed():
			t.Fatal("failed without a reason")
		default:
		}
		if err := db.translate(code); !errors.Is(err, code) {
			t.Errorf("the cause is lost: %v", err)
		}
		<-db.Failed()
		secret.Version = 2
		if err := db.InsertSystemSecret(t.Context(), secret); err != errFailed {
			t.Errorf("a write after a failed fsync: %v", err)
		}
		db.translate(code) // a second failure changes nothing
		if rows, err := db.SystemSecrets(t.Context(), keystore.SystemSecretsParams{Name: "s"}); err != nil || len(rows) != 1 {
			t.Errorf("%d secrets, %v; want the first one", len(rows), err)
		}
	}
}

func TestClosedDatabaseIsUnavailable(t *testing.T) {
	db, err := Open(t.Context(), filepath.Join(t.TempDir(), "sluice.db"))
	if err != nil {
		t.Fatal(err)
	}
	store := keystore.New(db, keystore.Options{})
	defer store.Close()
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	_, err = store.Tenant(t.Context(), uuid.NewV7())
	if kms.KindOf(err) != kms.KindStoreUnavailable {
		t.Errorf("reading: %v", err)
	}
	err = store.PutSystemSecret(t.Context(), kms.SystemSecret{Name: "s", Version: 1, Blob: []byte{1}})
	if kms.KindOf(err) != kms.KindStoreUnavailable {
		t.Errorf("writing: %v", err)
	}
}

func TestEndOfTheContextIsNotTheEndOfTheDatabase(t *testing.T) {
	db := openTest(t, filepath.Join(t.TempDir(), "sluice.db"))
	store := keystore.New(db, keystore.Options{})
	defer store.Close()
	ended, end := context.WithCancel(t.Context())
	end()
	err := store.PutSystemSecret(ended, kms.SystemSecret{Name: "s", Version: 1, Blob: []byte{1}})
	if kms.KindOf(err) != kms.KindStoreUnavailable || !errors.Is(err, context.Canceled) {
		t.Errorf("with an ended context: %v", err)
	}
	if err := store.PutSystemSecret(t.Context(), kms.SystemSecret{Name: "s", Version: 1, Blob: []byte{1}}); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// TestDriverErrorsHoldNoValues makes the database complain about values that
// would be recognised.
func TestDriverErrorsHoldNoValues(t *testing.T) {
	const canary = "canary-7f3a"
	db := openTest(t, filepath.Join(t.TempDir(), "sluice.db"))
	id := uuid.NewV7()
	tenant := keystore.TenantRecord{ID: id, Name: canary, Tier: canary, State: canary, SealingGeneration: 1,
		SealingWrapped: []byte(canary), Revision: 1}
	project := keystore.ProjectRecord{Tenant: uuid.NewV7(), Name: canary}
	errs := []error{
		db.InsertTenant(t.Context(), keystore.InsertTenantParams{Tenant: tenant, Project: project}),
		db.InsertProject(t.Context(), keystore.InsertProjectParams{Project: project}),
		db.InsertSystemSecret(t.Context(), keystore.InsertSystemSecretParams{Name: strings.Repeat(canary, 100), Version: 1}),
	}
	for _, err := range errs {
		if err == nil || strings.Contains(err.Error(), canary) {
			t.Errorf("got %v", err)
		}
	}
}
