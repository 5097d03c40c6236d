package postgres

import (
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"uuid"

	"github.com/sluice-kms/sluice/keystore"
	"github.com/sluice-kms/sluice/keystore/postgres/pgtest"
)

func TestMigrationsGoUpDownAndUpAgain(t *testing.T) {
	ctx := t.Context()
	db, err := openOwner(ctx, pgtest.Require(t).EmptyDatabase(t).Owner)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	p, err := provider(db)
	if err != nil {
		t.Fatal(err)
	}
	empty := schema(t, db)
	if _, err := p.Up(ctx); err != nil {
		t.Fatal(err)
	}
	latest := schema(t, db)
	if _, err := p.DownTo(ctx, 0); err != nil {
		t.Fatal(err)
	}
	if left := schema(t, db); !slices.Equal(left, empty) {
		t.Errorf("going down leaves %q", left)
	}
	// Step by step, each step undone and done again.
	for range p.ListSources() {
		before := schema(t, db)
		if _, err := p.UpByOne(ctx); err != nil {
			t.Fatal(err)
		}
		after := schema(t, db)
		if slices.Equal(before, after) {
			t.Error("a step does nothing")
		}
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

// schema describes everything in the schema but the table of the migration
// tool.
func schema(t *testing.T, db *sql.DB) []string {
	t.Helper()
	return queryStrings(t, db, `
		SELECT format('%s.%s %s %s %s', table_name, column_name, data_type, is_nullable, coalesce(column_default, ''))
			FROM information_schema.columns WHERE table_schema = 'sluice' AND table_name NOT LIKE 'goose%'
		UNION ALL SELECT format('%s %s', conrelid::regclass, pg_get_constraintdef(oid)) FROM pg_constraint
			WHERE connamespace = 'sluice'::regnamespace AND conrelid::regclass::text NOT LIKE 'goose%'
		UNION ALL SELECT indexdef FROM pg_indexes WHERE schemaname = 'sluice' AND tablename NOT LIKE 'goose%'
		UNION ALL SELECT pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace = 'sluice'::regnamespace
		UNION ALL SELECT pg_get_triggerdef(g.oid) FROM pg_trigger g JOIN pg_class c ON c.oid = tgrelid
			WHERE c.relnamespace = 'sluice'::regnamespace AND NOT tgisinternal
		UNION ALL SELECT format('%s %s %s', tablename, policyname, qual) FROM pg_policies WHERE schemaname = 'sluice'
		UNION ALL SELECT format('%s %s %s', relname, relrowsecurity, relacl) FROM pg_class
			WHERE relnamespace = 'sluice'::regnamespace AND relkind = 'r' AND relname NOT LIKE 'goose%'
		ORDER BY 1`)
}

func TestManyProcessesMigrateAtOnce(t *testing.T) {
	owner := pgtest.Require(t).EmptyDatabase(t).Owner
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			if err := migrate(t.Context(), owner); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
}

func TestOpenMigratesAsTheOwnerAndServesAsAnother(t *testing.T) {
	newDatabase(t) // makes the role of the service
	urls := pgtest.Require(t).EmptyDatabase(t)
	folder := t.TempDir()
	service, owner := filepath.Join(folder, "service"), filepath.Join(folder, "owner")
	for file, url := range map[string]string{service: urls.Service, owner: urls.Owner} {
		if err := os.WriteFile(file, []byte(url+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	db, err := Open(t.Context(), Config{URLFile: service, OwnerURLFile: owner})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	err = db.InsertSystemSecret(t.Context(), keystore.InsertSystemSecretParams{Name: "s", Version: 1, Blob: []byte{1}})
	if err != nil {
		t.Error(err)
	}
}

func TestOpenRefusesWhatIsNotSafe(t *testing.T) {
	urls := newDatabase(t)
	empty := pgtest.Require(t).EmptyDatabase(t)
	const canary = "canary-7f3a"
	for name, test := range map[string]struct {
		config Config
		says   string
	}{
		"a superuser":               {Config{URL: urls.Admin}, "row-level security"},
		"the owner":                 {Config{URL: urls.Owner}, "row-level security"},
		"no schema":                 {Config{URL: empty.Service}, "version of the schema"},
		"commits that are not kept": {Config{URL: urls.Service + "&synchronous_commit=off"}, "sync"},
		"no URL":                    {Config{}, "missing"},
		"a URL twice":               {Config{URL: urls.Service, URLFile: "x"}, "both"},
		"no file":                   {Config{URLFile: filepath.Join(t.TempDir(), "none")}, "file"},
		"not a URL":                 {Config{URL: "postgres://u:" + canary + "@h:port/"}, "URL"},
		"not an owner's URL":        {Config{URL: urls.Service, OwnerURL: "postgres://u:" + canary + "@h:port/"}, "URL"},
		"nobody there":              {Config{URL: "postgres://u:" + canary + "@127.0.0.1:1/d"}, ""},
		"a wrong password":          {Config{URL: strings.Replace(urls.Service, "sluice_login:", "sluice_login:"+canary, 1)}, ""},
	} {
		db, err := Open(t.Context(), test.config)
		if err == nil {
			db.Close()
			t.Errorf("%s: it opens", name)
			continue
		}
		if !strings.Contains(err.Error(), test.says) || strings.Contains(err.Error(), canary) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestDriverErrorsHoldNoValues(t *testing.T) {
	const canary = "canary-7f3a"
	db := openTest(t, newDatabase(t).Service)
	id := uuid.NewV7()
	tenant := keystore.TenantRecord{ID: id, Name: canary, Tier: canary, State: canary, SealingGeneration: 1,
		SealingWrapped: []byte(canary), Revision: 1}
	project := keystore.ProjectRecord{Tenant: uuid.NewV7(), Name: canary}
	ended, end := context.WithCancel(t.Context())
	end()
	for name, err := range map[string]error{
		"a constraint": db.InsertTenant(t.Context(), keystore.InsertTenantParams{Tenant: tenant, Project: project}),
		"a reference":  db.InsertProject(t.Context(), keystore.InsertProjectParams{Project: project}),
		"a length": db.InsertSystemSecret(t.Context(), keystore.InsertSystemSecretParams{
			Name: strings.Repeat(canary, 100), Version: 1}),
		"not text":        db.InsertProject(t.Context(), keystore.InsertProjectParams{Project: keystore.ProjectRecord{Name: canary + "\x00"}}),
		"an ended caller": db.InsertProject(ended, keystore.InsertProjectParams{Project: project}),
	} {
		if err == nil || strings.Contains(err.Error(), canary) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
