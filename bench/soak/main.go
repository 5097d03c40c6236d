package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/sluice-kms/sluice/bench/limits"
	"github.com/sluice-kms/sluice/bench/load"
	"github.com/sluice-kms/sluice/bench/servers"
	"github.com/sluice-kms/sluice/client"
	"github.com/sluice-kms/sluice/softhsm/fault"
)

const (
	nodes   = 2
	engines = 4 // operations that a token runs at once, and slots of its node
	// readings is how many readings a run takes at least, and maxInterval how
	// far they are apart at most.
	readings    = 60
	maxInterval = 10 * time.Second
	// maxTrouble is how long a token is in trouble, in a long run.
	maxTrouble = 15 * time.Second
	troubled   = 24 // parts of a run, with and without trouble, in a short one
)

// config says what to run.
type config struct {
	sluice string
	time   time.Duration
	rate   float64
}

func main() {
	var c config
	flag.StringVar(&c.sluice, "sluice", "bin/sluice", "the program to run")
	flag.DurationVar(&c.time, "time", 10*time.Minute, "how long, at least 20s")
	flag.Float64Var(&c.rate, "rate", 40, "requests/s of each tenant")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, c, os.Stdout); err != nil {
		log.Fatalf("the soak failed:\n%v", err)
	}
}

// soak is a run.
type soak struct {
	config
	out      io.Writer
	dir      string
	data     string
	server   *servers.Process
	modules  servers.HSMs
	operator *client.Client
	tenants  []*tenant
	watcher  *watcher

	mu     sync.Mutex                // guards the rest
	counts map[*tenant]map[int]int64 // answers by status
}

func run(ctx context.Context, c config, out io.Writer) (err error) {
	if c.time < 20*time.Second || c.rate <= 0 {
		return errors.New("a soak takes 20 s or longer, and a rate")
	}
	dir, err := os.MkdirTemp("", "sluice-soak-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	s := &soak{config: c, out: out, dir: dir, data: filepath.Join(dir, "data"), tenants: cast(), counts: make(map[*tenant]map[int]int64)}
	if err := s.open(ctx); err != nil {
		return err
	}
	from := time.Now().Add(-time.Hour) // before the first request of the tenants
	taken, wrong := s.play(ctx)
	if ctx.Err() != nil {
		return errors.Join(ctx.Err(), s.stop())
	}
	wrong = append(wrong, s.drift(ctx, taken)...)
	wrong = append(wrong, s.answers()...)
	wrong = append(wrong, s.ledger(ctx, from)...)
	if err := s.stop(); err != nil {
		wrong = append(wrong, fmt.Errorf("the server did not end well: %w", err))
	}
	if err := verifyJournal(ctx, c.sluice, filepath.Join(s.data, "journal")); err != nil {
		wrong = append(wrong, err)
	}
	if err := errors.Join(wrong...); err != nil {
		return err
	}
	fmt.Fprintln(out, "the journal verifies; nothing drifted")
	return nil
}

// open starts the server and makes the tenants.
func (s *soak) open(ctx context.Context) error {
	if err := servers.Prepare(ctx, s.sluice, s.data, nodes); err != nil {
		return err
	}
	library, err := fault.Build(s.dir)
	if err != nil {
		return err
	}
	// The server outlives ctx until it was asked to stop.
	s.server, s.modules, err = servers.StartServer(context.WithoutCancel(ctx), s.sluice, s.data, nodes, engines, library)
	if err != nil {
		return err
	}
	s.watcher = &watcher{pid: s.server.Cmd.Process.Pid, ops: s.server.Ops, begin: time.Now(), http: &http.Client{Timeout: 10 * time.Second}}
	if s.operator, err = limits.Operator(s.server.Address, s.data); err == nil {
		err = setLimits(ctx, s.operator)
	}
	for _, t := range s.tenants {
		if err == nil {
			err = enrol(ctx, s.server.Address, s.operator, t)
		}
	}
	if err != nil {
		return errors.Join(fmt.Errorf("making the tenants: %w", err), s.stop())
	}
	setTimes(s.modules)
	return nil
}

// stop ends the server and lets go of its modules.
func (s *soak) stop() error {
	if s.operator != nil {
		s.operator.Close()
	}
	s.watcher.http.CloseIdleConnections()
	err := s.server.Stop()
	s.modules.Close()
	return err
}

// play runs load, faults and readings side by side until the time is over.
func (s *soak) play(ctx context.Context) (taken []reading, wrong []error) {
	ctx, stop := context.WithTimeout(ctx, s.time+2*patience)
	defer stop()
	troubleCtx, calm := context.WithTimeout(ctx, s.time*9/10) // all are well at the end
	defer calm()
	var all sync.WaitGroup
	all.Go(func() {
		torment(troubleCtx, s.modules, min(maxTrouble, s.time/troubled), func(node int, what string) {
			fmt.Fprintf(s.out, "%6.0f s: node %d is %s\n", time.Since(s.watcher.begin).Seconds(), node, what)
		})
	})
	readCtx, read := context.WithCancel(ctx)
	var failed error
	all.Go(func() {
		for pause(readCtx, min(maxInterval, s.time/readings)) {
			r, err := s.watcher.read(ctx)
			if err != nil {
				failed = err
				return
			}
			taken = append(taken, r)
		}
	})
	var streams []load.Stream
	for i, t := range s.tenants {
		streams = append(streams, t.streams(s.server.Address, s.rate, uint64(1+100*i), s.count)...)
	}
	_, err := load.Play(ctx, streams, s.time)
	read()
	all.Wait()
	if err := errors.Join(err, failed); err != nil {
		wrong = append(wrong, err)
	}
	return taken, wrong
}

func (s *soak) count(t *tenant, sample load.Sample) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.counts[t] == nil {
		s.counts[t] = make(map[int]int64)
	}
	s.counts[t][sample.Status]++
}

// drift says what the gauges did, and what grew.
func (s *soak) drift(ctx context.Context, taken []reading) (wrong []error) {
	all, err := drifts(taken)
	if err != nil {
		return []error{err}
	}
	for _, d := range all {
		fmt.Fprintln(s.out, d.String())
		if !d.grew() {
			continue
		}
		wrong = append(wrong, fmt.Errorf("drift: %s", d.String()))
		if d.name == "goroutines" {
			stacks, err := s.watcher.goroutines(ctx)
			wrong = append(wrong, errors.Join(errors.New(stacks), err))
		}
	}
	return wrong
}

// answers says what the tenants were answered. A limited tenant may be refused
// for its quota; nobody may be answered anything else than 200.
func (s *soak) answers() (wrong []error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.tenants {
		fmt.Fprintf(s.out, "%s: answers by status %v\n", t.name, s.counts[t])
		if s.counts[t][http.StatusOK] == 0 {
			wrong = append(wrong, fmt.Errorf("%s was never served", t.name))
		}
		for status, n := range s.counts[t] {
			refused := t.limited && (status == http.StatusTooManyRequests || status == http.StatusPaymentRequired)
			if status != http.StatusOK && !refused {
				wrong = append(wrong, fmt.Errorf("%s: %d requests ended with status %d", t.name, n, status))
			}
		}
	}
	return wrong
}

// ledger compares usage with the journal, and with what was answered.
func (s *soak) ledger(ctx context.Context, from time.Time) (wrong []error) {
	for _, t := range s.tenants {
		n, err := ledgerIsJournal(ctx, s.operator, filepath.Join(s.data, "journal"), t, from)
		if err != nil {
			wrong = append(wrong, err)
			continue
		}
		answered := int64(0)
		for status, n := range s.counts[t] {
			if status > 0 {
				answered += n
			}
		}
		fmt.Fprintf(s.out, "%s: %d requests in the journal and in usage, %d answers to the load\n", t.name, n, answered)
		if n < answered {
			wrong = append(wrong, fmt.Errorf("%s: %d answers, and %d requests in the journal", t.name, answered, n))
		}
	}
	return wrong
}
