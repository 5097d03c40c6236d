package sqlite

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/sluice-kms/sluice/keystore"
	"github.com/sluice-kms/sluice/keystore/storetest"
	"github.com/sluice-kms/sluice/kms"
)

// beforeDeletion is the last version of the schema that knows no deleted
// tenants.
const beforeDeletion = 4

// TestDowngradeKeepsTenantsAndResumesNoDeletedOne undoes the schema of deletions
// under rows that refer to tenants, and does it again.
func TestDowngradeKeepsTenantsAndResumesNoDeletedOne(t *testing.T) {
	ctx := t.Context()
	path := filepath.Join(t.TempDir(), "sluice.db")
	store := keystore.New(openTest(t, path), keystore.Options{})
	if err := storetest.Bootstrap(ctx, store, nil); err != nil {
		t.Fatal(err)
	}
	living := storetest.Fill(t, store, "living")
	doomed := storetest.Fill(t, store, "doomed")
	suspended := kms.TenantSuspended
	if _, err := store.UpdateTenant(ctx, doomed, 1, kms.TenantChange{State: &suspended}); err != nil {
		t.Fatal(err)
	}
	if _, err := store.DeleteTenant(ctx, doomed, 2, time.Now(), time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}

	db := openTest(t, path)
	p, err := db.provider()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.DownTo(ctx, beforeDeletion); err != nil {
		t.Fatal(err)
	}
	var state string
	if err := db.writer.QueryRowContext(ctx, `SELECT state FROM tenants WHERE id = ?`, doomed[:]).Scan(&state); err != nil || state != "SUSPENDED" {
		t.Errorf("the deleted tenant is %s, %v", state, err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}

	again := keystore.New(openTest(t, path), keystore.Options{})
	defer again.Close()
	if err := storetest.Bootstrap(ctx, again, nil); err != nil {
		t.Fatal(err)
	}
	if keys, _, err := again.ListKeys(ctx, living, "", kms.Page{Size: 10}); err != nil || len(keys) == 0 {
		t.Errorf("the living tenant has %d keys, %v", len(keys), err)
	}
	if _, err := again.Tenant(ctx, doomed); kms.KindOf(err) != kms.KindInternal || err == nil {
		t.Errorf("the deleted tenant after the way there and back: %v", err)
	}
}
