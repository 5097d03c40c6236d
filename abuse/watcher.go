package abuse

import (
	"context"
	"log/slog"
	"sync"
	"time"
	"uuid"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-kms/sluice/kms"
)

// The pace of a Watcher. What it does at a time is bounded; the rest follows with
// the next.
const (
	// lookInterval is how often credentials are judged: a tenth of the minute
	// within which a theft is to be told.
	lookInterval = 5 * time.Second
	// readLimit is how many stored baselines are read before a look.
	readLimit = 500
	// storeInterval is how often baselines are stored; a crash loses that much of
	// a week.
	storeInterval = 5 * time.Minute
	// storeLimit is how many are stored at an interval, storeBatch how many
	// of them in one transaction.
	storeLimit = 5000
	storeBatch = 250

	readTimeout  = 4 * time.Second
	storeTimeout = 20 * time.Second
)

// WatcherConfig is what a Watcher needs; every field is required.
type WatcherConfig struct {
	Detector  *Detector
	Baselines kms.CredentialBaselines
	// Flag acts on a flag.
	Flag       func(ctx context.Context, tenant, credential uuid.UUID, readings []kms.AbuseReading, learnt bool) error
	Log        *slog.Logger
	Clock      func() time.Time
	Registerer prometheus.Registerer
}

// Watcher looks at a Detector, acts on its flags, and reads and stores its
// baselines, until Close.
type Watcher struct {
	c      WatcherConfig
	stop   chan struct{}
	all    sync.WaitGroup
	stored time.Time // when baselines were stored last; the loop's

	flags, signals *prometheus.CounterVec
	failures       prometheus.Counter
}

// Start starts a Watcher.
func Start(c WatcherConfig) *Watcher {
	w := newWatcher(c)
	w.all.Go(w.run)
	return w
}

func newWatcher(c WatcherConfig) *Watcher {
	w := &Watcher{c: c, stop: make(chan struct{}), stored: c.Clock(),
		flags: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "sluice_abuse_flags_total",
			Help: "Credentials that were found suspicious, by whether it was known what is usual of them."}, []string{"learnt"}),
		signals: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "sluice_abuse_signals_total",
			Help: "Signals of those flags, by signal."}, []string{"signal"}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{Name: "sluice_abuse_failures_total",
			Help: "Times that baselines could not be read or stored, or a flag not acted on."}),
	}
	for _, learnt := range []string{"true", "false"} {
		w.flags.WithLabelValues(learnt)
	}
	for _, s := range kms.AbuseSignals() {
		w.signals.WithLabelValues(string(s))
	}
	watched := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "sluice_abuse_credentials",
		Help: "Credentials whose calls are watched, 100,000 at most."}, func() float64 { return float64(c.Detector.Len()) })
	c.Registerer.MustRegister(w.flags, w.signals, w.failures, watched)
	return w
}

func (w *Watcher) run() {
	tick := time.NewTicker(lookInterval)
	defer tick.Stop()
	for {
		select {
		case <-w.stop:
			w.store(int(^uint(0) >> 1))
			return
		case <-tick.C:
			w.look()
			if now := w.c.Clock(); now.Sub(w.stored) >= storeInterval {
				w.stored = now
				w.store(storeLimit)
			}
		}
	}
}

// Close stops looking, stores what has changed, and waits for that.
func (w *Watcher) Close() error {
	close(w.stop)
	w.all.Wait()
	return nil
}

// look reads what is stored of credentials that are new here, judges, and acts.
func (w *Watcher) look() {
	w.read()
	for _, f := range w.c.Detector.Look(w.c.Clock()) {
		w.act(&f)
	}
}

func (w *Watcher) read() {
	ctx, cancel := context.WithTimeout(context.Background(), readTimeout)
	defer cancel()
	for _, c := range w.c.Detector.Unknown(readLimit) {
		document, err := w.c.Baselines.Baseline(ctx, c.Tenant, c.Credential)
		if err != nil {
			w.failed("reading a baseline", err) // it is read with the next look
			return
		}
		if err := w.c.Detector.Merge(c.Credential, document); err != nil {
			w.failed("reading a baseline", err, slog.String("credential", c.Credential.String()))
		}
	}
}

func (w *Watcher) act(f *Flag) {
	learnt := "false"
	if f.Learnt {
		learnt = "true"
	}
	w.flags.WithLabelValues(learnt).Inc()
	for _, r := range f.Signals {
		w.signals.WithLabelValues(string(r.Signal)).Inc()
	}
	ctx, cancel := context.WithTimeout(context.Background(), readTimeout)
	defer cancel()
	err := w.c.Flag(ctx, f.Tenant, f.Credential, f.Signals, f.Learnt)
	if err == nil {
		return
	}
	w.c.Detector.Forgive(f.Credential)
	if k := kms.KindOf(err); k != kms.KindConflict && k != kms.KindNotFound { // another API node's flag, or gone
		w.failed("acting on a flag", err, slog.String("credential", f.Credential.String()))
	}
}

// store stores up to limit of the baselines that have changed.
func (w *Watcher) store(limit int) {
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	for limit > 0 && ctx.Err() == nil {
		list := w.c.Detector.Changed(min(limit, storeBatch))
		if len(list) == 0 {
			return
		}
		limit -= len(list)
		stored := make([]kms.StoredBaseline, len(list))
		for i, s := range list {
			stored[i] = kms.StoredBaseline{Tenant: s.Tenant, Credential: s.Credential.Credential, Document: s.Document}
		}
		if err := w.c.Baselines.PutBaselines(ctx, stored); err != nil {
			for _, s := range list {
				w.c.Detector.Unstored(s.Credential.Credential)
			}
			w.failed("storing baselines", err)
			return
		}
	}
}

func (w *Watcher) failed(what string, err error, attrs ...any) {
	w.failures.Inc()
	w.c.Log.Error("abuse: "+what, append(attrs, slog.Any("error", err))...)
}
