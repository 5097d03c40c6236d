package storetest

import (
	"reflect"
	"testing"

	"github.com/sluice-kms/sluice/keystore"
	"github.com/sluice-kms/sluice/kms"
)

func testRewrap(t *testing.T, open func(*testing.T) keystore.Driver) {
	e := newEnv(t, open(t))
	ctx := t.Context()

	t.Run("SealingKeyIsReplacedAtTheRevisionItWasReadAt", func(t *testing.T) {
		tenant := e.tenant(t, "sealing")
		moved := tenant.Sealing
		moved.RootGeneration, moved.Wrapped = 2, []byte("the same key, wrapped anew")
		tier := kms.TierGold
		err := e.RewrapTenant(ctx, tenant.ID, func(found *kms.Tenant) (*kms.SealingKey, error) {
			// Another change gets in between.
			if _, err := e.UpdateTenant(ctx, tenant.ID, found.Revision, kms.TenantChange{Tier: &tier}); err != nil {
				t.Error(err)
			}
			return &moved, nil
		})
		wantKind(t, "a row that was changed", err, kms.KindPreconditionFailed)
		err = e.RewrapTenant(ctx, tenant.ID, func(found *kms.Tenant) (*kms.SealingKey, error) {
			if found.Tier != tier || found.Sealing.RootGeneration != 1 {
				t.Errorf("found %+v", found)
			}
			return &moved, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, store := range []*env{e, newEnv(t, e.driver)} {
			got, err := store.Tenant(ctx, tenant.ID)
			if err != nil || !reflect.DeepEqual(got.Sealing, moved) || got.Revision != 3 || got.Tier != tier {
				t.Errorf("%+v, %v", got, err)
			}
		}
		if err := e.RewrapTenant(ctx, tenant.ID, func(*kms.Tenant) (*kms.SealingKey, error) { return nil, nil }); err != nil {
			t.Error(err)
		}
		if got, err := e.Tenant(ctx, tenant.ID); err != nil || got.Revision != 3 {
			t.Errorf("nothing was to be written: %+v, %v", got, err)
		}
	})

	t.Run("BlobsAreReplacedAtTheRevisionTheyWereReadAt", func(t *testing.T) {
		tenant := e.tenant(t, "blobs")
		key := e.key(t, tenant, "orders")
		if _, err := e.AddVersion(ctx, tenant.ID, key.ID, 1, sampleVersion(2)); err != nil {
			t.Fatal(err)
		}
		if _, err := e.DestroyVersion(ctx, tenant.ID, key.ID, 2, 1); err != nil {
			t.Fatal(err)
		}
		if _, err := e.AddVersion(ctx, tenant.ID, key.ID, 3, sampleVersion(3)); err != nil {
			t.Fatal(err)
		}
		before := e.lookup(t, tenant.ID, "orders")
		description := "changed meanwhile"
		blobs := map[uint32][]byte{2: []byte("moved 2"), 3: []byte("moved 3")}
		err := e.RewrapKey(ctx, tenant.ID, key.ID, func(found *kms.Key) (map[uint32][]byte, error) {
			if _, err := e.UpdateKey(ctx, tenant.ID, key.ID, found.Revision, kms.KeyChange{Description: &description}); err != nil {
				t.Error(err)
			}
			return blobs, nil
		})
		wantKind(t, "a row that was changed", err, kms.KindPreconditionFailed)
		err = e.RewrapKey(ctx, tenant.ID, key.ID, func(found *kms.Key) (map[uint32][]byte, error) {
			if found.Description != description || found.Tenant == nil || found.Tenant.ID != tenant.ID {
				t.Errorf("found %+v", found)
			}
			return blobs, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, store := range []*env{e, newEnv(t, e.driver)} {
			got := store.lookup(t, tenant.ID, "orders")
			if got.Revision != 6 || got.Primary != 3 || got.Description != description {
				t.Errorf("%+v", got)
			}
			for n, blob := range blobs {
				want := *before.Version(n)
				want.Blob = blob
				if v := got.Version(n); !reflect.DeepEqual(*v, want) {
					t.Errorf("version %d is %+v, want %+v", n, v, want)
				}
			}
		}
		for name, blobs := range map[string]map[uint32][]byte{
			"a destroyed version": {1: []byte("x")}, "no such version": {9: []byte("x")}, "an empty blob": {2: {}},
		} {
			err := e.RewrapKey(ctx, tenant.ID, key.ID, func(*kms.Key) (map[uint32][]byte, error) { return blobs, nil })
			wantKind(t, name, err, kms.KindInvalidArgument)
		}
		other := e.tenant(t, "other")
		err = e.RewrapKey(ctx, other.ID, key.ID, func(*kms.Key) (map[uint32][]byte, error) {
			t.Error("another tenant's key was handed over")
			return nil, nil
		})
		wantKind(t, "another tenant's key", err, kms.KindNotFound)
	})

	t.Run("DeletedTenantGetsNoSealingKey", func(t *testing.T) {
		gone := e.deleted(t, "gone")
		err := e.RewrapTenant(ctx, gone.ID, func(found *kms.Tenant) (*kms.SealingKey, error) {
			k := sampleTenant("x").Sealing
			return &k, nil
		})
		wantKind(t, "a deleted tenant", err, kms.KindPreconditionFailed)
		if got, err := e.Tenant(ctx, gone.ID); err != nil || got.Sealing.Wrapped != nil {
			t.Errorf("%+v, %v", got, err)
		}
	})
}
