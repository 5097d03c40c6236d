package wire_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-kms/sluice/cmd/sluice/wire"
)

// inProcess runs a token's module in a process of its own.
func inProcess(t *wire.TokenConfig) { t.Process = true }

// workers returns the worker processes of a node that this process has
// started, zombies among them; "" for all nodes.
func workers(t *testing.T, node string) []int {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	var pids []int
	for _, path := range stats {
		stat, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended meanwhile
		}
		// pid (name) state parent …; the name may hold anything.
		_, rest, _ := strings.Cut(string(stat), ") ")
		fields := strings.Fields(rest)
		if len(fields) < 2 || fields[1] != strconv.Itoa(os.Getpid()) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil {
			t.Fatal(err)
		}
		arguments, err := os.ReadFile(filepath.Join(filepath.Dir(path), "cmdline"))
		isWorker := strings.Contains(string(arguments), "\x00"+wire.HSMWorkerCommand+"\x00"+node)
		// A zombie has no arguments; only workers are started here.
		if err == nil && (isWorker || fields[0] == "Z") {
			pids = append(pids, pid)
		}
	}
	return pids
}

// worker returns the one worker process of a node.
func worker(t *testing.T, node string) int {
	t.Helper()
	pids := workers(t, node)
	if len(pids) != 1 {
		t.Fatalf("%s has the worker processes %v", node, pids)
	}
	return pids[0]
}

// newProcessPool opens a service whose tokens run in processes of their own,
// of which none may be left when it is closed.
func newProcessPool(t *testing.T, nodes int) *faultyPool {
	t.Cleanup(func() {
		if left := workers(t, ""); len(left) != 0 {
			t.Errorf("the worker processes %v are left", left)
		}
	})
	return newFaultyPool(t, nodes, inProcess)
}

// replaced waits until a node is up in a later epoch than it was, and checks
// that it has one process, another than it had.
func (l *traffic) replaced(t *testing.T, epoch uint64, pid int) {
	t.Helper()
	t.Logf("back after %v", l.await(t, "up again", func() bool {
		n := l.pool.node(0)
		return n.State == "up" && n.Epoch > epoch
	}))
	if now := worker(t, "node-1"); now == pid {
		t.Error("the worker process was not replaced")
	}
}

func TestKilledWorkerProcessFailsNoRequest(t *testing.T) {
	signals := map[string]syscall.Signal{"killed": syscall.SIGKILL, "a fault in the module": syscall.SIGSEGV}
	for _, nodes := range []int{2, 4} {
		t.Run(fmt.Sprintf("%d nodes", nodes), func(t *testing.T) {
			p := newProcessPool(t, nodes)
			for _, percent := range []int{50, 90} {
				for name, signal := range signals {
					t.Run(fmt.Sprintf("%d%%/%s", percent, name), func(t *testing.T) {
						l := p.load(t, p.slots*percent/100)
						l.after(200)
						before, pid := p.node(0).Epoch, worker(t, "node-1")
						if err := syscall.Kill(pid, signal); err != nil {
							t.Fatal(err)
						}
						l.replaced(t, before, pid)
						l.after(200)
						l.end(t)
					})
				}
			}
		})
	}
}

// A module that never returns costs its process: calls are answered, by
// another node, as soon as their limit is over, and the node comes back
// although the calls never do.
func TestHangingModuleIsKilledAndReplaced(t *testing.T) {
	p := newProcessPool(t, 2)
	l := p.load(t, p.slots/2)
	l.after(200)
	before, pid := p.node(0).Epoch, worker(t, "node-1")
	p.modules[0].Hang()
	t.Logf("out of service after %v", l.await(t, "down", func() bool { return p.node(0).State == "down" }))
	t.Logf("killed after %v more", l.await(t, "without its process", func() bool {
		return syscall.Kill(pid, 0) == syscall.ESRCH
	}))
	p.modules[0].Release() // for the processes to come; that one is gone
	l.replaced(t, before, pid)
	l.after(200)
	l.end(t)
	// The pool's limit of a call, one more on another node, and the wait.
	if slowest := time.Duration(l.slowest.Load()); slowest > 8*time.Second {
		t.Errorf("a request took %v", slowest)
	}
}
