package main

import (
	"bufio"
	"encoding/base64"
	"encoding/json/v2"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/audit"
	"github.com/sluice-kms/sluice/cmd/sluice/wire/wiretest"
	"github.com/sluice-kms/sluice/kms"
)

const (
	// crashJobItems are the items of a job: so many that one is seldom done before
	// the process is killed.
	crashJobItems = 2000
	// crashJobPatience is how long the last process may take to do what is left.
	crashJobPatience = 10 * time.Minute
	// crashJobAgain is how many jobs of which nothing is known are sent again in a
	// round: a tenant has no more than 16 that are not over.
	crashJobAgain = 2
)

// crashJob is a job of which something was heard: that it was taken in, or only
// the key under which it was sent.
type crashJob struct {
	id    string // "": it is not known whether it was taken in
	key   string // Idempotency-Key
	items string
}

// lines sends items as a job. It returns status 0 when there was no answer.
func (p *devProcess) lines(credential, key, items string) (int, map[string]any) {
	req, err := http.NewRequest(http.MethodPost, "http://"+p.address+"/v1/jobs", strings.NewReader(items))
	if err != nil {
		panic(err)
	}
	req.Header.Set("Authorization", "Bearer "+credential)
	req.Header.Set("Content-Type", "application/x-ndjson")
	req.Header.Set("Idempotency-Key", key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil
	}
	defer resp.Body.Close()
	var a map[string]any
	if err := json.UnmarshalRead(resp.Body, &a); err != nil {
		return 0, nil
	}
	return resp.StatusCode, a
}

// submit sends a job whose id is not known.
func (j *crashJob) submit(t *testing.T, p *devProcess, credential string) {
	t.Helper()
	switch status, a := p.lines(credential, j.key, j.items); status {
	case http.StatusAccepted:
		j.id = a["id"].(string)
	case 0, http.StatusConflict: // killed; or the first one's claim is not over yet
	default:
		t.Errorf("submitting: %d %v", status, a)
	}
}

// results reads all results of a job.
func (j *crashJob) results(t *testing.T, p *devProcess, credential string) (list []map[string]any) {
	t.Helper()
	req, err := http.NewRequest(http.MethodGet, "http://"+p.address+"/v1/jobs/"+j.id+"/results", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+credential)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if complete := resp.Header.Get("Sluice-Results-Complete"); resp.StatusCode != http.StatusOK || complete != "true" {
		t.Fatalf("reading results: %d, complete: %q", resp.StatusCode, complete)
	}
	lines := bufio.NewReader(resp.Body)
	for {
		line, err := lines.ReadBytes('\n')
		if err == io.EOF {
			return list
		}
		var r map[string]any
		if err != nil || json.Unmarshal(line, &r) != nil {
			t.Fatalf("result %d: %v", len(list), err)
		}
		list = append(list, r)
	}
}

// jobItems are items that encrypt a text of their own, and every tenth one that
// fails on an HSM and is charged in part.
func jobItems(round int, tampered string) string {
	var b strings.Builder
	for i := range crashJobItems {
		if i%10 == 9 {
			fmt.Fprintf(&b, `{"op":"decrypt","key":"k","ciphertext":%q}`+"\n", tampered)
			continue
		}
		fmt.Fprintf(&b, `{"op":"encrypt","key":"k","plaintext":%q}`+"\n", base64.StdEncoding.EncodeToString(fmt.Appendf(nil, "text %d of %d", i, round)))
	}
	return b.String()
}

// TestJobsSurviveKill9 kills the process again and again while jobs are taken in
// and run. At the end each job has one result for each of its items, in their
// order and of their own, the journal has each of these once, and the jobs, the
// ledger and usage say what the journal does.
func TestJobsSurviveKill9(t *testing.T) {
	wiretest.Require(t)
	for name, target := range map[string]func(*testing.T) *crashTarget{"SQLite": sqliteTarget, "PostgreSQL": postgresTarget} {
		t.Run(name, func(t *testing.T) {
			c := target(t)
			var jobs []*crashJob
			var tampered string
			began := time.Now()
			for round := range rounds(10, 300) {
				p := c.start(t)
				if round == 0 {
					tampered = makeTampered(t, p, c.credential)
				}
				again := 0
				for _, j := range jobs {
					if j.id == "" && again < crashJobAgain {
						j.submit(t, p, c.credential)
						again++
					}
				}
				j := &crashJob{key: uuid.New().String(), items: jobItems(round, tampered)}
				jobs = append(jobs, j)
				killed := make(chan struct{})
				go func() {
					defer close(killed)
					// The moment of the kill differs from round to round.
					<-time.After(time.Duration(5+(round*97)%250) * time.Millisecond)
					p.kill()
				}()
				j.submit(t, p, c.credential)
				<-killed
				if t.Failed() {
					return
				}
			}
			t.Logf("%d kills in %v", len(jobs), time.Since(began).Round(time.Second))
			last := c.start(t)
			checkJobs(t, last, c, jobs)
			if err := last.stop(t); err != nil {
				t.Errorf("stopping: %v", err)
			}
			checkJournal(t, c.journal, nil)
		})
	}
}

// makeTampered makes the key and a ciphertext of it that does not decrypt.
func makeTampered(t *testing.T, p *devProcess, credential string) string {
	t.Helper()
	if status, a := p.post(credential, "/v1/keys", map[string]any{"name": "k", "spec": "AES_256"}); status != http.StatusCreated {
		t.Fatalf("%d %v", status, a)
	}
	status, a := p.post(credential, "/v1/keys/k/encrypt", map[string]any{"plaintext": []byte("x")})
	if status != http.StatusOK {
		t.Fatalf("%d %v", status, a)
	}
	raw, err := base64.StdEncoding.DecodeString(a["ciphertext"].(string))
	if err != nil {
		t.Fatal(err)
	}
	raw[len(raw)-1] ^= 1
	return base64.StdEncoding.EncodeToString(raw)
}

// settled waits until all jobs are over, sending those again of which nothing is
// known, and returns what they were charged.
func settled(t *testing.T, p *devProcess, c *crashTarget, jobs []*crashJob) (charged map[string]kms.Credits) {
	t.Helper()
	charged = map[string]kms.Credits{}
	for end := time.Now().Add(crashJobPatience); ; <-time.After(100 * time.Millisecond) {
		left := 0
		for _, j := range jobs {
			if j.id == "" {
				j.submit(t, p, c.credential)
				left++
				continue
			}
			if _, known := charged[j.id]; known {
				continue
			}
			status, a := p.get(c.credential, "/v1/jobs/"+j.id)
			if status != http.StatusOK {
				t.Fatalf("job %s: %d %v", j.id, status, a)
			}
			if a["state"] != "DONE" {
				left++
				continue
			}
			charged[j.id] = micro(a["credits"])
		}
		if left == 0 {
			return charged
		}
		if time.Now().After(end) {
			t.Fatalf("%d of %d jobs are not over after %v", left, len(jobs), crashJobPatience)
		}
	}
}

func checkJobs(t *testing.T, p *devProcess, c *crashTarget, jobs []*crashJob) {
	t.Helper()
	began := time.Now()
	charged := settled(t, p, c, jobs)
	t.Logf("what was left was done in %v", time.Since(began).Round(time.Second))
	if len(charged) != len(jobs) {
		t.Errorf("%d jobs have %d ids", len(jobs), len(charged))
	}
	status, a := p.get(c.credential, "/v1/jobs?page_size=1000")
	if status != http.StatusOK {
		t.Fatalf("listing jobs: %d %v", status, a)
	}
	// What was sent again under its key is the job that was made of it.
	if there := len(a["jobs"].([]any)); there != len(jobs) {
		t.Errorf("%d jobs were submitted, %d are there", len(jobs), there)
	}
	ofItem := map[string]string{} // request id → job
	for round, j := range jobs {
		list := j.results(t, p, c.credential)
		if len(list) != crashJobItems {
			t.Fatalf("job %s: %d items have %d results", j.id, crashJobItems, len(list))
		}
		for i, r := range list {
			want := http.StatusOK
			if i%10 == 9 {
				want = http.StatusBadRequest
			}
			if r["index"] != float64(i) || r["status"] != float64(want) {
				t.Fatalf("job %s, item %d: %v", j.id, i, r)
			}
			id := r["request_id"].(string)
			if ofItem[id] != "" {
				t.Fatalf("the request %s has two results", id)
			}
			ofItem[id] = j.id
		}
		i := round % crashJobItems / 10 * 10
		if status, a := p.post(c.credential, "/v1/keys/k/decrypt", map[string]any{"ciphertext": list[i]["result"].(map[string]any)["ciphertext"]}); status != http.StatusOK ||
			a["plaintext"] != base64.StdEncoding.EncodeToString(fmt.Appendf(nil, "text %d of %d", i, round)) {
			t.Errorf("job %s: the result of item %d is not its own: %d", j.id, i, status)
		}
	}
	seen, sums := map[string]int{}, map[string]kms.Credits{}
	err := audit.Read(c.journal, 1, func(e *kms.Entry, _ audit.Position) error {
		if id := e.RequestID.String(); e.Phase == kms.PhaseOutcome && ofItem[id] != "" {
			seen[id]++
			sums[ofItem[id]] += e.Charged
		} else if e.Phase == kms.PhaseOutcome && e.Resource != "" && charged[e.Resource] > 0 && e.Op.Info().PerKey {
			t.Errorf("the journal has an item %s of the job %s that no result has", id, e.Resource)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	twice := 0
	for id := range ofItem {
		if seen[id] != 1 {
			if twice++; twice < 10 {
				t.Errorf("the item %s is in the journal %d times", id, seen[id])
			}
		}
	}
	for id, want := range charged {
		if sums[id] != want || want == 0 {
			t.Errorf("the job %s was charged %v µcr, its items in the journal %v", id, want, sums[id])
		}
	}
	checkLedger(t, p, c.credential, c.journal)
	checkUsage(t, p, c.credential, c.journal)
	t.Logf("%d jobs, %d items, each once", len(jobs), len(ofItem))
}
