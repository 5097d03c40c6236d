package api_test

import (
	"context"
	"errors"
	"maps"
	"sync"
	"testing"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// mortal is the store and the journal of a process that dies at one of its calls:
// after it has taken effect or before. From then on nothing takes effect any more.
type mortal struct {
	*memory
	mu     sync.Mutex
	calls  int // so far
	at     int // the call at which it dies
	after  bool
	died   bool
	name   string // of the call
	deaths chan struct{}
}

var errDead = kms.Wrap(kms.KindStoreUnavailable, errors.New("the process is dead"), "nothing is there")

// do makes a call, if the process lives.
func (m *mortal) do(name string, call func() error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.died {
		return errDead
	}
	m.calls++
	dies := m.calls == m.at
	if dies {
		m.died, m.name = true, name
		close(m.deaths)
		if !m.after {
			return errDead
		}
	}
	if err := call(); err != nil || !dies {
		return err
	}
	return errDead
}

func (m *mortal) UpdateJob(ctx context.Context, j *kms.Job) error {
	return m.do("UpdateJob to "+string(j.State), func() error { return m.memory.UpdateJob(ctx, j) })
}

func (m *mortal) CreateJob(ctx context.Context, j *kms.Job) error {
	return m.do("CreateJob", func() error { return m.memory.CreateJob(ctx, j) })
}

func (m *mortal) AddChunk(ctx context.Context, c *kms.JobChunk) error {
	return m.do("AddChunk", func() error { return m.memory.AddChunk(ctx, c) })
}

func (m *mortal) JobByClaim(ctx context.Context, tenant uuid.UUID, claim [32]byte) (j *kms.Job, err error) {
	err = m.do("JobByClaim", func() error {
		if j, err = m.memory.JobByClaim(ctx, tenant, claim); kms.KindOf(err) == kms.KindNotFound {
			j, err = nil, nil
		}
		return err
	})
	if err == nil && j == nil {
		err = kms.ErrNotFound
	}
	return j, err
}

func (m *mortal) JobProgress(ctx context.Context, tenant, id uuid.UUID) (p kms.JobProgress, err error) {
	err = m.do("JobProgress", func() error { p, err = m.memory.JobProgress(ctx, tenant, id); return err })
	return p, err
}

func (m *mortal) Begin(ctx context.Context, k kms.IdempotencyKey, fingerprint [32]byte) (r *kms.IdempotencyRecord, err error) {
	err = m.do("Begin", func() error { r, err = m.memory.Begin(ctx, k, fingerprint); return err })
	return r, err
}

func (m *mortal) Finish(ctx context.Context, k kms.IdempotencyKey, r kms.IdempotencyRecord) error {
	return m.do("Finish", func() error { return m.memory.Finish(ctx, k, r) })
}

func (m *mortal) Record(ctx context.Context, e *kms.Entry) error {
	if e.Op != kms.OpCreateJob {
		return m.memory.Record(ctx, e)
	}
	return m.do("Record of the "+string(e.Phase), func() error { return m.memory.Record(ctx, e) })
}

func (m *mortal) DelayJob(ctx context.Context, tenant, id uuid.UUID, until time.Time, why string) error {
	return m.do("DelayJob", func() error { return m.memory.DelayJob(ctx, tenant, id, until, why) })
}

func (m *mortal) UpdateChunk(ctx context.Context, u *kms.ChunkUpdate) error {
	return m.do("UpdateChunk to "+string(u.State), func() error { return m.memory.UpdateChunk(ctx, u) })
}

func (m *mortal) ReleaseChunks(ctx context.Context, node string, now time.Time) error {
	return m.do("ReleaseChunks", func() error { return m.memory.ReleaseChunks(ctx, node, now) })
}

func (m *mortal) Chunk(ctx context.Context, tenant, job uuid.UUID, number int) (c *kms.JobChunk, err error) {
	err = m.do("Chunk", func() error { c, err = m.memory.Chunk(ctx, tenant, job, number); return err })
	return c, err
}

// RecordAll dies between two entries as well: half of them are written then.
func (m *mortal) RecordAll(ctx context.Context, entries []*kms.Entry) []error {
	errs := make([]error, len(entries))
	half := len(entries) / 2
	record := func(list []*kms.Entry) error {
		for i, err := range m.memory.RecordAll(ctx, list) {
			errs[i] = err
		}
		return nil
	}
	err := m.do("RecordAll, the first half", func() error { return record(entries[:half]) })
	if err == nil {
		err = m.do("RecordAll, the second half", func() error { return record(entries[half:]) })
	}
	for i := range errs {
		if err != nil {
			errs[i] = err
		}
	}
	return errs
}

// TestAJobSurvivesDeathAtEveryStep kills the process at each call of the store and
// the journal that running a job makes, before it takes effect and after, and has
// the next one finish: whatever the step, each item has one result and one entry.
func TestAJobSurvivesDeathAtEveryStep(t *testing.T) {
	m, g := &mortal{}, &gated{}
	w := newWorkers(t, func(c *kms.Config) {
		m.memory = c.Jobs.(*memory)
		g.memory = m.memory
		// It waits once, so that chunks are stored in part too.
		c.Jobs, c.Journal, c.Quota = m, m, g
	})
	names := map[string]bool{}
	for at, lived := 1, false; !lived; at++ {
		if at > 100 {
			t.Fatal("the calls do not end")
		}
		for _, after := range []bool{false, true} {
			m.arm(0, false)
			id := w.submit(encryptLines(20))
			g.left.Store(7)
			deaths := m.arm(at, after)
			first := w.service.StartJobs(kms.JobConfig{Node: "api-1", Items: w.server, Journal: w.memory, Parallel: 4})
			over := w.overOr(deaths, g, id)
			first.Close()
			lived = lived || over
			names[m.revive()] = true
			g.left.Store(1 << 30)
			// The next process is another runner on the same node.
			next := w.service.StartJobs(kms.JobConfig{Node: "api-1", Items: w.server, Journal: w.memory, Parallel: 4})
			w.await(id, "DONE")
			next.Close()
			w.exactlyOnce(id, 20)
			if t.Failed() {
				t.Fatalf("it died at call %d, after it took effect: %v", at, after)
			}
		}
	}
	for _, name := range []string{"ReleaseChunks", "Chunk", "UpdateChunk to RUNNING", "UpdateChunk to COMPUTED", "RecordAll, the first half", "RecordAll, the second half",
		"UpdateChunk to QUEUED", "DelayJob", "UpdateChunk to DONE", "UpdateJob to DONE"} {
		if !names[name] {
			t.Errorf("it never died at %s", name)
		}
	}
}

// TestAJobIsNeverTakenInTwice kills the process at each call of the store and the
// journal that taking in a job makes, before it takes effect and after. The client
// sends it again under its Idempotency-Key, at once and when the claim on the key
// is over: there is one job, and that is the one that every answer names.
func TestAJobIsNeverTakenInTwice(t *testing.T) {
	m := &mortal{}
	w := newWorkers(t, func(c *kms.Config) {
		m.memory = c.Jobs.(*memory)
		c.Jobs, c.Journal, c.Idempotency = m, m, m
	})
	m.arm(0, false)
	names, committed := map[string]bool{}, 0
	for at, lived := 1, false; !lived; at++ {
		if at > 100 {
			t.Fatal("the calls do not end")
		}
		for _, after := range []bool{false, true} {
			before := w.submitted()
			key, items := uuid.New().String(), encryptLines(700)
			send := func() *answer { return w.send("POST", "/v1/jobs", w.acme.token, items, "Idempotency-Key", key) }
			m.arm(at, after)
			first := send()
			name := m.revive()
			names[name] = true
			lived = lived || name == ""
			made := w.submitted() - before
			committed += made
			if name != "" && made == 1 {
				// It is there: the repetition need not wait for the claim.
				if a := send(); a.status != 202 || a.header.Get("Idempotent-Replayed") != "true" {
					t.Errorf("at once: %d %s", a.status, a.body)
				}
			}
			w.endClaims()
			second := w.must(202, "POST", "/v1/jobs", w.acme.token, items, "Idempotency-Key", key)
			w.endClaims()
			third := w.must(202, "POST", "/v1/jobs", w.acme.token, items, "Idempotency-Key", key)
			if w.submitted() != before+1 || third.text("id") != second.text("id") || first.status == 202 && first.text("id") != second.text("id") {
				t.Errorf("there are %d jobs: %s %s %s", w.submitted()-before, first.body, second.body, third.body)
			}
			if a := w.send("POST", "/v1/jobs", w.acme.token, encryptLines(1), "Idempotency-Key", key); a.status != 422 {
				t.Errorf("other items: %d %s", a.status, a.body)
			}
			w.must(200, "DELETE", "/v1/jobs/"+second.text("id"), w.acme.token, "")
			w.forgetJobs()
			if t.Failed() {
				t.Fatalf("it died at call %d, %s, after it took effect: %v", at, name, after)
			}
		}
	}
	for _, name := range []string{"CreateJob", "AddChunk", "Begin", "JobByClaim", "Record of the intent", "UpdateJob to RUNNING", "Record of the outcome", "Finish"} {
		if !names[name] {
			t.Errorf("it never died at %s: %v", name, names)
		}
	}
	if committed < 4 {
		t.Errorf("it died %d times with the job made", committed)
	}
}

// submitted counts the jobs whose items have all come in.
func (w *workers) submitted() (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, j := range w.work.jobs {
		if j.State != kms.JobReceiving {
			n++
		}
	}
	return n
}

// endClaims lets the time of all claims on keys pass that are in flight.
func (w *workers) endClaims() {
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.DeleteFunc(w.claims, func(_ kms.IdempotencyKey, c *claim) bool { return c.record == nil })
}

// forgetJobs removes what a process that died has left of jobs.
func (w *workers) forgetJobs() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.work.jobs)
	clear(w.work.chunks)
}

// overOr waits until the process has died or the job is over, and tells which. The
// wait for its quota is cut short.
func (w *workers) overOr(deaths chan struct{}, g *gated, id string) (over bool) {
	w.t.Helper()
	for end := time.Now().Add(30 * time.Second); ; {
		select {
		case <-deaths:
			return false
		case <-time.After(time.Millisecond):
		}
		j, err := w.memory.Job(w.t.Context(), uuid.MustParse(w.acme.id), uuid.MustParse(id))
		if err != nil || time.Now().After(end) {
			w.t.Fatalf("%+v, %v", j, err)
		}
		if j.State.Ended() {
			return true
		}
		if j.Waits != "" {
			g.left.Store(1 << 30)
			w.memory.DelayJob(w.t.Context(), j.Tenant, j.ID, time.Now(), "")
		}
	}
}

// arm brings the process to life and has it die at its call of a number, 0 for
// none.
func (m *mortal) arm(at int, after bool) (deaths chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls, m.at, m.after, m.died, m.name, m.deaths = 0, at, after, false, "", make(chan struct{})
	return m.deaths
}

// revive is arm of none, and returns the call at which it died before.
func (m *mortal) revive() string {
	m.mu.Lock()
	name := m.name
	m.mu.Unlock()
	m.arm(0, false)
	return name
}

// TestAnotherNodeTakesWhatIsNotComputedAndNothingElse lets the lease of a node
// that is gone run out: what it was running another node runs, what it had
// computed waits for it.
func TestAnotherNodeTakesWhatIsNotComputedAndNothingElse(t *testing.T) {
	w := newWorkers(t)
	id := w.submit(encryptLines(1500))
	tenant, job := uuid.MustParse(w.acme.id), uuid.MustParse(id)
	// A node that dies once it has computed a chunk, and one while it runs another.
	for number, state := range []kms.ChunkState{kms.ChunkComputed, kms.ChunkRunning} {
		c, err := w.Chunk(t.Context(), tenant, job, number)
		if err != nil {
			t.Fatal(err)
		}
		u := &kms.ChunkUpdate{JobChunk: *c}
		u.State, u.Owner, u.Revision, u.Due = state, "api-gone", 2, time.Time{}
		if state == kms.ChunkRunning {
			u.Due = time.Now().Add(-time.Second) // its lease is over
		}
		if err := w.UpdateChunk(t.Context(), u); err != nil {
			t.Fatal(err)
		}
	}
	w.start()
	for end := time.Now().Add(30 * time.Second); ; <-time.After(time.Millisecond) {
		p, err := w.JobProgress(t.Context(), tenant, job)
		if err != nil || time.Now().After(end) {
			t.Fatalf("%+v, %v", p, err)
		}
		if p.Done == 1000 {
			break
		}
	}
	computed, _ := w.Chunk(t.Context(), tenant, job, 0)
	taken, _ := w.Chunk(t.Context(), tenant, job, 1)
	if computed.State != kms.ChunkComputed || computed.Owner != "api-gone" || computed.Revision != 2 {
		t.Errorf("what is computed was taken: %+v", computed)
	}
	if taken.State != kms.ChunkDone || taken.Owner != "api-1" {
		t.Errorf("what was running is %+v", taken)
	}
	// Results are shown without a gap: none, as long as the first are missing.
	if list, complete := w.results(w.acme.token, id, 0); len(list) != 0 || complete {
		t.Errorf("%d results, complete: %v", len(list), complete)
	}
	if list, _ := w.results(w.acme.token, id, 500); len(list) != 1000 {
		t.Errorf("%d results behind the gap", len(list))
	}
}

// A node that lost its lease and computes all the same stores nothing and records
// nothing: the chunk is another's.
func TestWhoLostTheLeaseRecordsNothing(t *testing.T) {
	w := newWorkers(t)
	id := w.submit(encryptLines(5))
	m := &thief{memory: w.memory}
	service := w.serviceWith(func(c *kms.Config) { c.Jobs = m })
	r := service.StartJobs(kms.JobConfig{Node: "api-slow", Items: w.server, Journal: w.memory, Parallel: 4})
	defer r.Close()
	for end := time.Now().Add(30 * time.Second); !m.stolen(); <-time.After(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("nothing was computed")
		}
	}
	r2 := w.service.StartJobs(kms.JobConfig{Node: "api-1", Items: w.server, Journal: w.memory, Parallel: 4})
	defer r2.Close()
	w.await(id, "DONE")
	w.exactlyOnce(id, 5)
}

// thief takes a chunk away from whoever is about to store that it is computed, the
// first time.
type thief struct {
	*memory
	guard sync.Mutex
	took  bool
}

func (m *thief) stolen() bool {
	m.guard.Lock()
	defer m.guard.Unlock()
	return m.took
}

func (m *thief) UpdateChunk(ctx context.Context, u *kms.ChunkUpdate) error {
	m.guard.Lock()
	steal := u.State == kms.ChunkComputed && !m.took
	m.took = m.took || steal
	m.guard.Unlock()
	if steal {
		c, err := m.memory.Chunk(ctx, u.Tenant, u.Job, u.Number)
		if err != nil {
			return err
		}
		c.Owner, c.Revision, c.Due = "api-1", c.Revision+1, time.Now()
		if err := m.memory.UpdateChunk(ctx, &kms.ChunkUpdate{JobChunk: *c}); err != nil {
			return err
		}
	}
	return m.memory.UpdateChunk(ctx, u)
}

// A restored database does not know which chunks were done after it was saved.
func TestJobsOfARestoredDatabaseAreStopped(t *testing.T) {
	w := newWorkers(t)
	id := w.submit(encryptLines(5))
	if _, err := w.service.Redo(t.Context(), time.Now(), nil); err != nil {
		t.Fatal(err)
	}
	w.start()
	if a := w.await(id, "STOPPED"); a.text("reason") != "restored" || a.fields["done"] != 0.0 {
		t.Errorf("%s", a.body)
	}
}

// Of a chunk that was computed under another journal nobody knows what was
// recorded: it is not recorded again.
func TestAChunkOfAnotherJournalIsLeftAlone(t *testing.T) {
	w := newWorkers(t)
	id := w.submit(encryptLines(5))
	tenant, job := uuid.MustParse(w.acme.id), uuid.MustParse(id)
	w.journalFault = kms.Errorf(kms.KindAuditUnavailable, "the disk is full")
	stop := w.start()
	for end := time.Now().Add(30 * time.Second); ; <-time.After(time.Millisecond) {
		c, err := w.Chunk(t.Context(), tenant, job, 0)
		if err != nil || time.Now().After(end) {
			t.Fatalf("%+v, %v", c, err)
		}
		if c.State == kms.ChunkComputed {
			break
		}
	}
	stop()
	w.journalFault = nil
	w.mu.Lock()
	w.work.chunks[kms.JobID{Tenant: tenant, Job: job}][0].Position = 1 << 40
	w.mu.Unlock()
	stop = w.start()
	w.await(w.submit(encryptLines(1)), "DONE") // it looks for its own chunks first
	stop()
	if got, err := w.Chunk(t.Context(), tenant, job, 0); err != nil || got.State != kms.ChunkComputed {
		t.Errorf("%+v, %v", got, err)
	}
	w.mu.Lock()
	for i := range w.entries {
		if e := &w.entries[i]; e.Resource == id && e.Op == kms.OpEncrypt {
			t.Errorf("it was recorded: %+v", e)
		}
	}
	// Under its own journal it is finished.
	w.work.chunks[kms.JobID{Tenant: tenant, Job: job}][0].Position = 1
	w.mu.Unlock()
	w.start()
	w.await(id, "DONE")
	w.exactlyOnce(id, 5)
}
