package postgres

import (
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"testing"
	"uuid"

	"github.com/sluice-kms/sluice/keystore"
	"github.com/sluice-kms/sluice/keystore/storetest"
)

// shared lists the tables without row-level security, and why.
var shared = map[string]string{
	"system_secrets":     "the service's own",
	"approvals":          "the operators'",
	"node_settings":      "the operators'",
	"endpoint_probes":    "one for all tenants",
	"policies":           "the operators'",
	"journal_heads":      "the operators'",
	"shipped":            "the API nodes'",
	"shipping":           "a counter",
	"row_authentication": "the database's own",
	"changes":            "read by every process for all tenants; holds ids and key names",
	"goose_db_version":   "the migration tool's",
}

// fill makes two tenants with something in every table, and returns their ids.
func fill(t *testing.T, db *DB) [2]uuid.UUID {
	t.Helper()
	store := keystore.New(db, keystore.Options{})
	t.Cleanup(func() { store.Close() })
	if err := storetest.Bootstrap(t.Context(), store, nil); err != nil {
		t.Fatal(err)
	}
	var ids [2]uuid.UUID
	for i := range ids {
		ids[i] = storetest.Fill(t, store, fmt.Sprint("tenant-", i))
	}
	return ids
}

func TestTablesOfTenantsShowTheTransactionsTenantOnly(t *testing.T) {
	urls := newDatabase(t)
	tenants := fill(t, openTest(t, urls.Service))
	admin, service := openSQL(t, urls.Admin), openSQL(t, urls.Service)
	tables := queryStrings(t, admin, `SELECT relname FROM pg_class WHERE relnamespace = 'sluice'::regnamespace AND relkind = 'r'`)
	covered := 0
	for _, table := range tables {
		if _, ok := shared[table]; ok {
			continue
		}
		covered++
		owner := "tenant"
		if table == "tenants" {
			owner = "id"
		}
		rows := func(db *sql.DB, setting string) []string {
			t.Helper()
			tx, err := db.Begin()
			if err != nil {
				t.Fatal(err)
			}
			defer tx.Rollback()
			if _, err := tx.Exec(setTenant, setting); err != nil {
				t.Fatal(err)
			}
			found, err := tx.Query(fmt.Sprintf(`SELECT DISTINCT %s::text FROM %s ORDER BY 1`, owner, table))
			if err != nil {
				t.Fatal(err)
			}
			defer found.Close()
			var all []string
			for found.Next() {
				var s string
				if err := found.Scan(&s); err != nil {
					t.Fatal(err)
				}
				all = append(all, s)
			}
			return all
		}
		if all := rows(admin, ""); !slices.Contains(all, tenants[0].String()) || !slices.Contains(all, tenants[1].String()) {
			t.Fatalf("%s: nothing to hide: %q", table, all)
		}
		for setting, want := range map[string][]string{
			"":                  nil,
			uuid.New().String(): nil,
			tenants[0].String(): {tenants[0].String()},
			tenants[1].String(): {tenants[1].String()},
		} {
			if got := rows(service, setting); !slices.Equal(got, want) {
				t.Errorf("%s: with the tenant %q: rows of %q, want %q", table, setting, got, want)
			}
		}
		// The columns do not matter: what another tenant has cannot be met.
		result, err := service.Exec(fmt.Sprintf(`WITH t AS (SELECT set_config('app.tenant', $1, true))
			SELECT 1 FROM t, %s WHERE %s = $2`, table, owner), tenants[0].String(), tenants[1].String())
		if err != nil {
			t.Errorf("%s: %v", table, err)
		} else if n, _ := result.RowsAffected(); n != 0 {
			t.Errorf("%s: a condition on another tenant meets %d rows", table, n)
		}
	}
	if covered != 27 {
		t.Errorf("%d tables are tenants', want 27", covered)
	}
}

func TestRowsOfAnotherTenantCannotBeWritten(t *testing.T) {
	urls := newDatabase(t)
	db := openTest(t, urls.Service)
	tenants := fill(t, db)
	err := db.write(t.Context(), tenants[0], func(tx transaction) error {
		return execInsertProject(t.Context(), tx, &keystore.ProjectRecord{Tenant: tenants[1], Name: "intruder"})
	})
	if err != keystore.ErrRefused {
		t.Errorf("inserting: %v", err)
	}
	for what, statement := range map[string]string{
		"updating": `UPDATE keys SET state = 'DISABLED' WHERE tenant = $1`,
		"moving":   `UPDATE keys SET project = 'default' WHERE tenant = $1`,
		"deleting": `DELETE FROM key_names WHERE tenant = $1`,
	} {
		err := db.write(t.Context(), tenants[0], func(tx transaction) error {
			n, err := tx.exec(t.Context(), statement, id(tenants[1]))
			if n != 0 {
				t.Errorf("%s met %d rows", what, n)
			}
			return err
		})
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestTheTenantEndsWithItsTransaction(t *testing.T) {
	ctx := t.Context()
	urls := newDatabase(t)
	filled := openTest(t, urls.Service)
	tenant := fill(t, filled)[0]
	db, err := Open(ctx, Config{URL: urls.Service, Connections: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for what, use := range map[string]func() error{
		"a read": func() error {
			_, err := db.Project(ctx, keystore.ProjectParams{Tenant: tenant, Name: "default"})
			return err
		},
		"an authentication": func() error {
			_, err := db.CredentialForAuthentication(ctx, keystore.CredentialForAuthenticationParams{ID: tenant})
			if err == keystore.ErrMissing {
				return nil
			}
			return err
		},
		"a write": func() error {
			return db.InsertProject(ctx, keystore.InsertProjectParams{Project: keystore.ProjectRecord{Tenant: tenant, Name: "p"}})
		},
		"a refused write": func() error {
			err := db.InsertProject(ctx, keystore.InsertProjectParams{Project: keystore.ProjectRecord{Tenant: tenant, Name: "default"}})
			if err == keystore.ErrExists {
				return nil
			}
			return err
		},
	} {
		if err := use(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		var left string
		if err := db.pool.QueryRow(ctx, `SELECT coalesce(current_setting('app.tenant', true), '')`).Scan(&left); err != nil || left != "" {
			t.Errorf("%s leaves the tenant %q, %v", what, left, err)
		}
	}
}

func TestFunctionsOfTheOwnerAreTheListedOnes(t *testing.T) {
	admin := openSQL(t, newDatabase(t).Admin)
	got := queryStrings(t, admin, `SELECT proname FROM pg_proc WHERE pronamespace = 'sluice'::regnamespace AND prosecdef ORDER BY 1`)
	want := []string{"add_usage", "arrived_audit_entries", "audit_entries_at", "audit_entries_of_request",
		"audit_entries_of_request", "claim_deliveries", "computed_chunks", "delete_audit_entries", "delete_cost_incidents",
		"delete_ended_deliveries", "delete_expired_claims", "delete_expired_records", "delete_secret_changes", "delete_usage", "due_deletions", "due_jobs", "due_keys", "due_keys", "due_secrets", "expired_jobs",
		"newest_audit_entries", "newest_audit_entries", "ordinal_of_audit_entry", "record_change", "release_chunks", "store_audit_entries", "store_audit_entries", "tenant_of_credential", "tenant_of_name",
		"tenant_of_request", "tenants_after", "usage_of_all"}
	if !slices.Equal(got, want) {
		t.Errorf("%q run as the owner, want %q", got, want)
	}
	for _, f := range queryStrings(t, admin, `SELECT proname || ' ' || coalesce(array_to_string(proconfig, ' '), '') || ' ' || coalesce(proacl::text, 'PUBLIC')
		FROM pg_proc WHERE pronamespace = 'sluice'::regnamespace AND prosecdef`) {
		if !strings.Contains(f, "search_path=sluice, pg_temp") || strings.Contains(f, "PUBLIC") || strings.Contains(f, "{=X") || strings.Contains(f, ",=X") {
			t.Errorf("%s: its search path is not its own, or everybody may call it", f)
		}
	}
}
