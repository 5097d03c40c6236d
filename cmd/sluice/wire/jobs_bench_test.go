package wire_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/cmd/sluice/wire/wiretest"
	"github.com/sluice-kms/sluice/kms"
)

const (
	// victimPause is between the calls of the victim: somebody who waits, not a
	// load.
	victimPause = 2 * time.Millisecond
	// victimSlice is how long the victim is measured before it is the other way's
	// turn, so that what disturbs the machine disturbs both alike.
	victimSlice = 4 * time.Second
	// victimThreads is how many threads run Go code for each processor, and
	// victimGarbage how much the heap grows between collections, as in `sluice
	// serve`.
	victimThreads, victimGarbage = 2, 800
	// chunksAhead is how many chunks behind those that are done can be under way.
	chunksAhead = 8
)

// BenchmarkVictimBesideAJob measures a tenant's interactive calls alone and beside
// another tenant's running job of a million items, by turns, and reports the 99th
// percentiles in microseconds and their ratio, which is promised to be 1.25 at
// most, and how many items a second the job does meanwhile. Alone is when no chunk
// is under way.
func BenchmarkVictimBesideAJob(b *testing.B) {
	threads, garbage := runtime.GOMAXPROCS(victimThreads*runtime.NumCPU()), debug.SetGCPercent(victimGarbage)
	b.Cleanup(func() { runtime.GOMAXPROCS(threads); debug.SetGCPercent(garbage) })
	s, err := wiretest.Open(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s.Close() })
	unlimited(b, s)
	if status, a := call(b, s, s.Operator, http.MethodPost, "/v1/tenants", object{"name": "victim", "tier": "platinum", "force": true}); status != http.StatusCreated {
		b.Fatalf("%d %s", status, a.Detail)
	}
	_, minted := call(b, s, s.Operator, http.MethodPost, "/v1/tenants/victim/credentials", object{"name": "app", "scopes": []string{"key:*"}})
	for _, spec := range []string{"AES_256", "ECC_NIST_P256"} {
		b.Run(spec, func(b *testing.B) {
			name := "v-" + uuid.New().String()[:8]
			for _, credential := range []string{s.Demo, minted.Credential} {
				if status, a := call(b, s, credential, http.MethodPost, "/v1/keys", object{"name": name, "spec": spec}); status != http.StatusCreated {
					b.Fatalf("%d %s", status, a.Detail)
				}
			}
			item := fmt.Sprintf(`{"op":"encrypt","key":%q,"plaintext":"aGVsbG8="}`+"\n", name)
			victim := victim{url: s.URL + "/v1/keys/" + name + "/encrypt", body: `{"plaintext":"aGVsbG8="}`, credential: minted.Credential}
			if spec != "AES_256" {
				item = fmt.Sprintf(`{"op":"sign","key":%q,"message":"aGVsbG8="}`+"\n", name)
				victim.url, victim.body = s.URL+"/v1/keys/"+name+"/sign", `{"message":"aGVsbG8="}`
			}
			job := submitJob(b, s, s.Demo, repeated(item, 1_000_000))
			defer call(b, s, s.Demo, http.MethodDelete, "/v1/jobs/"+job, nil)
			tenant := uuid.MustParse(demoTenant(b, s))
			turn := func(works bool) {
				until := time.Now()
				if !works {
					until = until.Add(time.Hour)
				}
				if err := s.App.Store.DelayJob(b.Context(), tenant, uuid.MustParse(job), until, "measured"); err != nil {
					b.Fatal(err)
				}
				for end := time.Now().Add(jobPatience); underWay(b, s, tenant, uuid.MustParse(job)) != works; <-time.After(time.Millisecond) {
					if time.Now().After(end) {
						b.Fatalf("that the job works is not %v after %v", works, jobPatience)
					}
				}
			}
			var alone, beside []time.Duration
			items, took := 0, time.Duration(0)
			for b.Loop() {
				turn(false)
				alone = append(alone, victim.measure(b)...)
				turn(true)
				before, began := readJob(b, s, s.Demo, job), time.Now()
				beside = append(beside, victim.measure(b)...)
				after := readJob(b, s, s.Demo, job)
				items, took = items+after.Done-before.Done, took+time.Since(began)
				if after.State != "RUNNING" && after.State != "WAITING" {
					b.Fatalf("the job is over: %+v", after)
				}
			}
			a, j := percentile(alone, 99), percentile(beside, 99)
			b.ReportMetric(float64(a.Microseconds()), "p99-alone-µs")
			b.ReportMetric(float64(j.Microseconds()), "p99-beside-µs")
			b.ReportMetric(float64(percentile(alone, 50).Microseconds()), "p50-alone-µs")
			b.ReportMetric(float64(percentile(beside, 50).Microseconds()), "p50-beside-µs")
			b.ReportMetric(float64(j)/float64(a), "ratio")
			b.ReportMetric(float64(items)/took.Seconds(), "job-items/s")
		})
	}
}

// underWay tells whether a chunk of a job is.
func underWay(b *testing.B, s *wiretest.Service, tenant, job uuid.UUID) bool {
	b.Helper()
	p, err := s.App.Store.JobProgress(b.Context(), tenant, job)
	for n := 0; err == nil && n < chunksAhead; n++ {
		var c *kms.JobChunk
		if c, err = s.App.Store.Chunk(b.Context(), tenant, job, int(p.Done)/kms.MaxChunkItems+n); err == nil && (c.State == kms.ChunkRunning || c.State == kms.ChunkComputed) {
			return true
		}
	}
	if err != nil {
		b.Fatal(err)
	}
	return false
}

// demoTenant is the id of the tenant of the demo credential.
func demoTenant(b *testing.B, s *wiretest.Service) string {
	status, a := call(b, s, s.Operator, http.MethodGet, "/v1/tenants/demo", nil)
	if status != http.StatusOK {
		b.Fatalf("%d %s", status, a.Detail)
	}
	return a.ID
}

// victim makes the same call again and again.
type victim struct{ url, body, credential string }

// measure returns how long each call of a slice took.
func (v *victim) measure(b testing.TB) (list []time.Duration) {
	for end := time.Now().Add(victimSlice); time.Now().Before(end); {
		r, err := http.NewRequest(http.MethodPost, v.url, strings.NewReader(v.body))
		if err != nil {
			b.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+v.credential)
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Sluice-Urgency", "interactive")
		began := time.Now()
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			b.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		took := time.Since(began)
		resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusOK || bytes.Contains(body, []byte("problem")) {
			b.Fatalf("%d %s, %v", resp.StatusCode, body, err)
		}
		list = append(list, took)
		<-time.After(victimPause)
	}
	return list
}

func percentile(list []time.Duration, p int) time.Duration {
	slices.Sort(list)
	return list[min(len(list)*p/100, len(list)-1)]
}
