package keystore

import (
	"context"
	"errors"
	"hash/maphash"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"uuid"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-kms/sluice/kms"
)

var (
	_ kms.Keys            = (*Store)(nil)
	_ kms.KeyLifecycle    = (*Store)(nil)
	_ kms.Aliases         = (*Store)(nil)
	_ kms.Tenants         = (*Store)(nil)
	_ kms.Credentials     = (*Store)(nil)
	_ kms.CredentialUses  = (*Store)(nil)
	_ kms.Approvals       = (*Store)(nil)
	_ kms.NodeSettings    = (*Store)(nil)
	_ kms.Policies        = (*Store)(nil)
	_ kms.Webhooks        = (*Store)(nil)
	_ kms.Deliveries      = (*Store)(nil)
	_ kms.ProviderRoutes  = (*Store)(nil)
	_ kms.EndpointProbes  = (*Store)(nil)
	_ kms.Jobs            = (*Store)(nil)
	_ kms.CostIncidents   = (*Store)(nil)
	_ kms.SystemSecrets   = (*Store)(nil)
	_ kms.Idempotency     = (*Store)(nil)
	_ kms.Trail           = (*Store)(nil)
	_ kms.TrailWriter     = (*Store)(nil)
	_ kms.Revisions       = (*Store)(nil)
	_ kms.ProviderSecrets = (*Store)(nil)
)

// Object is a kind of stored object: in errors, metrics and invalidations.
type Object string

// The kinds of objects.
const (
	ObjectTenant         Object = "tenant"
	ObjectProject        Object = "project"
	ObjectKey            Object = "key"
	ObjectKeyName        Object = "key name"
	ObjectCredential     Object = "credential"
	ObjectApproval       Object = "approval"
	ObjectNodeSetting    Object = "setting of a node"
	ObjectPolicy         Object = "policy"
	ObjectWebhook        Object = "webhook"
	ObjectDelivery       Object = "delivery"
	ObjectJournalHead    Object = "head of a journal"
	ObjectProviderSecret Object = "provider secret"
	ObjectRoute          Object = "route"
	ObjectRouteHealth    Object = "health of a route"
	ObjectRouteEnd       Object = "end of a route"
	ObjectBaseline       Object = "baseline of a credential"
	ObjectEndpoint       Object = "endpoint of a provider"
	ObjectJob            Object = "job"
	ObjectJobChunk       Object = "chunk of a job"
	ObjectCostIncident   Object = "incident of a cost breaker"
	ObjectCostLift       Object = "lift of a cost breaker"
	ObjectSystemSecret   Object = "system secret"
	ObjectClaim          Object = "idempotency record"

	ObjectRequestRecord Object = "record of a request"
	ObjectAuditEntry    Object = "entry of the audit trail"
	ObjectShipped       Object = "place of a node's journal"
	ObjectUsage         Object = "usage"

	ObjectDatabase Object = "database" // as a whole
)

// Bounds of the caches. The numbers of entries cover the size that the
// service is made for, 1,000,000 keys of 100,000 tenants. The bytes keep the
// caches together below 1 GiB whatever the objects are; at 0.7 KiB for an AES
// key and 0.1 KiB for its name they leave room for 1,000,000 of them, or for
// 200,000 RSA keys. Absences outlast AbsenceTTL only where nobody asks again.
var (
	keyLimits     = limits{entries: 1 << 20, bytes: 704 << 20, absences: 1 << 14}
	keyNameLimits = limits{entries: 1 << 20, bytes: 128 << 20, absences: 1 << 14}
	tenantLimits  = limits{entries: 1 << 17, bytes: 64 << 20, absences: 1 << 12}
	// Operators look tenants up by name; the hot path has the id.
	tenantNameLimits = limits{entries: 1 << 14, bytes: 4 << 20, absences: 1 << 12}
	credentialLimits = limits{entries: 1 << 17, bytes: 96 << 20, absences: 1 << 14}
	// 100,000 secrets of a few API keys each; larger values push each other out.
	providerSecretLimits = limits{entries: 1 << 17, bytes: 192 << 20, absences: 1 << 14}
	secretPathLimits     = limits{entries: 1 << 17, bytes: 16 << 20, absences: 1 << 14}
)

// Options are a Store's settings. The zero value is valid.
type Options struct {
	// Now is the clock; nil: time.Now.
	Now func() time.Time
	// Logger receives damaged objects and failures of the purge; nil: none.
	Logger *slog.Logger
	// Metrics receives the sizes, loads and evictions of the caches and the
	// damaged objects; nil: none.
	Metrics prometheus.Registerer
	// Staleness is how long cached state is used while the database cannot be
	// asked for changes of other processes; then it is refused with
	// KindStoreUnavailable until it can. 0: DefaultStaleness. It concerns
	// drivers that are a ChangeDriver.
	Staleness time.Duration
	// Idle is how long what nobody uses stays cached, up to a tenth longer;
	// 0: DefaultIdle.
	Idle time.Duration
}

// Store is the key store; see the package comment. All methods are safe for
// concurrent use.
type Store struct {
	driver  Driver
	now     func() time.Time
	log     *slog.Logger
	metrics prometheus.Registerer

	// rows is nil until Authenticate.
	rows atomic.Pointer[rowCoder]

	tenants     cache[uuid.UUID, *kms.Tenant]
	tenantNames cache[string, uuid.UUID]
	keys        cache[keyID, *boundKey]
	keyNames    cache[keyName, uuid.UUID]
	credentials cache[uuid.UUID, *kms.Credential]

	providerSecrets cache[keyID, *kms.ProviderSecret]
	secretPaths     cache[keyName, uuid.UUID]
	secretRevisions secretRevisions

	gate      *loadGate
	collector *collector
	alarms    alarms
	known     revisions

	// tenantEpoch, from 1, grows after any tenant was dropped from the cache.
	// A key that was bound to its tenant in the current epoch needs no look-up
	// of the tenant.
	tenantEpoch atomic.Uint64

	follower *follower // nil when no other process writes

	stop context.CancelFunc
	own  sync.WaitGroup // what the Store does by itself
}

// keyID and keyName are what a tenant can call a key. The tenant is part of
// both, so that another tenant's key and a missing one are the same entry.
type (
	keyID   struct{ tenant, key uuid.UUID }
	keyName struct {
		tenant uuid.UUID
		name   string
	}
)

// New makes a Store on a driver, which becomes the Store's: Close closes it.
// It does no I/O; the caches fill as they are used, so the start takes the
// same time whatever the database holds. Until Authenticate the Store does only
// what leads to its row key.
func New(driver Driver, opts Options) *Store {
	s := &Store{driver: driver, now: opts.Now, log: opts.Logger, metrics: opts.Metrics, gate: newLoadGate()}
	if s.now == nil {
		s.now = time.Now
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.tenantEpoch.Store(1)
	if d, ok := driver.(ChangeDriver); ok {
		s.follower = newFollower(s, d, opts.Staleness)
	}
	s.initCaches()
	s.collector = newCollector(s)
	if s.metrics != nil {
		s.metrics.MustRegister(s.collector)
	}
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	s.own.Go(func() { s.purge(ctx) })
	idle := opts.Idle
	if idle <= 0 {
		idle = DefaultIdle
	}
	s.own.Go(func() { s.sweep(ctx, idle) })
	if s.follower != nil {
		s.follower.start(ctx)
	}
	return s
}

// Close stops what the Store does by itself, waits for it and closes the
// driver. Afterwards every call that needs the database fails with
// KindStoreUnavailable.
func (s *Store) Close() error {
	s.stop()
	s.own.Wait()
	if s.follower != nil {
		s.follower.wait.Wait()
	}
	if s.metrics != nil {
		s.metrics.Unregister(s.collector)
	}
	return s.driver.Close()
}

// Invalidate forgets what is cached of an object that another process
// changed or created, so that the next look-up reads it. Objects that are not
// cached need no call. A Store whose driver is a ChangeDriver does it by itself.
func (s *Store) Invalidate(object Object, tenant, id uuid.UUID) {
	switch object {
	case ObjectTenant:
		s.dropTenant(tenant)
	case ObjectKey:
		s.keys.drop(keyID{tenant, id})
	case ObjectCredential:
		s.credentials.drop(id)
	case ObjectProviderSecret:
		s.providerSecrets.drop(keyID{tenant, id})
	}
}

// InvalidateName forgets which key has a name or an alias; see Invalidate.
func (s *Store) InvalidateName(tenant uuid.UUID, name string) {
	s.keyNames.drop(keyName{tenant, name})
}

// dropTenant forgets a tenant. The order matters: in the new epoch nobody can
// get the old tenant any more.
func (s *Store) dropTenant(id uuid.UUID) {
	s.tenants.drop(id)
	s.tenantEpoch.Add(1)
}

// forgetAll empties the caches.
func (s *Store) forgetAll() {
	s.keyNames.clear()
	s.keys.clear()
	s.credentials.clear()
	s.tenantNames.clear()
	s.tenants.clear()
	s.tenantEpoch.Add(1)
	s.secretRevisions.forget()
	s.secretPaths.clear()
	s.providerSecrets.clear()
	s.secretRevisions.tell(uuid.Nil())
}

func (s *Store) initCaches() {
	hashID := func(seed maphash.Seed, id uuid.UUID) uint64 { return maphash.Bytes(seed, id[:]) }

	s.tenants.limits, s.tenants.now = tenantLimits, s.now
	s.tenants.load, s.tenants.hash, s.tenants.size = s.loadTenant, hashID, sizeTenant
	s.tenants.init()

	s.tenantNames.limits, s.tenantNames.now = tenantNameLimits, s.now
	s.tenantNames.load, s.tenantNames.hash, s.tenantNames.own = s.loadTenantID, maphash.String, strings.Clone
	s.tenantNames.size = func(name string, _ uuid.UUID) int { return len(name) }
	s.tenantNames.init()

	s.keys.limits, s.keys.now = keyLimits, s.now
	s.keys.load, s.keys.size = s.loadKey, sizeKey
	// The id alone is unique enough to spread by.
	s.keys.hash = func(seed maphash.Seed, k keyID) uint64 { return maphash.Bytes(seed, k.key[:]) }
	s.keys.tenant = func(k keyID) uuid.UUID { return k.tenant }
	s.keys.gate = s.gate
	s.keys.init()

	s.keyNames.limits, s.keyNames.now = keyNameLimits, s.now
	s.keyNames.load = s.loadKeyID
	s.keyNames.size = func(k keyName, _ uuid.UUID) int { return len(k.name) }
	// Tenants like the same names, so the tenant has to be in the hash.
	s.keyNames.hash = func(seed maphash.Seed, k keyName) uint64 {
		return maphash.Bytes(seed, k.tenant[:]) ^ maphash.String(seed, k.name)
	}
	s.keyNames.own = func(k keyName) keyName { return keyName{k.tenant, strings.Clone(k.name)} }
	s.keyNames.tenant = func(k keyName) uuid.UUID { return k.tenant }
	s.keyNames.gate = s.gate
	s.keyNames.init()

	s.credentials.limits, s.credentials.now = credentialLimits, s.now
	s.credentials.load, s.credentials.hash, s.credentials.size = s.loadCredential, hashID, sizeCredential
	s.credentials.init()

	s.providerSecrets.limits, s.providerSecrets.now = providerSecretLimits, s.now
	s.providerSecrets.load, s.providerSecrets.size = s.loadProviderSecret, sizeProviderSecret
	s.providerSecrets.hash, s.providerSecrets.tenant, s.providerSecrets.gate = s.keys.hash, s.keys.tenant, s.gate
	s.providerSecrets.init()

	s.secretPaths.limits, s.secretPaths.now = secretPathLimits, s.now
	s.secretPaths.load, s.secretPaths.size = s.loadSecretID, s.keyNames.size
	s.secretPaths.hash, s.secretPaths.own, s.secretPaths.tenant, s.secretPaths.gate = s.keyNames.hash, s.keyNames.own, s.keyNames.tenant, s.gate
	s.secretPaths.init()

	if s.follower != nil {
		fresh := s.follower.fresh
		s.providerSecrets.fresh, s.secretPaths.fresh = fresh, fresh
		s.tenants.fresh, s.tenantNames.fresh = fresh, fresh
		s.keys.fresh, s.keyNames.fresh, s.credentials.fresh = fresh, fresh, fresh
	}
}

// decoded passes on what a decoder returned, and reports a damaged row.
func (s *Store) decoded(err error) error {
	if err != nil {
		s.damaged(err)
	}
	return translate(err)
}

// damaged reports an object that cannot be used: it is counted every time and
// logged once an interval.
func (s *Store) damaged(err error) {
	row, ok := errors.AsType[*RowError](err)
	forged := ok && row.Forged()
	switch {
	case forged || ok && row.Old():
		s.collector.forged.Add(1)
	default:
		s.collector.damaged.Add(1)
	}
	switch {
	case ok && !s.alarms.due(*row, s.now()):
	case ok && row.Old():
		s.log.Error("stored object is an earlier one that was put back, and is refused",
			slog.String("alarm", "old_row"), slog.Any("error", err))
	case forged:
		s.log.Error("stored object was not written by this service and is refused",
			slog.String("alarm", "row_authentication"), slog.Any("error", err))
	default:
		s.log.Error("stored object is damaged and refused", slog.Any("error", err))
	}
}
