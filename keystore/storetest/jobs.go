package storetest

import (
	"bytes"
	"context"
	"reflect"
	"slices"
	"testing"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/keystore"
	"github.com/sluice-kms/sluice/kms"
)

func sampleJob(tenant uuid.UUID) *kms.Job {
	return &kms.Job{ID: uuid.NewV7(), Tenant: tenant, Project: kms.DefaultProject, Credential: uuid.NewV7(), State: kms.JobRunning, Created: start,
		Submitted: start.Add(time.Second), Retain: 24 * time.Hour, Expires: start.Add(kms.JobLifetime), Items: 3, Chunks: 2, Bytes: 300,
		Digest: [32]byte{1, 2}, DataKey: []byte("sealed key"), Revision: 1, Due: start}
}

func sampleChunk(j *kms.Job, number int) *kms.JobChunk {
	return &kms.JobChunk{Tenant: j.Tenant, Job: j.ID, Number: number, ID: uuid.NewV7(), First: int64(2 * number), Items: 2, State: kms.ChunkQueued,
		Pending: 2, Due: start, Revision: 1, Input: []byte("sealed input")}
}

// job stores a job with two chunks.
func (e *env) job(t testing.TB, tenant uuid.UUID) *kms.Job {
	t.Helper()
	j := sampleJob(tenant)
	if err := e.CreateJob(t.Context(), j); err != nil {
		t.Fatal(err)
	}
	for number := range 2 {
		if err := e.AddChunk(t.Context(), sampleChunk(j, number)); err != nil {
			t.Fatal(err)
		}
	}
	return j
}

func (e *env) chunk(t testing.TB, j *kms.Job, number int) *kms.JobChunk {
	t.Helper()
	c, err := e.Chunk(t.Context(), j.Tenant, j.ID, number)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// becomes stores a chunk's next state.
func (e *env) becomes(t testing.TB, c *kms.JobChunk, state kms.ChunkState, owner string, change func(*kms.ChunkUpdate)) {
	t.Helper()
	u := &kms.ChunkUpdate{JobChunk: *c}
	u.State, u.Owner, u.Due, u.Revision = state, owner, time.Time{}, c.Revision+1
	if change != nil {
		change(u)
	}
	if err := e.UpdateChunk(t.Context(), u); err != nil {
		t.Fatal(err)
	}
}

func testJobs(t *testing.T, open func(*testing.T) keystore.Driver) {
	driver := open(t)
	e := newEnv(t, driver)
	for _, test := range []struct {
		name string
		run  func(*testing.T, *env)
	}{
		{"ComeBackAsTheyWereStored", testJobsKept},
		{"OnlyThePresentRevisionIsFollowed", testJobRevisions},
		{"AClaimIsOneJobs", testJobClaims},
		{"AreBoundedInNumber", testJobBound},
		{"AreListedInOrder", testJobList},
		{"OneOfEachTenantIsDue", testJobsDue},
		{"ChunksAreTakenOnceAndPassOn", testChunksTaken},
		{"ProgressIsTheSumOfChunks", testJobProgress},
		{"WhatIsComputedIsNotDeleted", testJobDeletion},
		{"TamperedChunksAreRefused", testTamperedChunks},
		{"UnusableOnesAreRefused", testUnusableJobs},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, e) })
	}
}

// A claim is stored with an update, once in a tenant, and stays until the job goes.
func testJobClaims(t *testing.T, e *env) {
	ctx := t.Context()
	tenant, other := e.tenant(t, "jobs-claims"), e.tenant(t, "jobs-claims-other")
	claim := [32]byte{1, 2, 3}
	find := func(tenant uuid.UUID) error { _, err := e.JobByClaim(ctx, tenant, claim); return err }
	update := func(j *kms.Job, claim [32]byte) error {
		next := *j
		next.Claim, next.Revision = claim, next.Revision+1
		err := e.UpdateJob(ctx, &next)
		if err == nil {
			*j = next
		}
		return err
	}
	first, second, others := e.job(t, tenant.ID), e.job(t, tenant.ID), e.job(t, other.ID)
	wantKind(t, "nobody's claim", find(tenant.ID), kms.KindNotFound)
	for _, set := range [][32]byte{claim, {}} { // and it stays
		if err := update(first, set); err != nil {
			t.Fatal(err)
		}
		got, err := e.JobByClaim(ctx, tenant.ID, claim)
		if err != nil || got.ID != first.ID || got.Digest != first.Digest || got.Revision != first.Revision {
			t.Errorf("the claim finds %+v, %v", got, err)
		}
	}
	wantKind(t, "a second job with it", update(second, claim), kms.KindConflict)
	wantKind(t, "another tenant's claim", find(other.ID), kms.KindNotFound)
	if err := update(others, claim); err != nil {
		t.Errorf("another tenant's job with it: %v", err)
	}
	if err := e.DeleteJob(ctx, tenant.ID, first.ID, true); err != nil {
		t.Fatal(err)
	}
	wantKind(t, "a deleted job's claim", find(tenant.ID), kms.KindNotFound)
	if err := update(second, claim); err != nil {
		t.Errorf("the claim of a deleted job: %v", err)
	}
}

func testJobsKept(t *testing.T, e *env) {
	ctx := t.Context()
	tenant := e.tenant(t, "jobs-kept")
	j := e.job(t, tenant.ID)
	next := *j
	next.State, next.Ended, next.Reason, next.Revision, next.Expires = kms.JobStopped, start.Add(time.Hour), "credential_revoked", 2, start.Add(25*time.Hour)
	if err := e.UpdateJob(ctx, &next); err != nil {
		t.Fatal(err)
	}
	if err := e.DelayJob(ctx, tenant.ID, j.ID, start.Add(time.Minute), "TENANT_RATE"); err != nil {
		t.Fatal(err)
	}
	next.Due, next.Waits = start.Add(time.Minute), "TENANT_RATE"
	chunk := sampleChunk(j, 2)
	chunk.First = 4
	if err := e.AddChunk(ctx, chunk); err != nil {
		t.Fatal(err)
	}
	u := &kms.ChunkUpdate{JobChunk: *chunk, SetOutput: true, SetEntries: true}
	u.State, u.Owner, u.Pass, u.Pending, u.Failed, u.Charged, u.Position = kms.ChunkComputed, "node-1", 1, 1, 1, 7*kms.Credit, 99
	u.Output, u.Entries, u.Due, u.Revision = []byte("sealed output"), []byte("sealed entries"), time.Time{}, 2
	if err := e.UpdateChunk(ctx, u); err != nil {
		t.Fatal(err)
	}
	for _, of := range []*env{e, newEnv(t, e.driver)} {
		if got, err := of.Job(ctx, tenant.ID, j.ID); err != nil || !reflect.DeepEqual(got, &next) {
			t.Errorf("%+v, %v, want %+v", got, err, next)
		}
		if got := of.chunk(t, j, 2); !reflect.DeepEqual(got, &u.JobChunk) {
			t.Errorf("%+v, want %+v", got, u.JobChunk)
		}
		got, err := of.ChunkOf(ctx, tenant.ID, j.ID, 5)
		if err != nil || got.Number != 2 || string(got.Output) != "sealed output" || got.Input != nil || got.Entries != nil {
			t.Errorf("of an item: %+v, %v", got, err)
		}
	}
	wantKind(t, "an item that there is not", func() error { _, err := e.ChunkOf(ctx, tenant.ID, j.ID, 6); return err }(), kms.KindNotFound)
	wantKind(t, "a chunk that there is not", func() error { _, err := e.Chunk(ctx, tenant.ID, j.ID, 3); return err }(), kms.KindNotFound)
	done := &kms.ChunkUpdate{JobChunk: u.JobChunk, SetInput: true, SetEntries: true}
	done.State, done.Pending, done.Revision, done.Input, done.Entries = kms.ChunkDone, 0, 3, nil, nil
	if err := e.UpdateChunk(ctx, done); err != nil {
		t.Fatal(err)
	}
	if got := e.chunk(t, j, 2); got.Input != nil || got.Entries != nil || string(got.Output) != "sealed output" {
		t.Errorf("what is no longer needed is there: %+v", got)
	}
}

func testJobRevisions(t *testing.T, e *env) {
	ctx := t.Context()
	j := e.job(t, e.tenant(t, "jobs-stale").ID)
	next := *j
	wantKind(t, "no next revision", e.UpdateJob(ctx, &next), kms.KindPreconditionFailed)
	next.Revision = 3
	wantKind(t, "a revision too far", e.UpdateJob(ctx, &next), kms.KindPreconditionFailed)
	c := e.chunk(t, j, 0)
	u := &kms.ChunkUpdate{JobChunk: *c}
	wantKind(t, "no next revision of a chunk", e.UpdateChunk(ctx, u), kms.KindPreconditionFailed)
	wantKind(t, "the lease of a chunk that is not running", e.RenewChunk(ctx, c, start), kms.KindPreconditionFailed)
	e.becomes(t, c, kms.ChunkRunning, "node-1", nil)
	wantKind(t, "the lease of an earlier revision", e.RenewChunk(ctx, c, start), kms.KindPreconditionFailed)
	c = e.chunk(t, j, 0)
	if err := e.RenewChunk(ctx, c, start.Add(time.Hour)); err != nil {
		t.Error(err)
	}
	if got := e.chunk(t, j, 0); !got.Due.Equal(start.Add(time.Hour)) || got.Revision != c.Revision {
		t.Errorf("after a renewal: %+v", got)
	}
	wantKind(t, "the same chunk twice", e.AddChunk(ctx, sampleChunk(j, 1)), kms.KindConflict)
}

func testJobBound(t *testing.T, e *env) {
	ctx := t.Context()
	tenant := e.tenant(t, "jobs-bounded")
	var last *kms.Job
	for range kms.MaxUnfinishedJobs {
		last = e.job(t, tenant.ID)
	}
	wantKind(t, "one more", e.CreateJob(ctx, sampleJob(tenant.ID)), kms.KindConflict)
	last.State, last.Ended, last.Revision = kms.JobDone, start.Add(time.Hour), 2
	if err := e.UpdateJob(ctx, last); err != nil {
		t.Fatal(err)
	}
	e.job(t, tenant.ID)
	e.job(t, e.tenant(t, "jobs-of-another").ID)
	// What somebody was taking in who ended holds no place longer than it lasts.
	left := e.tenant(t, "jobs-left")
	for n := range kms.MaxUnfinishedJobs + 1 {
		j := sampleJob(left.ID)
		j.State, j.Submitted, j.Expires = kms.JobReceiving, time.Time{}, e.clock().Add(time.Second)
		if n == 0 {
			j.Expires = e.clock().Add(-time.Second)
		}
		if err := e.CreateJob(t.Context(), j); err != nil {
			t.Errorf("job %d: %v", n, err)
		}
	}
	wantKind(t, "more than may be received", e.CreateJob(t.Context(), sampleJob(left.ID)), kms.KindConflict)
}

func testJobList(t *testing.T, e *env) {
	ctx := t.Context()
	tenant := e.tenant(t, "jobs-listed")
	var all, own []string
	credential := uuid.NewV7()
	for i := range 7 {
		j := sampleJob(tenant.ID)
		if i%2 == 0 {
			j.Credential = credential
			own = append(own, j.ID.String())
		}
		all = append(all, j.ID.String())
		if err := e.CreateJob(ctx, j); err != nil {
			t.Fatal(err)
		}
	}
	for _, size := range []int{1, 3, 1000} {
		for of, want := range map[uuid.UUID][]string{uuid.Nil(): all, credential: own} {
			checkPages(t, size, want, func(p kms.Page) ([]string, string, error) {
				list, next, err := e.ListJobs(ctx, tenant.ID, of, p)
				return namesOf(list, func(j *kms.Job) string { return j.ID.String() }), next, err
			})
		}
	}
}

// dueJobs are those of some tenants, in the order in which they are found.
func (e *env) dueJobs(t *testing.T, now time.Time, of []uuid.UUID, busy ...uuid.UUID) (found []uuid.UUID) {
	t.Helper()
	list, err := e.DueJobs(t.Context(), now, uuid.Nil(), busy, 1000)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range list {
		if slices.Contains(of, id.Tenant) {
			found = append(found, id.Job)
		}
	}
	return found
}

func testJobsDue(t *testing.T, e *env) {
	ctx := t.Context()
	one, two := e.tenant(t, "jobs-due-one").ID, e.tenant(t, "jobs-due-two").ID
	of := []uuid.UUID{one, two}
	first, second, other := e.job(t, one), e.job(t, one), e.job(t, two)
	expect := func(what string, now time.Time, busy []uuid.UUID, want ...*kms.Job) {
		t.Helper()
		if got := e.dueJobs(t, now, of, busy...); !slices.Equal(got, slices.Collect(func(yield func(uuid.UUID) bool) {
			for _, j := range want {
				if !yield(j.ID) {
					return
				}
			}
		})) {
			t.Errorf("%s: %v", what, got)
		}
	}
	expect("the first of each", start, nil, first, other)
	expect("before they are due", start.Add(-time.Second), nil)
	expect("but of one that is busy", start, []uuid.UUID{one}, other)
	if list, err := e.DueJobs(ctx, start, one, nil, 1000); err != nil || slices.ContainsFunc(list, func(id kms.JobID) bool { return id.Tenant == one }) {
		t.Errorf("behind a tenant: %v, %v", list, err)
	}
	if err := e.DelayJob(ctx, one, first.ID, start.Add(time.Minute), "TENANT_RATE"); err != nil {
		t.Fatal(err)
	}
	expect("while one waits", start, nil, second, other)
	expect("after its wait", start.Add(time.Minute), nil, first, other)
	for number := range 2 {
		e.becomes(t, e.chunk(t, other, number), kms.ChunkComputed, "node-1", nil)
	}
	expect("with nothing to take", start, nil, second)
	for number := range 2 {
		e.becomes(t, e.chunk(t, other, number), kms.ChunkDone, "node-1", func(u *kms.ChunkUpdate) { u.Pending = 0 })
	}
	expect("with nothing left", start, nil, second, other)
	other.State, other.Ended, other.Revision = kms.JobDone, start, 2
	if err := e.UpdateJob(ctx, other); err != nil {
		t.Fatal(err)
	}
	expect("that is over", start, nil, second)
	expired := func(now time.Time) bool {
		list, err := e.ExpiredJobs(ctx, now, 1000)
		if err != nil {
			t.Fatal(err)
		}
		return slices.Contains(list, kms.JobID{Tenant: two, Job: other.ID})
	}
	if expired(other.Expires.Add(-time.Second)) || !expired(other.Expires) {
		t.Error("it does not expire at its date")
	}
}

func testChunksTaken(t *testing.T, e *env) {
	ctx := t.Context()
	j := e.job(t, e.tenant(t, "jobs-taken").ID)
	due := func(now time.Time) []int {
		t.Helper()
		numbers, err := e.DueChunks(ctx, j.Tenant, j.ID, now, 10)
		if err != nil {
			t.Fatal(err)
		}
		return numbers
	}
	if got := due(start); !slices.Equal(got, []int{0, 1}) {
		t.Fatalf("due: %v", got)
	}
	lease := func(u *kms.ChunkUpdate) { u.Due = start.Add(30 * time.Second) }
	e.becomes(t, e.chunk(t, j, 0), kms.ChunkRunning, "node-1", lease)
	e.becomes(t, e.chunk(t, j, 1), kms.ChunkRunning, "node-2", lease)
	if got := due(start); len(got) > 0 {
		t.Errorf("taken ones are due: %v", got)
	}
	if got := due(start.Add(30 * time.Second)); len(got) != 2 {
		t.Errorf("after the lease: %v", got)
	}
	if err := e.ReleaseChunks(ctx, "node-2", start); err != nil {
		t.Fatal(err)
	}
	if got := due(start); !slices.Equal(got, []int{1}) {
		t.Errorf("after a node has begun anew: %v", got)
	}
	e.becomes(t, e.chunk(t, j, 0), kms.ChunkComputed, "node-1", nil)
	if err := e.ReleaseChunks(ctx, "node-1", start); err != nil {
		t.Fatal(err)
	}
	if got := due(start.Add(time.Hour)); !slices.Equal(got, []int{1}) {
		t.Errorf("a computed one is due: %v", got)
	}
	for node, want := range map[string]bool{"node-1": true, "node-2": false} {
		list, err := e.ComputedChunks(ctx, node, 1000)
		if err != nil {
			t.Fatal(err)
		}
		if got := slices.ContainsFunc(list, func(c kms.JobChunk) bool { return c.Job == j.ID && c.Tenant == j.Tenant && c.Number == 0 }); got != want {
			t.Errorf("%s has computed it: %v", node, got)
		}
	}
}

func testJobProgress(t *testing.T, e *env) {
	ctx := t.Context()
	j := e.job(t, e.tenant(t, "jobs-progress").ID)
	expect := func(what string, want kms.JobProgress) {
		t.Helper()
		if got, err := e.JobProgress(ctx, j.Tenant, j.ID); err != nil || got != want {
			t.Errorf("%s: %+v, %v", what, got, err)
		}
	}
	expect("at first", kms.JobProgress{Items: 4, Unfinished: 2})
	partly := func(u *kms.ChunkUpdate) { u.Pending, u.Failed, u.Charged = 1, 1, 3*kms.Credit }
	e.becomes(t, e.chunk(t, j, 0), kms.ChunkComputed, "node-1", partly)
	expect("computed", kms.JobProgress{Items: 4, Unfinished: 2})
	e.becomes(t, e.chunk(t, j, 0), kms.ChunkQueued, "node-1", partly)
	expect("in part", kms.JobProgress{Items: 4, Unfinished: 2, Charged: 3 * kms.Credit})
	e.becomes(t, e.chunk(t, j, 0), kms.ChunkDone, "node-1", func(u *kms.ChunkUpdate) { u.Pending, u.Failed, u.Charged = 0, 1, 5*kms.Credit })
	expect("done", kms.JobProgress{Items: 4, Done: 2, Failed: 1, Charged: 5 * kms.Credit, Unfinished: 1})
}

func testJobDeletion(t *testing.T, e *env) {
	ctx := t.Context()
	tenant := e.tenant(t, "jobs-deleted").ID
	j := e.job(t, tenant)
	e.becomes(t, e.chunk(t, j, 1), kms.ChunkComputed, "node-1", nil)
	wantKind(t, "with results to record", e.DeleteJob(ctx, tenant, j.ID, false), kms.KindConflict)
	if got := e.chunk(t, j, 1); got.State != kms.ChunkComputed {
		t.Errorf("the chunk is %+v", got)
	}
	if err := e.DeleteJob(ctx, tenant, j.ID, true); err != nil {
		t.Error(err)
	}
	wantKind(t, "a second time", e.DeleteJob(ctx, tenant, j.ID, true), kms.KindNotFound)
	wantKind(t, "its chunks", func() error { _, err := e.Chunk(ctx, tenant, j.ID, 1); return err }(), kms.KindNotFound)
	wantKind(t, "a chunk of it", e.AddChunk(ctx, sampleChunk(j, 0)), kms.KindNotFound)
	many := sampleJob(tenant)
	many.Items, many.Chunks = 80, 40
	if err := e.CreateJob(ctx, many); err != nil {
		t.Fatal(err)
	}
	for number := range 40 {
		if err := e.AddChunk(ctx, sampleChunk(many, number)); err != nil {
			t.Fatal(err)
		}
	}
	if err := e.DeleteJob(ctx, tenant, many.ID, false); err != nil {
		t.Error(err)
	}
}

// testTamperedChunks changes every column of a chunk's row on which something
// depends.
func testTamperedChunks(t *testing.T, e *env) {
	ctx := t.Context()
	tenant := e.tenant(t, "jobs-tampered").ID
	id := uuid.NewV7()
	for column, value := range map[string]any{
		"id": id[:], "first": int64(1), "items": int64(3), "state": "DONE", "pass": int64(9), "pending": int64(0), "failed": int64(1),
		"charged": int64(1), "owner": "node-9", "position": int64(9), "revision": int64(9), "mac": bytes.Repeat([]byte{1}, 32), "mac_version": int64(1),
		"number": int64(7),
	} {
		j := e.job(t, tenant)
		c := e.chunk(t, j, 0)
		if err := e.DeleteJob(ctx, tenant, j.ID, true); err != nil { // one chunk, so that it is found by its job
			t.Fatal(err)
		}
		j.Revision = 1
		if err := e.CreateJob(ctx, j); err != nil {
			t.Fatal(err)
		}
		c.Pending = 2
		c.Input = []byte("sealed input")
		if err := e.AddChunk(ctx, c); err != nil {
			t.Fatal(err)
		}
		e.becomes(t, c, kms.ChunkRunning, "node-1", nil)
		e.driver.(Damager).Damage(t, Damage{Table: "job_chunks", Column: column, Value: value, Key: "job", KeyValue: j.ID[:]})
		number := 0
		if column == "number" {
			number = 7
		}
		_, err := e.Chunk(ctx, tenant, j.ID, number)
		wantKind(t, column, err, kms.KindInternal)
		e.driver.(Damager).Delete(t, "job_chunks", "job", j.ID[:])
		if err := e.DeleteJob(ctx, tenant, j.ID, true); err != nil {
			t.Fatal(err)
		}
	}
}

func testUnusableJobs(t *testing.T, e *env) {
	ctx := t.Context()
	tenant := e.tenant(t, "jobs-unusable").ID
	for name, spoil := range map[string]func(*kms.Job){
		"id":         func(j *kms.Job) { j.ID = uuid.Nil() },
		"credential": func(j *kms.Job) { j.Credential = uuid.Nil() },
		"state":      func(j *kms.Job) { j.State = "SLEEPING" },
		"ended":      func(j *kms.Job) { j.Ended = start },
		"submitted":  func(j *kms.Job) { j.Submitted = time.Time{} },
		"expires":    func(j *kms.Job) { j.Expires = time.Time{} },
		"retain":     func(j *kms.Job) { j.Retain = kms.MaxJobRetain + time.Hour },
		"items":      func(j *kms.Job) { j.Items = kms.MaxJobItems + 1 },
		"data key":   func(j *kms.Job) { j.DataKey = nil },
		"revision":   func(j *kms.Job) { j.Revision = 0 },
	} {
		j := sampleJob(tenant)
		spoil(j)
		wantKind(t, name, e.CreateJob(ctx, j), kms.KindInvalidArgument)
	}
	j := e.job(t, tenant)
	for name, spoil := range map[string]func(*kms.JobChunk){
		"number":  func(c *kms.JobChunk) { c.Number = -1 },
		"first":   func(c *kms.JobChunk) { c.First = kms.MaxJobItems },
		"items":   func(c *kms.JobChunk) { c.Items = kms.MaxChunkItems + 1 },
		"state":   func(c *kms.JobChunk) { c.State = "SLEEPING" },
		"owner":   func(c *kms.JobChunk) { c.State = kms.ChunkRunning },
		"pending": func(c *kms.JobChunk) { c.Pending = 3 },
		"failed":  func(c *kms.JobChunk) { c.Failed = 1 },
		"input":   func(c *kms.JobChunk) { c.Input = nil },
	} {
		c := sampleChunk(j, 2)
		c.First = 4
		spoil(c)
		wantKind(t, name, e.AddChunk(ctx, c), kms.KindInvalidArgument)
	}
	wantKind(t, "a list without a size", func() error {
		_, _, err := e.ListJobs(context.Background(), tenant, uuid.Nil(), kms.Page{})
		return err
	}(), kms.KindInvalidArgument)
}
