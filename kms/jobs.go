package kms

import (
	"context"
	"crypto/sha256"
	"errors"
	"hash"
	"log/slog"
	"slices"
	"time"
	"uuid"
)

// JobIntake takes in the items of a new job. It belongs to one request.
type JobIntake struct {
	service *Service
	job     *Job
	box     *jobBox
	digest  hash.Hash
	lines   [][]byte
	size    int
	ops     map[Op]int64
	dry     bool // nothing is stored
}

// BeginJob begins to take in a job's items; retain is how long it is kept after
// its end, 0 for the default. Either SubmitJob or Abandon has to follow. KindConflict
// when the tenant has MaxUnfinishedJobs. It records nothing: SubmitJob does, and
// Refuse.
func (s *Service) BeginJob(ctx context.Context, t *Ticket, retain time.Duration) (*JobIntake, error) {
	if retain == 0 {
		retain = DefaultJobRetain
	}
	if retain < time.Hour || retain > MaxJobRetain {
		return nil, Errorf(KindInvalidArgument, "retain_hours: must be 1 to %d", int(MaxJobRetain/time.Hour))
	}
	now := s.clock()
	j := &Job{ID: newID(), Tenant: t.By.Tenant.ID, Project: t.By.Project, Credential: t.By.Credential, State: JobReceiving, Created: now,
		Retain: retain, Expires: now.Add(JobReceiveLease), Due: now, Revision: 1}
	t.Resource = j.ID.String()
	if t.DryRun {
		return &JobIntake{service: s, job: j, box: new(jobBox), digest: sha256.New(), ops: map[Op]int64{}, dry: true}, nil
	}
	box, err := s.newJobBox(ctx, t.By.Tenant, j)
	if err != nil {
		return nil, err
	}
	if err := s.jobs.CreateJob(ctx, j); err != nil {
		box.close()
		return nil, err
	}
	return &JobIntake{service: s, job: j, box: box, digest: sha256.New(), ops: map[Op]int64{}}, nil
}

// Items returns how many items were taken in.
func (i *JobIntake) Items() int64 { return i.job.Items }

// Add takes in an item of an operation: a line without its end, of MaxChunkBytes
// at most, which is not kept. KindTooLarge when the job has as many as it may.
func (i *JobIntake) Add(ctx context.Context, op Op, line []byte) error {
	switch {
	case i.job.Items == MaxJobItems:
		return Errorf(KindTooLarge, "a job has at most %d items", MaxJobItems)
	case i.job.Bytes+int64(len(line))+1 > MaxJobBytes:
		return Errorf(KindTooLarge, "the items of a job are at most %d bytes", MaxJobBytes)
	case i.service.clock().Sub(i.job.Created) > JobReceiveTime:
		return Errorf(KindTooLarge, "the items of a job must come in within %v", JobReceiveTime)
	}
	if len(i.lines) == MaxChunkItems || i.size+len(line)+1 > MaxChunkBytes && len(i.lines) > 0 {
		if err := i.flush(ctx); err != nil {
			return err
		}
	}
	if err := i.renew(ctx); err != nil {
		return err
	}
	i.digest.Write(line)
	i.digest.Write([]byte{'\n'})
	i.lines = append(i.lines, append([]byte(nil), line...))
	i.size += len(line) + 1
	i.ops[op]++
	i.job.Items++
	i.job.Bytes += int64(len(line)) + 1
	return nil
}

// renew keeps the job's place.
func (i *JobIntake) renew(ctx context.Context) error {
	until := i.service.clock().Add(JobReceiveLease)
	if i.dry || until.Sub(i.job.Expires) < jobReceiveRenewal {
		return nil
	}
	next := *i.job
	next.Expires, next.Revision = until, next.Revision+1
	if err := i.service.jobs.UpdateJob(ctx, &next); err != nil {
		return concurrently(err)
	}
	i.job.Expires, i.job.Revision = next.Expires, next.Revision
	return nil
}

// flush stores the items that are held as a chunk.
func (i *JobIntake) flush(ctx context.Context) error {
	j, s := i.job, i.service
	if i.dry {
		i.wipe()
		return nil
	}
	c := &JobChunk{Tenant: j.Tenant, Job: j.ID, Number: j.Chunks, ID: newID(), First: j.Items - int64(len(i.lines)), Items: len(i.lines),
		State: ChunkQueued, Pending: len(i.lines), Due: s.clock(), Revision: 1}
	var err error
	if c.Input, err = i.box.seal(c, jobInput, 0, joinLines(i.lines)); err != nil {
		return err
	}
	i.wipe()
	if err := s.jobs.AddChunk(ctx, c); err != nil {
		return err
	}
	j.Chunks++
	return nil
}

func (i *JobIntake) wipe() {
	for _, line := range i.lines {
		clear(line)
	}
	i.lines, i.size = i.lines[:0], 0
}

// End stores what is held and returns the digest of all items.
// KindInvalidArgument when there is none.
func (i *JobIntake) End(ctx context.Context) ([32]byte, error) {
	if i.job.Items == 0 {
		return [32]byte{}, Errorf(KindInvalidArgument, "body: must have an item at least, one a line")
	}
	if err := i.flush(ctx); err != nil {
		return [32]byte{}, err
	}
	i.digest.Sum(i.job.Digest[:0])
	return i.job.Digest, nil
}

// Abandon removes what was taken in. What is left of it when the store is away
// expires.
func (i *JobIntake) Abandon(ctx context.Context) {
	i.wipe()
	i.box.close()
	if i.dry {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	if err := i.service.jobs.DeleteJob(ctx, i.job.Tenant, i.job.ID, true); err != nil {
		i.service.log.Warn("a job that was not taken in is left to expire", slog.String("job", i.job.ID.String()), slog.Any("error", err))
	}
}

// labelJobClaim begins what a jobClaim is a digest of.
const labelJobClaim = "sluice job claim\x00"

// jobClaim is what an Idempotency-Key of a credential stands for among the jobs of
// its tenant. It hides nothing: neither is a secret.
func jobClaim(credential uuid.UUID, key string) [32]byte {
	return sha256.Sum256(slices.Concat([]byte(labelJobClaim), credential[:], []byte(key)))
}

// JobOfKey returns the job that the caller has submitted under an Idempotency-Key,
// of items of a digest: it is stored with the job, so that whatever becomes of the
// claim on the key the job is made once. ErrNotFound when there is none, and
// KindInvalidArgument when its items are others.
func (s *Service) JobOfKey(ctx context.Context, by *Principal, key string, digest [32]byte) (*Job, error) {
	j, err := s.jobs.JobByClaim(ctx, by.Tenant.ID, jobClaim(by.Credential, key))
	switch {
	case err != nil:
		return nil, err
	case j.Credential != by.Credential:
		return nil, ErrNotFound
	case j.Digest != digest:
		return nil, Errorf(KindInvalidArgument, "the idempotency key was used for a different request")
	}
	return j, nil
}

// SubmitJob has the job run, after End: as the one of an Idempotency-Key, where
// that is not "". KindConflict when the key has another meanwhile.
func (s *Service) SubmitJob(ctx context.Context, t *Ticket, i *JobIntake, key string) (*JobStatus, error) {
	defer i.box.close()
	j := i.job
	if key != "" {
		j.Claim = jobClaim(t.By.Credential, key)
	}
	err := s.run(ctx, t, &task{op: OpCreateJob, allowed: always,
		prepare: func(t *Ticket) error {
			t.Resource = j.ID.String()
			return nil
		},
		store: func(ctx context.Context, t *Ticket) error {
			now := s.clock()
			j.State, j.Submitted, j.Expires, j.Revision = JobRunning, now, now.Add(JobLifetime), j.Revision+1
			return concurrently(s.jobs.UpdateJob(ctx, j))
		}})
	if err != nil || t.DryRun {
		return nil, err
	}
	s.observer.JobSubmitted(t, JobMix{i.ops, j.Bytes})
	s.wakeJobs()
	return s.jobStatus(ctx, j)
}

// JobStatus is a job with how far it is.
type JobStatus struct {
	*Job
	JobProgress
	// Waiting tells whether it waits, for what Waits says.
	Waiting bool
	// PerSecond is how many items were done a second since it was submitted, and
	// Ends when it would be done at that; zero: nobody can tell yet.
	PerSecond float64
	Ends      time.Time
}

func (s *Service) jobStatus(ctx context.Context, j *Job) (*JobStatus, error) {
	p, err := s.jobs.JobProgress(ctx, j.Tenant, j.ID)
	if err != nil {
		return nil, err
	}
	status := &JobStatus{Job: j, JobProgress: p}
	now := s.clock()
	status.Waiting = j.State == JobRunning && j.Waits != "" && j.Due.After(now)
	until := now
	if !j.Ended.IsZero() {
		until = j.Ended
	}
	if took := until.Sub(j.Submitted).Seconds(); !j.Submitted.IsZero() && took > 0 {
		status.PerSecond = float64(p.Done) / took
	}
	if j.State == JobRunning && status.PerSecond > 0 {
		left := float64(j.Items-p.Done) / status.PerSecond
		status.Ends = now.Add(time.Duration(min(left, JobLifetime.Seconds()) * float64(time.Second)))
	}
	return status, nil
}

// readsJob: a job is its credential's, and the tenant's administrator sees that
// it is there. Its results are its credential's alone, since they can be
// plaintexts of keys that others may not use.
func readsJob(by *Principal, j *Job) bool {
	return j.Credential == by.Credential && by.Sees(j.Project) || administersJobs(by)
}

func administersJobs(by *Principal) bool {
	return by.Scopes.allow(&OpInfo{Op: OpReadJob, Class: ClassRead, Family: "tenant"}, "")
}

func (s *Service) job(ctx context.Context, t *Ticket, ref string) (*Job, error) {
	id, ok := parseRef(ref)
	if !ok {
		return nil, ErrNotFound
	}
	j, err := s.jobs.Job(ctx, t.By.Tenant.ID, id)
	if err == nil && (!readsJob(t.By, j) || j.State == JobReceiving) {
		err = ErrNotFound
	}
	if err != nil {
		return nil, err
	}
	t.Resource, t.Revision = j.ID.String(), j.Revision
	return j, nil
}

// ReadJob returns a job and how far it is.
func (s *Service) ReadJob(ctx context.Context, t *Ticket, ref string) (status *JobStatus, err error) {
	err = s.run(ctx, t, &task{op: OpReadJob, allowed: always, store: func(ctx context.Context, t *Ticket) error {
		j, err := s.job(ctx, t, ref)
		if err != nil {
			return err
		}
		status, err = s.jobStatus(ctx, j)
		return err
	}})
	if err != nil {
		return nil, err
	}
	return status, nil
}

// ListJobs returns a page of the caller's jobs, or for an administrator of the
// tenant's, in the order in which they were made.
func (s *Service) ListJobs(ctx context.Context, t *Ticket, page Page) (list []*JobStatus, next string, err error) {
	err = s.run(ctx, t, &task{op: OpListJobs, allowed: always,
		prepare: func(*Ticket) error { return checkPage(page) },
		store: func(ctx context.Context, t *Ticket) error {
			of := t.By.Credential
			if administersJobs(t.By) {
				of = uuid.Nil()
			}
			jobs, token, err := s.jobs.ListJobs(ctx, t.By.Tenant.ID, of, page)
			if err != nil {
				return err
			}
			next = token
			for _, j := range jobs {
				if j.State == JobReceiving {
					continue
				}
				status, err := s.jobStatus(ctx, j)
				if err != nil {
					return err
				}
				list = append(list, status)
			}
			return nil
		}})
	if err != nil {
		return nil, "", err
	}
	return list, next, nil
}

// JobResults are the results of a job in their order, as far as they are done.
type JobResults struct {
	service *Service
	job     *Job
	box     *jobBox
	next    int64
	// Complete tells whether all that there will be are there.
	Complete bool
}

// ReadJobResults begins to read the results of a job from an item on. Only its
// own credential may. Close has to follow.
func (s *Service) ReadJobResults(ctx context.Context, t *Ticket, ref string, from int64) (r *JobResults, err error) {
	err = s.run(ctx, t, &task{op: OpReadJobResults, allowed: always, store: func(ctx context.Context, t *Ticket) error {
		j, err := s.job(ctx, t, ref)
		switch {
		case err != nil:
			return err
		case j.Credential != t.By.Credential || !t.By.Sees(j.Project):
			return ErrNotFound
		case from < 0 || from > j.Items:
			return Errorf(KindInvalidArgument, "from: must be 0 to the number of items")
		}
		p, err := s.jobs.JobProgress(ctx, j.Tenant, j.ID)
		if err != nil {
			return err
		}
		box, err := s.openJobBox(ctx, t.By.Tenant, j)
		if err != nil {
			return err
		}
		r = &JobResults{service: s, job: j, box: box, next: from, Complete: j.State.Ended() && p.Unfinished == 0}
		return nil
	}})
	if err != nil {
		return nil, err
	}
	return r, nil
}

// Next returns the next lines, which the caller wipes; none where the results
// end for now.
func (r *JobResults) Next(ctx context.Context) ([][]byte, error) {
	if r.next >= r.job.Items {
		return nil, nil
	}
	c, err := r.service.jobs.ChunkOf(ctx, r.job.Tenant, r.job.ID, r.next)
	if err != nil || c.State != ChunkDone {
		return nil, err
	}
	text, err := r.box.open(c, jobOutput, c.Pass, c.Output)
	if err != nil {
		return nil, err
	}
	lines := splitLines(text)
	if len(lines) != c.Items {
		return nil, errJobContent
	}
	skip := r.next - c.First
	r.next = c.First + int64(c.Items)
	return lines[skip:], nil
}

// Close wipes the key.
func (r *JobResults) Close() { r.box.close() }

// CancelJob ends a job: chunks that have not begun are not run, and what there is
// of results stays until it would have gone. A job that is over is deleted with
// its results; deleted tells which it was.
func (s *Service) CancelJob(ctx context.Context, t *Ticket, ref string) (status *JobStatus, deleted bool, err error) {
	var j *Job
	// What it is about decides which of the two operations it is.
	op := OpCancelJob
	if id, ok := parseRef(ref); ok {
		if found, err := s.jobs.Job(ctx, t.By.Tenant.ID, id); err == nil && found.State.Ended() && readsJob(t.By, found) {
			op, deleted = OpDeleteJob, true
		}
	}
	err = s.run(ctx, t, &task{op: op, allowed: always,
		prepare: func(t *Ticket) error {
			if j, err = s.job(ctx, t, ref); err == nil && j.State.Ended() != deleted {
				err = Errorf(KindConflict, "the job has just ended; ask again to delete it")
			}
			return err
		},
		store: func(ctx context.Context, t *Ticket) error {
			status = &JobStatus{Job: j}
			if deleted {
				return s.jobs.DeleteJob(ctx, j.Tenant, j.ID, false)
			}
			if err := concurrently(s.endJob(ctx, j, JobCancelled, "")); err != nil {
				return err
			}
			status, err = s.jobStatus(ctx, j)
			return err
		}})
	if err != nil {
		return nil, false, err
	}
	return status, deleted, nil
}

// ReplayCancelJob is Replay for CancelJob: it returns the job as it is now, nil
// when it is deleted.
func (s *Service) ReplayCancelJob(ctx context.Context, t *Ticket, ref string) (id uuid.UUID, status *JobStatus, err error) {
	err = s.replayOther(ctx, t, OpCancelJob, always, func(t *Ticket) error {
		id, _ = parseRef(ref)
		j, err := s.job(ctx, t, ref)
		if err != nil && KindOf(err) == KindNotFound {
			return nil
		}
		if err == nil {
			status, err = s.jobStatus(ctx, j)
		}
		return err
	})
	return id, status, err
}

// endJob stores a final state.
func (s *Service) endJob(ctx context.Context, j *Job, state JobState, reason string) error {
	ended := *j
	now := s.clock()
	ended.State, ended.Reason, ended.Ended, ended.Expires, ended.Revision = state, reason, now, now.Add(j.Retain), j.Revision+1
	if err := s.jobs.UpdateJob(ctx, &ended); err != nil {
		return err
	}
	*j = ended
	return nil
}

// stopRestored stops the jobs of a database that was restored: which of their
// chunks were done after it was saved nobody can say, and none may be done twice.
func (s *Service) stopRestored(ctx context.Context) error {
	// Every job expires at some time.
	list, err := s.jobs.ExpiredJobs(ctx, s.clock().Add(JobLifetime+MaxJobRetain), maxRestoredJobs)
	if err != nil {
		return err
	}
	for _, id := range list {
		j, err := s.jobs.Job(ctx, id.Tenant, id.Job)
		if err == nil && j.State == JobRunning {
			err = s.endJob(ctx, j, JobStopped, stoppedRestored)
		}
		if err != nil && KindOf(err) == KindStoreUnavailable {
			return err
		}
	}
	return nil
}

// maxRestoredJobs bounds how many jobs a restore looks at: more than a database
// holds, where a tenant has some.
const maxRestoredJobs = 1 << 20

// ReplayJob is Replay for an operation on a job: it returns the job as it is now,
// nil when it is deleted.
func (s *Service) ReplayJob(ctx context.Context, t *Ticket, op Op, ref string) (status *JobStatus, err error) {
	err = s.replayOther(ctx, t, op, always, func(t *Ticket) error {
		j, err := s.job(ctx, t, ref)
		if err != nil {
			return err
		}
		status, err = s.jobStatus(ctx, j)
		return err
	})
	if err != nil {
		return nil, err
	}
	return status, nil
}

// eraseJobs removes the jobs of a deleted tenant.
func (s *Service) eraseJobs(ctx context.Context, tenant *Tenant) error {
	for {
		list, _, err := s.jobs.ListJobs(ctx, tenant.ID, uuid.Nil(), Page{Size: MaxPageSize})
		if err != nil || len(list) == 0 {
			return err
		}
		for _, j := range list {
			if err := s.jobs.DeleteJob(ctx, tenant.ID, j.ID, true); err != nil && !errors.Is(err, ErrNotFound) {
				return err
			}
		}
	}
}

func (s *Service) foundJob(ctx context.Context, e *Entry) string {
	id, err := uuid.Parse(e.Resource)
	if err != nil {
		return OutcomeFoundUnknown
	}
	j, err := s.jobs.Job(ctx, e.Tenant, id)
	switch {
	case err == nil && e.Op == OpCreateJob && j.State == JobReceiving:
		return OutcomeFoundUndone
	case err == nil:
		return since(e.Revision, j.Revision)
	case KindOf(err) == KindNotFound && e.Op == OpDeleteJob:
		return OutcomeFoundDone
	case KindOf(err) == KindNotFound && e.Op == OpCreateJob:
		return OutcomeFoundUndone
	}
	return missing(err, e.Revision)
}
