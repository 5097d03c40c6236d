package wire_test

import (
	"bufio"
	"bytes"
	"encoding/json/v2"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"path/filepath"
	"runtime"
	"runtime/metrics"
	"strings"
	"testing"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/audit"
	"github.com/sluice-kms/sluice/cmd/sluice/wire/wiretest"
	"github.com/sluice-kms/sluice/kms"
)

// jobPatience is how long a job of a test may take.
const jobPatience = 2 * time.Minute

// submitJob hands over items and returns the job's id.
func submitJob(t testing.TB, s *wiretest.Service, credential string, lines io.Reader) string {
	t.Helper()
	req, err := http.NewRequest(http.MethodPost, s.URL+"/v1/jobs", lines)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+credential)
	req.Header.Set("Content-Type", "application/x-ndjson")
	resp, err := s.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var a struct{ ID, Detail string }
	if err := json.UnmarshalRead(resp.Body, &a, json.MatchCaseInsensitiveNames(true)); err != nil || resp.StatusCode != http.StatusAccepted {
		t.Fatalf("submitting a job: %d %s, %v", resp.StatusCode, a.Detail, err)
	}
	return a.ID
}

// jobState is what is told of a job.
type jobState struct {
	State   string  `json:"state"`
	Done    int     `json:"done"`
	Failed  int     `json:"failed"`
	Credits float64 `json:"credits"`
	Waits   string  `json:"waits_for"`
}

func readJob(t testing.TB, s *wiretest.Service, credential, id string) (j jobState) {
	t.Helper()
	req, err := http.NewRequest(http.MethodGet, s.URL+"/v1/jobs/"+id, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+credential)
	resp, err := s.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.UnmarshalRead(resp.Body, &j); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("reading a job: %d, %v", resp.StatusCode, err)
	}
	return j
}

// awaitJob waits until a job is in a state.
func awaitJob(t testing.TB, s *wiretest.Service, credential, id, state string) jobState {
	t.Helper()
	for end := time.Now().Add(jobPatience); ; <-time.After(5 * time.Millisecond) {
		j := readJob(t, s, credential, id)
		if j.State == state {
			return j
		}
		if time.Now().After(end) {
			t.Fatalf("the job is %+v after %v, want %s", j, jobPatience, state)
		}
	}
}

// openResults asks for the results of a job as a stream, which is the caller's to
// close.
func openResults(t testing.TB, s *wiretest.Service, credential, id string) *http.Response {
	t.Helper()
	req, err := http.NewRequest(http.MethodGet, s.URL+"/v1/jobs/"+id+"/results", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+credential)
	resp, err := s.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

// jobResults reads the results of a job that is over.
func jobResults(t testing.TB, s *wiretest.Service, credential, id string) (status int, list []map[string]any) {
	t.Helper()
	resp := openResults(t, s, credential, id)
	defer resp.Body.Close()
	for lines := bufio.NewReader(resp.Body); resp.StatusCode == http.StatusOK; {
		line, err := lines.ReadBytes('\n')
		if err == io.EOF {
			break
		}
		var r map[string]any
		if err == nil {
			err = json.Unmarshal(line, &r)
		}
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, r)
	}
	return resp.StatusCode, list
}

// repeated is a line, a number of times, that is made as it is read.
func repeated(line string, times int) io.Reader {
	readers := make([]io.Reader, 0, times/1000+1)
	block := strings.Repeat(line, 1000)
	for range times / 1000 {
		readers = append(readers, strings.NewReader(block))
	}
	return io.MultiReader(append(readers, strings.NewReader(strings.Repeat(line, times%1000)))...)
}

// TestTwoNodesShareAJobAndOneFinishesIt has two API nodes on one database run a
// job. One ends in the middle, as for an update; the other does the rest. Each item
// is in one of the two journals, once.
func TestTwoNodesShareAJobAndOneFinishesIt(t *testing.T) {
	c := newCluster(t)
	one, stop := c.startStoppable(t, 1)
	two := c.start(t, 2)
	v := &village{Service: &wiretest.Service{App: two.app, URL: two.URL, Operator: c.operator(t, two.app)}}
	_, credential := v.tenant(t, "sharing")
	v.make(t, credential, "/v1/keys", object{"name": "k", "spec": "AES_256"})
	const items = 20_000
	id := submitJob(t, one.Service, credential, repeated(`{"op":"encrypt","key":"k","plaintext":"aGVsbG8="}`+"\n", items))
	for readJob(t, two.Service, credential, id).Done == 0 {
		<-time.After(time.Millisecond)
	}
	stop()
	if got := readJob(t, two.Service, credential, id); got.State != "RUNNING" && got.State != "WAITING" {
		t.Fatalf("it was over before a node was: %+v", got)
	}
	awaitJob(t, two.Service, credential, id, "DONE")
	_, list := jobResults(t, two.Service, credential, id)
	if len(list) != items {
		t.Fatalf("%d results", len(list))
	}
	seen, by := map[string]int{}, map[int]int{}
	for node := 1; node <= 2; node++ {
		err := audit.Read(filepath.Join(c.dir, fmt.Sprintf("data-%d", node), "journal"), 1, func(e *kms.Entry, _ audit.Position) error {
			if e.Resource == id && e.Op == kms.OpEncrypt {
				seen[e.RequestID.String()]++
				by[node]++
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for i, r := range list {
		if r["index"] != float64(i) || r["status"] != 200.0 || seen[r["request_id"].(string)] != 1 {
			t.Fatalf("item %d: %v is in the journals %d times", i, r, seen[r["request_id"].(string)])
		}
	}
	if len(seen) != items || by[1] == 0 || by[2] == 0 {
		t.Errorf("%d items are in the journals, by node %v", len(seen), by)
	}
	t.Logf("items by node: %v", by)
}

// peak watches how much of the heap is in use until stop is called.
func peak() (stop func() uint64) {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	end, ended, most := make(chan struct{}), make(chan struct{}), uint64(0)
	go func() {
		defer close(ended)
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			metrics.Read(sample)
			most = max(most, sample[0].Value.Uint64())
			select {
			case <-end:
				return
			case <-tick.C:
			}
		}
	}()
	return func() uint64 { close(end); <-ended; return most }
}

// A job of many items, which are 40 MB, takes the memory of some chunks, from the
// first of its items to the last of its results.
func TestMemoryOfABigJobIsBounded(t *testing.T) {
	s := wiretest.Start(t, t.TempDir())
	const items = 100_000
	line := `{"op":"digest","algorithm":"SHA_256","data":"` + strings.Repeat("QUJD", 90) + `"}` + "\n"
	// What the first requests leave is no part of it.
	awaitJob(t, s, s.Demo, submitJob(t, s, s.Demo, repeated(line, 2000)), "DONE")
	runtime.GC()
	var before runtime.MemStats
	runtime.ReadMemStats(&before)
	stop := peak()
	id := submitJob(t, s, s.Demo, repeated(line, items))
	j := awaitJob(t, s, s.Demo, id, "DONE")
	if j.Done != items || j.Failed != 0 {
		t.Errorf("%+v", j)
	}
	resp := openResults(t, s, s.Demo, id)
	defer resp.Body.Close()
	lines := 0
	for r := bufio.NewReader(resp.Body); ; lines++ {
		if _, err := r.ReadSlice('\n'); err != nil {
			break
		}
	}
	most := stop()
	if lines != items {
		t.Errorf("%d results", lines)
	}
	// The collector lets the heap grow to twice of what is used.
	const bound = 96 << 20
	grown := int64(most) - int64(before.HeapAlloc)
	t.Logf("%d items of %d MB: the heap grew by %d MB at most", items, items*len(line)>>20, grown>>20)
	if grown > bound {
		t.Errorf("the heap grew by %d MB, want %d at most", grown>>20, bound>>20)
	}
}

// Whoever goes away in the middle of a job's items leaves nothing.
func TestAClientThatGoesAwayLeavesNoJob(t *testing.T) {
	s := wiretest.Start(t, t.TempDir())
	line := []byte(`{"op":"random","bytes":8}` + "\n")
	reader, writer := io.Pipe()
	go func() {
		writer.Write(bytes.Repeat(line, 2000))
		writer.CloseWithError(io.ErrUnexpectedEOF)
	}()
	req, err := http.NewRequest(http.MethodPost, s.URL+"/v1/jobs", reader)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+s.Demo)
	req.Header.Set("Content-Type", "application/x-ndjson")
	if resp, err := s.Client().Do(req); err == nil {
		resp.Body.Close()
		t.Errorf("it was answered: %d", resp.StatusCode)
	}
	principal, err := s.App.Authenticator.Authenticate(t.Context(), s.Demo, netip.IPv4Unspecified())
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(jobPatience); ; <-time.After(5 * time.Millisecond) {
		list, _, err := s.App.Store.ListJobs(t.Context(), principal.Tenant.ID, uuid.Nil(), kms.Page{Size: 10})
		if err != nil {
			t.Fatal(err)
		}
		entry := false
		err = audit.Read(filepath.Join(s.Dir, "journal"), 1, func(e *kms.Entry, _ audit.Position) error {
			entry = entry || e.Op == kms.OpCreateJob && e.Outcome == kms.KindMalformed.String()
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if len(list) == 0 && entry {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d jobs are left; recorded: %v", len(list), entry)
		}
	}
}
