package wire

import (
	"context"
	"log/slog"
	"sync"
	"time"
	"uuid"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-kms/sluice/kms"
	"github.com/sluice-kms/sluice/quota"
)

// The pace of what is done about cost breakers beside requests.
const (
	// liftInterval is how often the store is asked whether stops were lifted by
	// way of other API nodes, for the tenants that have an incident.
	liftInterval = 5 * time.Second
	// costStoreTimeout bounds a call of the store.
	costStoreTimeout = 5 * time.Second
	// maxIncidents bounds the incidents that wait to be stored while the store
	// is away.
	maxIncidents = 256
)

// costEngine is the part of quota.Engine that looks after cost breakers.
type costEngine interface {
	WatchCosts() []quota.CostEvent
	OpenCosts() []quota.CostOpen
	LiftCost(tenant uuid.UUID, at time.Time) bool
	CostStages() [4]int
}

// costs looks at cost breakers, tells what happens and stores incidents.
type costs struct {
	engine costEngine
	store  kms.CostIncidents
	events kms.Events
	node   string
	log    *slog.Logger

	running context.Context // until Close
	stop    context.CancelFunc
	all     sync.WaitGroup

	waiting []*kms.CostIncident // to be stored; of the goroutine
}

func (a *App) startCosts() {
	c := &costs{engine: a.Quota, store: a.Store, events: a.Events, node: a.config.Node, log: a.log}
	c.running, c.stop = context.WithCancel(context.Background())
	c.all.Go(c.run)
	a.closes = append(a.closes, c.Close)
	a.Metrics.MustRegister(newCostGauges(a.Quota.CostStages))
}

func (c *costs) run() {
	look, lift := time.NewTicker(quota.CostInterval), time.NewTicker(liftInterval)
	defer look.Stop()
	defer lift.Stop()
	for {
		select {
		case <-c.running.Done():
			return
		case <-look.C:
			c.look()
		case <-lift.C:
			c.follow()
		}
	}
}

// Close ends the looking and stores what waits for it.
func (c *costs) Close() error {
	c.stop()
	c.all.Wait()
	c.save(context.WithoutCancel(c.running))
	return nil
}

// look takes the breakers on and tells what has happened.
func (c *costs) look() {
	for _, e := range c.engine.WatchCosts() {
		if e.Incident == nil {
			c.events.Publish(kms.CostChanged(e.Tenant, e.Began, &e.Change, e.Predicted, e.Exhausted))
			continue
		}
		e.Incident.ID, e.Incident.Node = uuid.NewV7(), c.node
		if len(c.waiting) == maxIncidents {
			c.log.Error("an incident of a cost breaker is lost: too many wait for the store", slog.String("tenant", e.Tenant.String()))
			continue
		}
		c.waiting = append(c.waiting, e.Incident)
	}
	c.save(c.running)
}

// save stores incidents, and tells of each when its report is there. What the
// store cannot take now waits for the next look.
func (c *costs) save(ctx context.Context) {
	for len(c.waiting) > 0 {
		i := c.waiting[0]
		ctx, cancel := context.WithTimeout(ctx, costStoreTimeout)
		err := c.store.AddCostIncident(ctx, i)
		cancel()
		if err != nil && kms.KindOf(err) == kms.KindStoreUnavailable {
			c.log.Warn("an incident of a cost breaker waits for the store", slog.Any("error", err))
			return
		}
		c.waiting = c.waiting[1:]
		if err != nil { // the tenant is gone, or it can never be stored
			c.log.Error("an incident of a cost breaker cannot be stored", slog.String("tenant", i.Tenant.String()), slog.Any("error", err))
			continue
		}
		c.events.Publish(i.Recovered())
	}
}

// follow lifts what was lifted by way of other API nodes.
func (c *costs) follow() {
	for _, open := range c.engine.OpenCosts() {
		ctx, cancel := context.WithTimeout(c.running, costStoreTimeout)
		at, err := c.store.CostLifted(ctx, open.Tenant)
		cancel()
		if err != nil {
			c.log.Warn("reading whether the stop of a cost breaker was lifted", slog.String("tenant", open.Tenant.String()), slog.Any("error", err))
			continue
		}
		if at.After(open.Began) {
			c.engine.LiftCost(open.Tenant, at)
		}
	}
}

// costGauges tell how many tenants are at which stage of their cost breaker.
type costGauges struct {
	stages  func() [4]int
	tenants *prometheus.Desc
}

func newCostGauges(stages func() [4]int) *costGauges {
	return &costGauges{stages, prometheus.NewDesc("sluice_cost_breaker_tenants",
		"Tenants of which the cost breaker, or that of a component, is at a stage: no_bulk, marked, stopped.", []string{"stage"}, nil)}
}

// Describe implements prometheus.Collector.
func (g *costGauges) Describe(ch chan<- *prometheus.Desc) { ch <- g.tenants }

// Collect implements prometheus.Collector.
func (g *costGauges) Collect(ch chan<- prometheus.Metric) {
	counts := g.stages()
	for stage := kms.CostNoBulk; stage <= kms.CostStopped; stage++ {
		ch <- prometheus.MustNewConstMetric(g.tenants, prometheus.GaugeValue, float64(counts[stage]), stage.String())
	}
}
