package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-kms/sluice/cmd/sluice/wire/wiretest"
)

// A signing key was stolen from a crash dump (Storm-0558, 2023). The program
// leaves none, not even when it is started where dumps have no limit and is
// told to abort with everything it knows.
func TestAbortLeavesNoCoreDump(t *testing.T) {
	wiretest.Require(t)
	var before syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_CORE, &before); err != nil {
		t.Fatal(err)
	}
	// What a child inherits; where that is not allowed its limit is lower.
	if err := syscall.Setrlimit(syscall.RLIMIT_CORE, &syscall.Rlimit{Cur: before.Max, Max: before.Max}); err != nil {
		t.Fatal(err)
	}
	defer syscall.Setrlimit(syscall.RLIMIT_CORE, &before)
	t.Setenv("GOTRACEBACK", "crash")
	dir := t.TempDir()
	dev := startDev(t, buildProgram(t, filepath.Join(dir, "bin")), filepath.Join(dir, "data"))
	credential := dev.credential(t, "demo.credential")
	dev.post(credential, "/v1/keys", map[string]any{"name": "a", "spec": "SM4"})

	limits, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", dev.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`(?m)^Max core file size +0 +0 `).Match(limits) {
		t.Errorf("the limits of the process:\n%s", limits)
	}
	// Its memory belongs to nobody but root, not to the user it runs as.
	if info, err := os.Stat(fmt.Sprintf("/proc/%d/mem", dev.cmd.Process.Pid)); err != nil || info.Sys().(*syscall.Stat_t).Uid != 0 {
		t.Errorf("the memory of the process: %v, %v", info, err)
	}

	if err := dev.cmd.Process.Signal(syscall.SIGABRT); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { dev.cmd.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		t.Fatal("it does not end")
	}
	status := dev.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if status.CoreDump() || status.Exited() && status.ExitStatus() == 0 {
		t.Errorf("it ended with %v", dev.cmd.ProcessState)
	}
	for _, pattern := range []string{"core*", "data/core*", "bin/core*"} {
		if found, _ := filepath.Glob(filepath.Join(dir, pattern)); len(found) > 0 {
			t.Errorf("it left %v", found)
		}
	}
}
