package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

// watcher reads the gauges of a process.
type watcher struct {
	pid   int
	ops   string // host:port of its operations listener
	begin time.Time
	http  *http.Client
}

// read takes all gauges, after a garbage collection: until the heap has come to
// its goal for the first time, minutes after the start under a small load, it
// grows whether or not anything is kept.
func (w *watcher) read(ctx context.Context) (reading, error) {
	profile, err := w.get(ctx, "/debug/pprof/heap?gc=1")
	if err != nil {
		return reading{}, err
	}
	_, err = io.Copy(io.Discard, profile)
	profile.Close()
	if err != nil {
		return reading{}, err
	}
	heap, err := w.metric(ctx, "go_memstats_heap_alloc_bytes")
	if err != nil {
		return reading{}, err
	}
	memory, err := residentMemory(w.pid)
	if err != nil {
		return reading{}, err
	}
	goroutines, err := w.metric(ctx, "go_goroutines")
	if err != nil {
		return reading{}, err
	}
	handles, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", w.pid))
	if err != nil {
		return reading{}, err
	}
	return reading{time.Since(w.begin), []float64{memory, heap / (1 << 20), goroutines, float64(len(handles))}}, nil
}

// residentMemory in MiB (proc_pid_status(5)).
func residentMemory(pid int) (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 64)
			return kib / 1024, err
		}
	}
	return 0, fmt.Errorf("the resident memory of process %d is not told", pid)
}

// metric reads one value without labels.
func (w *watcher) metric(ctx context.Context, name string) (float64, error) {
	body, err := w.get(ctx, "/metrics")
	if err != nil {
		return 0, err
	}
	defer body.Close()
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if value, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
			return strconv.ParseFloat(value, 64)
		}
	}
	if err := lines.Err(); err != nil {
		return 0, err
	}
	return 0, fmt.Errorf("the metric %s is missing", name)
}

// goroutines are the stacks of all, counted, for whoever looks for a leak.
func (w *watcher) goroutines(ctx context.Context) (string, error) {
	body, err := w.get(ctx, "/debug/pprof/goroutine?debug=1")
	if err != nil {
		return "", err
	}
	defer body.Close()
	text, err := io.ReadAll(body)
	return string(text), err
}

func (w *watcher) get(ctx context.Context, path string) (io.ReadCloser, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+w.ops+path, nil)
	if err != nil {
		return nil, err
	}
	answer, err := w.http.Do(r)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode != http.StatusOK {
		answer.Body.Close()
		return nil, fmt.Errorf("%s: %s", path, answer.Status)
	}
	return answer.Body, nil
}
