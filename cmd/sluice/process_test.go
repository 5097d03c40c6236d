package main

import (
	"bufio"
	"encoding/json/v2"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// buildProgram builds the real program once and links it into dir.
func buildProgram(t testing.TB, dir string) string {
	t.Helper()
	built, err := buildOnce()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "sluice")
	if err := os.Symlink(built, program); err != nil {
		t.Fatal(err)
	}
	return program
}

var programDir string

var buildOnce = sync.OnceValues(func() (string, error) {
	program := filepath.Join(programDir, "sluice")
	cmd := exec.Command("go", "build", "-o", program, ".")
	cmd.Stderr = os.Stderr
	return program, cmd.Run()
})

func TestMain(m *testing.M) {
	var err error
	if programDir, err = os.MkdirTemp("", "sluice-program-"); err != nil {
		panic(err)
	}
	code := m.Run()
	os.RemoveAll(programDir)
	os.Exit(code)
}

// devProcess is a running `sluice dev` or `sluice server`.
type devProcess struct {
	cmd     *exec.Cmd
	address string // host:port of the API
	ops     string
	dir     string
}

// startDev runs `sluice dev` on free ports and waits until it is ready.
func startDev(t testing.TB, program, dir string, args ...string) *devProcess {
	t.Helper()
	cmd := exec.Command(program, append([]string{"dev", "--data-dir", dir, "--listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0"}, args...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p := &devProcess{cmd: cmd, dir: dir}
	p.start(t, out, func(line string) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			return
		}
		switch fields[0] {
		case "API":
			p.address = strings.TrimPrefix(fields[1], "http://")
		case "operations":
			p.ops = strings.TrimPrefix(fields[1], "http://")
		}
	})
	return p
}

// startServer runs `sluice server` and waits until it is ready.
func startServer(t testing.TB, program, dir string, args ...string) *devProcess {
	t.Helper()
	cmd := exec.Command(program, append([]string{"server"}, args...)...)
	// What is set for the tests is no setting of the service.
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "SLUICE_") })
	out, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	p := &devProcess{cmd: cmd, dir: dir}
	p.start(t, out, func(line string) {
		var entry struct{ API, Ops string }
		if err := json.Unmarshal([]byte(line), &entry, json.MatchCaseInsensitiveNames(true)); err != nil {
			t.Logf("%s: %v", line, err)
			return
		}
		p.address, p.ops = entry.API, entry.Ops
		if p.ops == "" {
			t.Log(line)
		}
	})
	return p
}

// start starts the process and reads its output until it tells its addresses.
func (p *devProcess) start(t testing.TB, out io.Reader, read func(line string)) {
	t.Helper()
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.cmd.Process.Kill(); p.cmd.Wait() })
	for lines := bufio.NewScanner(out); p.ops == "" && lines.Scan(); {
		read(lines.Text())
	}
	go io.Copy(io.Discard, out)
	if p.ops == "" {
		t.Fatal("the program did not get ready")
	}
}

// stop ends the process as an operator would and returns how it ended.
func (p *devProcess) stop(t testing.TB) error {
	t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- p.cmd.Wait() }()
	select {
	case err := <-done:
		return err
	case <-time.After(30 * time.Second):
		t.Fatal("sluice dev did not stop within 30 s of SIGTERM")
		return nil
	}
}

// kill ends the process at once.
func (p *devProcess) kill() {
	p.cmd.Process.Kill()
	p.cmd.Wait()
}

func (p *devProcess) credential(t testing.TB, file string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(p.dir, file))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(raw))
}
