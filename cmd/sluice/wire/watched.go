package wire

import (
	"time"

	"github.com/sluice-kms/sluice/abuse"
	"github.com/sluice-kms/sluice/kms"
	"github.com/sluice-kms/sluice/scheduler"
	"github.com/sluice-kms/sluice/watch"
)

// MetricsConfig says what metrics tell.
type MetricsConfig struct {
	// TopTenants is how many tenants, those that use the HSMs most, have series
	// of their own: 1 to 100. Default 10.
	TopTenants int `koanf:"top_tenants"`
}

// AbuseConfig says whether an API node looks for credentials that somebody else
// uses. What follows is in the policy.
type AbuseConfig struct {
	// Off says that it does not: nothing is learnt, stored or flagged by it. Flags
	// that are there hold. Default false.
	Off bool `koanf:"off"`
}

// Default and bound of MetricsConfig.
const (
	DefaultTopTenants = 10
	maxTopTenants     = 100
)

// watched are the tenants, keys and credentials that are watched.
type watched struct {
	tenants *watch.Tenants
	failing *watch.Failing
	abuse   *abuse.Detector // nil: credentials are not watched
	hasher  abuse.Hasher
}

func newWatched(d *abuse.Detector, h abuse.Hasher) *watched {
	return &watched{tenants: new(watch.Tenants), failing: watch.NewFailing(), abuse: d, hasher: h}
}

// note counts a request that is over.
func (w *watched) note(t *kms.Ticket, err error) {
	w.tenants.Note(t, err)
	w.failing.Note(t, err)
	if w.abuse == nil {
		return
	}
	if o, ok := w.hasher.Of(t, err); ok {
		w.abuse.Observe(&o)
	}
}

// job has a job seen as what its credential asks for: its items as calls from where
// it was submitted, as those of a batch are, since when they run they come from
// nowhere. Of one with more items than a batch has so many count, each operation
// in its proportion.
func (w *watched) job(t *kms.Ticket, mix kms.JobMix) {
	if w.abuse == nil {
		return
	}
	all := int64(0)
	for _, n := range mix.Items {
		all += n
	}
	for op, n := range mix.Items {
		item := kms.Ticket{By: t.By, Op: op, Received: t.Received, Elapsed: t.Elapsed, Address: t.Address, UserAgent: t.UserAgent, Bytes: int(mix.Bytes / all)}
		if all > kms.MaxBatch {
			n = (n*kms.MaxBatch + all - 1) / all
		}
		for o, ok := w.hasher.Of(&item, nil); ok && n > 0; n-- {
			w.abuse.Observe(&o)
		}
	}
}

// abuseRules are what follows of suspicious credentials of a tenant, by the
// policy in force.
func (a *App) abuseRules(tenant *kms.Tenant) kms.AbuseRules {
	return a.Policies.Current().Policy().AbuseRules(tenant)
}

// startAbuseWatch begins to look for credentials that somebody else uses.
func (a *App) startAbuseWatch() {
	if a.Abuse == nil {
		return
	}
	w := abuse.Start(abuse.WatcherConfig{Detector: a.Abuse, Baselines: a.Store, Flag: a.Service.FlagCredential,
		Log: a.log, Clock: time.Now, Registerer: a.Metrics})
	a.closes = append(a.closes, w.Close)
}

// startAlarms begins to look at what people should hear of, and reports it in
// metrics.
func (a *App) startAlarms(seen *watched, snapshot func() scheduler.Snapshot) {
	alarms := watch.NewAlarms(watch.Sources{
		Pools: func() []watch.Pool { return pools(snapshot()) },
		HotKeys: func() (list []watch.Key) {
			for _, k := range a.Quota.HotKeys() {
				list = append(list, watch.Key(k))
			}
			return list
		},
		Retrying: func(calls, share int) (list []watch.Retrying, all watch.Retrying) {
			retrying, sum := a.Quota.Retrying(calls, share)
			for _, r := range retrying {
				list = append(list, watch.Retrying(r))
			}
			return list, watch.Retrying(sum)
		},
		Failing: seen.failing, Capacity: a.Service.CapacitySeen, Lag: a.Journal.Lag,
	}, a.Events, a.config.Node)
	a.Metrics.MustRegister(watch.NewCollector(seen.tenants, alarms, a.config.Metrics.TopTenants, time.Now))
	a.closes = append(a.closes, alarms.Start(time.Now).Close)
}

// pools are the scheduler's domains whose utilisation people have to know of:
// those of the HSMs. The slots of the in-process engine are as many as there
// are processors, and those set apart for slow work are meant to be idle.
func pools(s scheduler.Snapshot) (list []watch.Pool) {
	for i := range s.Domains {
		if d := &s.Domains[i]; poolName(d.Name) == hsmDomain {
			list = append(list, watch.Pool{Domain: hsmDomain, Slots: d.Slots, Utilisation: d.Slow, GateTrips: d.Trips})
		}
	}
	return list
}
