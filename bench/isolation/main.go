// Command isolation measures what a tenant feels of another one who asks for
// ten times its share: on a real server, with its journal, quota, scheduler and
// REST API, before tokens that saturate as hardware does.
//
//	go run ./bench/isolation -sluice bin/sluice
//
// The tokens are SoftHSM behind the fault module: a fixed number of engines,
// each held for an operation's service time, in which the caller sleeps. So
// the HSMs are the bottleneck and not the processor, and a small machine is
// enough. Load is open where latency is measured, at random times, and latency
// counts from the intended start. Each figure is a ratio within one run: the
// same victims alone and beside the abuser, in turns, the median of the rounds.
//
// The baseline is the thin wrapper (bench/thin), a pool of sessions that is
// first come, first served, with the same number of slots of the same speed.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	c := config{}
	flag.StringVar(&c.sluice, "sluice", "bin/sluice", "the program to measure")
	flag.StringVar(&c.out, "out", "", "folder for the report, its data and its charts; \"\": print the report only")
	flag.IntVar(&c.rounds, "rounds", 3, "rounds, of which the median counts")
	flag.IntVar(&c.engines, "engines", 16, "operations that each of the four tokens runs at once")
	flag.DurationVar(&c.small, "service", 90*time.Millisecond, "service time of a small operation")
	flag.DurationVar(&c.each, "each", 8*time.Second, "duration of one measurement")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, c, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// config says what to measure and for how long.
type config struct {
	sluice string
	out    string
	rounds int
	each   time.Duration

	// engines is how many operations each token runs at once. The default is
	// what a PKCS#11 token has of sessions worth using; in a pool of few slots
	// the victims' own bursts meet a pool that is 85 % full, whoever filled it
	// (bench/sim has the figures by size).
	engines int
	// small is the service time of a small operation. The default is long
	// against the milliseconds that a busy small machine adds, and makes few
	// requests for its processors. Waiting for slots is in proportion to it, so
	// that the ratios are those of faster HSMs too. Four times as long must be
	// well below the half second from which on the scheduler takes work for
	// stuck.
	small time.Duration
}

func (c *config) slots() int { return nodes * c.engines }

// largeFactor is how much longer a large operation is, loadFactor how much
// shorter the loading of a key.
const (
	largeFactor = 4
	loadFactor  = 4
)

func (c *config) times() times {
	return times{small: c.small, large: largeFactor * c.small, load: c.small / loadFactor}
}

// run measures all and reports it.
func run(ctx context.Context, c config, out *os.File) error {
	dir, err := os.MkdirTemp("", "sluice-isolation-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	report, err := measure(ctx, c, dir, func(what string) { fmt.Fprintln(os.Stderr, what) })
	if err != nil {
		return err
	}
	if err := report.check(); err != nil {
		return err
	}
	if _, err := out.Write(report.markdown()); err != nil {
		return err
	}
	if c.out == "" {
		return nil
	}
	return report.write(c.out)
}
