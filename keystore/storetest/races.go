package storetest

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sluice-kms/sluice/keystore"
	"github.com/sluice-kms/sluice/kms"
)

func testRaces(t *testing.T, open func(*testing.T) keystore.Driver) {
	driver := open(t)
	t.Run("OneRotationPerRevision", func(t *testing.T) { testConcurrentRotation(t, newEnv(t, driver)) })
	t.Run("OneCreationPerName", func(t *testing.T) { testConcurrentCreation(t, newEnv(t, driver)) })
	t.Run("WritersReadTheirWrites", func(t *testing.T) { testReadYourWrites(t, newEnv(t, driver)) })
}

const (
	rotators  = 8
	rotations = 10
)

func testConcurrentRotation(t *testing.T, e *env) {
	ctx := t.Context()
	tenant := e.tenant(t, "rotation")
	k := e.key(t, tenant, "rotated")
	for round := range rotations {
		revision := uint64(round + 1)
		var rotated, refused atomic.Int32
		var group sync.WaitGroup
		for range rotators {
			group.Go(func() {
				got, err := e.AddVersion(ctx, tenant.ID, k.ID, revision, sampleVersion(uint32(revision)+1))
				switch {
				case err == nil && got.Revision == revision+1:
					rotated.Add(1)
				case kms.KindOf(err) == kms.KindPreconditionFailed:
					refused.Add(1)
				default:
					t.Errorf("AddVersion = %+v, %v", got, err)
				}
			})
		}
		group.Wait()
		if rotated.Load() != 1 || refused.Load() != rotators-1 {
			t.Fatalf("revision %d: %d rotations and %d refusals, want 1 and %d", revision, rotated.Load(), refused.Load(), rotators-1)
		}
	}
	got := e.lookup(t, tenant.ID, "rotated")
	if len(got.Versions) != rotations+1 || got.Primary != rotations+1 {
		t.Fatalf("%d versions with primary %d, want %d", len(got.Versions), got.Primary, rotations+1)
	}
	for i, v := range got.Versions {
		if v.Number != uint32(i+1) {
			t.Errorf("version %d has the number %d", i+1, v.Number)
		}
	}
}

func testConcurrentCreation(t *testing.T, e *env) {
	tenant := e.tenant(t, "creation")
	var created, refused atomic.Int32
	var group sync.WaitGroup
	for range 16 {
		group.Go(func() {
			err := e.CreateKey(t.Context(), sampleKey(tenant, "wanted"))
			switch {
			case err == nil:
				created.Add(1)
			case kms.KindOf(err) == kms.KindConflict:
				refused.Add(1)
			default:
				t.Errorf("CreateKey: %v", err)
			}
		})
	}
	group.Wait()
	if created.Load() != 1 || refused.Load() != 15 {
		t.Errorf("%d keys and %d refusals, want 1 and 15", created.Load(), refused.Load())
	}
}

// The numbers of the test below: few keys, so that writers, readers and
// invalidations meet.
const (
	racedKeys   = 4
	racedWrites = 40 // of each key
	racedReads  = 2000
)

// testReadYourWrites changes keys and their tenant while others read them and
// entries are dropped all the time. A writer must see his own change at once,
// and no reader may see a key or its tenant go back in time.
func testReadYourWrites(t *testing.T, e *env) {
	ctx := t.Context()
	tenant := e.tenant(t, "races")
	var keys []*kms.Key
	for i := range racedKeys {
		keys = append(keys, e.key(t, tenant, fmt.Sprint("raced-", i)))
	}
	var group sync.WaitGroup
	for _, k := range keys {
		group.Go(func() { // writes k
			for revision := uint64(1); revision <= racedWrites; revision++ {
				text := fmt.Sprint(revision)
				if _, err := e.UpdateKey(ctx, tenant.ID, k.ID, revision, kms.KeyChange{Description: &text}); err != nil {
					t.Errorf("UpdateKey: %v", err)
					return
				}
				for _, ref := range []string{k.Name, k.ID.String()} {
					if got, err := e.Lookup(ctx, tenant.ID, ref); err != nil || got.Revision != revision+1 || got.Description != text {
						t.Errorf("after writing revision %d: %+v, %v", revision+1, got, err)
					}
				}
			}
		})
		group.Go(func() { // reads k
			var last, lastTenant uint64
			for range racedReads {
				got, err := e.Lookup(ctx, tenant.ID, k.Name)
				if err != nil {
					t.Errorf("Lookup: %v", err)
					return
				}
				if got.Revision < last || got.Tenant.Revision < lastTenant {
					t.Errorf("read revision %d of tenant revision %d after %d and %d", got.Revision, got.Tenant.Revision, last, lastTenant)
				}
				last, lastTenant = got.Revision, got.Tenant.Revision
			}
		})
		group.Go(func() { // makes the others load
			for range racedReads / 4 {
				e.Invalidate(keystore.ObjectKey, tenant.ID, k.ID)
				e.Invalidate(keystore.ObjectTenant, tenant.ID, tenant.ID)
			}
		})
	}
	group.Go(func() { // writes the tenant
		tiers := kms.Tiers()
		for revision := uint64(1); revision <= racedWrites; revision++ {
			tier := tiers[revision%uint64(len(tiers))]
			if _, err := e.UpdateTenant(ctx, tenant.ID, revision, kms.TenantChange{Tier: &tier}); err != nil {
				t.Errorf("UpdateTenant: %v", err)
				return
			}
			if got, err := e.Lookup(ctx, tenant.ID, keys[0].Name); err != nil || got.Tenant.Revision != revision+1 || got.Tenant.Tier != tier {
				t.Errorf("after writing tenant revision %d: %+v, %v", revision+1, got, err)
			}
		}
	})
	group.Wait()
}
