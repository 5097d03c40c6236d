// Command overhead measures what Sluice costs over the thin wrapper (budget
// P1): both serve the same operation from the same SoftHSM module under the
// same load, in turns, and the ratio of their throughputs is reported, the
// median of several rounds.
//
//	go run ./bench/overhead -sluice bin/sluice
package main

import (
	"bufio"
	"encoding/base64"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/sluice-kms/sluice/bench/load"
)

func main() {
	sluice := flag.String("sluice", "bin/sluice", "the program to measure")
	thin := flag.String("thin", "", "the built thin wrapper; \"\": build it")
	rounds := flag.Int("rounds", 5, "rounds, of which the median counts")
	connections := flag.Int("connections", 16, "connections")
	each := flag.Duration("each", 3*time.Second, "duration of one measurement")
	only := flag.String("only", "", "measure only operations whose names contain this")
	calls := flag.String("calls", "miekg", "how the thin wrapper calls the module: miekg, as one without Sluice would, or sluice, by its driver")
	flag.Parse()
	chosen := slices.DeleteFunc(operations, func(op operation) bool { return !strings.Contains(op.name, *only) })
	if err := run(*sluice, *thin, *calls, chosen, *rounds, *connections, *each); err != nil {
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

func run(sluice, thin, calls string, operations []operation, rounds, connections int, each time.Duration) error {
	dir, err := os.MkdirTemp("", "sluice-overhead-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if thin == "" {
		thin = filepath.Join(dir, "thin")
		build := exec.Command("go", "build", "-o", thin, "github.com/sluice-kms/sluice/bench/thin")
		build.Stderr = os.Stderr
		if err := build.Run(); err != nil {
			return fmt.Errorf("building the thin wrapper: %w", err)
		}
	}
	data := filepath.Join(dir, "data")
	server, err := startSluice(sluice, data)
	if err != nil {
		return err
	}
	defer server.stop()
	if err := liftLimits(server, data); err != nil {
		return fmt.Errorf("lifting the limits: %w", err)
	}
	wrapper, err := startThin(thin, calls, dir, data)
	if err != nil {
		return err
	}
	defer wrapper.stop()
	for _, op := range operations {
		if err := server.create(op.create); err != nil {
			return err
		}
	}
	fmt.Printf("%d connections, %d rounds of %v, closed loop; the thin wrapper calls the module by %s\n\n", connections, rounds, each, calls)
	fmt.Println("| operation | thin requests/s | Sluice requests/s | ratio | budget | thin P50 / P99 | Sluice P50 / P99 | processor time of the server, thin / Sluice |")
	fmt.Println("|---|---|---|---|---|---|---|---|")
	for _, op := range operations {
		if err := measure(op, server, wrapper, rounds, connections, each); err != nil {
			return fmt.Errorf("%s: %w", op.name, err)
		}
	}
	return nil
}

func measure(op operation, server, wrapper *process, rounds, connections int, each time.Duration) error {
	thin := load.Request{Address: wrapper.address, Path: op.thin, Body: op.body}
	full := load.Request{Address: server.address, Path: op.full, Body: op.body,
		Header: map[string]string{"Authorization": "Bearer " + server.credential}}
	for _, r := range []load.Request{thin, full} { // warm up
		if _, err := load.Closed(r, connections, 500*time.Millisecond); err != nil {
			return err
		}
	}
	var ratios []float64
	var lastThin, lastFull []measured
	for round := range rounds {
		order := []*process{wrapper, server}
		if round%2 == 1 {
			slices.Reverse(order)
		}
		results := make(map[*process]measured)
		for _, p := range order {
			r := thin
			if p == server {
				r = full
			}
			before, err := p.processorTime()
			if err != nil {
				return err
			}
			result, err := load.Closed(r, connections, each)
			if err != nil {
				return err
			}
			after, err := p.processorTime()
			if err != nil {
				return err
			}
			results[p] = measured{result, (after - before).Seconds() / (result.Rate() * each.Seconds())}
		}
		lastThin, lastFull = append(lastThin, results[wrapper]), append(lastFull, results[server])
		ratios = append(ratios, results[server].Rate()/results[wrapper].Rate())
	}
	slices.Sort(ratios)
	t, f := median(lastThin), median(lastFull)
	fmt.Printf("| %s | %.0f | %.0f | %.2f | %.2f | %v / %v | %v / %v | %.0f / %.0f µs |\n",
		op.name, t.Rate(), f.Rate(), ratios[len(ratios)/2], op.budget,
		t.P50.Round(time.Microsecond), t.P99.Round(time.Microsecond), f.P50.Round(time.Microsecond), f.P99.Round(time.Microsecond),
		t.processor*1e6, f.processor*1e6)
	return nil
}

// measured is a result with the processor time of the server per request, in
// seconds. Other work on the machine changes the rates, and that hardly.
type measured struct {
	load.Result
	processor float64
}

// median returns the result of the median rate.
func median(results []measured) measured {
	slices.SortFunc(results, func(a, b measured) int { return int(a.Rate() - b.Rate()) })
	return results[len(results)/2]
}

// process is a server under measurement.
type process struct {
	cmd        *exec.Cmd
	address    string
	credential string
}

// processorTime is what the process has used so far, in user and system mode
// (proc_pid_stat(5)).
func (p *process) processorTime() (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(rest)
	var ticks int64
	for _, f := range fields[11:13] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, err
		}
		ticks += n
	}
	const ticksPerSecond = 100 // USER_HZ on Linux
	return time.Duration(ticks) * time.Second / ticksPerSecond, nil
}

func (p *process) stop() {
	p.cmd.Process.Signal(syscall.SIGTERM)
	p.cmd.Wait()
}

// startSluice runs `sluice dev` with one HSM node and reads its address from
// what it prints.
func startSluice(program, data string) (*process, error) {
	p := &process{cmd: exec.Command(program, "dev", "--data-dir", data, "--nodes", "1",
		"--listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0")}
	p.cmd.Stderr = os.Stderr
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if _, rest, ok := strings.Cut(lines.Text(), "API "); ok {
			p.address, _, _ = strings.Cut(strings.TrimPrefix(strings.TrimSpace(rest), "http://"), " ")
			break
		}
	}
	go io.Copy(io.Discard, out)
	token, err := os.ReadFile(filepath.Join(data, "demo.credential"))
	if err != nil || p.address == "" {
		p.stop()
		return nil, errors.Join(errors.New("sluice dev did not get ready"), err)
	}
	p.credential = strings.TrimSpace(string(token))
	return p, nil
}

// startThin runs the thin wrapper on a copy of the folder's domain, since a
// token folder belongs to one process.
func startThin(program, calls, dir, data string) (*process, error) {
	own := filepath.Join(dir, "thin-data")
	if out, err := exec.Command("cp", "-r", data, own).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("copying the data folder: %w: %s", err, out)
	}
	conf := filepath.Join(own, "tokens", "node-1", "softhsm2.conf")
	text, err := os.ReadFile(conf)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(conf, []byte(strings.ReplaceAll(string(text), data, own)), 0o600); err != nil {
		return nil, err
	}
	p := &process{cmd: exec.Command(program, "-data-dir", own, "-calls", calls)}
	p.cmd.Stderr = os.Stderr
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		p.stop()
		return nil, errors.Join(errors.New("the thin wrapper did not get ready"), err)
	}
	p.address = strings.TrimSpace(line)
	return p, nil
}

func (p *process) create(body string) error {
	req, err := http.NewRequest(http.MethodPost, "http://"+p.address+"/v1/keys", strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+p.credential)
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
