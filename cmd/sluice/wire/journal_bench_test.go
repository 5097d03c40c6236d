package wire_test

import (
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-kms/sluice/cmd/sluice/wire"
	"github.com/sluice-kms/sluice/cmd/sluice/wire/wiretest"
)

// memoryDir is a file system in memory, where a sync costs nothing.
const memoryDir = "/dev/shm"

// The journal's price in one run: the whole service with its journal on the
// disk, and with its journal in memory, which is the same but for the disk, in
// turns. It reports the median ratio of their throughputs with 64 clients, by how
// much the disk raises the P50 of one client, and what one fdatasync takes there.
//
//	go test -run '^$' -bench BenchmarkJournal -benchtime 1x ./cmd/sluice/wire
func BenchmarkJournalOnDiskAndInMemory(b *testing.B) {
	wiretest.Require(b)
	if _, err := os.Stat(memoryDir); err != nil {
		b.Skipf("no file system in memory: %v", err)
	}
	dir := b.TempDir()
	first, err := wiretest.Open(dir) // makes tokens, tenants and a key
	if err != nil {
		b.Fatal(err)
	}
	must(b, first, "/v1/keys", object{"name": "bench", "spec": "AES_256"})
	token, config := first.Demo, first.Config
	if err := first.Close(); err != nil {
		b.Fatal(err)
	}
	memory, err := os.MkdirTemp(memoryDir, "sluice-journal-")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { os.RemoveAll(memory) })
	disk := config.Journal.Dir

	const clients, rounds, window = 64, 11, time.Second
	var rate [2][]float64
	var latency [2][]time.Duration
	for b.Loop() {
		for round := range 2 * rounds {
			journal := []string{disk, memory}[round%2]
			c := *config
			c.Journal.Dir = journal
			c.Node = config.Node
			if journal == memory {
				c.Node += "-memory" // its journal is another one
			}
			app, err := wire.Open(b.Context(), &c, slog.New(slog.DiscardHandler))
			if err != nil {
				b.Fatal(err)
			}
			api, err := app.API("bench")
			if err != nil {
				b.Fatal(err)
			}
			handler := api.Handler()
			encrypt := func() time.Duration {
				began := time.Now()
				if status := serve(handler, token, "/v1/keys/bench/encrypt", `{"plaintext":"aGVsbG8="}`, "192.0.2.1:4711"); status != http.StatusOK {
					b.Errorf("status %d", status)
				}
				return time.Since(began)
			}
			for range 100 {
				encrypt()
			}
			for end := time.Now().Add(window); time.Now().Before(end); {
				latency[round%2] = append(latency[round%2], encrypt())
			}
			var mu sync.Mutex
			var all sync.WaitGroup
			done, began := 0, time.Now()
			for range clients {
				all.Go(func() {
					n := 0
					for time.Since(began) < window {
						encrypt()
						n++
					}
					mu.Lock()
					done += n
					mu.Unlock()
				})
			}
			all.Wait()
			rate[round%2] = append(rate[round%2], float64(done)/time.Since(began).Seconds())
			if err := app.Close(); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(0, "ns/op") // of many things at once
	ratios := make([]float64, len(rate[0]))
	for i := range ratios {
		ratios[i] = rate[0][i] / rate[1][i]
	}
	for unit, samples := range map[string][]float64{"disk-requests/s": rate[0], "memory-requests/s": rate[1], "throughput-ratio": ratios} {
		slices.Sort(samples)
		b.ReportMetric(samples[len(samples)/2], unit)
	}
	onDisk, inMemory := quantile(latency[0], 0.5), quantile(latency[1], 0.5)
	b.ReportMetric(float64(onDisk.Microseconds()), "disk-p50-µs")
	b.ReportMetric(float64((onDisk - inMemory).Microseconds()), "added-p50-µs")
	b.ReportMetric(float64(syncTime(b, disk).Microseconds()), "fdatasync-p50-µs")
}

// syncTime is the P50 of appending a record to a file in a folder and syncing
// it, as the journal does.
func syncTime(b *testing.B, dir string) time.Duration {
	f, err := os.Create(filepath.Join(dir, "sync-time"))
	if err != nil {
		b.Fatal(err)
	}
	defer os.Remove(f.Name())
	defer f.Close()
	record := make([]byte, 500)
	var times []time.Duration
	for range 500 {
		began := time.Now()
		if _, err := f.Write(record); err != nil {
			b.Fatal(err)
		}
		if err := unix.Fdatasync(int(f.Fd())); err != nil {
			b.Fatal(err)
		}
		times = append(times, time.Since(began))
	}
	return quantile(times, 0.5)
}
