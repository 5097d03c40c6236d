// Command overhead measures what Sluice costs over the thin wrapper (budget
// P1): both serve the same operation from the same SoftHSM module under the
// same load, in turns, and the ratio of their throughputs is reported, the
// median of several rounds. Beside them stands what the module does when it is
// called in a loop, with nothing before it: the physical limit.
//
//	go run ./bench/overhead -sluice bin/sluice
package main

import (
	"context"
	"encoding/base64"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/sluice-kms/sluice/bench/limits"
	"github.com/sluice-kms/sluice/bench/load"
	"github.com/sluice-kms/sluice/bench/servers"
)

// config says what to measure.
type config struct {
	sluice, thin, calls string
	rounds, connections int
	each                time.Duration
	operations          []operation
	profile             string
}

func main() {
	var c config
	flag.StringVar(&c.sluice, "sluice", "bin/sluice", "the program to measure")
	flag.StringVar(&c.thin, "thin", "", "the built thin wrapper; \"\": build it")
	flag.IntVar(&c.rounds, "rounds", 5, "rounds, of which the median counts")
	flag.IntVar(&c.connections, "connections", 16, "connections")
	flag.DurationVar(&c.each, "each", 3*time.Second, "duration of one measurement")
	only := flag.String("only", "", "measure only operations whose names contain this")
	flag.StringVar(&c.calls, "calls", "miekg", "how the thin wrapper calls the module: miekg, as one without Sluice would, or sluice, by its driver")
	flag.StringVar(&c.profile, "profile", "", "write a CPU profile of Sluice during the first operation, in a round of its own into this file")
	asJSON := flag.Bool("json", false, "print JSON")
	flag.Parse()
	c.operations = slices.DeleteFunc(slices.Clone(operations), func(op operation) bool { return !strings.Contains(op.name, *only) })
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	r, err := run(ctx, c)
	if err != nil {
		log.Fatal(err)
	}
	if !*asJSON {
		r.print(os.Stdout)
		return
	}
	if err := json.MarshalWrite(os.Stdout, r, jsontext.WithIndent("  ")); err != nil {
		log.Fatal(err)
	}
}

// operation is one cell of the table.
type operation struct {
	name       string
	thin, full string // paths
	body       string
	create     string // the body that creates the key
	budget     float64
}

var message = base64.StdEncoding.EncodeToString([]byte(strings.Repeat("m", 64)))

var operations = []operation{
	{"AES-256-GCM, 64 B", "/encrypt", "/v1/keys/bench-aes/encrypt", `{"plaintext":"` + message + `"}`,
		`{"name":"bench-aes","spec":"AES_256"}`, 0.85},
	{"ECDSA P-256", "/sign/ec", "/v1/keys/bench-ec/sign", `{"message":"` + message + `"}`,
		`{"name":"bench-ec","spec":"ECC_NIST_P256"}`, 0.85},
	{"RSA-2048 PSS", "/sign/rsa", "/v1/keys/bench-rsa/sign", `{"message":"` + message + `"}`,
		`{"name":"bench-rsa","spec":"RSA_2048"}`, 0.85},
}

// report is what was measured.
type report struct {
	Connections int       `json:"connections"`
	Rounds      int       `json:"rounds"`
	Seconds     float64   `json:"seconds"` // of one measurement
	Calls       string    `json:"calls"`
	Operations  []outcome `json:"operations"`
}

// outcome is what one operation came to.
type outcome struct {
	Name   string    `json:"name"`
	Budget float64   `json:"budget"`
	Ratios []float64 `json:"ratios"` // of each round, ascending
	Ratio  float64   `json:"ratio"`  // their median
	Thin   side      `json:"thin"`   // the median round
	Sluice side      `json:"sluice"`
	Raw    float64   `json:"raw"` // operations/s of the module in a loop
}

// side is what one server did.
type side struct {
	Rate      float64 `json:"rate"` // requests/s
	P50       float64 `json:"p50_ms"`
	P99       float64 `json:"p99_ms"`
	Processor float64 `json:"processor_us"` // processor time of the server per request
}

func (r *report) print(w io.Writer) {
	fmt.Fprintf(w, "%d connections, %d rounds of %.1f s, closed loop; the thin wrapper calls the module by %s\n\n", r.Connections, r.Rounds, r.Seconds, r.Calls)
	fmt.Fprintln(w, "| operation | module in a loop, operations/s | thin requests/s | Sluice requests/s | ratio | budget | thin P50 / P99 ms | Sluice P50 / P99 ms | processor time of the server, thin / Sluice |")
	fmt.Fprintln(w, "|---|---|---|---|---|---|---|---|---|")
	for _, o := range r.Operations {
		fmt.Fprintf(w, "| %s | %.0f | %.0f | %.0f | %.2f | %.2f | %.2f / %.2f | %.2f / %.2f | %.0f / %.0f µs |\n",
			o.Name, o.Raw, o.Thin.Rate, o.Sluice.Rate, o.Ratio, o.Budget, o.Thin.P50, o.Thin.P99, o.Sluice.P50, o.Sluice.P99, o.Thin.Processor, o.Sluice.Processor)
	}
}

// server is a process with the credential that it takes, if any.
type server struct {
	*servers.Process
	credential string
}

func run(ctx context.Context, c config) (*report, error) {
	dir, err := os.MkdirTemp("", "sluice-overhead-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	if c.thin == "" {
		if c.thin, err = servers.Build(ctx, dir, "thin"); err != nil {
			return nil, err
		}
	}
	data := filepath.Join(dir, "data")
	full, err := startSluice(ctx, c.sluice, data)
	if err != nil {
		return nil, err
	}
	defer full.Stop()
	own, err := servers.Copy(ctx, dir, "thin-data", data)
	if err != nil {
		return nil, err
	}
	raw, err := measureRaw(ctx, c, own)
	if err != nil {
		return nil, fmt.Errorf("calling the module in a loop: %w", err)
	}
	wrapper, err := servers.StartThin(ctx, c.thin, own, "-calls", c.calls)
	if err != nil {
		return nil, err
	}
	defer wrapper.Stop()
	r := &report{Connections: c.connections, Rounds: c.rounds, Seconds: c.each.Seconds(), Calls: c.calls}
	for i, op := range c.operations {
		if err := full.create(op.create); err != nil {
			return nil, err
		}
		o, err := measure(c, op, full, &server{Process: wrapper})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", op.name, err)
		}
		o.Raw = raw[op.thin]
		r.Operations = append(r.Operations, *o)
		if i == 0 && c.profile != "" {
			if err := profile(c, full, op.request(full)); err != nil {
				return nil, fmt.Errorf("profiling: %w", err)
			}
		}
	}
	return r, nil
}

// measureRaw calls the module in a loop, before the wrapper has the tokens. It
// returns operations/s by the wrapper's paths.
func measureRaw(ctx context.Context, c config, own string) (rates map[string]float64, err error) {
	cmd := exec.CommandContext(ctx, c.thin, "-data-dir", own, "-calls", "sluice", "-loop", c.each.String())
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, err
	}
	return rates, json.Unmarshal(out, &rates)
}

// request is what a server is asked. The wrapper takes no credential.
func (op *operation) request(s *server) load.Request {
	if s.credential == "" {
		return load.Request{Address: s.Address, Path: op.thin, Body: op.body}
	}
	return load.Request{Address: s.Address, Path: op.full, Body: op.body, Header: map[string]string{"Authorization": "Bearer " + s.credential}}
}

// measured is a result with the processor time of the server per request. Other
// work on the machine changes the rates, and that hardly.
type measured struct {
	load.Result
	processor time.Duration
}

func measure(c config, op operation, full, wrapper *server) (*outcome, error) {
	for _, s := range []*server{wrapper, full} { // warm up
		if _, err := load.Closed(op.request(s), c.connections, 500*time.Millisecond); err != nil {
			return nil, err
		}
	}
	o := &outcome{Name: op.name, Budget: op.budget}
	results := make(map[*server][]measured)
	for round := range c.rounds {
		order := []*server{wrapper, full}
		if round%2 == 1 {
			slices.Reverse(order)
		}
		for _, s := range order {
			m, err := once(c, op, s)
			if err != nil {
				return nil, err
			}
			results[s] = append(results[s], m)
		}
		o.Ratios = append(o.Ratios, results[full][round].Rate()/results[wrapper][round].Rate())
	}
	slices.Sort(o.Ratios)
	o.Ratio = o.Ratios[len(o.Ratios)/2]
	o.Thin, o.Sluice = median(results[wrapper]), median(results[full])
	return o, nil
}

// once is one measurement of a server.
func once(c config, op operation, s *server) (m measured, err error) {
	before, err := s.ProcessorTime()
	if err != nil {
		return m, err
	}
	if m.Result, err = load.Closed(op.request(s), c.connections, c.each); err != nil {
		return m, err
	}
	after, err := s.ProcessorTime()
	m.processor = (after - before) / time.Duration(m.Requests)
	return m, err
}

// median returns the result of the median rate.
func median(results []measured) side {
	slices.SortFunc(results, func(a, b measured) int { return int(a.Rate() - b.Rate()) })
	m := results[len(results)/2]
	ms := func(d time.Duration) float64 { return d.Seconds() * 1000 }
	return side{m.Rate(), ms(m.P50), ms(m.P99), 1000 * ms(m.processor)}
}

// profile loads the server for one more round and keeps its CPU profile.
func profile(c config, s *server, r load.Request) error {
	seconds := max(1, int(c.each.Seconds()))
	loaded := make(chan error, 1)
	go func() {
		_, err := load.Closed(r, c.connections, time.Duration(seconds+1)*time.Second)
		loaded <- err
	}()
	answer, err := http.Get(fmt.Sprintf("http://%s/debug/pprof/profile?seconds=%d", s.Ops, seconds))
	if err != nil {
		return errors.Join(err, <-loaded)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = errors.New(answer.Status)
	}
	return errors.Join(err, <-loaded, os.WriteFile(c.profile, text, 0o644))
}

// startSluice runs `sluice dev` with one HSM node and no limit of the demo
// tenant in its way.
func startSluice(ctx context.Context, program, data string) (*server, error) {
	p, err := servers.StartDev(ctx, program, data, 1)
	if err != nil {
		return nil, err
	}
	token, err := os.ReadFile(filepath.Join(data, "demo.credential"))
	if err == nil {
		err = limits.Lift(ctx, p.Address, data)
	}
	if err != nil {
		p.Stop()
		return nil, err
	}
	return &server{p, strings.TrimSpace(string(token))}, nil
}

func (s *server) create(body string) error {
	req, err := http.NewRequest(http.MethodPost, "http://"+s.Address+"/v1/keys", strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+s.credential)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusCreated {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
		return fmt.Errorf("creating a key: %s: %s", resp.Status, text)
	}
	return nil
}
