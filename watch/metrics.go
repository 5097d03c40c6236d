package watch

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// collector reports what is watched when it is scraped. The label tenant has
// as many values as are configured at most, the label event those of
// AlarmTypes.
type collector struct {
	tenants *Tenants
	alarms  *Alarms
	top     int
	clock   func() time.Time

	slots, requests, refusedRatio, p99                  *prometheus.Desc
	watched, refused, spread, retrying, retryRatio, hot *prometheus.Desc
	failing, denied, lag, open                          *prometheus.Desc
}

// NewCollector makes a collector of what tenants and alarms tell. top is how
// many tenants have series of their own.
func NewCollector(tenants *Tenants, alarms *Alarms, top int, clock func() time.Time) prometheus.Collector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("sluice_"+name, help, labels, nil)
	}
	return &collector{tenants: tenants, alarms: alarms, top: top, clock: clock,
		slots:        desc("tenant_slots", "Slots that a tenant held on average in the last one to two minutes; of those with the most.", "tenant"),
		requests:     desc("tenant_requests_per_second", "Requests a second of these tenants in that time.", "tenant"),
		refusedRatio: desc("tenant_refused_ratio", "Part of their requests that was refused by quota or for want of slots, 0 to 1.", "tenant"),
		p99:          desc("tenant_p99_seconds", "P99 of their requests that ran, to a fifth; no series with fewer than 100 requests.", "tenant"),

		watched:    desc("tenants_watched", "Tenants with requests in the last one to two minutes that are watched, 512 at most."),
		refused:    desc("tenants_refused", "Watched tenants of whose requests, at least 100, a hundredth or more was refused."),
		spread:     desc("tenants_p99_spread", "The largest P99 of a watched tenant over the median of all; 1: nothing to compare."),
		retrying:   desc("tenants_retrying", "Tenants of whose requests, at least 100 in the last one to two minutes, more than a tenth came before their Retry-After was over."),
		retryRatio: desc("retry_ratio", "Part of the requests of all tenants that came before their Retry-After was over, 0 to 1."),
		hot:        desc("keys_hot", "Keys whose hot-spot breaker is open."),
		failing:    desc("keys_failing", "Keys with more than 20 failures to decrypt in the last minute."),
		denied:     desc("credentials_denied", "Credentials that were denied something more than 20 times in the last minute."),
		lag:        desc("audit_lag_seconds", "For how long entries have waited for the journal's disk; 0 while none wait."),
		open:       desc("alarms", "Alarms that were told and are not over, by type of event.", "event"),
	}
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.slots, c.requests, c.refusedRatio, c.p99, c.watched, c.refused, c.spread,
		c.retrying, c.retryRatio, c.hot, c.failing, c.denied, c.lag, c.open} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	now := c.clock()
	seen := c.tenants.Seen(now, c.top)
	for _, u := range seen.Top {
		id := u.Tenant.String()
		gauge(c.slots, u.Slots, id)
		gauge(c.requests, u.PerSec, id)
		gauge(c.refusedRatio, ratio(u.Refused, u.Calls), id)
		if u.P99 > 0 {
			gauge(c.p99, u.P99.Seconds(), id)
		}
	}
	gauge(c.watched, float64(seen.Watched))
	gauge(c.refused, float64(len(seen.Refused)))
	gauge(c.spread, seen.Spread)
	retrying, all := c.alarms.from.Retrying(retryCalls, retryLine)
	gauge(c.retrying, float64(len(retrying)))
	gauge(c.retryRatio, ratio(all.Early, all.Calls))
	gauge(c.hot, float64(len(c.alarms.from.HotKeys())))
	gauge(c.failing, float64(len(c.alarms.from.Failing.Keys.More(now, decryptLine))))
	gauge(c.denied, float64(len(c.alarms.from.Failing.Credentials.More(now, deniedLine))))
	gauge(c.lag, c.alarms.from.Lag().Seconds())
	for event, n := range c.alarms.Open() {
		gauge(c.open, float64(n), string(event))
	}
}

// ratio is a part of all, 0 of none.
func ratio(part, all int) float64 {
	if all == 0 {
		return 0
	}
	return float64(part) / float64(all)
}
