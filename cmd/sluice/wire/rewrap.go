package wire

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/hsm/p11"
	"github.com/sluice-kms/sluice/kms"
)

// rootsNode ends the name of what writes the journal of work on roots beside a
// running service, and of that journal's folder.
const rootsNode = "-roots"

// rootsWork is the service's state, opened for work on a domain's roots: with a
// backup token in place of the domain's members, and without what a service
// does by itself.
type rootsWork struct {
	app      *App
	ceremony *Ceremony
	domain   *hsm.Domain
	device   *hsm.Device // nil when it was closed
}

// openRoots opens the database and the journal that a configuration names, and
// the first backup token of the ceremony file that can be opened.
//
// A service on PostgreSQL may run: it hears of every changed row, and this
// writes a journal of its own. One on SQLite may not, since it would not hear;
// that it does not is what taking its journal makes sure of.
func openRoots(ctx context.Context, config *Config, ceremonyFile string, log *slog.Logger) (w *rootsWork, err error) {
	c, domain, err := readCeremonyOf(ceremonyFile)
	if err != nil {
		return nil, err
	}
	if err := config.describes(domain); err != nil {
		return nil, err
	}
	own := *config
	if own.Database.Driver == "postgres" {
		own.Node += rootsNode
		own.Journal.Dir += rootsNode
	}
	w = &rootsWork{app: &App{config: &own, log: log, Metrics: prometheus.NewRegistry()}, ceremony: c, domain: domain}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.Close())
			w = nil
		}
	}()
	if err := w.app.openJournal(ctx); err != nil {
		return w, fmt.Errorf("opening the journal (a service on SQLite has to be stopped for this): %w", err)
	}
	if err := w.app.openStore(ctx); err != nil {
		return w, fmt.Errorf("opening the database: %w", err)
	}
	if _, err := w.app.Store.TenantByRef(ctx, kms.SystemTenantName); err != nil {
		return w, fmt.Errorf("the database has never been a service's: %w", err)
	}
	if err := w.openBackup(ctx); err != nil {
		return w, fmt.Errorf("opening the HSMs: %w", err)
	}
	return w, w.app.openService(ctx)
}

// describes tells whether the configuration has the domain with its present
// roots: a service that starts with an older description would refuse what is
// rewrapped.
func (c *Config) describes(domain *hsm.Domain) error {
	for _, dc := range c.HSM.Domains {
		have, err := ReadDomain(dc.File)
		switch {
		case err != nil:
			return err
		case have.ID != domain.ID:
		case have.Generation != domain.Generation:
			return fmt.Errorf("the configuration's %s is of generation %d of the roots, the ceremony's of %d: copy the newer one", dc.File, have.Generation, domain.Generation)
		default:
			return nil
		}
	}
	return errors.New("the configuration has no such domain")
}

// openBackup opens the pool: the backup token, and the tokens of other domains,
// as the service's own secrets may depend on one of those.
func (w *rootsWork) openBackup(ctx context.Context) error {
	c := hsm.Config{EngineSlots: runtime.NumCPU(), AllowUnenforced: w.app.config.HSM.AllowUnenforced, Log: w.app.log, Clock: time.Now}
	var failed error
	for i, t := range w.ceremony.tokens(w.ceremony.Backups) {
		backup, err := p11.OpenBackup(ctx, t, *w.domain)
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("backup token %s: %w", w.ceremony.Backups[i].ID, err))
			continue
		}
		c.Nodes = append(c.Nodes, hsm.NodeConfig{ID: kms.NodeID(w.ceremony.Backups[i].ID), Domain: w.domain, Token: backup, Slots: 1})
		break
	}
	if len(c.Nodes) == 0 {
		return errors.Join(errors.New("no backup token can be opened"), failed)
	}
	others, err := w.others()
	if err == nil && len(others.Domains) > 0 {
		var nodes []hsm.NodeConfig
		if nodes, err = openTokens(ctx, others, w.app.log); err != nil {
			w.app.log.Warn("other domains are not open", slog.Any("error", err))
			err = nil
		}
		c.Nodes = append(c.Nodes, nodes...)
	}
	if err == nil {
		c.Engine, err = openEngine(w.app.log)
	}
	if err != nil {
		for _, n := range c.Nodes {
			if n.Token != nil {
				err = errors.Join(err, n.Token.Close())
			}
		}
		return err
	}
	w.device, err = hsm.Open(c)
	w.app.Device = w.device
	return err
}

// others is the configuration of the HSMs without the domain.
func (w *rootsWork) others() (HSMConfig, error) {
	c := w.app.config.HSM
	c.Domains = nil
	for _, dc := range w.app.config.HSM.Domains {
		d, err := ReadDomain(dc.File)
		if err != nil {
			return c, err
		}
		if d.ID != w.domain.ID {
			c.Domains = append(c.Domains, dc)
		}
	}
	return c, nil
}

func (w *rootsWork) closeDevice() error {
	if w.device == nil {
		return nil
	}
	d := w.device
	w.device = nil
	return d.Close()
}

// Close closes everything.
func (w *rootsWork) Close() error { return errors.Join(w.closeDevice(), w.app.Close()) }

// RewrapConfig says what Rewrap works on.
type RewrapConfig struct {
	Config   *Config
	Ceremony string // file
	Batch    int    // keys that are read at once; 0: the default
	Log      *slog.Logger
	Progress func(kms.RewrapProgress) // nil for nobody
}

// Rewrap moves everything that is stored under earlier roots of a domain to the
// newest, on a backup token. Interrupted, it can be repeated.
func Rewrap(ctx context.Context, c RewrapConfig) (done kms.RewrapProgress, err error) {
	if c.Batch == 0 {
		c.Batch = kms.DefaultRewrapBatch
	}
	if c.Batch < 1 || c.Batch > kms.MaxPageSize {
		return done, fmt.Errorf("the batch must be 1 to %d keys", kms.MaxPageSize)
	}
	w, err := openRoots(ctx, c.Config, c.Ceremony, c.Log)
	if err != nil {
		return done, err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	return w.app.Service.Rewrap(ctx, kms.Rewrap{
		Domain: w.domain.ID, Device: w.device, Store: w.app.Store, Batch: c.Batch, Progress: c.Progress,
	})
}

// RetireRoots destroys an earlier generation of a domain's roots on all tokens
// that a ceremony file names and then writes the description without it, unless
// something is stored under it.
func RetireRoots(ctx context.Context, config *Config, ceremonyFile string, generation uint32, log *slog.Logger, progress func(string)) (err error) {
	w, err := openRoots(ctx, config, ceremonyFile, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	if generation < 1 || generation >= w.domain.Generation {
		return fmt.Errorf("generation %d is not an earlier one: the roots in use are of generation %d", generation, w.domain.Generation)
	}
	return w.app.Service.RetireRoots(ctx, w.domain.ID, generation, w.device, func() error {
		// A token cannot be open twice.
		if err := w.closeDevice(); err != nil {
			return err
		}
		retired, err := p11.Retire(ctx, w.ceremony.config(w.domain, nil, progress), generation)
		if err != nil {
			return err
		}
		return WriteDomain(w.ceremony.File, retired)
	})
}
