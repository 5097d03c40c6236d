package keystore

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// anyKeysDriver has every tenant and every key that it is asked for, and counts
// how often it is.
type anyKeysDriver struct {
	purgeDriver
	tenants, keys, names int // loads; one look-up at a time
}

func (d *anyKeysDriver) Tenant(_ context.Context, p TenantParams) (*TenantRow, error) {
	d.tenants++
	id := p.ID[:]
	return &TenantRow{ID: bytesOf(id), Name: textOf(fmt.Sprintf("tenant-%x", id[:4])), Tier: textOf("gold"), State: textOf("ACTIVE"),
		AllowSealed: integer(0), SealingID: bytesOf(id), SealingDomain: bytesOf(id), SealingGeneration: integer(1),
		SealingWrapped: bytesOf(make([]byte, 40)), Code: blindCode(), Created: integer(1), Revision: integer(1),
		Deleted: Integer{Null: true}, Void: Integer{Null: true}, Erased: Integer{Null: true}, Shredded: Integer{Null: true}}, nil
}

// KeyName makes of the tenant's id and the last byte of the name an id.
func (d *anyKeysDriver) KeyName(_ context.Context, p KeyNameParams) (*KeyNameRow, error) {
	d.names++
	id := p.Tenant
	id[0] = p.Name[len(p.Name)-1]
	return &KeyNameRow{Name: textOf(p.Name), Kind: textOf(KindName), Key: bytesOf(id[:]), Code: blindCode()}, nil
}

func (d *anyKeysDriver) Key(_ context.Context, p KeyParams) (*KeyRow, error) {
	d.keys++
	r, err := (&tenantsDriver{}).Key(context.Background(), p)
	r.ID, r.Versions[0].ID = bytesOf(p.ID[:]), bytesOf(p.ID[:])
	r.Name = textOf("orders/key-" + string(p.ID[:1]))
	r.Versions[0].Blob = bytesOf(make([]byte, 150))
	return r, err
}

func mustLookup(t testing.TB, s *Store, tenant uuid.UUID, name string) *kms.Key {
	t.Helper()
	k, err := s.Lookup(t.Context(), tenant, name)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestWhatNobodyUsesIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &anyKeysDriver{}
		s := newOpen(d, Options{})
		defer s.Close()
		busy, idle := uuid.UUID{1}, uuid.UUID{2}
		mustLookup(t, s, idle, "key-0")
		first := mustLookup(t, s, busy, "key-0")
		mustLookup(t, s, idle, "key-1") // the last use of this tenant
		for elapsed := time.Duration(0); elapsed < DefaultIdle-time.Minute; elapsed += time.Minute {
			time.Sleep(time.Minute)
			mustLookup(t, s, busy, "key-0")
		}
		synctest.Wait()
		if u := s.keys.usage(); u.entries != 3 {
			t.Errorf("%d keys are cached before the idle time, want 3", u.entries)
		}
		for range 3 {
			time.Sleep(time.Minute)
			mustLookup(t, s, busy, "key-0")
		}
		synctest.Wait()
		if keys, names := s.keys.usage().entries, s.keyNames.usage().entries; keys != 1 || names != 1 {
			t.Errorf("after the idle time %d keys and %d names are cached, want those in use", keys, names)
		}
		if mustLookup(t, s, busy, "key-0") != first || d.keys != 3 {
			t.Errorf("what was in use was read again; %d loads", d.keys)
		}
		if n := s.keys.loads.idle.Load(); n != 2 {
			t.Errorf("%d keys are counted as idle, want 2", n)
		}
		if k := mustLookup(t, s, idle, "key-1"); d.keys != 4 || k.Tenant.ID != idle {
			t.Errorf("an idle key was not read again: %d loads, tenant %s", d.keys, k.Tenant.ID)
		}
	})
}

// The size of an idle tenant in memory, in bytes: the promise, and what is
// tested, since nothing at all should be left.
const (
	promisedIdle = 1 << 10
	testedIdle   = 64
	idleKeys     = 10 // of each tenant
)

// TestIdleTenantsHoldNoMemory measures the heap with tenants who asked once for
// ten keys each, and again after the idle time.
func TestIdleTenantsHoldNoMemory(t *testing.T) {
	const tenants = 5000
	synctest.Test(t, func(t *testing.T) {
		s := newOpen(&anyKeysDriver{}, Options{})
		defer s.Close()
		before := heapBytes()
		cached := readTenants(t, s, tenants)
		t.Logf("%d tenants hold %d bytes each while they are cached", tenants, (cached-before)/tenants)
		if cached < before+tenants*promisedIdle {
			t.Fatal("nothing was cached")
		}
		time.Sleep(DefaultIdle + DefaultIdle/idleSweeps + time.Second)
		synctest.Wait()
		left := (int64(heapBytes()) - int64(before)) / tenants
		t.Logf("and %d bytes each after the idle time", left)
		if left > testedIdle {
			t.Errorf("an idle tenant holds %d bytes, want at most %d", left, testedIdle)
		}
		mustLookup(t, s, uuid.UUID{}, "key-0") // the store is alive, and so counted
	})
}

func readTenants(tb testing.TB, s *Store, n int) (heap uint64) {
	for i := range n {
		tenant := uuid.UUID{4: byte(i >> 16), 5: byte(i >> 8), 6: byte(i)}
		for j := range idleKeys {
			mustLookup(tb, s, tenant, fmt.Sprint("orders/key-", j))
		}
	}
	return heapBytes()
}

// BenchmarkIdleTenants is TestIdleTenantsHoldNoMemory for 100,000 tenants.
func BenchmarkIdleTenants(b *testing.B) {
	const tenants = 100_000
	for range b.N {
		s := newOpen(&anyKeysDriver{}, Options{})
		before := heapBytes()
		cached := readTenants(b, s, tenants)
		b.ReportMetric(float64(cached-before)/tenants, "cached-B/tenant")
		for range idleSweeps + 1 {
			s.sweepOnce()
		}
		b.ReportMetric(float64(int64(heapBytes())-int64(before))/tenants, "idle-B/tenant")
		s.Close()
	}
}
