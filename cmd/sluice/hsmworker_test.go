package main

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-kms/sluice/cmd/sluice/wire"
	"github.com/sluice-kms/sluice/cmd/sluice/wire/wiretest"
)

// workerProcess is the worker process of a node of a running service.
type workerProcess struct {
	pid, fd int // fd: a pidfd
	name    string
}

func (w *workerProcess) read(t *testing.T, file string) string {
	t.Helper()
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", w.pid, file))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// ends waits for the process's end, for far longer than that takes.
func (w *workerProcess) ends(t *testing.T) {
	t.Helper()
	polled := []unix.PollFd{{Fd: int32(w.fd), Events: unix.POLLIN}}
	n, err := unix.Poll(polled, 20_000)
	for err == unix.EINTR {
		n, err = unix.Poll(polled, 20_000)
	}
	if n != 1 || err != nil {
		t.Errorf("the worker process of %s outlives the service: %v", w.name, err)
	}
}

// workersOf returns the worker processes of a service.
func workersOf(t *testing.T, service int) []*workerProcess {
	t.Helper()
	var list []*workerProcess
	children, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", service))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range children {
		pids, err := os.ReadFile(path)
		if err != nil {
			continue // the thread has ended meanwhile
		}
		for _, field := range strings.Fields(string(pids)) {
			w := &workerProcess{}
			if _, err := fmt.Sscan(field, &w.pid); err != nil {
				t.Fatal(err)
			}
			if w.fd, err = unix.PidfdOpen(w.pid, 0); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { unix.Close(w.fd) })
			w.name = strings.TrimSpace(w.read(t, "comm"))
			list = append(list, w)
		}
	}
	return list
}

// processConfig makes a development folder with two tokens, and a
// configuration that runs each in a process of its own.
func processConfig(t *testing.T, dir string) (path string) {
	t.Helper()
	dev := &wire.Dev{Dir: dir, Nodes: 2, Log: slog.New(slog.DiscardHandler)}
	app, config, err := dev.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := app.Close(); err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("node: dev\ndata_dir: %s\nlisten: 127.0.0.1:0\nops_listen: 127.0.0.1:0\nhsm:\n  domains:\n    - file: %s\n      tokens:\n",
		dir, config.HSM.Domains[0].File)
	for _, token := range config.HSM.Domains[0].Tokens {
		text += fmt.Sprintf("        - {id: %s, module: %s, serial: %q, pin_file: %s, env: {SOFTHSM2_CONF: %s}, process: true}\n",
			token.ID, token.Module, token.Serial, token.PINFile, token.Env["SOFTHSM2_CONF"])
	}
	path = filepath.Join(dir, "sluice.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// The worker processes of a service serve it, show whose they are and nothing
// secret, and end with it, whether it is stopped or killed.
func TestWorkerProcessesLiveAsLongAsTheService(t *testing.T) {
	wiretest.Require(t)
	dir := filepath.Join(t.TempDir(), "data")
	program := buildProgram(t, t.TempDir())
	config := processConfig(t, dir)
	for name, end := range map[string]func(*devProcess){
		"stopped": func(p *devProcess) {
			if err := p.stop(t); err != nil {
				t.Errorf("stopping the service: %v", err)
			}
		},
		"killed": func(p *devProcess) { p.kill() },
		// As a terminal and a service manager do it: to all at once.
		"stopped with all its processes": func(p *devProcess) {
			for _, w := range workersOf(t, p.cmd.Process.Pid) {
				if err := syscall.Kill(w.pid, syscall.SIGTERM); err != nil {
					t.Error(err)
				}
			}
			if err := p.stop(t); err != nil {
				t.Errorf("stopping the service: %v", err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := startServer(t, program, dir, "--config", config)
			workers := workersOf(t, p.cmd.Process.Pid)
			if len(workers) != 2 {
				t.Fatalf("%d worker processes for two nodes", len(workers))
			}
			named := map[string]bool{}
			for _, w := range workers {
				named[w.name] = true
				inspect(t, w, dir)
			}
			if !named["hsm:node-1"] || !named["hsm:node-2"] {
				t.Errorf("the processes have the names %v", named)
			}
			key := map[string]any{"name": "k-" + fmt.Sprint(time.Now().UnixNano()), "spec": "ECC_NIST_P256"}
			if status, a := p.post(p.credential(t, wire.DemoCredentialFile), "/v1/keys", key); status != http.StatusCreated || a["protection"] != "HSM" {
				t.Errorf("creating a key: %d %v", status, a)
			}
			end(p)
			for _, w := range workers {
				w.ends(t)
			}
		})
	}
}

func inspect(t *testing.T, w *workerProcess, dir string) {
	t.Helper()
	node := strings.TrimPrefix(w.name, "hsm:")
	if args := w.read(t, "cmdline"); args != "sluice\x00hsm-worker\x00"+node+"\x00" {
		t.Errorf("the arguments are %q", args)
	}
	pin, err := os.ReadFile(filepath.Join(dir, "tokens", node, "user.pin"))
	if err != nil {
		t.Fatal(err)
	}
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", w.pid))
	if err != nil && !errors.Is(err, fs.ErrPermission) { // the process is undumpable: only root may look
		t.Fatal(err)
	}
	if strings.Contains(string(env), string(pin)) {
		t.Error("the PIN is in the environment")
	}
	if limits := strings.Join(strings.Fields(w.read(t, "limits")), " "); !strings.Contains(limits, "Max core file size 0 0 bytes") {
		t.Errorf("core dumps are not switched off: %s", limits)
	}
}

func TestTheWorkerCommandIsForTheServiceAlone(t *testing.T) {
	c := newHSMWorker()
	if !c.Hidden {
		t.Error("it is in the help")
	}
	root := newRoot()
	if found, _, err := root.Find([]string{wire.HSMWorkerCommand, "node"}); err != nil || found.Name() != wire.HSMWorkerCommand {
		t.Errorf("the program does not know it: %v", err)
	}
}
