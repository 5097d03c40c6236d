package kms

import (
	"context"
	"log/slog"
	"runtime"
	"sync"
	"time"
	"uuid"
)

// The pace of jobs on an API node.
const (
	// jobInterval is how often a node looks for chunks that are due while it runs
	// some, and jobIdleInterval when it runs none and nothing wakes it: a job that
	// another node has taken in waits so long for it at most. jobRecoverInterval is
	// how often it looks for chunks of its own that it has to finish, if there may
	// be any, and jobSweepInterval for jobs whose time is over.
	jobInterval        = time.Second
	jobIdleInterval    = 5 * time.Second
	jobRecoverInterval = 5 * time.Second
	jobSweepInterval   = time.Minute
	// jobLease is for how long a chunk is a node's that runs it, unless it is
	// renewed, as it is three times in that.
	jobLease = 30 * time.Second
	// maxJobChunks is how many chunks are under way on a node, and
	// maxTenantJobChunks how many of one tenant: the memory of a chunk is some
	// megabytes, and the rest of a node's processors is for people who wait.
	maxJobChunks       = 4
	maxTenantJobChunks = 2
	// dueChunks is how many chunks are looked at before another node has to have
	// all of them: as many as one takes at once.
	dueChunks = 8
	// jobPage is how many jobs one look takes on.
	jobPage = 100
)

// JobConfig is what a JobRunner needs; every field is required.
type JobConfig struct {
	Node    string // this API node: that of the journal
	Items   JobItems
	Journal JobJournal
	// Parallel is how many items are under way at once, 1 at least.
	Parallel int
}

// JobRunner runs chunks of jobs on this API node. Each has one.
type JobRunner struct {
	service *Service
	config  JobConfig
	stop    context.CancelFunc
	all     sync.WaitGroup
	wake    chan struct{}
	after   uuid.UUID     // the tenant that was last served; the loop's
	places  chan struct{} // of items that are under way
	lanes   chan struct{} // of pieces of work and their rests, where the node serves others: see turn
	storing sync.Mutex    // held while results are sealed, stored and recorded: one chunk at a time

	mu    sync.Mutex // guards the rest
	hand  map[chunkName]bool
	busy  map[uuid.UUID]int // chunks under way by tenant
	total int
	soon  time.Time // when a job is due that this node has delayed
	left  bool      // there may be chunks of this node that have to be finished
}

type chunkName struct {
	JobID
	number int
}

func nameOf(c *JobChunk) chunkName { return chunkName{JobID{c.Tenant, c.Job}, c.Number} }

// StartJobs begins to run chunks of jobs; Close ends that.
func (s *Service) StartJobs(c JobConfig) *JobRunner {
	ctx, stop := context.WithCancel(context.Background())
	r := &JobRunner{service: s, config: c, stop: stop, wake: s.jobWake, hand: make(map[chunkName]bool), busy: make(map[uuid.UUID]int), left: true,
		places: make(chan struct{}, max(c.Parallel, 1)),
		lanes:  make(chan struct{}, max(runtime.NumCPU()/jobLane, 1))}
	r.all.Go(func() { r.loop(ctx) })
	r.all.Go(func() { r.sweeps(ctx) })
	return r
}

// Close ends the runner: items under way are finished and stored, and what was
// not begun is put back. It waits for that.
func (r *JobRunner) Close() error {
	r.stop()
	r.all.Wait()
	return nil
}

// wakeJobs has the runner look for chunks now.
func (s *Service) wakeJobs() {
	select {
	case s.jobWake <- struct{}{}:
	default:
	}
}

func (r *JobRunner) loop(ctx context.Context) {
	// What ran here when the process ended runs no more.
	released := false
	var recovered time.Time
	for ctx.Err() == nil {
		now := r.service.clock()
		if !released {
			err := r.service.jobs.ReleaseChunks(ctx, r.config.Node, now)
			released = r.went(ctx, "releasing chunks", err)
		}
		if r.leaves() && now.Sub(recovered) >= jobRecoverInterval {
			r.recover(ctx)
			recovered = now
		}
		r.turn(ctx, jobStoreRest, func() { r.fill(ctx) })
		r.wait(ctx)
	}
}

// leaves tells whether there may be chunks of this node that have to be finished:
// those of a process before this one, and those where storing or recording failed.
func (r *JobRunner) leaves() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.left
}

func (r *JobRunner) leave(some bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.left = some
}

// wait waits until there may be something to do.
func (r *JobRunner) wait(ctx context.Context) {
	pause := jobIdleInterval
	r.mu.Lock()
	if r.total > 0 {
		pause = jobInterval
	}
	if !r.soon.IsZero() {
		pause = min(pause, max(r.soon.Sub(r.service.clock()), time.Millisecond))
		r.soon = time.Time{}
	}
	r.mu.Unlock()
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-r.wake:
	case <-timer.C:
	}
}

// went logs an error, if it is not that the runner ends, and tells whether there
// was none.
func (r *JobRunner) went(ctx context.Context, what string, err error) bool {
	if err != nil && ctx.Err() == nil && KindOf(err) != KindNotFound && KindOf(err) != KindPreconditionFailed {
		r.service.log.Error("jobs: "+what, slog.Any("error", err))
	}
	return err == nil
}

// fill takes chunks while there is room, of one tenant after the other.
func (r *JobRunner) fill(ctx context.Context) {
	took, wrapped := false, r.after == uuid.Nil()
	for ctx.Err() == nil {
		free, busy := r.room()
		if free == 0 {
			return
		}
		due, err := r.service.jobs.DueJobs(ctx, r.service.clock(), r.after, busy, free)
		if !r.went(ctx, "looking for what is due", err) {
			return
		}
		if len(due) == 0 {
			r.after = uuid.Nil()
			if wrapped && !took {
				return
			}
			took, wrapped = false, true
			continue
		}
		for _, id := range due {
			r.after = id.Tenant
			took = r.takeOf(ctx, id) || took
		}
	}
}

// room returns how many chunks may be taken, and the tenants that have as many
// under way as they may.
func (r *JobRunner) room() (free int, busy []uuid.UUID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for tenant, n := range r.busy {
		if n >= maxTenantJobChunks {
			busy = append(busy, tenant)
		}
	}
	return maxJobChunks - r.total, busy
}

// takeOf takes a chunk of a job and begins to run it, or ends a job that has none
// left. It tells whether it did either.
func (r *JobRunner) takeOf(ctx context.Context, id JobID) bool {
	s := r.service
	j, err := s.jobs.Job(ctx, id.Tenant, id.Job)
	if !r.went(ctx, "reading a job", err) || j.State != JobRunning {
		return false
	}
	numbers, err := s.jobs.DueChunks(ctx, id.Tenant, id.Job, s.clock(), dueChunks)
	if !r.went(ctx, "looking for chunks", err) {
		return false
	}
	for _, number := range numbers {
		if c := r.claim(ctx, j, number); c != nil {
			r.all.Go(func() {
				defer r.drop(c)
				r.work(ctx, j, c)
			})
			return true
		}
	}
	p, err := s.jobs.JobProgress(ctx, id.Tenant, id.Job)
	if !r.went(ctx, "summing up a job", err) || p.Unfinished > 0 {
		return false
	}
	return r.went(ctx, "ending a job", s.endJob(ctx, j, JobDone, ""))
}

// claim makes a chunk this node's; nil when it is another's.
func (r *JobRunner) claim(ctx context.Context, j *Job, number int) *JobChunk {
	s := r.service
	c, err := s.jobs.Chunk(ctx, j.Tenant, j.ID, number)
	now := s.clock()
	if !r.went(ctx, "reading a chunk", err) || c.State != ChunkQueued && c.State != ChunkRunning || c.Due.After(now) || !r.keep(c) {
		return nil
	}
	c.State, c.Owner, c.Due = ChunkRunning, r.config.Node, now.Add(jobLease)
	if !r.went(ctx, "taking a chunk", r.update(ctx, c, &ChunkUpdate{})) {
		r.drop(c)
		return nil
	}
	return c
}

// keep notes that a chunk is in this node's hands; false when it is already.
func (r *JobRunner) keep(c *JobChunk) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.hand[nameOf(c)] {
		return false
	}
	r.hand[nameOf(c)] = true
	r.busy[c.Tenant]++
	r.total++
	return true
}

func (r *JobRunner) drop(c *JobChunk) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.hand, nameOf(c))
	r.total--
	if r.busy[c.Tenant]--; r.busy[c.Tenant] == 0 {
		delete(r.busy, c.Tenant)
	}
	r.service.wakeJobs()
}

// update stores a chunk as its next revision, with the contents that u sets.
func (r *JobRunner) update(ctx context.Context, c *JobChunk, u *ChunkUpdate) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	c.Revision++
	input, output, entries := u.Input, u.Output, u.Entries
	u.JobChunk = *c
	u.Input, u.Output, u.Entries = input, output, entries
	return r.service.jobs.UpdateChunk(ctx, u)
}

// delay has a job wait, and remembers when it is over.
func (r *JobRunner) delay(ctx context.Context, j *Job, d time.Duration, why string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	until := r.service.clock().Add(d)
	r.went(ctx, "delaying a job", r.service.jobs.DelayJob(ctx, j.Tenant, j.ID, until, why))
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.soon.IsZero() || until.Before(r.soon) {
		r.soon = until
	}
}

// sweeps ends and deletes jobs whose time is over.
func (r *JobRunner) sweeps(ctx context.Context) {
	tick := time.NewTicker(jobSweepInterval)
	defer tick.Stop()
	for {
		r.sweep(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (r *JobRunner) sweep(ctx context.Context) {
	s := r.service
	now := s.clock()
	list, err := s.jobs.ExpiredJobs(ctx, now, jobPage)
	if !r.went(ctx, "looking for what has expired", err) {
		return
	}
	for _, id := range list {
		j, err := s.jobs.Job(ctx, id.Tenant, id.Job)
		if !r.went(ctx, "reading a job", err) || j.Expires.After(now) {
			continue
		}
		if j.State == JobRunning {
			r.went(ctx, "ending a job", s.endJob(ctx, j, JobExpired, ""))
			continue
		}
		// What a node has still to record holds a job up, but not for ever: the
		// node may be gone.
		r.went(ctx, "deleting a job", s.jobs.DeleteJob(ctx, j.Tenant, j.ID, now.Sub(j.Expires) > JobLifetime))
	}
}
