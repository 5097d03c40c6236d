package wire

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/audit"
	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/hsm/soft"
	"github.com/sluice-kms/sluice/keystore"
	"github.com/sluice-kms/sluice/kms"
	"github.com/sluice-kms/sluice/quota"
	"github.com/sluice-kms/sluice/quota/redis"
)

// QuotaConfig says how quotas are kept.
type QuotaConfig struct {
	Redis RedisConfig `koanf:"redis"`
}

// RedisConfig is the Redis by which several API nodes share limits; without
// addresses each node has the whole limits to itself.
type RedisConfig struct {
	// Addresses are host:port; of a cluster's nodes, any.
	Addresses []string `koanf:"addresses"`
	// Cluster says that they are those of a cluster. Default false.
	Cluster bool `koanf:"cluster"`
	// Master is the name by which Sentinels know the master; the addresses are
	// theirs then. Default none.
	Master string `koanf:"master"`
	// Username and PasswordFile authenticate; a newline at the file's end does
	// not count. Default none.
	Username     string `koanf:"username"`
	PasswordFile string `koanf:"password_file"`
	// SentinelUsername and SentinelPasswordFile authenticate to the Sentinels.
	// Default none.
	SentinelUsername     string `koanf:"sentinel_username"`
	SentinelPasswordFile string `koanf:"sentinel_password_file"`
	// TLS encrypts the connections. Default false.
	TLS bool `koanf:"tls"`
}

// The pace of what the quota does beside requests.
const (
	// utilisationInterval is how often the engine is told how busy the HSMs
	// are: fast enough for the gate's 200 ms average of the design.
	utilisationInterval = 200 * time.Millisecond
	// reapInterval is how often reservations that nobody ended are looked for.
	reapInterval = 5 * time.Second
	// sweepInterval is how often what tenants no longer use is forgotten.
	sweepInterval = 3 * time.Minute
	// ledgerLookup bounds the look-up of one tenant of the ledger.
	ledgerLookup = 5 * time.Second
	// countTimeout bounds the counting of one tenant's objects: 100,000 keys
	// take some 20 ms.
	countTimeout = 5 * time.Second
	// redisDial bounds the making of a connection.
	redisDial = 5 * time.Second
)

// creationLocks is how many creations of different tenants can go on at once.
const creationLocks = 64

// ledgerFile is the ledger's name in the data folder.
const ledgerFile = "quota.ledger"

// journalReader gives the ledger what it reads of the journal.
type journalReader struct {
	log *audit.Log
	dir string
}

// Last implements quota.LedgerJournal.
func (j journalReader) Last() uint64 { return j.log.Head().Sequence }

// Read implements quota.LedgerJournal.
func (j journalReader) Read(from uint64, fn func(uint64, *kms.Entry) error) error {
	err := audit.Read(j.dir, from, func(e *kms.Entry, p audit.Position) error { return fn(p.Sequence, e) }, soft.NewSM3)
	if errors.Is(err, audit.ErrNoSuchRecord) {
		first, ferr := audit.First(j.dir)
		if ferr != nil {
			return ferr
		}
		return j.Read(first, fn)
	}
	return err
}

// Admit implements kms.Quota. Before one more object of a tenant is admitted,
// those that there are may have to be counted; creations of one tenant do that
// one after the other, or two of them could each be the last that fits.
func (q *quotas) Admit(r *kms.AdmitRequest) (kms.Reservation, error) {
	kind := quota.CreatedBy(r)
	if kind == quota.Nothing {
		return q.admit(r)
	}
	of := r.Principal.Tenant
	turn := &q.creations[of.ID[15]%creationLocks]
	turn.Lock()
	defer turn.Unlock()
	q.RestoreTenant(of)
	if err := q.count(of, kind); err != nil {
		return kms.Reservation{}, err
	}
	return q.admit(r)
}

// count counts a tenant's objects, if that is due; its turn is held.
func (q *quotas) count(of *kms.Tenant, kind quota.Object) error {
	counts, due := q.engine.Uncounted(of.ID, kind)
	if !due {
		return nil
	}
	ctx, cancel := context.WithTimeout(q.running, countTimeout)
	defer cancel()
	stored, err := q.objects.CountObjects(ctx, of.ID)
	if err != nil {
		return err
	}
	counts[quota.Keys] += stored.Keys
	counts[quota.Credentials] += stored.Credentials
	counts[quota.Secrets] += stored.Secrets
	q.engine.SetStored(of, counts)
	return nil
}

func (q *quotas) admit(r *kms.AdmitRequest) (kms.Reservation, error) {
	if q.store == nil {
		return q.Ledger.Admit(r)
	}
	return quota.AwaitLease(q.Ledger.Admit, r)
}

// Account implements kms.QuotaAccounts. While the store cannot count objects,
// their number is the last one known.
func (q *quotas) Account(t *kms.Tenant) kms.QuotaAccount {
	turn := &q.creations[t.ID[15]%creationLocks]
	turn.Lock()
	defer turn.Unlock()
	q.RestoreTenant(t)
	if err := q.count(t, quota.Keys); err != nil {
		q.log.Warn("quota: counting a tenant's objects", slog.String("tenant", t.ID.String()), slog.Any("error", err))
	}
	return q.engine.Account(t)
}

// quotas is the running quota: the engine, its ledger, and who looks after
// them.
type quotas struct {
	*quota.Ledger
	engine  *quota.Engine
	store   *redis.Store // nil: none is shared
	objects *keystore.Store
	device  *hsm.Device
	nodes   *nodeSlots
	log     *slog.Logger

	creations [creationLocks]sync.Mutex // by the tenant's id

	running context.Context // until Close
	stop    context.CancelFunc
	all     sync.WaitGroup
}

// openQuota opens the engine under the policies, with what the ledger and the
// journal have; start has to follow.
func (a *App) openQuota(ctx context.Context, policies *quota.Policies, nodes *nodeSlots) (*quotas, error) {
	running, stop := context.WithCancel(context.Background())
	q := &quotas{objects: a.Store, device: a.Device, nodes: nodes, log: a.log, running: running, stop: stop}
	o := quota.Options{Policies: policies, Clock: time.Now, Notify: func(e quota.Event) { a.Events.Publish(quotaEvent(e)) }, Node: a.config.Node}
	if c := a.config.Quota.Redis; len(c.Addresses) > 0 {
		store, err := c.open(ctx)
		if err != nil {
			return nil, err
		}
		q.store, o.Backing = store, store
	}
	q.engine = quota.NewEngine(o)
	var err error
	if q.Ledger, err = quota.OpenLedger(q.engine, journalReader{a.Journal, a.config.Journal.Dir}, filepath.Join(a.config.DataDir, ledgerFile), a.log); err != nil {
		return nil, errors.Join(err, q.closeStore())
	}
	return q, nil
}

// start begins to look after the quota. find finds tenants of the ledger.
func (q *quotas) start(find func(uuid.UUID) (*kms.Tenant, error)) {
	q.all.Go(func() { q.lookAfter(find) })
	if q.store != nil {
		q.all.Go(func() { q.engine.Run(q.running) })
	}
}

func (c RedisConfig) open(ctx context.Context) (*redis.Store, error) {
	if c.Cluster && c.Master != "" {
		return nil, errors.New("quota.redis: a cluster fails over by itself: name either cluster or master")
	}
	config := redis.Config{
		Addresses: c.Addresses, Cluster: c.Cluster, Master: c.Master, Username: c.Username, SentinelUsername: c.SentinelUsername, Dial: redisDial,
	}
	var err error
	if config.Password, err = password(c.PasswordFile); err != nil {
		return nil, err
	}
	if config.SentinelPassword, err = password(c.SentinelPasswordFile); err != nil {
		return nil, err
	}
	if c.TLS {
		config.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	return redis.Open(ctx, config)
}

// password reads one of Redis's passwords; no file, none.
func password(file string) (string, error) {
	if file == "" {
		return "", nil
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("reading Redis's password: %w", err)
	}
	return strings.TrimRight(string(raw), "\r\n"), nil
}

// lookAfter does what the quota needs beside requests, until stop.
func (q *quotas) lookAfter(find func(uuid.UUID) (*kms.Tenant, error)) {
	q.restoreAll(find)
	busy, reap := time.NewTicker(utilisationInterval), time.NewTicker(reapInterval)
	sweep, save := time.NewTicker(sweepInterval), time.NewTicker(quota.LedgerInterval)
	for _, t := range []*time.Ticker{busy, reap, sweep, save} {
		defer t.Stop()
	}
	for {
		select {
		case <-q.running.Done():
			return
		case <-busy.C:
			q.engine.SetUtilisation(q.nodes.utilisation(q.device.Status()))
		case <-reap.C:
			if found, charged := q.engine.Reap(); found+charged > 0 {
				q.log.Warn("quota: reservations were not ended in time", slog.Int("found", found), slog.Int("charged", charged))
			}
		case <-sweep.C:
			q.engine.Sweep()
		case <-save.C:
			q.restoreAll(find)
			q.save()
		}
	}
}

// restoreAll gives all tenants their totals back; who could not be found now
// is looked for again before the next saving, and at his first request.
func (q *quotas) restoreAll(find func(uuid.UUID) (*kms.Tenant, error)) {
	if err := q.RestoreAll(q.running.Done(), find); err != nil {
		q.log.Error("quota: restoring totals", slog.Any("error", err))
	}
}

func (q *quotas) save() {
	if err := q.Save(); err != nil {
		q.log.Error("quota", slog.Any("error", err))
	}
}

// LiftCost implements kms.QuotaAccounts.
func (q *quotas) LiftCost(tenant uuid.UUID, at time.Time) bool { return q.engine.LiftCost(tenant, at) }

// Standings implements kms.QuotaAccounts.
func (q *quotas) Standings(limit int) ([]kms.QuotaStanding, int) { return q.engine.Standings(limit) }

// Close ends what looks after the quota, returns what is lent, and saves the
// ledger. Requests must have ended.
func (q *quotas) Close() error {
	q.stop()
	q.all.Wait()
	return errors.Join(q.Save(), q.closeStore())
}

func (q *quotas) closeStore() error {
	if q.store == nil {
		return nil
	}
	return q.store.Close()
}
