package storetest

import (
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/keystore"
	"github.com/sluice-kms/sluice/kms"
)

// copiesLive is how long backups of a deleted tenant live in the suite.
const copiesLive = 400 * 24 * time.Hour

// deleted makes a tenant and deletes it.
func (e *env) deleted(t testing.TB, name string) *kms.Tenant {
	t.Helper()
	tenant, suspended := e.tenant(t, name), kms.TenantSuspended
	if _, err := e.UpdateTenant(t.Context(), tenant.ID, 1, kms.TenantChange{State: &suspended}); err != nil {
		t.Fatal(err)
	}
	gone, err := e.DeleteTenant(t.Context(), tenant.ID, 2, start, start.Add(copiesLive))
	if err != nil {
		t.Fatal(err)
	}
	return gone
}

func testDeletion(t *testing.T, open func(*testing.T) keystore.Driver) {
	e := newEnv(t, open(t))
	ctx := t.Context()

	t.Run("DeletionErasesTheSealingKeyAndGoesForward", func(t *testing.T) {
		tenant := e.tenant(t, "acme")
		void := start.Add(copiesLive)
		_, err := e.DeleteTenant(ctx, tenant.ID, 1, start, void)
		wantKind(t, "a tenant in use", err, kms.KindConflict)
		suspended, active := kms.TenantSuspended, kms.TenantActive
		if _, err := e.UpdateTenant(ctx, tenant.ID, 1, kms.TenantChange{State: &suspended}); err != nil {
			t.Fatal(err)
		}
		_, err = e.DeleteTenant(ctx, tenant.ID, 1, start, void)
		wantKind(t, "an old revision", err, kms.KindPreconditionFailed)
		_, err = e.DeleteTenant(ctx, tenant.ID, 2, start, start.Add(-time.Second))
		wantKind(t, "void before it is deleted", err, kms.KindInvalidArgument)
		want := *tenant
		want.State, want.Revision = kms.TenantDeleting, 3
		want.Sealing.Wrapped = nil
		want.Deletion = &kms.Deletion{Requested: start, Void: void}
		check := func(what string, got *kms.Tenant, err error) {
			t.Helper()
			if err != nil || !reflect.DeepEqual(got, &want) {
				t.Errorf("%s: %+v, %v; want %+v", what, got, err, &want)
			}
			for _, store := range []*env{e, newEnv(t, e.driver)} {
				if again, err := store.Tenant(ctx, tenant.ID); err != nil || !reflect.DeepEqual(again, &want) {
					t.Errorf("%s, read again: %+v, %v", what, again, err)
				}
			}
		}
		got, err := e.DeleteTenant(ctx, tenant.ID, 2, start, void)
		check("deleted", got, err)

		_, err = e.DeleteTenant(ctx, tenant.ID, 3, start, void)
		wantKind(t, "deleted again", err, kms.KindConflict)
		_, err = e.UpdateTenant(ctx, tenant.ID, 3, kms.TenantChange{State: &active})
		wantKind(t, "resumed", err, kms.KindConflict)
		_, err = e.AdvanceDeletion(ctx, tenant.ID, 3, kms.TenantShredded, void)
		wantKind(t, "shredded before it is erased", err, kms.KindConflict)

		erased := start.Add(time.Hour)
		want.State, want.Revision = kms.TenantDeleted, 4
		want.Deletion = &kms.Deletion{Requested: start, Void: void, Erased: erased}
		got, err = e.AdvanceDeletion(ctx, tenant.ID, 3, kms.TenantDeleted, erased)
		check("erased", got, err)
		_, err = e.AdvanceDeletion(ctx, tenant.ID, 4, kms.TenantDeleting, erased)
		wantKind(t, "back again", err, kms.KindConflict)

		want.State, want.Revision = kms.TenantShredded, 5
		want.Deletion = &kms.Deletion{Requested: start, Void: void, Erased: erased, Shredded: void}
		got, err = e.AdvanceDeletion(ctx, tenant.ID, 4, kms.TenantShredded, void)
		check("shredded", got, err)
		wantKind(t, "its name for another", e.CreateTenant(ctx, sampleTenant("acme")), kms.KindConflict)
	})
	t.Run("NoTenantIsMadeDeletedOrDeletedByAnUpdate", func(t *testing.T) {
		made := sampleTenant("made-deleted")
		made.State, made.Sealing.Wrapped = kms.TenantDeleting, nil
		made.Deletion = &kms.Deletion{Requested: start, Void: start}
		wantKind(t, "made deleted", e.CreateTenant(ctx, made), kms.KindInvalidArgument)
		tenant := e.tenant(t, "updated")
		for _, state := range []kms.TenantState{kms.TenantDeleting, kms.TenantDeleted, kms.TenantShredded} {
			_, err := e.UpdateTenant(ctx, tenant.ID, 1, kms.TenantChange{State: &state})
			wantKind(t, string(state), err, kms.KindInvalidArgument)
		}
	})
	t.Run("KeysOfADeletedTenantCanBeErased", func(t *testing.T) {
		tenant := e.tenant(t, "with-keys")
		pending := e.key(t, tenant, "b")
		e.key(t, tenant, "a")
		state, date, suspended := kms.KeyPendingDeletion, start.Add(time.Hour), kms.TenantSuspended
		if _, err := e.UpdateKey(ctx, tenant.ID, pending.ID, 1, kms.KeyChange{State: &state, DeletionDate: &date}); err != nil {
			t.Fatal(err)
		}
		if _, err := e.UpdateTenant(ctx, tenant.ID, 1, kms.TenantChange{State: &suspended}); err != nil {
			t.Fatal(err)
		}
		if _, err := e.DeleteTenant(ctx, tenant.ID, 2, start, start); err != nil {
			t.Fatal(err)
		}
		for _, want := range []int{2, 1, 0} {
			keys, _, err := e.ListKeys(ctx, tenant.ID, "", kms.Page{Size: 1 + want})
			if err != nil || len(keys) != want {
				t.Fatalf("%d keys, %v; want %d", len(keys), err, want)
			}
			if want > 0 {
				if !keys[0].Tenant.Deleted() {
					t.Error("the key does not know that its tenant was deleted")
				}
				if err := e.DestroyKey(ctx, tenant.ID, keys[0].ID, keys[0].Revision); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
	t.Run("DueAreThoseUnderWayAndThoseWhoseCopiesAreVoid", func(t *testing.T) {
		erasing, erased := e.deleted(t, "erasing"), e.deleted(t, "erased")
		if _, err := e.AdvanceDeletion(ctx, erased.ID, erased.Revision, kms.TenantDeleted, start); err != nil {
			t.Fatal(err)
		}
		due := func(now time.Time, after uuid.UUID, limit int) []uuid.UUID {
			t.Helper()
			ids, err := e.DueDeletions(ctx, now, after, limit)
			if err != nil || len(ids) > limit || !slices.IsSortedFunc(ids, uuid.UUID.Compare) {
				t.Fatalf("DueDeletions = %v, %v", ids, err)
			}
			return ids
		}
		has := func(ids []uuid.UUID, id uuid.UUID) bool { return slices.Contains(ids, id) }
		early, late := due(start, uuid.Nil(), 100), due(start.Add(copiesLive), uuid.Nil(), 100)
		if !has(early, erasing.ID) || has(early, erased.ID) || !has(late, erasing.ID) || !has(late, erased.ID) {
			t.Errorf("due are %v early and %v late", early, late)
		}
		var paged []uuid.UUID
		for after := uuid.Nil(); ; after = paged[len(paged)-1] {
			page := due(start.Add(copiesLive), after, 1)
			if len(page) == 0 {
				break
			}
			paged = append(paged, page...)
		}
		if !slices.Equal(paged, late) {
			t.Errorf("in pages of one: %v, want %v", paged, late)
		}
		_, err := e.DueDeletions(ctx, start, uuid.Nil(), 0)
		wantKind(t, "no limit", err, kms.KindInvalidArgument)
	})
	t.Run("OneOfManyDeletes", func(t *testing.T) {
		tenant, suspended := e.tenant(t, "contested"), kms.TenantSuspended
		if _, err := e.UpdateTenant(ctx, tenant.ID, 1, kms.TenantChange{State: &suspended}); err != nil {
			t.Fatal(err)
		}
		other := newEnv(t, e.driver)
		var done atomic.Int32
		var group sync.WaitGroup
		for i := range 8 {
			store := []*env{e, other}[i%2]
			group.Go(func() {
				if _, err := store.DeleteTenant(ctx, tenant.ID, 2, start, start); err == nil {
					done.Add(1)
				}
			})
		}
		group.Wait()
		if done.Load() != 1 {
			t.Errorf("deleted %d times", done.Load())
		}
	})
}
