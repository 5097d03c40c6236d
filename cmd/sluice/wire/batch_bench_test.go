package wire_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/cmd/sluice/wire/wiretest"
	"github.com/sluice-kms/sluice/kms"
	"github.com/sluice-kms/sluice/quota"
)

const (
	// benchBatch is the size of batches that the promise is about.
	benchBatch = 100
	// saturating is how many connections keep the service busy.
	saturating = 32
	// benchSlice is how long a way is measured before it is the next one's turn,
	// so that what disturbs the machine disturbs all alike.
	benchSlice = 500 * time.Millisecond
)

// BenchmarkBatchAgainstSingleCalls encrypts by single calls and by batches of
// 100, by turns, on one connection and saturated, and reports items a second
// and how many times as many a batch has.
func BenchmarkBatchAgainstSingleCalls(b *testing.B) {
	s, err := wiretest.Open(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s.Close() })
	unlimited(b, s)
	for _, spec := range []string{"AES_256", "SM4"} {
		b.Run(spec, func(b *testing.B) {
			name := "bench-" + uuid.New().String()[:8]
			must(b, s, "/v1/keys", object{"name": name, "spec": spec})
			plaintext := `"plaintext":"` + strings.Repeat("bW1t", 21) + `"}`
			single := caller{s: s, path: "/v1/keys/" + name + "/encrypt", body: "{" + plaintext, items: 1}
			item := `{"op":"encrypt","key":"` + name + `",` + plaintext
			batch := caller{s: s, path: "/v1/batch", body: `{"items":[` + strings.Repeat(item+",", benchBatch-1) + item + `]}`, items: benchBatch}
			for _, c := range []struct {
				name        string
				connections int
			}{{"one", 1}, {"saturated", saturating}} {
				b.Run(c.name, func(b *testing.B) {
					var singles, batches float64
					for b.Loop() {
						singles += single.rate(b, c.connections)
						batches += batch.rate(b, c.connections)
					}
					b.ReportMetric(singles/float64(b.N), "single-items/s")
					b.ReportMetric(batches/float64(b.N), "batch-items/s")
					b.ReportMetric(batches/singles, "ratio")
				})
			}
		})
	}
}

// unlimited raises the limits of the demo tenant's tier above what a machine
// does, which is what is measured here.
func unlimited(b testing.TB, s *wiretest.Service) {
	operator := capacityClient(b, s.URL, s.Operator)
	if err := putRates(b, operator, true, func(p *quota.Policy) {
		limits := p.Tiers[kms.TierPlatinum]
		limits.CreditsPerSecond, limits.BurstCredits, limits.Concurrency = 200_000, 600_000, 4096
	}); err != nil {
		b.Fatal(err)
	}
}

// caller makes one call again and again.
type caller struct {
	s          *wiretest.Service
	path, body string
	items      int
}

// rate returns the items a second over some connections.
func (c *caller) rate(b *testing.B, connections int) float64 {
	transport := &http.Transport{MaxIdleConnsPerHost: connections}
	defer transport.CloseIdleConnections()
	caller := &http.Client{Transport: transport}
	var done atomic.Int64
	began := time.Now()
	var all sync.WaitGroup
	for range connections {
		all.Go(func() {
			for time.Since(began) < benchSlice {
				if err := c.call(caller); err != nil {
					b.Error(err)
					return
				}
				done.Add(int64(c.items))
			}
		})
	}
	all.Wait()
	return float64(done.Load()) / time.Since(began).Seconds()
}

func (c *caller) call(over *http.Client) error {
	r, err := http.NewRequest(http.MethodPost, c.s.URL+c.path, strings.NewReader(c.body))
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+c.s.Demo)
	r.Header.Set("Content-Type", "application/json")
	response, err := over.Do(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err == nil && (response.StatusCode != http.StatusOK || bytes.Contains(answer, []byte(`"problem"`))) {
		err = fmt.Errorf("%d %.600s", response.StatusCode, answer)
	}
	return err
}
