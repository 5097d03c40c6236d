package cli

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sluice-kms/sluice/bench/scenarios"
	"github.com/sluice-kms/sluice/bench/target"
	"github.com/sluice-kms/sluice/bench/trial"
	"github.com/sluice-kms/sluice/client"
)

// benchLineInterval is how often progress is a line of its own, where it cannot
// be drawn over the last one.
const benchLineInterval = 5 * time.Second

func (p *program) benchRun() *cobra.Command {
	var o target.Options
	var kind, tokenFile, out string
	c := &cobra.Command{
		Use:   "run SCENARIO",
		Short: "Play a load on a server and measure its latency",
		Long: `Play a load on a server and measure its latency. SCENARIO is the name of one that
comes with the program ("sluice bench list"), or a file (*.yaml).

The load is open where the scenario says so: requests come at their times however
long answers take, and latency counts from the intended start, so that a server
that stalls cannot hide what it kept from being sent.

--target says what the server is: sluice; thin, the wrapper around PKCS#11 that
Sluice is measured against; transit, any server with the API of HashiCorp Vault's
Transit engine, such as OpenBao, with its token in --token-file. The keys that the
load needs are made, named bench-…, and stay.

At Sluice the tenant's own quota applies: give the tenant what the load needs, or
see in the result what was refused.

Only a server on this machine is driven, unless --allow-remote says that the one
you name is yours to load. Ctrl-C ends it and shows what there is, marked as not
complete; the exit code is 1 then. --timeout bounds each call that makes a key.`,
		Example: `  sluice bench run mixed
  sluice bench run encrypt --out results
  sluice bench run encrypt --target transit --address http://127.0.0.1:8200 \
    --token-file token --out results
  sluice bench run mine.yaml --json`,
		Args:              argument("SCENARIO"),
		ValidArgsFunction: completeScenario,
	}
	f := c.Flags()
	f.StringVar(&kind, "target", string(target.Sluice), "what the server is: "+strings.Join(target.Kinds(), ", "))
	choices(c, "target", target.Kinds()...)
	f.StringVar(&tokenFile, "token-file", "", "`FILE` with the token of a transit server")
	f.StringVar(&o.Mount, "mount", "transit", "`PATH` where a transit server has the engine")
	f.StringVar(&o.CAFile, "ca-file", "", "`FILE` with the certificates to trust, PEM (default: those of the system)")
	f.BoolVar(&o.AllowRemote, "allow-remote", false, "the server may be on another machine")
	f.StringVar(&out, "out", "", "write result, report and charts into this `FOLDER`")
	noCompletion(c, "mount")
	folders(c, "out")
	return p.verb(c, func(s *session) error {
		scenario, err := scenarios.Find(s.args[0])
		if err != nil {
			return usage(s.cmd, "%v", err)
		}
		if s.timeout <= 0 {
			return usage(s.cmd, "--timeout must be more than 0")
		}
		o.Kind, o.SetupTimeout = target.Kind(kind), s.timeout
		if err := s.benchTarget(&o, tokenFile); err != nil {
			return err
		}
		return s.bench(scenario, o, out)
	})
}

// benchTarget completes the options with where the server is and as whom it is
// called. A credential of Sluice is never sent to a server of another kind.
func (s *session) benchTarget(o *target.Options, tokenFile string) (err error) {
	o.URL = s.address
	if o.Kind != target.Sluice && !s.cmd.Flags().Changed("address") {
		return usage(s.cmd, "--target %s takes --address", o.Kind)
	}
	if (o.Kind == target.Transit) != (tokenFile != "") {
		return usage(s.cmd, "--token-file is for --target transit, which takes it")
	}
	switch o.Kind {
	case target.Sluice:
		if env := os.Getenv(envAddress); env != "" && !s.cmd.Flags().Changed("address") {
			o.URL = env
		}
		o.Token, err = s.credential()
	case target.Transit:
		o.Token, err = s.benchToken(tokenFile)
	}
	return err
}

// benchToken reads a token of another server: one word.
func (s *session) benchToken(file string) (client.Token, error) {
	f, err := os.Open(file)
	if err != nil {
		return client.Token{}, fmt.Errorf("opening the token file: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxCredentialFile))
	if err != nil {
		return client.Token{}, fmt.Errorf("reading the token file: %w", err)
	}
	token := strings.TrimSpace(string(text))
	// It becomes a header line.
	if token == "" || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return client.Token{}, usage(s.cmd, "the token file does not hold a token")
	}
	return client.NewToken(token), nil
}

// bench runs the trial and shows what came of it, also of one that was ended.
func (s *session) bench(scenario *scenarios.Scenario, o target.Options, out string) error {
	ctx, stop := s.untilInterrupted()
	defer stop()
	at, err := target.Open(ctx, o)
	if err != nil {
		return usage(s.cmd, "%v", err)
	}
	r, err := trial.Run(ctx, scenario, at, s.benchProgress())
	if r == nil {
		return err
	}
	if ctx.Err() != nil {
		err = fmt.Errorf("ended early: the result is not complete")
	}
	if len(r.Steps) == 0 {
		return err
	}
	r.Command = commandLine(s.cmd, s.args)
	if shown := s.show(r, func(w io.Writer) error { _, err := w.Write(r.Markdown()); return err }); shown != nil {
		return shown
	}
	if out != "" {
		files, wrong := r.Write(out)
		if wrong != nil {
			return wrong
		}
		s.say("Wrote %s.", strings.Join(files, ", "))
	}
	return err
}

// benchProgress tells where a trial stands: in one line that is drawn over on a
// terminal, in a line now and then elsewhere.
func (s *session) benchProgress() func(trial.Progress) {
	w := s.cmd.ErrOrStderr()
	screen, last := s.interactive(w), time.Time{}
	return func(p trial.Progress) {
		line := fmt.Sprintf("step %d of %d, %3.0f %%: %d sent, %d served, P99 %.1f ms", p.Step, p.Steps, 100*p.Done.Seconds()/p.Total.Seconds(),
			p.Sent, p.OK, p.P99.Seconds()*1000)
		switch {
		case screen:
			fmt.Fprint(w, "\r"+line+"\x1b[K") // to the end of the line (ECMA-48, EL)
			if p.Total-p.Done < time.Second {
				fmt.Fprintln(w)
			}
		case time.Since(last) >= benchLineInterval:
			last = time.Now()
			fmt.Fprintln(w, line)
		}
	}
}

// commandLine is what does the same again. Flags hold no secrets.
func commandLine(c *cobra.Command, args []string) string {
	words := append([]string{c.CommandPath()}, args...)
	c.Flags().Visit(func(f *pflag.Flag) {
		if f.Value.Type() == "bool" {
			words = append(words, "--"+f.Name)
			return
		}
		value := f.Value.String()
		if strings.ContainsFunc(value, func(r rune) bool { return r <= ' ' || strings.ContainsRune(`"'$&|;<>()*?`+"`\\", r) }) {
			value = strconv.Quote(value)
		}
		words = append(words, "--"+f.Name, value)
	})
	return strings.Join(words, " ")
}

func completeScenario(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	all, err := scenarios.Shipped()
	if err != nil || len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []cobra.Completion
	for _, s := range all {
		names = append(names, cobra.CompletionWithDesc(s.Name, s.About))
	}
	return names, cobra.ShellCompDirectiveDefault // and files
}

// folders completes a flag with the names of folders.
func folders(c *cobra.Command, flag string) {
	must(c.RegisterFlagCompletionFunc(flag, func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return nil, cobra.ShellCompDirectiveFilterDirs
	}))
}

func (p *program) benchList() *cobra.Command {
	c := &cobra.Command{
		Use:   "list",
		Short: "List the loads that come with the program",
		Long: `List the loads that come with the program, with the time that each of them takes.
docs/performance.md shows the form of a file of your own.`,
		Example: "  sluice bench list\n  sluice bench list --json",
		Args:    noArguments,
	}
	return p.local(c, func(s *session) error {
		all, err := scenarios.Shipped()
		if err != nil {
			return err
		}
		type item struct {
			Name    string  `json:"name"`
			About   string  `json:"about"`
			Seconds float64 `json:"seconds"`
		}
		var items []item
		var rows [][]string
		for _, one := range all {
			length := (one.WarmUp + one.Duration) * time.Duration(len(one.Steps))
			items = append(items, item{one.Name, one.About, length.Seconds()})
			rows = append(rows, []string{one.Name, length.String(), one.About})
		}
		return s.show(items, func(w io.Writer) error { return table(w, []string{"SCENARIO", "TIME", "WHAT"}, rows) })
	})
}

func (p *program) benchCompare() *cobra.Command {
	var out string
	c := &cobra.Command{
		Use:   "compare RESULT RESULT...",
		Short: "Compare what several servers made of the same load",
		Long: `Compare what several servers made of the same load: the JSON files that "sluice
bench run --out" wrote. The first is the one that the others are held against.
Results of different loads are not compared.`,
		Example: `  sluice bench compare results/encrypt-sluice-*.json results/encrypt-transit-*.json --out results`,
		Args:    cobra.ArbitraryArgs,
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return []cobra.Completion{"json"}, cobra.ShellCompDirectiveFilterFileExt
		},
	}
	c.Flags().StringVar(&out, "out", "", "write report and charts into this `FOLDER`")
	folders(c, "out")
	return p.local(c, func(s *session) error {
		if len(s.args) < 2 {
			return usage(s.cmd, "it takes two results or more")
		}
		var results []*trial.Result
		for _, file := range s.args {
			r, err := trial.Read(file)
			if err != nil {
				return err
			}
			results = append(results, r)
		}
		report, err := trial.Compare(results)
		if err != nil {
			return err
		}
		if err := s.show(results, func(w io.Writer) error { _, err := w.Write(report); return err }); err != nil || out == "" {
			return err
		}
		files, err := trial.WriteComparison(out, results)
		if err == nil {
			s.say("Wrote %s.", strings.Join(files, ", "))
		}
		return err
	})
}
