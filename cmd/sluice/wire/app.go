package wire

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"time"
	"uuid"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/sluice-kms/sluice/abuse"
	"github.com/sluice-kms/sluice/api"
	"github.com/sluice-kms/sluice/audit"
	"github.com/sluice-kms/sluice/costreport"
	"github.com/sluice-kms/sluice/egress"
	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/hsm/soft"
	"github.com/sluice-kms/sluice/keystore"
	"github.com/sluice-kms/sluice/keystore/postgres"
	"github.com/sluice-kms/sluice/keystore/sqlite"
	"github.com/sluice-kms/sluice/kms"
	"github.com/sluice-kms/sluice/notify"
	"github.com/sluice-kms/sluice/notify/smtp"
	"github.com/sluice-kms/sluice/provider"
	"github.com/sluice-kms/sluice/quota"
)

// App is a running service without its listeners.
type App struct {
	Service       *kms.Service
	Authenticator *kms.Authenticator
	Store         *keystore.Store
	Device        *hsm.Device
	Journal       *audit.Log
	Quota         *quota.Engine
	Policies      *quota.Policies
	System        *kms.Tenant // the tenant of the operators
	Secrets       *kms.Secrets
	Metrics       *prometheus.Registry
	Events        *notify.Notifier
	Abuse         *abuse.Detector // nil: credentials are not watched

	storeFailed <-chan struct{}
	addresses   *egress.Guard
	mail        *smtp.Sender // nil: no mail is sent

	config *Config
	log    *slog.Logger
	closes []func() error // in order of opening
}

// Open opens everything that the configuration names. It needs no network.
func Open(ctx context.Context, c *Config, log *slog.Logger) (app *App, err error) {
	a := &App{config: c, log: log, Metrics: prometheus.NewRegistry()}
	defer func() {
		if err != nil {
			err = errors.Join(err, a.Close())
			app = nil
		}
	}()
	a.Metrics.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	if err := a.openJournal(ctx); err != nil {
		return nil, fmt.Errorf("opening the journal: %w", err)
	}
	if err := a.openStore(ctx); err != nil {
		return nil, fmt.Errorf("opening the database: %w", err)
	}
	if err := a.openDevice(ctx); err != nil {
		return nil, fmt.Errorf("opening the HSMs: %w", err)
	}
	if err := a.openService(ctx); err != nil {
		return nil, fmt.Errorf("starting the service: %w", err)
	}
	if err := a.redo(ctx); err != nil {
		return nil, fmt.Errorf("making changes again after a restore: %w", err)
	}
	if err := a.startOwn(ctx); err != nil {
		return nil, fmt.Errorf("starting the service: %w", err)
	}
	return a, nil
}

func (a *App) openStore(ctx context.Context) error {
	c := a.config.Database
	driver, err := a.openDatabase(ctx, c)
	if err != nil {
		return err
	}
	a.Store = keystore.New(driver, keystore.Options{Logger: a.log, Metrics: a.Metrics, Staleness: c.Staleness})
	a.closes = append(a.closes, a.Store.Close)
	return nil
}

func (a *App) openDatabase(ctx context.Context, c DatabaseConfig) (keystore.Driver, error) {
	if c.Driver == "postgres" {
		return postgres.Open(ctx, postgres.Config{URLFile: c.URLFile, OwnerURLFile: c.OwnerURLFile})
	}
	db, err := sqlite.Open(ctx, c.Path)
	if err != nil {
		return nil, err
	}
	a.storeFailed = db.Failed()
	return db, nil
}

func (a *App) openDevice(ctx context.Context) error {
	c := hsm.Config{
		EngineSlots: a.config.HSM.EngineSlots, AllowUnenforced: a.config.HSM.AllowUnenforced,
		Log: a.log, Clock: time.Now,
	}
	if c.EngineSlots <= 0 {
		c.EngineSlots = runtime.NumCPU()
	}
	var err error
	if c.Engine, err = openEngine(a.log); err != nil {
		return err
	}
	if c.Nodes, err = openTokens(ctx, a.config.HSM, a.log); err != nil {
		return errors.Join(err, c.Engine.Close())
	}
	if a.Device, err = hsm.Open(c); err != nil {
		return err
	}
	a.closes = append(a.closes, a.Device.Close)
	a.Metrics.MustRegister(newPool(a.Device))
	return nil
}

// openService makes the service, puts the stored policy into force and closes
// the changes that were under way when the last one ended.
func (a *App) openService(ctx context.Context) (err error) {
	a.System, a.Secrets, err = kms.Bootstrap(ctx, kms.BootstrapConfig{
		Tenants: a.Store, Secrets: a.Store, Device: a.Device, Clock: time.Now,
	})
	if err != nil {
		return err
	}
	if err := a.Store.Authenticate(ctx, a.Secrets.RowKey); err != nil {
		return err
	}
	if err := a.openNotifier(); err != nil {
		return err
	}
	engine, err := NewPolicyEngine(time.Now)
	if err != nil {
		return err
	}
	a.Policies = engine.Policies
	slots, err := newSlots(a.Device.Slots(), a.Policies, a.System.ID, time.Now)
	if err != nil {
		return err
	}
	nodes := newNodeSlots(a.Device.Slots(), slots.resize)
	a.Device.FollowSlots(nodes.token)
	a.Metrics.MustRegister(newQueues(slots.Snapshot))
	quotas, err := a.openQuota(ctx, a.Policies, nodes)
	if err != nil {
		return fmt.Errorf("opening the quota: %w", err)
	}
	a.closes = append(a.closes, quotas.Close)
	a.Quota = quotas.engine
	if quotas.store != nil {
		a.closes = append(a.closes, startSlotShares(quotas.store, a.config.Node, a.Policies, a.Device, slots, nodes, a.log).Close)
	}
	a.Authenticator = kms.NewAuthenticator(a.Store, a.Store, a.Secrets.Pepper, time.Now)
	sales := openCapacity(a.config.DataDir, a.Policies, a.log)
	a.closes = append(a.closes, sales.save)
	if !a.config.Abuse.Off {
		a.Abuse = abuse.NewDetector(abuse.MaxCredentials)
	}
	seen := newWatched(a.Abuse, abuse.Hasher{Seed: a.Secrets.Pepper.Seed("networks")})
	a.Service = kms.NewService(kms.Config{
		Keys: a.Store, Tenants: a.Store, Credentials: a.Store,
		Lifecycle: a.Store, Aliases: a.Store, Idempotency: a.Store, CredentialUses: a.Store, Records: a.Store,
		Approvals: a.Store, Deletions: a.Store, Nodes: a.Store, Policies: a.Store, PolicyEngine: engine, Capacity: sales,
		Webhooks: a.Store, Deliveries: a.Store, Addresses: receivers{a.addresses, a.mail}, Jobs: a.Store,
		TwoOperators: a.config.TwoOperators,
		RootRotation: a.config.Deletion.RootRotation, BackupRetention: a.config.Deletion.BackupRetention,
		Quota: quotas, Accounts: quotas, Scheduler: slots, Queues: slots, Device: a.Device, Journal: a.Journal,
		Trail: a.Store, Revisions: a.Store, SuccessLine: a.successLine, ReadEntry: audit.ParseEntry, Secrets: a.Store, SecretTimes: a.secretTimes, RouteRules: a.RouteRules, Events: a.Events, AbuseRules: a.abuseRules,
		Routes: a.Store, Incidents: a.Store, Probes: a.Store, RouteHealth: provider.Health{}, KeyTrials: a.keyTrials(),
		Pepper: a.Secrets.Pepper, Observer: measuring{newObserver(a.Metrics), sales.throughput, seen}, Log: a.log, Clock: time.Now,
	})
	// Before the first entry, which names the policy, and before the quota gives
	// tenants back what they had under it.
	policy, err := a.Service.StartPolicySync(ctx)
	if err != nil {
		return err
	}
	a.closes = append(a.closes, policy.Close)
	a.Metrics.MustRegister(newPolicyGauges(a.Service.PolicyFollowed), prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "sluice_request_records_dropped_total",
		Help: "Requests that waited or were refused of which other API nodes cannot tell, because there were too many or the store was away.",
	}, func() float64 { return float64(a.Service.Unrecorded()) }))
	a.closes = append(a.closes, a.Service.StartCapacityWatch(sales.saveOrSay).Close)
	a.Metrics.MustRegister(newCapacityGauges(a.Service.CapacitySeen))
	a.startAlarms(seen, slots.Snapshot)
	a.startCosts()
	quotas.start(a.tenantOfLedger)
	intents, err := audit.OpenIntents(ctx, a.config.Journal.Dir, soft.NewSM3)
	if err != nil {
		return err
	}
	_, err = a.Service.Reconcile(ctx, intents)
	return err
}

// tenantOfLedger finds a tenant whose totals are restored, nil for one that is
// gone.
func (a *App) tenantOfLedger(id uuid.UUID) (*kms.Tenant, error) {
	ctx, cancel := context.WithTimeout(context.Background(), ledgerLookup)
	defer cancel()
	tenant, err := a.Store.Tenant(ctx, id)
	if err != nil && kms.KindOf(err) == kms.KindNotFound {
		return nil, nil
	}
	return tenant, err
}

// startOwn starts what the service does by itself: after the changes that a
// crash left were closed, and not for work on roots, which closes the HSMs
// before it ends.
func (a *App) startOwn(ctx context.Context) error {
	if err := a.startSigner(ctx); err != nil {
		return err
	}
	nodes, err := a.Service.StartNodeSync(ctx)
	if err != nil {
		return err
	}
	a.closes = append(a.closes, nodes.Close, a.Service.StartKeeper().Close, a.Service.StartSecretKeeper().Close, a.Service.StartRecorder().Close)
	a.startNodeWatch()
	a.startProber()
	a.closes = append(a.closes, a.Service.StartKeyTrier().Close)
	a.startAbuseWatch()
	a.closes = append(a.closes, a.startRevisions().Close, a.Service.StartRowWatch().Close)
	return a.startShipper()
}

// startShipper starts to copy the journal into the audit trail.
func (a *App) startShipper() error {
	keep := a.config.Audit
	shipper, err := audit.StartShipper(audit.ShipperConfig{Journal: a.Journal, Trail: a.Store, Log: a.log, Clock: time.Now, Registerer: a.Metrics,
		Keep: audit.Retention{Entries: keep.KeepEntries, Usage: map[kms.Granularity]time.Duration{
			kms.ByMinute: keep.KeepMinutes, kms.ByHour: keep.KeepHours, kms.ByDay: keep.KeepDays}}})
	if err == nil {
		a.closes = append(a.closes, shipper.Close)
	}
	return err
}

// successLine is the promised share of requests that succeed, by the policy in
// force.
func (a *App) successLine() int64 { return a.Policies.Current().Policy().Alerts.SuccessPermyriad }

// secretTimes are the times of provider secrets, by the policy in force.
func (a *App) secretTimes() kms.SecretTimes {
	rules := a.Policies.Current().Policy().Secrets
	return kms.SecretTimes{
		Fresh: time.Duration(rules.ClientFreshSeconds) * time.Second, Lease: time.Duration(rules.ClientExpirySeconds) * time.Second,
		Heartbeat: time.Duration(rules.HeartbeatSeconds) * time.Second,
	}
}

// RouteRules are the numbers of providers' health, by the policy in force.
func (a *App) RouteRules() kms.RouteRules {
	rules := a.Policies.Current().Policy().Secrets
	return kms.RouteRules{
		BreakerFailures: rules.BreakerFailures,
		OpenFirst:       time.Duration(rules.BreakerOpenSeconds) * time.Second, OpenLast: time.Duration(rules.BreakerMaxSeconds) * time.Second,
		Switch: hundredths(rules.SwitchPercents), SwitchTime: time.Duration(rules.SwitchStepSeconds) * time.Second,
		Failback: hundredths(rules.FailbackPercents), FailbackTime: time.Duration(rules.FailbackStepSeconds) * time.Second,
		LimitLasts:    time.Duration(rules.LimitedSeconds) * time.Second,
		ProbeFailures: int(rules.ProbeFailures), ProbeTime: time.Duration(rules.ProbeSeconds) * time.Second,
		RetriesPerRequest: int(rules.RetriesOnOtherPerReq),
	}
}

// hundredths are the steps of a gradual change.
func hundredths(steps quota.Steps) []uint32 {
	list := make([]uint32, len(steps))
	for i, s := range steps {
		list[i] = uint32(s)
	}
	return list
}

// API returns the handler of the REST API, and begins to run jobs, whose items
// are its calls. It is called once.
func (a *App) API(version string) (*api.Server, error) {
	proxies, err := a.config.trustedProxies()
	if err != nil {
		return nil, err
	}
	tracer, err := a.openTracer(context.Background(), version)
	if err != nil {
		return nil, err
	}
	server := api.New(api.Config{
		Service: a.Service, Authenticator: a.Authenticator, Log: a.log, Clock: time.Now,
		MaxBody: a.config.MaxBodyBytes, TrustedProxies: proxies, Registerer: a.Metrics, Tracer: tracer, Ready: a.Ready, Version: version,
		Reports: costreport.Reports{},
	})
	a.startJobs(server)
	return server, nil
}

// FirstCredential mints a credential outside of any request, for whoever sets
// the service up.
func (a *App) FirstCredential(ctx context.Context, tenant *kms.Tenant, name string, scopes []string) (string, error) {
	return kms.FirstCredential(ctx, a.Store, a.Secrets.Pepper, time.Now, kms.FirstCredentialInput{Tenant: tenant, Name: name, Scopes: scopes})
}

// operator makes tickets for what the service does on its own account when it
// is set up.
func (a *App) operator() (*kms.Principal, error) {
	scopes, err := kms.ParseScopes([]string{"operator:admin"})
	return &kms.Principal{Tenant: a.System, Project: kms.DefaultProject, Component: "setup", Scopes: scopes}, err
}

// Failed waits for the end of ctx or for a failure after which the process must
// not go on, which it returns: when an fsync failed, nobody knows what is on
// the disk until the next start reads it.
func (a *App) Failed(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-a.storeFailed:
		return errors.New("the database could not be synced")
	case <-a.Journal.Done():
		return fmt.Errorf("the journal has stopped: %w", a.Journal.Err())
	}
}

// Ready tells whether the service can answer requests now.
func (a *App) Ready() error {
	if err := a.Journal.Err(); err != nil {
		return fmt.Errorf("the journal has stopped: %w", err)
	}
	for _, n := range a.Device.Status() {
		if n.ID != hsm.EngineID && n.State == "up" {
			return nil
		}
	}
	return errors.New("no HSM node is up")
}

// Close closes everything in the reverse order of opening. Requests must have
// ended.
func (a *App) Close() error {
	var errs []error
	for i := len(a.closes) - 1; i >= 0; i-- {
		errs = append(errs, a.closes[i]())
	}
	a.closes = nil
	return errors.Join(errs...)
}

// OperatorCredential mints an operator's credential into the file, unless the
// file exists.
func (a *App) OperatorCredential(ctx context.Context, path string) error {
	return credentialFile(path, func() (string, error) {
		return a.FirstCredential(ctx, a.System, credentialName("operator"), operatorScopes)
	})
}
