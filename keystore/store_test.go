package keystore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"
	"uuid"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-kms/sluice/kms"
)

// fakeDriver is a driver of which a test implements what it needs.
type fakeDriver struct{ Driver }

func (fakeDriver) Close() error { return nil }

// blindRows finds every code of zeroes right, for tests of something else.
type blindRows struct{}

func (blindRows) MAC(uint32, string, ...[]byte) (code [32]byte, used uint32, ok bool) {
	return code, 1, true
}

func blindCode() CodeRow { return CodeRow{MAC: bytesOf(make([]byte, 32)), Version: integer(1)} }

// newOpen makes a Store that is open without a database to begin with.
func newOpen(d Driver, opts Options) *Store {
	s := New(d, opts)
	s.rows.Store(&rowCoder{rows: blindRows{}, known: &s.known})
	return s
}

// nothingToPurge has nothing that is over.
type nothingToPurge struct{}

func (nothingToPurge) DeleteExpiredClaims(ctx context.Context, _ DeleteExpiredClaimsParams) (int, error) {
	return 0, ctx.Err()
}

func (nothingToPurge) DeleteExpiredApprovals(ctx context.Context, _ DeleteExpiredApprovalsParams) (int, error) {
	return 0, ctx.Err()
}

func (nothingToPurge) DeleteEndedDeliveries(ctx context.Context, _ DeleteEndedDeliveriesParams) (int, error) {
	return 0, ctx.Err()
}

func (nothingToPurge) DeleteExpiredRecords(ctx context.Context, _ DeleteExpiredRecordsParams) (int, error) {
	return 0, ctx.Err()
}

func (nothingToPurge) DeleteCostIncidents(ctx context.Context, _ DeleteCostIncidentsParams) (int, error) {
	return 0, ctx.Err()
}

func (nothingToPurge) DeleteEndpoints(ctx context.Context, _ DeleteEndpointsParams) (int, error) {
	return 0, ctx.Err()
}

func (nothingToPurge) DeleteSecretChanges(ctx context.Context, _ DeleteSecretChangesParams) (int, error) {
	return 0, ctx.Err()
}

// purgeDriver is a driver that has expired records to remove.
type purgeDriver struct {
	fakeDriver
	nothingToPurge
	mu      sync.Mutex
	expired int
	calls   []DeleteExpiredClaimsParams
	err     error

	approvalCalls int
}

func (d *purgeDriver) DeleteExpiredClaims(ctx context.Context, p DeleteExpiredClaimsParams) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls = append(d.calls, p)
	if d.err != nil {
		return 0, d.err
	}
	n := min(d.expired, p.Limit)
	d.expired -= n
	return n, nil
}

func (d *purgeDriver) DeleteExpiredApprovals(context.Context, DeleteExpiredApprovalsParams) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.approvalCalls++
	return 0, d.err
}

// state returns what is left to remove and the calls so far.
func (d *purgeDriver) state() (expired int, calls []DeleteExpiredClaimsParams) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.expired, slices.Clone(d.calls)
}

func (d *purgeDriver) recover() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.err = nil
}

func TestPurgeRemovesEverythingExpiredInBoundedBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &purgeDriver{expired: 2*purgeBatch + 1}
		s := New(d, Options{})
		synctest.Wait()
		if _, calls := d.state(); len(calls) != 0 {
			t.Fatalf("%d batches at the start", len(calls))
		}
		time.Sleep(purgeInterval)
		synctest.Wait()
		expired, calls := d.state()
		if len(calls) != 3 || expired != 0 {
			t.Errorf("%d batches leave %d records, want 3 and none", len(calls), expired)
		}
		now := time.Now().UnixMicro()
		for _, call := range calls {
			if call.Now != now || call.Limit != purgeBatch {
				t.Errorf("a batch of %d until %d, want %d until %d", call.Limit, call.Now, purgeBatch, now)
			}
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		time.Sleep(10 * purgeInterval)
		if _, calls := d.state(); len(calls) != 3 {
			t.Errorf("%d batches after Close", len(calls)-3)
		}
	})
}

func TestPurgeTriesAgainAfterAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &purgeDriver{expired: 1, err: errors.New("down")}
		s := New(d, Options{})
		defer s.Close()
		time.Sleep(purgeInterval)
		synctest.Wait()
		if _, calls := d.state(); len(calls) != 1 {
			t.Errorf("%d calls of a database that is down, want 1", len(calls))
		}
		d.recover()
		time.Sleep(purgeInterval)
		synctest.Wait()
		if expired, _ := d.state(); expired != 0 {
			t.Error("the record is still there")
		}
	})
}

// stuckDriver hangs until its context ends.
type stuckDriver struct {
	fakeDriver
	nothingToPurge
}

func (stuckDriver) DeleteExpiredClaims(ctx context.Context, _ DeleteExpiredClaimsParams) (int, error) {
	<-ctx.Done()
	return 0, ctx.Err()
}

func TestCloseEndsAPurgeUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(stuckDriver{}, Options{})
		time.Sleep(purgeInterval)
		synctest.Wait()
		s.Close() // a goroutine that is left over fails the bubble
	})
}

// backwardDriver returns the same rows whatever position is asked for.
type backwardDriver struct{ fakeDriver }

func (backwardDriver) ListTenants(context.Context, ListTenantsParams) ([]*TenantRow, error) {
	row := &TenantRow{Name: Text{String: "damaged", Valid: true}}
	return []*TenantRow{row, row}, nil
}

func TestListThatGoesRoundInCirclesEnds(t *testing.T) {
	s := newOpen(backwardDriver{}, Options{})
	defer s.Close()
	_, _, err := s.ListTenants(t.Context(), kms.Page{Size: 1})
	if kms.KindOf(err) != kms.KindInternal || err == nil {
		t.Errorf("got %v", err)
	}
}

func TestDriverErrorsBecomeKinds(t *testing.T) {
	for name, test := range map[string]struct {
		err  error
		kind kms.Kind
	}{
		"missing":      {ErrMissing, kms.KindNotFound},
		"exists":       {ErrExists, kms.KindConflict},
		"stale":        {ErrStale, kms.KindPreconditionFailed},
		"refused":      {ErrRefused, kms.KindInternal},
		"damaged":      {&RowError{Object: ObjectKey}, kms.KindInternal},
		"disk":         {errors.New("disk I/O error"), kms.KindStoreUnavailable},
		"cancellation": {context.Canceled, kms.KindStoreUnavailable},
	} {
		err := translate(test.err)
		if kms.KindOf(err) != test.kind {
			t.Errorf("%s: %v has kind %v, want %v", name, err, kms.KindOf(err), test.kind)
		}
		if test.kind == kms.KindNotFound {
			if err != kms.ErrNotFound {
				t.Errorf("%s: %v is not kms.ErrNotFound itself", name, err)
			}
		} else if !errors.Is(err, test.err) {
			t.Errorf("%s: the cause is lost", name)
		}
	}
	if translate(nil) != nil {
		t.Error("no error became one")
	}
}

// damagedDriver has one tenant, which is damaged.
type damagedDriver struct{ fakeDriver }

func (damagedDriver) Tenant(context.Context, TenantParams) (*TenantRow, error) {
	return &TenantRow{Name: Text{String: "canary", Valid: true}}, nil
}

func TestMetricsCountLoadsAndDamage(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	s := newOpen(damagedDriver{}, Options{Metrics: registry})
	for range 3 {
		if _, err := s.Tenant(t.Context(), uuid.Nil()); err == nil {
			t.Fatal("a damaged tenant was returned")
		}
	}
	got := gather(t, registry)
	for metric, want := range map[string]float64{
		"sluice_keystore_damaged_objects_total":                 1,
		"sluice_keystore_forged_objects_total":                  0,
		"sluice_keystore_cache_loads_total{tenant,damaged}":     1,
		"sluice_keystore_cache_loads_total{tenant,found}":       0,
		"sluice_keystore_cache_absences{tenant}":                1,
		"sluice_keystore_cache_entries{tenant}":                 0,
		"sluice_keystore_cache_bytes{key}":                      0,
		"sluice_keystore_cache_evictions_total{credential}":     0,
		"sluice_keystore_cache_loads_total{key_name,missing}":   0,
		"sluice_keystore_cache_loads_total{tenant_name,failed}": 0,
	} {
		if v, ok := got[metric]; !ok || v != want {
			t.Errorf("%s = %v (there: %v), want %v", metric, v, ok, want)
		}
	}
	s.Close()
	if left := gather(t, registry); len(left) != 0 {
		t.Errorf("after Close: %v", left)
	}
}

// gather returns the values of all metrics by name and label values.
func gather(t *testing.T, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := make(map[string]float64)
	for _, family := range families {
		for _, m := range family.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetValue())
			}
			name := family.GetName()
			if len(labels) > 0 {
				name += "{" + strings.Join(labels, ",") + "}"
			}
			values[name] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	return values
}

// tenantsDriver has one key and its tenant, whose revision a test sets.
type tenantsDriver struct {
	fakeDriver
	revision atomic.Int64
}

func textOf(s string) Text         { return Text{String: s, Valid: true} }
func integer(i int64) Integer      { return Integer{Int64: i, Valid: true} }
func bytesOf(b []byte) Bytes       { return Bytes{Bytes: b, Valid: true} }
func (d *tenantsDriver) id() Bytes { return bytesOf(make([]byte, 16)) }

func (d *tenantsDriver) Tenant(context.Context, TenantParams) (*TenantRow, error) {
	return &TenantRow{ID: d.id(), Name: textOf("tenant"), Tier: textOf("gold"), State: textOf("ACTIVE"), AllowSealed: integer(0),
		SealingID: d.id(), SealingDomain: d.id(), SealingGeneration: integer(1), SealingWrapped: bytesOf([]byte{1}), Code: blindCode(),
		Created: integer(1), Revision: integer(d.revision.Load()), Deleted: Integer{Null: true}, Void: Integer{Null: true},
		Erased: Integer{Null: true}, Shredded: Integer{Null: true}}, nil
}

func (d *tenantsDriver) Key(context.Context, KeyParams) (*KeyRow, error) {
	return &KeyRow{ID: d.id(), Project: textOf("default"), Name: textOf("key"), Spec: textOf("AES_256"),
		Usage: textOf("ENCRYPT_DECRYPT"), Protection: textOf("HSM"), State: textOf("ENABLED"), Description: Text{Valid: true},
		Tags: textOf("{}"), Created: integer(1), DeletionDate: Integer{Null: true}, DeletionProtection: integer(0),
		Origin: textOf("GENERATED"), RotationPeriod: integer(0), NextRotation: Integer{Null: true}, Due: Integer{Null: true},
		LastUsed: Integer{Null: true}, LastUsedOp: Text{Valid: true}, Code: blindCode(),
		PrimaryVersion: integer(1), HighestVersion: integer(1), Revision: integer(1),
		Versions: []VersionRow{{ID: d.id(), Number: integer(1), State: textOf("ENABLED"), Created: integer(1),
			DestroyAt: Integer{Null: true}, PublicKey: Bytes{Null: true}, Blob: bytesOf([]byte{1}), Code: blindCode()}}}, nil
}

// TestTenantChangeReachesKeysAtOnce changes a tenant as fast as it can while
// others bind a key to it: an order of dropping the tenant and beginning the
// epoch other than the right one leaves an old tenant in a new epoch.
func TestTenantChangeReachesKeysAtOnce(t *testing.T) {
	const changes = 20_000
	d := &tenantsDriver{}
	d.revision.Store(1)
	s := newOpen(d, Options{})
	defer s.Close()
	tenant, key := uuid.Nil(), uuid.Nil().String()
	done := make(chan struct{})
	var others sync.WaitGroup
	for range 3 {
		others.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				if _, err := s.Lookup(t.Context(), tenant, key); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for revision := uint64(2); revision <= changes; revision++ {
		d.revision.Store(int64(revision))
		s.Invalidate(ObjectTenant, tenant, tenant)
		if k, err := s.Lookup(t.Context(), tenant, key); err != nil || k.Tenant.Revision != revision {
			t.Errorf("after the change to revision %d: %+v, %v", revision, k.Tenant, err)
			break
		}
	}
	close(done)
	others.Wait()
}

// noNamesDriver knows no name.
type noNamesDriver struct{ fakeDriver }

func (noNamesDriver) KeyName(context.Context, KeyNameParams) (*KeyNameRow, error) {
	return nil, ErrMissing
}
func (noNamesDriver) TenantID(context.Context, TenantIDParams) (Bytes, error) {
	return Bytes{}, ErrMissing
}

func TestCachedNamesKeepNoRequestAlive(t *testing.T) {
	s := newOpen(noNamesDriver{}, Options{})
	defer s.Close()
	request := strings.Repeat("a", 1<<20)
	ref := request[:10]
	if _, err := s.Lookup(t.Context(), uuid.Nil(), ref); err != kms.ErrNotFound {
		t.Fatal(err)
	}
	if _, err := s.TenantByRef(t.Context(), ref); err != kms.ErrNotFound {
		t.Fatal(err)
	}
	found := 0
	names, _ := s.keyNames.locate(keyName{uuid.Nil(), ref})
	for k := range names.absences {
		found++
		if unsafe.StringData(k.name) == unsafe.StringData(ref) {
			t.Error("the name of a key is a part of the request")
		}
	}
	tenantNames, _ := s.tenantNames.locate(ref)
	for name := range tenantNames.absences {
		found++
		if unsafe.StringData(name) == unsafe.StringData(ref) {
			t.Error("the name of a tenant is a part of the request")
		}
	}
	if found != 2 {
		t.Errorf("%d names are remembered, want 2", found)
	}
}

// slowDriver answers that there is no such key when it is told to.
type slowDriver struct {
	fakeDriver
	answer  chan struct{}
	loading sync.Map // of tenants, *atomic.Int32
}

func (d *slowDriver) load(tenant uuid.UUID) error {
	n, _ := d.loading.LoadOrStore(tenant, new(atomic.Int32))
	n.(*atomic.Int32).Add(1)
	<-d.answer
	return ErrMissing
}

func (d *slowDriver) loads(tenant uuid.UUID) int {
	n, ok := d.loading.Load(tenant)
	if !ok {
		return 0
	}
	return int(n.(*atomic.Int32).Load())
}

func (d *slowDriver) KeyName(_ context.Context, p KeyNameParams) (*KeyNameRow, error) {
	return nil, d.load(p.Tenant)
}

func (d *slowDriver) Key(_ context.Context, p KeyParams) (*KeyRow, error) {
	return nil, d.load(p.Tenant)
}

func TestGuessingOccupiesAPartOfTheDatabaseOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &slowDriver{answer: make(chan struct{})}
		s := newOpen(d, Options{})
		defer s.Close()
		guesser, other := uuid.NewV7(), uuid.NewV7()
		var group sync.WaitGroup
		lookup := func(tenant uuid.UUID, ref string) {
			group.Go(func() {
				if _, err := s.Lookup(t.Context(), tenant, ref); err != kms.ErrNotFound {
					t.Errorf("got %v", err)
				}
			})
		}
		for i := range 50 {
			lookup(guesser, fmt.Sprint("guess-", i))
			lookup(guesser, uuid.NewV7().String())
		}
		synctest.Wait()
		lookup(other, "name")
		lookup(other, uuid.NewV7().String())
		synctest.Wait()
		if d.loads(guesser) != maxTenantLoads || d.loads(other) != 2 {
			t.Errorf("%d loads for who guesses and %d for another tenant, want %d and 2", d.loads(guesser), d.loads(other), maxTenantLoads)
		}
		close(d.answer)
		group.Wait()
	})
}

// closingDriver fails to close.
type closingDriver struct{ fakeDriver }

var errClosing = errors.New("cannot be closed")

func (closingDriver) Close() error { return errClosing }

func TestCloseClosesTheDriver(t *testing.T) {
	if err := New(closingDriver{}, Options{}).Close(); err != errClosing {
		t.Errorf("Close: %v, want what the driver says", err)
	}
}
