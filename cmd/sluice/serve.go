package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-kms/sluice/api"
	"github.com/sluice-kms/sluice/cmd/sluice/wire"
)

// shutdownTimeout is how long requests that run may take to end once a signal
// came. The longest operation, RSA-4096 generation, is done in that time
// nearly always; what is not is abandoned and its outcome is in the journal.
const shutdownTimeout = 20 * time.Second

// newLog makes the service's log: JSON lines on standard error, with nothing in
// them that could hold a secret.
func newLog(level slog.Level) *slog.Logger {
	return slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: level, ReplaceAttr: wire.Redact}))
}

// serve runs the listeners until a signal comes or a part fails, then lets
// requests end and closes the service. ready is called when both listen.
func serve(ctx context.Context, app *wire.App, c *wire.Config, log *slog.Logger, ready func(listen, ops net.Addr)) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	// A second signal ends the process at once, and a module that never
	// returns from a call does not keep it for ever.
	context.AfterFunc(ctx, func() {
		stop()
		time.AfterFunc(2*shutdownTimeout, func() {
			log.Error("shutting down takes too long; what still runs is given up")
			os.Exit(1)
		})
	})
	err := listenAndServe(ctx, app, c, log, ready)
	if cerr := app.Close(); cerr != nil {
		err = errors.Join(err, fmt.Errorf("closing the service: %w", cerr))
	}
	return err
}

func listenAndServe(ctx context.Context, app *wire.App, c *wire.Config, log *slog.Logger, ready func(listen, ops net.Addr)) error {
	handler, err := app.API(version())
	if err != nil {
		return err
	}
	apiListener, err := listen(c.Listen, c.TLS, app.Metrics)
	if err != nil {
		return fmt.Errorf("listening for the API: %w", err)
	}
	defer apiListener.Close()
	opsListener, err := net.Listen("tcp", c.OpsListen)
	if err != nil {
		return fmt.Errorf("listening for operations: %w", err)
	}
	defer opsListener.Close()

	apiServer := api.NewHTTPServer(handler.Handler(), log)
	apiServer.RegisterOnShutdown(app.Service.EndWatches) // they end with nothing else
	opsServer := api.NewHTTPServer(app.Ops(), log)
	opsServer.WriteTimeout = 0 // a CPU profile takes as long as it is asked to
	api.LimitConnections(apiServer, connectionLimit(c.MaxConnections))
	api.LimitConnections(opsServer, opsConnections)
	failed := make(chan error, 3)
	go func() { failed <- apiServer.Serve(apiListener) }()
	go func() { failed <- opsServer.Serve(opsListener) }()
	go func() {
		if err := app.Failed(ctx); err != nil {
			failed <- err
		}
	}()
	ready(apiListener.Addr(), opsListener.Addr())

	select {
	case <-ctx.Done():
		log.Info("shutting down")
	case err = <-failed:
		err = fmt.Errorf("serving: %w", err)
	}
	end, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
	defer cancel()
	if serr := shutdown(end, apiServer, opsServer); serr != nil {
		err = errors.Join(err, serr)
	}
	return err
}

const (
	// opsConnections are enough for a monitor, a prober and some people.
	opsConnections = 256
	// ownFiles are the files that the service keeps for itself, operations'
	// connections among them: database, journal, modules, a backup.
	ownFiles = 512
)

// connectionLimit is how many connections the API may have: as many as are
// configured, but so many fewer than the process may have open files that the
// service itself never lacks one.
func connectionLimit(configured int) int {
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		return configured
	}
	return int(max(min(uint64(configured), files.Cur-min(files.Cur, ownFiles)), 1))
}

func shutdown(ctx context.Context, servers ...*http.Server) error {
	var errs []error
	for _, s := range servers {
		errs = append(errs, s.Shutdown(ctx))
	}
	return errors.Join(errs...)
}

func listen(address string, t wire.TLSConfig, registerer prometheus.Registerer) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	if err != nil || t.CertFile == "" {
		return l, err
	}
	cert, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
	if err != nil {
		l.Close()
		return nil, err
	}
	if err := registerer.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "sluice_certificate_not_after_seconds", Help: "When the API's certificate ends, in seconds since 1970.",
	}, func() float64 { return float64(cert.Leaf.NotAfter.Unix()) })); err != nil {
		l.Close()
		return nil, err
	}
	return tls.NewListener(l, &tls.Config{
		Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"},
	}), nil
}
