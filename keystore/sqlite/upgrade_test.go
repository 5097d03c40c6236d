package sqlite

import (
	"path/filepath"
	"testing"
	"uuid"

	"github.com/sluice-kms/sluice/keystore"
	"github.com/sluice-kms/sluice/keystore/storetest"
	"github.com/sluice-kms/sluice/kms"
)

// first is the version of the schema of the first release.
const first = 1

// TestDatabaseOfTheFirstSchemaIsUpgraded writes rows as the first release did.
func TestDatabaseOfTheFirstSchemaIsUpgraded(t *testing.T) {
	ctx := t.Context()
	path := filepath.Join(t.TempDir(), "sluice.db")
	db := openTest(t, path)
	p, err := db.provider()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.DownTo(ctx, first); err != nil {
		t.Fatal(err)
	}
	tenant, system, key, deleted, credential := uuid.NewV7(), uuid.NewV7(), uuid.NewV7(), uuid.NewV7(), uuid.NewV7()
	exec := func(statement string, args ...any) {
		t.Helper()
		if _, err := db.writer.ExecContext(ctx, statement, args...); err != nil {
			t.Fatal(err)
		}
	}
	for id, name := range map[uuid.UUID]string{system: kms.SystemTenantName, tenant: "acme"} {
		exec(`INSERT INTO tenants VALUES (?, ?, 'gold', 'ACTIVE', 0, ?, ?, 1, x'01', 1, 1)`, id[:], name, id[:], id[:])
		exec(`INSERT INTO projects VALUES (?, 'default', 1)`, id[:])
	}
	for id, name := range map[uuid.UUID]string{key: "orders", deleted: "deleted"} {
		exec(`INSERT INTO keys VALUES (?, ?, 'default', ?, 'AES_256', 'ENCRYPT_DECRYPT', 'HSM', 'ENABLED', '', '{"a":"b"}', 1, NULL, 0, 2, 2, 2)`,
			tenant[:], id[:], name)
		for number := 1; number <= 2; number++ {
			version := uuid.NewV7()
			exec(`INSERT INTO key_versions VALUES (?, ?, ?, ?, 'ENABLED', 1, NULL, x'01')`, tenant[:], id[:], number, version[:])
		}
	}
	exec(`UPDATE keys SET state = 'PENDING_DELETION', deletion_date = 5 WHERE id = ?`, deleted[:])
	exec(`INSERT INTO credentials VALUES (?, ?, 'default', 'c', '', '["key:*"]', '[]', 1, NULL, NULL, 1)`, tenant[:], credential[:])
	exec(`INSERT INTO credential_secrets VALUES (?, ?, 0, zeroblob(32), 1, 1, NULL)`, tenant[:], credential[:])

	store := keystore.New(openTest(t, path), keystore.Options{})
	defer store.Close()
	if err := storetest.Bootstrap(ctx, store, nil); err != nil {
		t.Fatal(err)
	}
	k, err := store.Lookup(ctx, tenant, "orders")
	if err != nil || len(k.Versions) != 2 || k.Tags["a"] != "b" || k.Origin != kms.OriginGenerated {
		t.Errorf("Lookup = %+v, %v", k, err)
	}
	if _, err := store.CredentialForAuthentication(ctx, credential); err != nil {
		t.Error(err)
	}
	if total, err := store.LeaseNonces(ctx, tenant, key, 1, 5); err != nil || total != 5 {
		t.Errorf("LeaseNonces = %d, %v", total, err)
	}
	due, err := store.DueKeys(ctx, k.Created.AddDate(1, 0, 0), kms.DueKey{}, 10)
	if err != nil || len(due) != 1 || due[0].Key != deleted {
		t.Errorf("DueKeys = %v, %v", due, err)
	}

	// Back again: tombstones go, the rest stays.
	if err := store.DestroyKey(ctx, tenant, deleted, 2); err != nil {
		t.Fatal(err)
	}
	if _, err := store.DestroyVersion(ctx, tenant, key, 2, 1); err != nil {
		t.Fatal(err)
	}
	if _, err := p.DownTo(ctx, first); err != nil {
		t.Fatal(err)
	}
	for table, want := range map[string]int{"keys": 1, "key_versions": 1, "credentials": 1, "tenants": 2} {
		var n int
		if err := db.writer.QueryRowContext(ctx, `SELECT count(*) FROM `+table).Scan(&n); err != nil || n != want {
			t.Errorf("%d rows left in %s, %v; want %d", n, table, err, want)
		}
	}
}
