// Package machine says what a figure was measured on. A report without it says
// little: nobody knows what "fast" was fast on.
package machine

import (
	"fmt"
	"os"
	"runtime"
	"strings"
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
}

// Here describes this machine as it is now.
func Here() Machine {
	m := Machine{Cores: runtime.GOMAXPROCS(0), System: runtime.GOOS + "/" + runtime.GOARCH, Go: runtime.Version(), Load: -1}
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		m.CPU = model(string(text))
	}
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		// It keeps -1 of a file in another form.
		_, _ = fmt.Sscan(string(text), &m.Load)
	}
	return m
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
	return fmt.Sprintf("%d cores of %s, %s, %s, load average %.1f at the begin", m.Cores, cpu, m.System, m.Go, m.Load)
}
