package main

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
	"strings"
	"syscall"
	"time"

	"github.com/sluice-kms/sluice/softhsm"
	"github.com/sluice-kms/sluice/softhsm/fault"
)

const (
	// nodes is how many tokens the pool has.
	nodes = 4

	// startTime bounds the start of a process. The first start of a data
	// folder makes tokens and root keys.
	startTime = 2 * time.Minute
)

// process is a program under measurement.
type process struct {
	cmd     *exec.Cmd
	address string
}

// start runs a program and reads its address from the stream that out chooses,
// line by line.
func start(cmd *exec.Cmd, out func() (io.ReadCloser, error), address func(line string) string) (*process, error) {
	stream, err := out()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{cmd: cmd}
	late := time.AfterFunc(startTime, func() { cmd.Process.Kill() })
	defer late.Stop()
	var said bytes.Buffer
	lines := bufio.NewScanner(stream)
	for p.address == "" && lines.Scan() {
		fmt.Fprintln(&said, lines.Text())
		p.address = address(lines.Text())
	}
	if p.address == "" {
		p.stop()
		return nil, fmt.Errorf("%s did not get ready:\n%s", filepath.Base(cmd.Path), said.Bytes())
	}
	go io.Copy(io.Discard, stream) // ends with the process
	return p, nil
}

func (p *process) stop() {
	p.cmd.Process.Signal(syscall.SIGTERM)
	p.cmd.Wait()
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

// hsms are the modules before a server's tokens.
type hsms []*fault.Module

// close lets go of the modules. The server must have ended.
func (h hsms) close() {
	for _, m := range h {
		m.Close()
	}
}

// setTimes gives the modules their engines and service times.
func (h hsms) setTimes(engines int, t times) {
	for _, m := range h {
		m.SetEngines(engines)
		m.SetService(fault.Encrypt, t.small-t.small/20, t.small/10)
		m.SetService(fault.Sign, t.large-t.large/20, t.large/10)
		m.SetService(fault.UnwrapKey, t.load, 0)
	}
}

// work is the slot time of what the modules were asked to do so far, at the
// mean service time.
func (h hsms) work(t times) (total time.Duration) {
	for _, m := range h {
		total += time.Duration(m.Calls(fault.Encrypt))*t.small + time.Duration(m.Calls(fault.Sign))*t.large
	}
	return total
}

// times are the service times: of a small and of a large operation, within 5 %
// of that at random, and of loading a key.
type times struct{ small, large, load time.Duration }

// prepare makes a data folder with a domain of as many tokens as there are
// nodes.
func prepare(ctx context.Context, program, data string) error {
	cmd := exec.CommandContext(ctx, program, "dev", "--data-dir", data, "--nodes", fmt.Sprint(nodes),
		"--listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0")
	cmd.Env = settings()
	p, err := start(cmd, cmd.StdoutPipe, func(line string) string {
		_, rest, _ := strings.Cut(line, "API ")
		return strings.TrimSpace(rest)
	})
	if err != nil {
		return err
	}
	p.stop()
	return nil
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

// startServer runs `sluice server` on the folder's tokens, each behind a fault
// module.
func startServer(ctx context.Context, program, data string, engines int, library *fault.Library) (*process, hsms, error) {
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
	var modules hsms
	for i := 1; i <= nodes; i++ {
		t, module, err := front(library, data, i)
		if err != nil {
			return nil, nil, err
		}
		id := fmt.Sprintf("node-%d", i)
		modules = append(modules, module)
		tokens = append(tokens, token{ID: id, Module: module.Path(), Label: t.Label, Serial: t.Serial,
			PINFile: filepath.Join(data, "tokens", id, "user.pin"), Slots: engines, Env: t.Env})
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
	p, err := start(cmd, cmd.StderrPipe, func(line string) string {
		var entry struct{ API string }
		if json.Unmarshal([]byte(line), &entry) != nil {
			return ""
		}
		return entry.API
	})
	return p, modules, err
}

// startThin runs the thin wrapper on a copy of the folder's first token, with
// all slots of the pool behind one module.
func startThin(ctx context.Context, program, dir, data string, slots int, library *fault.Library) (*process, hsms, error) {
	own := filepath.Join(dir, "thin-data")
	if out, err := exec.CommandContext(ctx, "cp", "-r", data, own).CombinedOutput(); err != nil {
		return nil, nil, fmt.Errorf("copying the data folder: %w: %s", err, out)
	}
	conf := filepath.Join(own, "tokens", "node-1", "softhsm2.conf")
	text, err := os.ReadFile(conf)
	if err != nil {
		return nil, nil, err
	}
	if err := os.WriteFile(conf, bytes.ReplaceAll(text, []byte(data), []byte(own)), 0o600); err != nil {
		return nil, nil, err
	}
	_, module, err := front(library, own, 1)
	if err != nil {
		return nil, nil, err
	}
	cmd := exec.CommandContext(ctx, program, "-data-dir", own, "-slots", fmt.Sprint(slots), "-calls", "sluice", "-module", module.Path())
	cmd.Stderr = os.Stderr
	p, err := start(cmd, cmd.StdoutPipe, strings.TrimSpace)
	return p, hsms{module}, err
}

// build compiles one of the bench's programs.
func build(ctx context.Context, dir, name string) (string, error) {
	program := filepath.Join(dir, name)
	out, err := exec.CommandContext(ctx, "go", "build", "-o", program, "github.com/sluice-kms/sluice/bench/"+name).CombinedOutput()
	if err != nil {
		return "", errors.Join(fmt.Errorf("building %s: %w", name, err), errors.New(string(out)))
	}
	return program, nil
}
