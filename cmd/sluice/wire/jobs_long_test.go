package wire_test

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json/v2"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/audit"
	"github.com/sluice-kms/sluice/cmd/sluice/wire/wiretest"
	"github.com/sluice-kms/sluice/kms"
)

const (
	// longJobPatience is how long a million items may take, and longJobPause how long
	// they have the node to themselves before somebody else calls for a slice.
	longJobPatience = 40 * time.Minute
	longJobPause    = 20 * time.Second
	// longJobHeap is how many bytes the heap may grow while a job is taken in, run
	// and read: chunks under way and garbage. The results alone are twice that.
	longJobHeap = 128 << 20
)

// longJobItems is how many items the long job has: SLUICE_CHAOS=full asks for as
// many as one may have.
func longJobItems() int {
	if os.Getenv("SLUICE_CHAOS") == "full" {
		return kms.MaxJobItems
	}
	return 20_000
}

// itemReader makes items as they are read: each encrypts a text of its own.
type itemReader struct {
	next, all int
	line      string // what is left of the last one
}

// Read implements io.Reader.
func (r *itemReader) Read(p []byte) (n int, err error) {
	for n < len(p) {
		if r.line == "" {
			if r.next == r.all {
				break
			}
			r.line = fmt.Sprintf(`{"op":"encrypt","key":"long","plaintext":%q}`+"\n", base64.StdEncoding.EncodeToString(longText(r.next)))
			r.next++
		}
		took := copy(p[n:], r.line)
		n, r.line = n+took, r.line[took:]
	}
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

func longText(i int) []byte { return fmt.Appendf(nil, "text %d", i) }

// TestALongJobRunsToItsEndInBoundedMemory hands over a job as a stream, with
// somebody else beside it for a part of the time, and reads its results as a
// stream: they are all there, in order and of their own items, the journal has each
// item once, and the heap stays where it was.
func TestALongJobRunsToItsEndInBoundedMemory(t *testing.T) {
	wiretest.Require(t)
	s, err := wiretest.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	unlimited(t, s)
	if status, a := call(t, s, s.Operator, http.MethodPost, "/v1/tenants", object{"name": "victim", "tier": "platinum", "force": true}); status != http.StatusCreated {
		t.Fatalf("%d %s", status, a.Detail)
	}
	_, minted := call(t, s, s.Operator, http.MethodPost, "/v1/tenants/victim/credentials", object{"name": "app", "scopes": []string{"key:*"}})
	for _, credential := range []string{s.Demo, minted.Credential} {
		if status, a := call(t, s, credential, http.MethodPost, "/v1/keys", object{"name": "long", "spec": "AES_256"}); status != http.StatusCreated {
			t.Fatalf("%d %s", status, a.Detail)
		}
	}
	v := victim{url: s.URL + "/v1/keys/long/encrypt", body: `{"plaintext":"aGVsbG8="}`, credential: minted.Credential}
	alone := v.measure(t)
	items := longJobItems()
	ids := make([]uuid.UUID, 0, items)
	runtime.GC()
	var before runtime.MemStats
	runtime.ReadMemStats(&before)
	stop := peak()
	began := time.Now()
	job := submitJob(t, s, s.Demo, &itemReader{all: items})
	submitted := time.Since(began)
	var beside []time.Duration
	var others sync.WaitGroup
	over := make(chan struct{})
	others.Go(func() {
		for {
			beside = append(beside, v.measure(t)...)
			select {
			case <-over:
				return
			case <-time.After(longJobPause):
			}
		}
	})
	var state jobState
	for end := began.Add(longJobPatience); state.State != "DONE"; <-time.After(50 * time.Millisecond) {
		if state = readJob(t, s, s.Demo, job); time.Now().After(end) {
			t.Fatalf("the job is %+v after %v", state, longJobPatience)
		}
	}
	took := time.Since(began)
	close(over)
	others.Wait()
	ids = longResults(t, s, job, ids)
	heap := int64(stop()) - int64(before.HeapAlloc)
	if heap > longJobHeap {
		t.Errorf("the heap grew by %d MiB", heap>>20)
	}
	if len(ids) != items || state.Done != items || state.Failed != 0 {
		t.Fatalf("%d results, of a job that says %+v", len(ids), state)
	}
	inJournalOnce(t, s, job, ids)
	t.Logf("%d items: taken in in %v, done after %v, %.0f a second; the heap grew by %d MiB; another's calls: P99 %v alone, %v beside the job", items,
		submitted.Round(time.Millisecond), took.Round(time.Millisecond), float64(items)/took.Seconds(), heap>>20, percentile(alone, 99), percentile(beside, 99))
}

// longResults reads the results of a job, checks that they are in order and of
// their own items, and appends their request ids.
func longResults(t *testing.T, s *wiretest.Service, job string, ids []uuid.UUID) []uuid.UUID {
	t.Helper()
	resp := openResults(t, s, s.Demo, job)
	defer resp.Body.Close()
	if complete := resp.Header.Get("Sluice-Results-Complete"); resp.StatusCode != http.StatusOK || complete != "true" {
		t.Fatalf("%d, complete: %q", resp.StatusCode, complete)
	}
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		var r struct {
			Index   int       `json:"index"`
			Status  int       `json:"status"`
			Request uuid.UUID `json:"request_id"`
			Result  struct {
				Ciphertext string `json:"ciphertext"`
			} `json:"result"`
		}
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			t.Fatalf("result %d: %v", len(ids), err)
		}
		if r.Index != len(ids) || r.Status != http.StatusOK {
			t.Fatalf("result %d is %s", len(ids), lines.Bytes())
		}
		if r.Index%longJobSample == 0 {
			status, a := call(t, s, s.Demo, http.MethodPost, "/v1/keys/long/decrypt", object{"ciphertext": r.Result.Ciphertext})
			if status != http.StatusOK || !bytes.Equal(a.Plaintext, longText(r.Index)) {
				t.Errorf("result %d is of another item: %d %q", r.Index, status, a.Plaintext)
			}
		}
		ids = append(ids, r.Request)
	}
	return ids
}

// longJobSample is of how many results one is decrypted: an odd number, so that
// places in a chunk differ.
const longJobSample = 1777

// inJournalOnce checks that the journal has the items of a job once each, and no
// others.
func inJournalOnce(t *testing.T, s *wiretest.Service, job string, ids []uuid.UUID) {
	t.Helper()
	open := make(map[uuid.UUID]bool, len(ids))
	for _, id := range ids {
		open[id] = true
	}
	if len(open) != len(ids) {
		t.Errorf("%d items have %d request ids", len(ids), len(open))
	}
	entries := 0
	if err := audit.Read(s.Config.Journal.Dir, 1, func(e *kms.Entry, _ audit.Position) error {
		if e.Phase == kms.PhaseOutcome && e.Op == kms.OpEncrypt && strings.EqualFold(e.Resource, job) {
			entries++
			delete(open, e.RequestID)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if entries != len(ids) || len(open) > 0 {
		t.Errorf("the journal has %d entries of %d items, and not %d of them", entries, len(ids), len(open))
	}
}
