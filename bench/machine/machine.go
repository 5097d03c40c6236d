// Package machine says what a figure was measured on. A report without it says
// little: nobody knows what "fast" was fast on.
package machine

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"
)

// Machine is where something was measured.
type Machine struct {
	Cores  int    `json:"cores"`
	CPU    string `json:"cpu"` // its model; "": not known
	System string `json:"system"`
	Go     string `json:"go"`
	// Load is the load average of the last minute at the begin: what else the
	// machine had to do. Negative: not known.
	Load float64 `json:"load"`
	// SystemCall is how long a system call takes that does nothing, in
	// nanoseconds: some 100 where nothing is between program and kernel, more
	// where the kernel's pages are hidden from programs or a virtual machine is
	// in between. Servers make many. 0: not known.
	SystemCall float64 `json:"system_call_ns"`
}

// Here describes this machine as it is now.
func Here() Machine {
	m := Machine{Cores: runtime.GOMAXPROCS(0), System: runtime.GOOS + "/" + runtime.GOARCH, Go: runtime.Version(), Load: -1,
		SystemCall: systemCall()}
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		m.CPU = model(string(text))
	}
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		// It keeps -1 of a file in another form.
		_, _ = fmt.Sscan(string(text), &m.Load)
	}
	return m
}

// systemCall measures a system call: the median of several runs, in nanoseconds.
func systemCall() float64 {
	const runs, calls = 21, 1000
	took := make([]float64, runs)
	for i := range took {
		began := time.Now()
		for range calls {
			os.Getppid()
		}
		took[i] = float64(time.Since(began)) / calls
	}
	slices.Sort(took)
	return took[runs/2]
}

// model reads the first model name of /proc/cpuinfo.
func model(text string) string {
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// String is one line for a report.
func (m Machine) String() string {
	cpu := m.CPU
	if cpu == "" {
		cpu = "a processor of unknown model"
	}
	calls := ""
	if m.SystemCall > 0 {
		calls = fmt.Sprintf(", a system call takes %.0f ns", m.SystemCall)
	}
	return fmt.Sprintf("%d cores of %s, %s, %s%s, load average %.1f at the begin", m.Cores, cpu, m.System, m.Go, calls, m.Load)
}
