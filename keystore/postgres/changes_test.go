package postgres

import (
	"testing"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/keystore"
	"github.com/sluice-kms/sluice/kms"
)

// TestOldChangesAreRemoved removes with the privileges of the service.
func TestOldChangesAreRemoved(t *testing.T) {
	db := openDriver(t, newDatabase(t).Service)
	store := openStore(t, db, 0)
	ctx := t.Context()
	id := uuid.NewV7()
	tenant := &kms.Tenant{ID: id, Name: "busy", Tier: kms.TierSilver, State: kms.TenantActive, Revision: 1, Created: time.Now(),
		Sealing: kms.SealingKey{ID: uuid.NewV7(), Tenant: id, Domain: uuid.NewV7(), RootGeneration: 1, Wrapped: []byte{1}}}
	if err := store.CreateTenant(ctx, tenant); err != nil {
		t.Fatal(err)
	}
	const changes = 5
	for revision := range uint64(changes) {
		tier := kms.TierGold
		if _, err := store.UpdateTenant(ctx, id, revision+1, kms.TenantChange{Tier: &tier}); err != nil {
			t.Fatal(err)
		}
	}
	remove := func(before time.Time, limit int) int {
		t.Helper()
		n, err := db.DeleteOldChanges(ctx, keystore.DeleteOldChangesParams{Before: before.UnixMicro(), Limit: limit})
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := remove(time.Now().Add(-time.Hour), 10); n != 0 {
		t.Errorf("%d changes of the last hour were removed", n)
	}
	if n := remove(time.Now().Add(time.Hour), 3); n != 3 {
		t.Errorf("%d changes were removed, want as many as allowed", n)
	}
	if n := remove(time.Now().Add(time.Hour), 10); n != changes-3 {
		t.Errorf("%d changes were removed, want the rest", n)
	}
}
