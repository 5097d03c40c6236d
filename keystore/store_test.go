package keystore

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"uuid"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-kms/sluice/kms"
)

// fakeDriver is a driver of which a test implements what it needs.
type fakeDriver struct{ Driver }

func (fakeDriver) Close() error { return nil }

// purgeDriver is a driver that has expired records to remove.
type purgeDriver struct {
	fakeDriver
	mu      sync.Mutex
	expired int
	calls   []DeleteExpiredClaimsParams
	err     error
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
type stuckDriver struct{ fakeDriver }

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
	s := New(backwardDriver{}, Options{})
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
	s := New(damagedDriver{}, Options{Metrics: registry})
	for range 3 {
		if _, err := s.Tenant(t.Context(), uuid.Nil()); err == nil {
			t.Fatal("a damaged tenant was returned")
		}
	}
	got := gather(t, registry)
	for metric, want := range map[string]float64{
		"sluice_keystore_damaged_objects_total":                 1,
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

// closingDriver fails to close.
type closingDriver struct{ fakeDriver }

var errClosing = errors.New("cannot be closed")

func (closingDriver) Close() error { return errClosing }

func TestCloseClosesTheDriver(t *testing.T) {
	if err := New(closingDriver{}, Options{}).Close(); err != errClosing {
		t.Errorf("Close: %v, want what the driver says", err)
	}
}
