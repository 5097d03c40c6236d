package probe

import (
	"context"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-kms/sluice/client/outcome"
	"github.com/sluice-kms/sluice/kms"
	"github.com/sluice-kms/sluice/provider"
)

// The pace of probes.
const (
	jitter = 0.20 // of the interval
	// lookInterval is how often it is looked for what is due.
	lookInterval = time.Second
	// attemptTimeout bounds a probe; lease is longer, so that none is made twice.
	attemptTimeout = 10 * time.Second
	lease          = 30 * time.Second
	// batch is how many are probed at once.
	batch = 16
	// enough is how many endpoints that miss at once tell of this node rather
	// than of them.
	enough = 3
	// maxMisses is where counting ends.
	maxMisses = 1000
	maxAnswer = 4 << 10
	userAgent = "Sluice-Probes/1"
)

// Config is what a Prober needs; every field is required.
type Config struct {
	Probes kms.EndpointProbes
	Get    func(*http.Request) (*http.Response, error) // confined to public addresses
	// Interval is the time between probes of an endpoint, give or take a fifth.
	Interval   func() time.Duration
	Log        *slog.Logger
	Clock      func() time.Time
	Registerer prometheus.Registerer
}

// Prober probes endpoints until it is closed.
type Prober struct {
	c       Config
	probed  *prometheus.CounterVec
	running context.Context
	stop    context.CancelFunc
	ended   chan struct{}
}

// Start starts a Prober; its Close stops it and waits.
func Start(c Config) *Prober {
	p := &Prober{c: c, ended: make(chan struct{}), probed: prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "sluice", Name: "provider_probes_total", Help: "Probes of endpoints of providers, by whether they were answered."}, []string{"result"})}
	for _, result := range []string{"up", "missed"} {
		p.probed.WithLabelValues(result)
	}
	c.Registerer.MustRegister(p.probed)
	p.running, p.stop = context.WithCancel(context.Background())
	go p.loop()
	return p
}

// Close stops the Prober and waits for the probes that are being made, which it
// cuts short.
func (p *Prober) Close() error {
	p.stop()
	<-p.ended
	p.c.Registerer.Unregister(p.probed)
	return nil
}

func (p *Prober) loop() {
	defer close(p.ended)
	tick := time.NewTicker(lookInterval)
	defer tick.Stop()
	for {
		p.round()
		select {
		case <-p.running.Done():
			return
		case <-tick.C:
		}
	}
}

// round probes what is due.
func (p *Prober) round() {
	list, err := p.c.Probes.ClaimEndpoints(p.running, lease, batch)
	if err != nil {
		if p.running.Err() == nil {
			p.c.Log.Error("looking for endpoints to probe", slog.Any("error", err))
		}
		return
	}
	up := make([]bool, len(list))
	var all sync.WaitGroup
	for i := range list {
		all.Go(func() { up[i] = p.probe(list[i].URL) })
	}
	all.Wait()
	if p.running.Err() != nil {
		return // what was cut short says nothing
	}
	missed := 0
	for _, ok := range up {
		if !ok {
			missed++
		}
	}
	own := missed == len(list) && missed >= enough
	if own {
		p.c.Log.Warn("no endpoint of a provider is reached from here; nothing is counted", slog.Int("endpoints", missed))
	}
	for i := range list {
		p.end(&list[i], up[i], own)
	}
}

// end stores what a probe came to. own tells that the miss is this node's.
func (p *Prober) end(e *kms.Endpoint, up, own bool) {
	misses, result := 0, "up"
	if !up {
		misses, result = min(e.Misses+1, maxMisses), "missed"
		if own {
			misses = e.Misses
		}
	}
	p.probed.WithLabelValues(result).Inc()
	due := p.c.Clock().Add(time.Duration(float64(p.c.Interval()) * (1 + jitter*(2*rand.Float64()-1))))
	if err := p.c.Probes.EndProbe(p.running, e.URL, misses, due); err != nil && p.running.Err() == nil {
		p.c.Log.Error("storing what a probe came to", slog.Any("error", err))
	}
}

// probe asks an endpoint for its models, without a key.
func (p *Prober) probe(base string) bool {
	ctx, cancel := context.WithTimeout(p.running, attemptTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimRight(base, "/")+"/models", http.NoBody)
	if err != nil {
		return false
	}
	r.Header.Set("User-Agent", userAgent)
	answer, err := p.c.Get(r)
	if err != nil {
		return false
	}
	defer answer.Body.Close()
	io.CopyN(io.Discard, answer.Body, maxAnswer)
	return provider.Reached(outcome.Of("", answer.StatusCode, answer.Header, nil, p.c.Clock()))
}
