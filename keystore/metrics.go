package keystore

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// collector reports the caches. Hits are not counted: a counter would be a
// cache line that all tenants' look-ups write to.
type collector struct {
	caches  map[string]cacheStats
	damaged atomic.Uint64
	forged  atomic.Uint64
	follows *follower // nil when no other process writes
	known   *revisions

	entries, bytes, absences, loads, evictions, idle, rows, forgeries, age, failures *prometheus.Desc
	revisions, old, look                                                             *prometheus.Desc
}

// cacheStats is what a cache tells of itself.
type cacheStats struct {
	usage func() limits
	loads *loadCounts
}

func newCollector(s *Store) *collector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("sluice_keystore_"+name, help, labels, nil)
	}
	return &collector{
		follows: s.follower,
		known:   &s.known,
		caches: map[string]cacheStats{
			"tenant":      {s.tenants.usage, &s.tenants.loads},
			"tenant_name": {s.tenantNames.usage, &s.tenantNames.loads},
			"key":         {s.keys.usage, &s.keys.loads},
			"key_name":    {s.keyNames.usage, &s.keyNames.loads},
			"credential":  {s.credentials.usage, &s.credentials.loads},
			"secret":      {s.providerSecrets.usage, &s.providerSecrets.loads},
			"secret_path": {s.secretPaths.usage, &s.secretPaths.loads},
		},
		entries:   desc("cache_entries", "Objects in the cache.", "cache"),
		bytes:     desc("cache_bytes", "Approximate bytes of the objects in the cache.", "cache"),
		absences:  desc("cache_absences", "Remembered absences.", "cache"),
		loads:     desc("cache_loads_total", "Look-ups that the cache could not answer, by outcome.", "cache", "outcome"),
		evictions: desc("cache_evictions_total", "Objects that made room for others.", "cache"),
		idle:      desc("cache_idle_total", "Objects that were forgotten because nobody used them.", "cache"),
		rows:      desc("damaged_objects_total", "Times that a stored object was refused because a row is damaged."),
		forgeries: desc("forged_objects_total", "Times that a stored object was refused because a row was not written by this service."),
		revisions: desc("known_revisions", "Changed objects of which it is known how new their rows must be."),
		old:       desc("old_rows", "Objects whose rows were older than known, or missing, when they were last looked at."),
		look:      desc("row_look_seconds", "How long the last look at the rows of changed objects took."),
		age:       desc("state_age_seconds", "Time since the database was last asked for changes of other processes."),
		failures:  desc("change_failures_total", "Times that the database could not be asked, or not be listened to, for changes."),
	}
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(out chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, out) }

// Collect implements prometheus.Collector.
func (c *collector) Collect(out chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v int, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v), labels...)
	}
	counter := func(d *prometheus.Desc, v *atomic.Uint64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v.Load()), labels...)
	}
	for name, cache := range c.caches {
		usage := cache.usage()
		gauge(c.entries, usage.entries, name)
		gauge(c.bytes, usage.bytes, name)
		gauge(c.absences, usage.absences, name)
		counter(c.loads, &cache.loads.found, name, "found")
		counter(c.loads, &cache.loads.missing, name, "missing")
		counter(c.loads, &cache.loads.damaged, name, "damaged")
		counter(c.loads, &cache.loads.failed, name, "failed")
		counter(c.evictions, &cache.loads.evicted, name)
		counter(c.idle, &cache.loads.idle, name)
	}
	counter(c.rows, &c.damaged)
	counter(c.forgeries, &c.forged)
	rows, old, took := c.known.stats()
	gauge(c.revisions, rows)
	gauge(c.old, old)
	out <- prometheus.MustNewConstMetric(c.look, prometheus.GaugeValue, took.Seconds())
	if c.follows != nil {
		out <- prometheus.MustNewConstMetric(c.age, prometheus.GaugeValue, c.follows.age().Seconds())
		counter(c.failures, &c.follows.failures)
	}
}
