package storetest

import (
	"bytes"
	"context"
	"sync"
	"testing"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/keystore"
	"github.com/sluice-kms/sluice/kms"
)

// Damager is what the drivers given to Run must offer too: a way past their
// own checks, to find out what happens with rows that nobody should have
// written, and a new start on the same database.
type Damager interface {
	// Damage overwrites a column, whatever the constraints say. It returns
	// false when the column's type cannot hold the value.
	Damage(t testing.TB, d Damage) bool
	// Delete removes the rows whose column has a value.
	Delete(t testing.TB, table, key string, value any)
	// Value returns what a column holds, as something that Damage takes.
	Value(t testing.TB, table, column, key string, value any) any
	// Columns returns the columns of every table but those of the migration
	// tool.
	Columns(t testing.TB) map[string][]string
	// Reopen opens the same database once more, as after a restart.
	Reopen(t testing.TB) keystore.Driver
}

// Damage says what to overwrite: UPDATE Table SET Column = Value WHERE
// Key = KeyValue, for one row. Values are nil, string, int64, []byte, or what
// Value returned; int64 also for booleans and, in microseconds, for times,
// []byte of 16 bytes for ids.
type Damage struct {
	Table, Column string
	Value         any
	Key           string
	KeyValue      any
}

// Run runs the suite. open returns a driver, which is a Damager as well, on a
// new and empty database, and closes it when the test ends.
func Run(t *testing.T, open func(t *testing.T) keystore.Driver) {
	if _, ok := open(t).(Damager); !ok {
		t.Fatal("the driver under test is not a storetest.Damager")
	}
	tests := []struct {
		name string
		run  func(*testing.T, func(*testing.T) keystore.Driver)
	}{
		{"Tenants", testTenants},
		{"Deletion", testDeletion},
		{"Rewrap", testRewrap},
		{"Keys", testKeys},
		{"Lifecycle", testLifecycle},
		{"Aliases", testAliases},
		{"OldAliases", testOldAliases},
		{"Nonces", testNonces},
		{"LastUses", testLastUses},
		{"Approvals", testApprovals},
		{"NodeSettings", testNodeSettings},
		{"Policies", testPolicies},
		{"JournalHeads", testJournalHeads},
		{"Webhooks", testWebhooks},
		{"Deliveries", testDeliveries},
		{"Secrets", testSecrets},
		{"Routes", testRoutes},
		{"OldRoutes", testOldRoutes},
		{"Probes", testProbes},
		{"Jobs", testJobs},
		{"CostIncidents", testCostIncidents},
		{"Credentials", testCredentials},
		{"Baselines", testBaselines},
		{"SystemSecrets", testSystemSecrets},
		{"Idempotency", testIdempotency},
		{"RequestRecords", testRequestRecords},
		{"Trail", testTrail},
		{"Usage", testUsage},
		{"Lists", testLists},
		{"Counts", testCounts},
		{"Isolation", testIsolation},
		{"Damage", testDamage},
		{"Authenticity", testAuthenticity},
		{"Opening", testOpening},
		{"Cache", testCache},
		{"Races", testRaces},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) { test.run(t, open) })
	}
}

// env is a store on a driver, with a clock that stands still until it is set.
type env struct {
	*keystore.Store
	driver keystore.Driver

	mu  sync.Mutex
	now time.Time
}

// shared is a driver that outlives its stores, of which a test may have
// several.
type shared struct{ keystore.Driver }

func (shared) Close() error { return nil }

// start is when the clocks of the suite begin: in whole microseconds, which
// is what databases keep.
var start = time.Date(2026, time.March, 1, 12, 0, 0, 123456000, time.UTC)

func newEnv(t testing.TB, driver keystore.Driver) *env {
	return newEnvWith(t, driver, testRows())
}

func newEnvWith(t testing.TB, driver keystore.Driver, rows kms.RowAuthenticator) *env {
	t.Helper()
	e := newUnopened(t, driver)
	if err := Bootstrap(t.Context(), e.Store, rows); err != nil {
		t.Fatalf("opening a store: %v", err)
	}
	return e
}

// newUnopened makes an env whose store has no row key yet.
func newUnopened(t testing.TB, driver keystore.Driver) *env {
	e := &env{driver: driver, now: start}
	e.Store = keystore.New(shared{driver}, keystore.Options{Now: e.clock})
	t.Cleanup(func() {
		if err := e.Store.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

// testRows is the row key of all stores of the suite. Being the same in every
// process, it protects nothing.
func testRows() *kms.RowKey {
	key := func(word string) []byte { return bytes.Repeat([]byte(word), kms.MACKeySize/len(word)) }
	rows, err := kms.NewRowKey(map[uint32][]byte{1: key("old!"), 2: key("test")})
	if err != nil {
		panic(err)
	}
	return rows
}

// blindRows finds every code of zeroes right and makes no others, for tests of
// what happens with rows that are authentic and damaged all the same.
type blindRows struct{}

func (blindRows) MAC(uint32, string, ...[]byte) (code [32]byte, used uint32, ok bool) {
	return code, 1, true
}

// Bootstrap opens a store as a service does: with the system tenant, which it
// makes if there is none, and a row key, nil for that of the suite.
func Bootstrap(ctx context.Context, store *keystore.Store, rows kms.RowAuthenticator) error {
	if rows == nil {
		rows = testRows()
	}
	_, err := store.TenantByRef(ctx, kms.SystemTenantName)
	if kms.KindOf(err) == kms.KindNotFound && err != nil {
		err = store.CreateTenant(ctx, sampleTenant(kms.SystemTenantName))
	}
	if err != nil && kms.KindOf(err) != kms.KindConflict {
		return err
	}
	return store.Authenticate(ctx, rows)
}

func (e *env) clock() time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.now
}

func (e *env) advance(d time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.now = e.now.Add(d)
}

// The samples below are objects as the service makes them.

func sampleTenant(name string) *kms.Tenant {
	id := uuid.NewV7()
	return &kms.Tenant{
		ID: id, Name: name, Tier: kms.TierSilver, State: kms.TenantActive,
		Sealing: kms.SealingKey{ID: uuid.NewV7(), Tenant: id, Domain: uuid.NewV7(), RootGeneration: 1,
			Wrapped: []byte("wrapped sealing key")},
		Created: start, Revision: 1,
	}
}

// SampleKey makes a key that can be stored, for tests of drivers.
func SampleKey(t *kms.Tenant, name string) *kms.Key { return sampleKey(t, name) }

func sampleKey(t *kms.Tenant, name string) *kms.Key {
	return &kms.Key{
		ID: uuid.NewV7(), Tenant: t, Project: kms.DefaultProject, Name: name,
		Spec: kms.SpecAES256, Usage: kms.UsageEncryptDecrypt, Protection: kms.ProtectionHSM, State: kms.KeyEnabled,
		Created: start, Origin: kms.OriginGenerated, Primary: 1, Versions: []*kms.Version{sampleVersion(1)}, Revision: 1,
	}
}

func sampleVersion(number uint32) *kms.Version {
	return &kms.Version{ID: uuid.NewV7(), Number: number, State: kms.VersionEnabled, Created: start,
		Blob: []byte("sealed material")}
}

func sampleCredential(tenant uuid.UUID, name string) *kms.Credential {
	return &kms.Credential{
		ID: uuid.NewV7(), Tenant: tenant, Project: kms.DefaultProject, Name: name,
		Scopes:  []string{"key:*"},
		Secrets: []kms.CredentialSecret{{Hash: [32]byte{1, 2, 3}, PepperVersion: 1, Created: start}},
		Created: start, Revision: 1,
	}
}

func (e *env) tenant(t testing.TB, name string) *kms.Tenant {
	t.Helper()
	tenant := sampleTenant(name)
	if err := e.CreateTenant(t.Context(), tenant); err != nil {
		t.Fatalf("creating a tenant: %v", err)
	}
	return tenant
}

func (e *env) key(t testing.TB, tenant *kms.Tenant, name string) *kms.Key {
	t.Helper()
	k := sampleKey(tenant, name)
	if err := e.CreateKey(t.Context(), k); err != nil {
		t.Fatalf("creating a key: %v", err)
	}
	return k
}

func (e *env) credential(t testing.TB, tenant uuid.UUID, name string) *kms.Credential {
	t.Helper()
	c := sampleCredential(tenant, name)
	if err := e.CreateCredential(t.Context(), c); err != nil {
		t.Fatalf("creating a credential: %v", err)
	}
	return c
}

// patience is how long a look-up may wait for a load that the test holds back
// and should not concern it.
const patience = 30 * time.Second

func (e *env) lookup(t testing.TB, tenant uuid.UUID, ref string) *kms.Key {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	k, err := e.Lookup(ctx, tenant, ref)
	if err != nil {
		t.Fatalf("looking up a key: %v", err)
	}
	return k
}

func wantKind(t testing.TB, what string, err error, kind kms.Kind) {
	t.Helper()
	if err == nil || kms.KindOf(err) != kind {
		t.Errorf("%s: got error %v, want kind %v", what, err, kind)
	}
}
