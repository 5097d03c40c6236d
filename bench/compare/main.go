// Command compare plays one scenario on Sluice, on the thin wrapper and, when it
// is told where one is, on a server with the API of Vault's Transit engine, one
// after the other on this machine, and writes what each made of it and the
// comparison.
//
//	go run ./bench/compare -sluice bin/sluice -url http://127.0.0.1:8200 -token-file token
//
// Sluice runs as `sluice dev` on one SoftHSM token, with the demo tenant's limits
// lifted; the thin wrapper on a copy of that token. The Transit server is whatever
// you run: what it stores where, and whether it has an HSM behind it, the report
// cannot know.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/sluice-kms/sluice/bench/limits"
	"github.com/sluice-kms/sluice/bench/scenarios"
	"github.com/sluice-kms/sluice/bench/servers"
	"github.com/sluice-kms/sluice/bench/target"
	"github.com/sluice-kms/sluice/bench/trial"
	"github.com/sluice-kms/sluice/client"
)

// config says what to compare.
type config struct {
	sluice, scenario, out string
	transit               target.Options
	tokenFile             string
}

func main() {
	c := config{transit: target.Options{Kind: target.Transit}}
	flag.StringVar(&c.sluice, "sluice", "bin/sluice", "the program to measure")
	flag.StringVar(&c.scenario, "scenario", "encrypt", "the load: a name, or a file (*.yaml)")
	flag.StringVar(&c.out, "out", "", "folder for results, reports and charts; \"\": print the comparison only")
	flag.StringVar(&c.transit.URL, "url", "", "of a Transit server; \"\": none")
	flag.StringVar(&c.tokenFile, "token-file", "", "file with its token")
	flag.StringVar(&c.transit.Mount, "mount", "transit", "path of the engine")
	flag.StringVar(&c.transit.CAFile, "ca-file", "", "file with the certificates to trust, PEM; \"\": those of the system")
	flag.BoolVar(&c.transit.AllowRemote, "allow-remote", false, "the Transit server may be on another machine")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, c); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, c config) error {
	scenario, err := scenarios.Find(c.scenario)
	if err != nil {
		return err
	}
	if c.transit.URL != "" {
		token, err := os.ReadFile(c.tokenFile)
		if err != nil {
			return fmt.Errorf("reading the token: %w", err)
		}
		c.transit.Token = client.NewToken(strings.TrimSpace(string(token)))
	}
	dir, err := os.MkdirTemp("", "sluice-compare-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	var results []*trial.Result
	for _, measure := range []func(context.Context, config, string, *scenarios.Scenario) (*trial.Result, error){onSluice, onThin, onTransit} {
		r, err := measure(ctx, c, dir, scenario)
		if err != nil {
			return err
		}
		if r == nil {
			continue
		}
		r.Command = strings.Join(append([]string{"go", "run", "./bench/compare"}, os.Args[1:]...), " ")
		results = append(results, r)
		if c.out != "" {
			if _, err := r.Write(c.out); err != nil {
				return err
			}
		}
	}
	report, err := trial.Compare(results)
	if err != nil {
		return err
	}
	if _, err := os.Stdout.Write(report); err != nil || c.out == "" {
		return err
	}
	files, err := trial.WriteComparison(c.out, results)
	fmt.Fprintln(os.Stderr, strings.Join(files, "\n"))
	return err
}

func onSluice(ctx context.Context, c config, dir string, s *scenarios.Scenario) (*trial.Result, error) {
	data := filepath.Join(dir, "data")
	p, err := servers.StartDev(ctx, c.sluice, data, 1)
	if err != nil {
		return nil, err
	}
	defer p.Stop()
	token, err := os.ReadFile(filepath.Join(data, "demo.credential"))
	if err != nil {
		return nil, err
	}
	if err := limits.Lift(ctx, p.Address, data); err != nil {
		return nil, fmt.Errorf("lifting the limits: %w", err)
	}
	return on(ctx, s, target.Options{Kind: target.Sluice, URL: "http://" + p.Address, Token: client.NewToken(strings.TrimSpace(string(token)))})
}

func onThin(ctx context.Context, _ config, dir string, s *scenarios.Scenario) (*trial.Result, error) {
	thin, err := servers.Build(ctx, dir, "thin")
	if err != nil {
		return nil, err
	}
	own, err := servers.Copy(ctx, dir, "thin-data", filepath.Join(dir, "data"))
	if err != nil {
		return nil, err
	}
	p, err := servers.StartThin(ctx, thin, own)
	if err != nil {
		return nil, err
	}
	defer p.Stop()
	return on(ctx, s, target.Options{Kind: target.Thin, URL: "http://" + p.Address})
}

// onTransit is of nothing when no server was named.
func onTransit(ctx context.Context, c config, _ string, s *scenarios.Scenario) (*trial.Result, error) {
	if c.transit.URL == "" {
		return nil, nil
	}
	return on(ctx, s, c.transit)
}

func on(ctx context.Context, s *scenarios.Scenario, o target.Options) (*trial.Result, error) {
	t, err := target.Open(ctx, o)
	if err != nil {
		return nil, err
	}
	fmt.Fprintln(os.Stderr, t)
	return trial.Run(ctx, s, t, func(p trial.Progress) {
		if p.Done == p.Total {
			fmt.Fprintf(os.Stderr, "  step %d of %d: %d sent, %d served\n", p.Step, p.Steps, p.Sent, p.OK)
		}
	})
}
