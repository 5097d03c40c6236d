package api_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json/v2"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/api"
	"github.com/sluice-kms/sluice/kms"
)

const linesType = "application/x-ndjson"

// encryptLines are items that encrypt a text of their own.
func encryptLines(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `{"op":"encrypt","key":"jobs","plaintext":%q}`+"\n", base64.StdEncoding.EncodeToString(fmt.Appendf(nil, "text %d", i)))
	}
	return b.String()
}

// workers is a world whose service runs jobs from start on.
type workers struct {
	*world
	config  kms.Config
	service *kms.Service
	server  *api.Server
}

// newWorkers makes a world with a key "jobs"; changes alter the service.
func newWorkers(t *testing.T, changes ...func(*kms.Config)) *workers {
	w := &workers{}
	w.world = newWorldServing(t, func(c *kms.Config) {
		for _, change := range changes {
			change(c)
		}
	}, func(c kms.Config, service *kms.Service, server *api.Server) {
		w.config, w.service, w.server = c, service, server
	})
	w.key(w.acme, kms.SpecAES256, "", "jobs")
	return w
}

// serviceWith is another service on the same memory.
func (w *workers) serviceWith(change func(*kms.Config)) *kms.Service {
	c := w.config
	change(&c)
	return kms.NewService(c)
}

// start runs jobs until the test ends or stop is called.
func (w *workers) start() (stop func()) {
	r := w.service.StartJobs(kms.JobConfig{Node: "api-1", Items: w.server, Journal: w.memory, Parallel: 4})
	stop = sync.OnceFunc(func() { r.Close() })
	w.t.Cleanup(stop)
	return stop
}

func (w *workers) submit(lines string) string {
	w.t.Helper()
	return w.must(202, "POST", "/v1/jobs", w.acme.token, lines).text("id")
}

// await waits until a job is in a state.
func (w *workers) await(id, state string) *answer {
	w.t.Helper()
	for end := time.Now().Add(30 * time.Second); ; <-time.After(time.Millisecond) {
		a := w.must(200, "GET", "/v1/jobs/"+id, w.acme.token, "")
		if a.text("state") == state {
			return a
		}
		if time.Now().After(end) {
			w.t.Fatalf("the job is %s, want %s", a.body, state)
		}
	}
}

// results reads results, and whether they are all.
func (w *workers) results(token, id string, from int) (list []map[string]any, complete bool) {
	w.t.Helper()
	path := "/v1/jobs/" + id + "/results"
	if from > 0 {
		path += fmt.Sprint("?from=", from)
	}
	a := w.raw("GET", path, token, nil, http.Header{})
	if a.status != 200 || a.header.Get("Content-Type") != linesType {
		w.t.Fatalf("%d %s", a.status, a.body)
	}
	for line := range bytes.Lines(a.body) {
		var r map[string]any
		if err := json.Unmarshal(line, &r); err != nil {
			w.t.Fatal(err)
		}
		list = append(list, r)
	}
	return list, a.header.Get("Sluice-Results-Complete") == "true"
}

// once checks that the results are those of encryptLines(n), and that the journal
// has each of them once and nothing else of the job.
func (w *workers) exactlyOnce(id string, n int) {
	w.t.Helper()
	list, complete := w.results(w.acme.token, id, 0)
	if len(list) != n || !complete {
		w.t.Fatalf("%d results, complete: %v", len(list), complete)
	}
	seen := map[string]int{}
	charged := kms.Credits(0)
	w.mu.Lock()
	for i := range w.entries {
		if e := &w.entries[i]; e.Resource == id && e.Op == kms.OpEncrypt {
			seen[e.RequestID.String()]++
			charged += e.Charged
		}
	}
	w.mu.Unlock()
	for i, r := range list {
		if r["index"] != float64(i) || r["status"] != 200.0 || seen[r["request_id"].(string)] != 1 {
			w.t.Errorf("item %d: %v is in the journal %d times", i, r, seen[r["request_id"].(string)])
		}
	}
	if len(seen) != n {
		w.t.Errorf("%d items are in the journal, want %d", len(seen), n)
	}
	a := w.must(200, "GET", "/v1/jobs/"+id, w.acme.token, "")
	if got := a.fields["credits"].(float64); got*float64(kms.Credit) != float64(charged) || charged == 0 {
		w.t.Errorf("the job was charged %v credits, the journal has %v µcr", got, charged)
	}
	i := n - 1
	opened := w.must(200, "POST", "/v1/keys/jobs/decrypt", w.acme.token, object(map[string]any{"ciphertext": list[i]["result"].(map[string]any)["ciphertext"]}))
	if opened.text("plaintext") != base64.StdEncoding.EncodeToString(fmt.Appendf(nil, "text %d", i)) {
		w.t.Errorf("the result of item %d is another's: %s", i, opened.body)
	}
}

func TestAJobRunsEachItemOnceInItsOrder(t *testing.T) {
	w := newWorkers(t)
	id := w.submit(encryptLines(1234))
	w.start()
	a := w.await(id, "DONE")
	if a.fields["items"] != 1234.0 || a.fields["done"] != 1234.0 || a.fields["failed"] != 0.0 || a.fields["ended_at"] == nil {
		t.Errorf("%s", a.body)
	}
	w.exactlyOnce(id, 1234)
	for _, from := range []int{1, 499, 500, 501, 1233, 1234} {
		if list, complete := w.results(w.acme.token, id, from); len(list) != 1234-from || !complete || len(list) > 0 && list[0]["index"] != float64(from) {
			t.Errorf("from %d: %d results", from, len(list))
		}
	}
	if a := w.send("GET", "/v1/jobs/"+id+"/results?from=1235", w.acme.token, ""); a.status != 422 {
		t.Errorf("behind the end: %d %s", a.status, a.body)
	}
}

func TestAnItemsRefusalIsItsResult(t *testing.T) {
	w := newWorkers(t)
	w.start()
	id := w.submit(`{"op":"encrypt","key":"missing","plaintext":""}` + "\n" + `{"op":"random","bytes":8}` + "\n" +
		`{"op":"decrypt","key":"jobs","ciphertext":"AAAA"}` + "\n" + `{"op":"sign","key":"jobs","message":""}` + "\n")
	a := w.await(id, "DONE")
	list, _ := w.results(w.acme.token, id, 0)
	for i, want := range []float64{404, 200, 400, 422} {
		if list[i]["status"] != want {
			t.Errorf("item %d: %v, want %v", i, list[i], want)
		}
	}
	if a.fields["failed"] != 3.0 {
		t.Errorf("%s", a.body)
	}
}

func TestABadLineRefusesTheJobByItsNumberAndLeavesNothing(t *testing.T) {
	w := newWorkers(t)
	good := encryptLines(700)
	for name, c := range map[string]struct {
		body   string
		status int
		detail string
	}{
		"no item":          {"", 422, "an item at least"},
		"blank":            {"\n \n", 422, "an item at least"},
		"no JSON":          {good + "x\n", 400, "line 701: "},
		"no object":        {"[]\n", 400, "line 1: "},
		"two in a line":    {`{"op":"random","bytes":1}{"op":"random","bytes":1}`, 400, "line 1: "},
		"a broken end":     {good + `{"op":"random","bytes":1`, 400, "line 701: "},
		"no op":            {`{"key":"jobs"}` + "\n", 422, "line 1: op: is missing"},
		"an unknown op":    {"\n\n" + `{"op":"create","key":"jobs"}` + "\n", 422, "line 3: op: must be one of"},
		"no key":           {`{"op":"encrypt","plaintext":""}` + "\n", 422, "line 1: key: is missing"},
		"an unknown field": {good + `{"op":"encrypt","key":"jobs","plain":""}` + "\n", 400, "line 701: has an unknown field"},
		"a wrong type":     {`{"op":"random","bytes":"x"}` + "\n", 400, "line 1: "},
		"a long line":      {good + `{"op":"digest","algorithm":"SHA_256","data":"` + strings.Repeat("A", 1<<20) + `"}` + "\n", 413, "line 701 is longer than"},
	} {
		t.Run(name, func(t *testing.T) {
			w.outcomes()
			a := w.sendBad("POST", "/v1/jobs", w.acme.token, c.body)
			if a.status != c.status || !strings.Contains(a.text("detail"), c.detail) {
				t.Errorf("%d %s", a.status, a.body)
			}
			if e := w.outcomes(); len(e) != 1 || e[0].Op != kms.OpCreateJob || e[0].Outcome == "ok" {
				t.Errorf("the journal has %+v", e)
			}
			if len(w.work.jobs) != 0 || len(w.work.chunks) != 0 {
				t.Errorf("%d jobs are left", len(w.work.jobs))
			}
		})
	}
	if a := w.sendBad("POST", "/v1/jobs", w.acme.token, good, "Content-Type", "", "Content-Type", "application/json"); a.status != 415 {
		t.Errorf("JSON: %d", a.status)
	}
	for _, hours := range []string{"0", "169", "x"} {
		if a := w.sendBad("POST", "/v1/jobs?retain_hours="+hours, w.acme.token, good); a.status != 400 {
			t.Errorf("retain_hours=%s: %d", hours, a.status)
		}
	}
}

func TestNothingOfAJobIsStoredInTheClear(t *testing.T) {
	w := newWorkers(t)
	w.start()
	secret := base64.StdEncoding.EncodeToString([]byte("canary in a job"))
	sealed := w.must(200, "POST", "/v1/keys/jobs/encrypt", w.acme.token, `{"plaintext":"`+secret+`"}`).text("ciphertext")
	id := w.submit(`{"op":"encrypt","key":"jobs","plaintext":"` + secret + `"}` + "\n" + `{"op":"decrypt","key":"jobs","ciphertext":"` + sealed + `"}` + "\n")
	inputs := func(want string) {
		t.Helper()
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, chunks := range w.work.chunks {
			for _, c := range chunks {
				for what, content := range map[string][]byte{"input": c.Input, "output": c.Output, "entries": c.Entries} {
					if bytes.Contains(content, []byte(secret)) || bytes.Contains(content, []byte("plaintext")) {
						t.Errorf("the %s can be read", what)
					}
				}
				if c.State == kms.ChunkDone && (c.Input != nil || c.Entries != nil) {
					t.Errorf("what nobody needs any more is kept: %s", want)
				}
			}
		}
	}
	inputs("")
	w.await(id, "DONE")
	inputs("after the end")
	if list, _ := w.results(w.acme.token, id, 0); list[1]["result"].(map[string]any)["plaintext"] != secret {
		t.Errorf("%v", list[1])
	}
}

func TestAJobIsItsCredentialsAndItsResultsAreNobodyElses(t *testing.T) {
	w := newWorkers(t)
	w.start()
	mint := func(scopes string) string {
		return w.must(201, "POST", "/v1/credentials", w.acme.token, `{"name":"c","scopes":[`+scopes+`]}`).text("credential")
	}
	own, other := mint(`"key:*"`), mint(`"key:*","project:*"`)
	id := w.must(202, "POST", "/v1/jobs", own, encryptLines(3)).text("id")
	w.await(id, "DONE") // the administrator sees that it is there
	if a := w.send("GET", "/v1/jobs/"+id, own, ""); a.status != 200 {
		t.Errorf("its own: %d", a.status)
	}
	if list, _ := w.results(own, id, 0); len(list) != 3 {
		t.Errorf("%d results", len(list))
	}
	for name, c := range map[string]struct {
		token  string
		shown  int
		listed int
	}{"another credential": {other, 404, 0}, "another tenant": {w.rival.token, 404, 0}, "the administrator": {w.acme.token, 200, 1}} {
		if a := w.send("GET", "/v1/jobs/"+id, c.token, ""); a.status != c.shown {
			t.Errorf("%s: %d", name, a.status)
		}
		if a := w.must(200, "GET", "/v1/jobs", c.token, ""); len(a.fields["jobs"].([]any)) != c.listed {
			t.Errorf("%s lists %s", name, a.body)
		}
		if a := w.send("GET", "/v1/jobs/"+id+"/results", c.token, ""); a.status != 404 {
			t.Errorf("%s reads its results: %d", name, a.status)
		}
	}
	for _, token := range []string{other, w.rival.token} {
		if a := w.send("DELETE", "/v1/jobs/"+id, token, ""); a.status != 404 {
			t.Errorf("deleted: %d", a.status)
		}
	}
	if a := w.must(200, "DELETE", "/v1/jobs/"+id, w.acme.token, ""); a.fields["deleted"] != true {
		t.Errorf("%s", a.body)
	}
	if len(w.work.jobs) != 0 {
		t.Error("it is there")
	}
}

func TestACancelledJobRunsNoMoreAndKeepsItsResults(t *testing.T) {
	w := newWorkers(t)
	id := w.submit(encryptLines(2500))
	w.outcomes()
	a := w.must(200, "DELETE", "/v1/jobs/"+id, w.acme.token, "")
	if a.text("state") != "CANCELLED" {
		t.Errorf("%s", a.body)
	}
	if e := w.outcomes(); len(e) != 1 || e[0].Op != kms.OpCancelJob || e[0].Resource != id {
		t.Errorf("the journal has %+v", e)
	}
	w.start()
	second := w.submit(encryptLines(3)) // what comes after it is run
	w.await(second, "DONE")
	if a := w.must(200, "GET", "/v1/jobs/"+id, w.acme.token, ""); a.text("state") != "CANCELLED" || a.fields["done"] != 0.0 {
		t.Errorf("%s", a.body)
	}
	if list, complete := w.results(w.acme.token, id, 0); len(list) != 0 || complete {
		t.Errorf("%d results, complete: %v", len(list), complete)
	}
	w.outcomes()
	w.must(200, "DELETE", "/v1/jobs/"+id, w.acme.token, "")
	if e := w.outcomes(); len(e) != 1 || e[0].Op != kms.OpDeleteJob || e[0].Resource != id {
		t.Errorf("the journal has %+v", e)
	}
}

func TestAJobStopsWithItsCredentialAndItsTenant(t *testing.T) {
	for name, c := range map[string]struct {
		end    func(w *workers, credential string)
		reason string
	}{
		"revoked": {func(w *workers, credential string) {
			w.must(200, "POST", "/v1/credentials/"+credential+"/revoke", w.acme.token, "")
		}, "credential_revoked"},
		"expired": {func(w *workers, credential string) {
			w.mu.Lock()
			defer w.mu.Unlock()
			less := *w.credentials[uuid.MustParse(credential)]
			less.Expires = time.Now().Add(-time.Second)
			w.credentials[less.ID] = &less
		}, "credential_expired"},
		"suspended": {func(w *workers, _ string) { w.must(200, "POST", "/v1/tenants/acme/suspend", w.operator, "") }, "tenant_suspended"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorkers(t)
			minted := w.must(201, "POST", "/v1/credentials", w.acme.token, `{"name":"c","scopes":["key:*"]}`)
			id := w.must(202, "POST", "/v1/jobs", minted.text("credential"), encryptLines(1000)).text("id")
			c.end(w, minted.text("id"))
			stop := w.start()
			for end := time.Now().Add(30 * time.Second); ; <-time.After(time.Millisecond) {
				j, err := w.Job(t.Context(), uuid.MustParse(w.acme.id), uuid.MustParse(id))
				if err != nil || time.Now().After(end) {
					t.Fatalf("%+v, %v", j, err)
				}
				if j.State == kms.JobStopped {
					if j.Reason != c.reason {
						t.Errorf("it stopped for %s", j.Reason)
					}
					break
				}
			}
			stop()
			if p, err := w.JobProgress(t.Context(), uuid.MustParse(w.acme.id), uuid.MustParse(id)); err != nil || p.Done != 0 || p.Charged != 0 {
				t.Errorf("%+v, %v", p, err)
			}
		})
	}
}

// What a credential may no longer do its items may not either.
func TestItemsAreAuthorisedWhenTheyRun(t *testing.T) {
	w := newWorkers(t)
	minted := w.must(201, "POST", "/v1/credentials", w.acme.token, `{"name":"c","scopes":["key:*"]}`)
	id := w.must(202, "POST", "/v1/jobs", minted.text("credential"), encryptLines(10)).text("id")
	w.mu.Lock()
	less := *w.credentials[uuid.MustParse(minted.text("id"))]
	less.Scopes = []string{"key:sign"}
	w.credentials[less.ID] = &less
	w.mu.Unlock()
	w.start()
	if a := w.await(id, "DONE"); a.fields["failed"] != 10.0 || a.fields["credits"] != 0.0 {
		t.Errorf("%s", a.body)
	}
}

// gated is a quota that admits a number of items and then refuses for a while.
type gated struct {
	*memory
	left    atomic.Int64
	refused atomic.Int64
}

func (g *gated) Admit(r *kms.AdmitRequest) (kms.Reservation, error) {
	if r.Op == kms.OpEncrypt && g.left.Add(-1) < 0 {
		g.refused.Add(1)
		return kms.Reservation{}, &kms.Error{Kind: kms.KindQuotaExceeded, Detail: "too fast", RetryAfter: time.Second,
			Reasons: []kms.Reason{{Code: "TENANT_RATE", RetryIn: time.Second}}}
	}
	return g.memory.Admit(r)
}

func TestAJobWaitsForItsQuotaAndIsChargedOnce(t *testing.T) {
	g := &gated{}
	w := newWorkers(t, func(c *kms.Config) { g.memory = c.Quota.(*memory); c.Quota = g })
	g.left.Store(700)
	id := w.submit(encryptLines(1100))
	w.start()
	a := w.await(id, "WAITING")
	if a.text("waits_for") != "TENANT_RATE" || a.fields["waits_until"] == nil {
		t.Errorf("%s", a.body)
	}
	if list, complete := w.results(w.acme.token, id, 0); complete || len(list) > 700 {
		t.Errorf("%d results, complete: %v", len(list), complete)
	}
	// Two chunks run four items at a time: so many are refused before all wait.
	if n := g.refused.Load(); n > 16 {
		t.Errorf("%d items were refused before the job waited", n)
	}
	g.left.Store(1 << 30)
	w.await(id, "DONE")
	w.exactlyOnce(id, 1100)
}

func TestAJobLeavesHalfOfTheBucketToOtherCalls(t *testing.T) {
	b := &bucket{level: 1000 * kms.Credit, since: time.Now()}
	w := newWorkers(t, func(c *kms.Config) { b.memory = c.Quota.(*memory); c.Quota = b })
	id := w.submit(encryptLines(2000))
	w.start()
	w.await(id, "DONE")
	w.exactlyOnce(id, 2000)
	// Four items of each of two chunks are under way when it is noticed.
	if b.lowest < 490*kms.Credit {
		t.Errorf("the job left %v of 1000 credits", b.lowest/kms.Credit)
	}
	if b.lowest > 510*kms.Credit {
		t.Errorf("the job never came to the half: %v", b.lowest/kms.Credit)
	}
}

// bucket is a quota of 1000 credits that fills 2000 a second, one an item.
type bucket struct {
	*memory
	guard         sync.Mutex
	level, lowest kms.Credits
	since         time.Time
}

func (b *bucket) Admit(r *kms.AdmitRequest) (kms.Reservation, error) {
	reservation, err := b.memory.Admit(r)
	if r.Op != kms.OpEncrypt {
		return reservation, err
	}
	b.guard.Lock()
	defer b.guard.Unlock()
	now := time.Now()
	b.level = min(b.level+kms.Credits(now.Sub(b.since).Seconds()*2000*float64(kms.Credit)), 1000*kms.Credit)
	b.level, b.since = b.level-kms.Credit, now
	if b.lowest == 0 || b.level < b.lowest {
		b.lowest = b.level
	}
	reservation.PerSecond, reservation.Left, reservation.Burst = 2000*kms.Credit, b.level, 1000*kms.Credit
	return reservation, err
}

func TestAJobThatIsOverTimeEndsAndIsDeleted(t *testing.T) {
	var shift atomic.Int64
	w := newWorkers(t, func(c *kms.Config) {
		c.Clock = func() time.Time { return time.Now().Add(time.Duration(shift.Load())) }
	})
	tenant := uuid.MustParse(w.acme.id)
	id := w.submit(encryptLines(3))
	job := uuid.MustParse(id)
	g := kms.Errorf(kms.KindQuotaExhausted, "nothing left")
	w.quotaFault = g
	expect := func(state kms.JobState) {
		t.Helper()
		r := w.service.StartJobs(kms.JobConfig{Node: "api-1", Items: w.server, Journal: w.memory, Parallel: 4}) // it sweeps at its start
		defer r.Close()
		for end := time.Now().Add(10 * time.Second); ; <-time.After(time.Millisecond) {
			j, err := w.Job(t.Context(), tenant, job)
			if state == "" && err != nil || err == nil && j.State == state {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("the job is %+v, want %q", j, state)
			}
		}
	}
	expect(kms.JobRunning)
	shift.Store(int64(kms.JobLifetime + time.Minute))
	expect(kms.JobExpired)
	shift.Add(int64(23 * time.Hour))
	expect(kms.JobExpired)
	shift.Add(int64(time.Hour))
	expect("")
}

func TestATenantHasABoundedNumberOfJobs(t *testing.T) {
	w := newWorkers(t)
	for range kms.MaxUnfinishedJobs {
		w.submit(encryptLines(1))
	}
	if a := w.send("POST", "/v1/jobs", w.acme.token, encryptLines(1)); a.status != 409 {
		t.Errorf("one more: %d %s", a.status, a.body)
	}
	w.must(202, "POST", "/v1/jobs", w.rival.token, `{"op":"random","bytes":1}`)
}

// What a killed process was taking in holds its place for a minute, and a client
// that sends slowly keeps its own.
func TestAJobThatIsNoLongerTakenInHoldsNoPlace(t *testing.T) {
	var shift atomic.Int64
	w := newWorkers(t, func(c *kms.Config) {
		c.Clock = func() time.Time { return time.Now().Add(time.Duration(shift.Load())) }
	})
	by := &kms.Principal{Tenant: w.tenants[uuid.MustParse(w.acme.id)], Project: kms.DefaultProject, Credential: uuid.NewV7()}
	begin := func() (*kms.JobIntake, error) {
		return w.service.BeginJob(t.Context(), &kms.Ticket{By: by, RequestID: uuid.NewV7()}, 0)
	}
	slow, err := begin()
	if err != nil {
		t.Fatal(err)
	}
	for range kms.MaxUnfinishedJobs - 1 {
		if _, err := begin(); err != nil { // and it is killed
			t.Fatal(err)
		}
	}
	if _, err := begin(); kms.KindOf(err) != kms.KindConflict {
		t.Errorf("one more: %v", err)
	}
	for range 4 {
		shift.Add(int64(kms.JobReceiveLease / 3))
		if err := slow.Add(t.Context(), kms.OpRandom, []byte(`{"op":"random","bytes":1}`)); err != nil {
			t.Fatal(err)
		}
	}
	for n := range kms.MaxUnfinishedJobs {
		if _, err := begin(); (err == nil) != (n < kms.MaxUnfinishedJobs-1) {
			t.Errorf("job %d beside the slow one: %v", n, err)
		}
	}
}

func TestRefusedBulkWorkIsPointedToJobs(t *testing.T) {
	w := newWorkers(t)
	const link = `</v1/jobs>; rel="alternate"`
	for _, kind := range []kms.Kind{kms.KindQuotaExceeded, kms.KindQuotaExhausted, kms.KindReducedCapacity, kms.KindWaitExceeded} {
		w.quotaFault = kms.Errorf(kind, "not now")
		a := w.send("POST", "/v1/keys/jobs/encrypt", w.acme.token, `{"plaintext":""}`, "Sluice-Urgency", "bulk")
		if a.header.Get("Link") != link || !strings.HasSuffix(a.text("detail"), "not now. Work that can wait is taken by POST /v1/jobs") {
			t.Errorf("%v at bulk urgency: %v %s", kind, a.header, a.body)
		}
		a = w.send("POST", "/v1/keys/jobs/encrypt", w.acme.token, `{"plaintext":""}`)
		if a.header.Get("Link") != "" || a.text("detail") != "not now" {
			t.Errorf("%v: %v %s", kind, a.header, a.body)
		}
		a = w.must(200, "POST", "/v1/batch", w.acme.token, `{"items":[{"op":"encrypt","key":"jobs","plaintext":""}]}`)
		if a.header.Get("Link") != link {
			t.Errorf("%v of an item: %v", kind, a.header)
		}
	}
	w.quotaFault = nil
	if a := w.must(200, "POST", "/v1/batch", w.acme.token, `{"items":[{"op":"encrypt","key":"jobs","plaintext":""}]}`); a.header.Get("Link") != "" {
		t.Errorf("of a batch that was done: %v", a.header)
	}
}
