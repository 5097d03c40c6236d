package wire

import (
	"encoding/json/v2"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/kms"
	"github.com/sluice-kms/sluice/quota"
)

// capacityFile is the newest measurement's name in the data folder: a restart
// does not make the service forget what its HSMs can do.
const capacityFile = "capacity.json"

// capacity joins the measurement and the policies to the port of the service.
type capacity struct {
	policies   *quota.Policies
	throughput *quota.Throughput
	file       string
	log        *slog.Logger
}

var _ kms.CapacityPlanner = (*capacity)(nil)

// openCapacity begins with the measurement of the last run. Without one that
// can be read it begins anew.
func openCapacity(dir string, policies *quota.Policies, log *slog.Logger) *capacity {
	c := &capacity{policies: policies, file: filepath.Join(dir, capacityFile), log: log}
	earlier, err := readMeasurement(c.file)
	if err != nil {
		log.Warn("capacity: the last measurement cannot be read", slog.Any("error", err))
	}
	c.throughput = quota.NewThroughput(earlier)
	return c
}

// readMeasurement returns nil when there is no file.
func readMeasurement(file string) (*quota.Measurement, error) {
	content, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return quota.ParseMeasurement(content)
}

// save keeps the newest measurement for the next run.
func (c *capacity) save() error {
	m := c.throughput.Measured(time.Now())
	if m == nil {
		return nil
	}
	content, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return writeFile(c.file, content)
}

// saveOrSay is save where nobody waits for the outcome: the file is a
// convenience.
func (c *capacity) saveOrSay() {
	if err := c.save(); err != nil {
		c.log.Error("capacity: saving the measurement", slog.Any("error", err))
	}
}

// Baselines implements kms.CapacityPlanner.
func (c *capacity) Baselines(document []byte) (*kms.Baselines, error) {
	if document == nil {
		return c.policies.Current().Policy().Baselines(), nil
	}
	p, err := quota.ParsePolicy(document)
	if err != nil {
		return nil, err
	}
	return p.Baselines(), nil
}

// Plan implements kms.CapacityPlanner.
func (c *capacity) Plan(b *kms.Baselines, slots int, sold kms.Sold) *kms.Capacity {
	return quota.PlanCapacity(c.throughput.Measured(time.Now()), b, slots, sold)
}

// measuring is an observer that also measures what the HSMs complete, and
// watches tenants and keys.
type measuring struct {
	kms.Observer
	throughput *quota.Throughput
	watched    *watched
}

// Request implements kms.Observer. What failed was not completed; the engine in
// the process is no HSM, and the slots set apart for slow work, whose names
// have a slash, are not those that tenants share.
func (m measuring) Request(t *kms.Ticket, err error) {
	m.Observer.Request(t, err)
	m.watched.note(t, err)
	if err != nil || t.SlotTime == 0 || t.Node == hsm.EngineID || strings.IndexByte(string(t.Node), '/') >= 0 {
		return
	}
	spec := kms.Spec("")
	if t.Key != nil {
		spec = t.Key.Spec
	}
	m.throughput.Note(t.Op, spec, t.Settled.Charged, t.SlotTime, t.Received.Add(t.Elapsed))
}

// JobSubmitted implements kms.Observer.
func (m measuring) JobSubmitted(t *kms.Ticket, mix kms.JobMix) { m.watched.job(t, mix) }

// capacityGauges report what the service last saw of its capacity.
type capacityGauges struct {
	seen                                               func() *kms.Capacity
	perSecond, sellable, committed, oversold, measured *prometheus.Desc
}

func newCapacityGauges(seen func() *kms.Capacity) *capacityGauges {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("sluice_capacity_"+name, help, nil, nil)
	}
	return &capacityGauges{seen: seen,
		perSecond: desc("credits_per_second", "What the HSMs can do."),
		sellable:  desc("sellable_credits_per_second", "What may be promised to tenants of it."),
		committed: desc("committed_credits_per_second", "What is promised to tenants."),
		oversold:  desc("oversold", "1 while more is promised to tenants than the HSMs can do with safety."),
		measured:  desc("measured", "1 when the capacity was measured, 0 while it is what the policy says."),
	}
}

// Describe implements prometheus.Collector.
func (g *capacityGauges) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{g.perSecond, g.sellable, g.committed, g.oversold, g.measured} {
		ch <- d
	}
}

// Collect implements prometheus.Collector. Before the first look there is
// nothing to report.
func (g *capacityGauges) Collect(ch chan<- prometheus.Metric) {
	c := g.seen()
	if c == nil {
		return
	}
	gauge := func(d *prometheus.Desc, v float64) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v)
	}
	flag := map[bool]float64{true: 1}
	gauge(g.perSecond, float64(c.PerSecond))
	gauge(g.sellable, float64(c.Sellable))
	gauge(g.committed, float64(c.Committed))
	gauge(g.oversold, flag[c.Oversold()])
	gauge(g.measured, flag[c.Source == kms.CapacityMeasured])
}
