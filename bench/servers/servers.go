// Package servers starts the programs that benchmarks measure, each as a process
// of its own: `sluice dev`, `sluice server` on tokens behind fault modules, and
// the thin wrapper.
package servers

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/sluice-kms/sluice/softhsm"
	"github.com/sluice-kms/sluice/softhsm/fault"
)

const (
	// startTime bounds the start of a process. The first start of a data
	// folder makes tokens and root keys.
	startTime = 2 * time.Minute
	// stopTime is how long a process may take to end before it is killed.
	stopTime = time.Minute
)

// Process is a program under measurement.
type Process struct {
	Cmd     *exec.Cmd
	Address string // host:port of what it serves
	Ops     string // host:port of its operations listener; "": it has none
}

// addresses is what one line of a program's output says of where it listens.
type addresses func(line string) (api, ops string)

// start runs a program and reads its addresses from the stream that out
// chooses, line by line.
func start(cmd *exec.Cmd, out func() (io.ReadCloser, error), hasOps bool, read addresses) (*Process, error) {
	stream, err := out()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &Process{Cmd: cmd}
	late := time.AfterFunc(startTime, func() { cmd.Process.Kill() })
	defer late.Stop()
	var said bytes.Buffer
	lines := bufio.NewScanner(stream)
	ready := func() bool { return p.Address != "" && (p.Ops != "" || !hasOps) }
	for !ready() && lines.Scan() {
		fmt.Fprintln(&said, lines.Text())
		api, ops := read(lines.Text())
		if api != "" {
			p.Address = api
		}
		if ops != "" {
			p.Ops = ops
		}
	}
	if !ready() {
		p.Stop()
		return nil, fmt.Errorf("%s did not get ready:\n%s", filepath.Base(cmd.Path), said.Bytes())
	}
	go io.Copy(io.Discard, stream) // ends with the process
	return p, nil
}

// Stop ends the process as an operator would and returns how it ended.
func (p *Process) Stop() error {
	p.Cmd.Process.Signal(syscall.SIGTERM)
	late := time.AfterFunc(stopTime, func() { p.Cmd.Process.Kill() })
	defer late.Stop()
	return p.Cmd.Wait()
}

// ProcessorTime is what the process has used so far, in user and system mode
// (proc_pid_stat(5)).
func (p *Process) ProcessorTime() (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.Cmd.Process.Pid))
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

// settings is the environment without what would configure the program.
func settings() (env []string) {
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "SLUICE_") {
			env = append(env, v)
		}
	}
	return env
}

// StartDev runs `sluice dev` on the folder data, which it makes.
func StartDev(ctx context.Context, program, data string, nodes int) (*Process, error) {
	cmd := exec.CommandContext(ctx, program, "dev", "--data-dir", data, "--nodes", fmt.Sprint(nodes),
		"--listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0")
	cmd.Env, cmd.Stderr = settings(), os.Stderr
	return start(cmd, cmd.StdoutPipe, true, func(line string) (api, ops string) {
		switch fields := strings.Fields(line); {
		case len(fields) < 2:
		case fields[0] == "API":
			return strings.TrimPrefix(fields[1], "http://"), ""
		case fields[0] == "operations":
			return "", strings.TrimPrefix(fields[1], "http://")
		}
		return "", ""
	})
}

// Prepare makes a data folder with a domain of as many tokens as there are
// nodes.
func Prepare(ctx context.Context, program, data string, nodes int) error {
	p, err := StartDev(ctx, program, data, nodes)
	if err != nil {
		return err
	}
	return p.Stop()
}

// HSMs are the modules before a server's tokens.
type HSMs []*fault.Module

// Close lets go of the modules. The server must have ended.
func (h HSMs) Close() {
	for _, m := range h {
		m.Close()
	}
}

// front opens the token of a node and puts a fault module before it.
func front(library *fault.Library, data string, node int) (*softhsm.Token, *fault.Module, error) {
	name := fmt.Sprintf("node-%d", node)
	folder := filepath.Join(data, "tokens", name)
	token, err := softhsm.Provision(folder, "sluice-dev-"+name)
	if err != nil {
		return nil, nil, err
	}
	module, err := library.Front(folder, token.Module)
	return token, module, err
}

// StartServer runs `sluice server` on the tokens of a folder that Prepare made,
// each with a number of slots and behind a fault module.
func StartServer(ctx context.Context, program, data string, nodes, slots int, library *fault.Library) (*Process, HSMs, error) {
	type token struct {
		ID      string            `json:"id"`
		Module  string            `json:"module"`
		Label   string            `json:"label"`
		Serial  string            `json:"serial"`
		PINFile string            `json:"pin_file"`
		Slots   int               `json:"slots"`
		Env     map[string]string `json:"env"`
	}
	var tokens []token
	var modules HSMs
	for i := 1; i <= nodes; i++ {
		t, module, err := front(library, data, i)
		if err != nil {
			return nil, nil, err
		}
		id := fmt.Sprintf("node-%d", i)
		modules = append(modules, module)
		tokens = append(tokens, token{ID: id, Module: module.Path(), Label: t.Label, Serial: t.Serial,
			PINFile: filepath.Join(data, "tokens", id, "user.pin"), Slots: slots, Env: t.Env})
	}
	// JSON is YAML.
	config, err := json.Marshal(map[string]any{
		"data_dir": data, "node": "dev", "listen": "127.0.0.1:0", "ops_listen": "127.0.0.1:0", "two_operators": false,
		"hsm": map[string]any{"domains": []any{map[string]any{"file": filepath.Join(data, "domain.json"), "tokens": tokens}}},
	})
	if err != nil {
		return nil, nil, err
	}
	path := filepath.Join(data, "bench.yaml")
	if err := os.WriteFile(path, config, 0o600); err != nil {
		return nil, nil, err
	}
	cmd := exec.CommandContext(ctx, program, "server", "--config", path)
	cmd.Env = settings()
	p, err := start(cmd, cmd.StderrPipe, true, func(line string) (api, ops string) {
		var entry struct{ API, Ops string }
		if json.Unmarshal([]byte(line), &entry) != nil {
			return "", ""
		}
		return entry.API, entry.Ops
	})
	return p, modules, err
}

// Copy copies a data folder, since a token folder belongs to one process, to
// another one in the folder dir.
func Copy(ctx context.Context, dir, name, data string) (own string, err error) {
	own = filepath.Join(dir, name)
	if out, err := exec.CommandContext(ctx, "cp", "-r", data, own).CombinedOutput(); err != nil {
		return "", fmt.Errorf("copying the data folder: %w: %s", err, out)
	}
	conf := filepath.Join(own, "tokens", "node-1", "softhsm2.conf")
	text, err := os.ReadFile(conf)
	if err != nil {
		return "", err
	}
	return own, os.WriteFile(conf, bytes.ReplaceAll(text, []byte(data), []byte(own)), 0o600)
}

// StartThin runs the thin wrapper on a copied data folder, with further
// arguments.
func StartThin(ctx context.Context, program, own string, args ...string) (*Process, error) {
	cmd := exec.CommandContext(ctx, program, append([]string{"-data-dir", own}, args...)...)
	cmd.Stderr = os.Stderr
	return start(cmd, cmd.StdoutPipe, false, func(line string) (api, ops string) { return strings.TrimSpace(line), "" })
}

// StartThinBehindFaults runs the thin wrapper on a copied data folder with all
// slots of a pool behind one fault module.
func StartThinBehindFaults(ctx context.Context, program, own string, slots int, library *fault.Library) (*Process, HSMs, error) {
	_, module, err := front(library, own, 1)
	if err != nil {
		return nil, nil, err
	}
	p, err := StartThin(ctx, program, own, "-slots", fmt.Sprint(slots), "-calls", "sluice", "-module", module.Path())
	return p, HSMs{module}, err
}

// Build compiles one of the bench's programs into the folder dir.
func Build(ctx context.Context, dir, name string) (string, error) {
	program := filepath.Join(dir, name)
	out, err := exec.CommandContext(ctx, "go", "build", "-o", program, "github.com/sluice-kms/sluice/bench/"+name).CombinedOutput()
	if err != nil {
		return "", errors.Join(fmt.Errorf("building %s: %w", name, err), errors.New(string(out)))
	}
	return program, nil
}
