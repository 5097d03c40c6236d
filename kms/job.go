package kms

import (
	"context"
	"time"
	"uuid"
)

// A job is many operations that one call hands over and nobody waits for: the
// items of batches, up to a million, run in their order of chunks at bulk
// urgency. What comes in and what comes out is sealed under a data key of the
// job's own, which the HSM seals under the tenant's sealing key.
//
// A chunk goes through these states, each of which is durable before anything
// follows from it:
//
//	QUEUED → RUNNING → COMPUTED → DONE, or QUEUED again with what is left
//
// An API node takes a chunk under a lease and runs its items through the route
// without recording them (RUNNING). Then it stores, sealed, the results and the
// entries that the journal is to have, and where its journal stood (COMPUTED);
// records the entries; and says so (DONE). Results are shown of DONE chunks
// only. So whenever the process ends:
//
//   - of a chunk that is RUNNING nothing was recorded, charged or shown: it is
//     run again, by whoever takes it when the lease is over;
//   - of one that is COMPUTED the journal of its node, from where it stood, says
//     which entries it has. The rest is recorded, by that node and no other,
//     whose journal is the only witness.
//
// Refusals that pass (quota, capacity, the HSMs, the journal) are no results:
// the chunk is QUEUED again with the items that are left, and the job waits.

// JobState is the state of a job.
type JobState string

// The states of a job. Only a RUNNING one has items run; those after it are
// final.
const (
	JobReceiving JobState = "RECEIVING" // its items are coming in
	JobRunning   JobState = "RUNNING"
	JobDone      JobState = "DONE"
	JobCancelled JobState = "CANCELLED"
	JobStopped   JobState = "STOPPED" // whoever made it may no longer
	JobExpired   JobState = "EXPIRED" // it was not done in JobLifetime
)

// JobStates returns the states.
func JobStates() []JobState {
	return []JobState{JobReceiving, JobRunning, JobDone, JobCancelled, JobStopped, JobExpired}
}

// Ended tells whether nothing more of a job is run.
func (s JobState) Ended() bool { return s != JobReceiving && s != JobRunning }

// ChunkState is the state of a chunk.
type ChunkState string

// The states of a chunk.
const (
	ChunkQueued   ChunkState = "QUEUED"
	ChunkRunning  ChunkState = "RUNNING"
	ChunkComputed ChunkState = "COMPUTED"
	ChunkDone     ChunkState = "DONE"
)

// ChunkStates returns the states.
func ChunkStates() []ChunkState {
	return []ChunkState{ChunkQueued, ChunkRunning, ChunkComputed, ChunkDone}
}

// Bounds of jobs.
const (
	MaxJobItems = 1_000_000
	// MaxJobBytes bounds the items of a job together, as they are sent.
	MaxJobBytes = 1 << 30
	// MaxChunkItems and MaxChunkBytes bound what is run and stored as one: as
	// much as a batch.
	MaxChunkItems = MaxBatch
	MaxChunkBytes = 1 << 20
	// MaxUnfinishedJobs is how many jobs a tenant has that are not over.
	MaxUnfinishedJobs = 16
	// JobLifetime is how long a job may take, and JobReceiveTime how long its
	// items may take to come in.
	JobLifetime    = 7 * 24 * time.Hour
	JobReceiveTime = time.Hour
	// JobReceiveLease is for how long a job that is RECEIVING has a place among
	// those, unless that is renewed as items come in, every jobReceiveRenewal: what
	// a process that was killed was taking in is soon forgotten. A client may pause
	// for half of it.
	JobReceiveLease   = time.Minute
	jobReceiveRenewal = JobReceiveLease / 4
	// DefaultJobRetain is how long a job that is over is kept, and MaxJobRetain
	// the longest.
	DefaultJobRetain = 24 * time.Hour
	MaxJobRetain     = 168 * time.Hour
	// MaxSealedChunk bounds what is sealed of a chunk: the largest results of a
	// batch, or its entries, with room.
	MaxSealedChunk = 16 << 20
)

// Job is a job as it is stored.
type Job struct {
	ID         uuid.UUID
	Tenant     uuid.UUID
	Project    string
	Credential uuid.UUID
	State      JobState
	Created    time.Time
	Submitted  time.Time // zero while it is RECEIVING
	Ended      time.Time // zero while it is not over
	Retain     time.Duration
	// Expires is when a job that is over is deleted, or one that is not ends.
	Expires time.Time
	Items   int64
	Chunks  int
	Bytes   int64
	// Digest is the SHA-256 of the items, each with a line feed after it.
	Digest [32]byte
	// DataKey is sealed under the tenant's sealing key.
	DataKey []byte
	// Reason is why a STOPPED one was: the code of an error.
	Reason   string
	Revision uint64 // grows by one with every change, from 1

	// Claim is written with UpdateJob, not read: what an Idempotency-Key stands for
	// (see jobClaim); zeros: it has none, or keeps what it has.
	Claim [32]byte

	// Due and Waits change without the revision: before when no item is run,
	// and the code of what that waits for. Nothing else is decided by them.
	Due   time.Time
	Waits string
}

// JobChunk is a part of a job's items, and what became of them.
type JobChunk struct {
	Tenant uuid.UUID
	Job    uuid.UUID
	Number int // from 0
	// ID is what the request ids of its items follow from: see ItemID.
	ID    uuid.UUID
	First int64 // the index of its first item in the job
	Items int
	State ChunkState
	// Pass counts how often results of it were stored, Pending the items that
	// have none yet.
	Pass    uint32
	Pending int
	Failed  int     // items whose result is a problem
	Charged Credits // of those that have results
	// Owner is the API node that last took it.
	Owner string
	// Position is the sequence in the owner's journal behind which the entries
	// of the last pass are.
	Position uint64
	Revision uint64 // grows by one with every change, from 1

	// Due is when it may be taken, which is in the future while it is RUNNING;
	// zero: not by date. It decides nothing else.
	Due time.Time

	// Input, Output and Entries are sealed: see jobBox. Nil: there is none, or it
	// was not read.
	Input, Output, Entries []byte
}

// JobProgress sums up a job's chunks.
type JobProgress struct {
	Items      int64 // all
	Done       int64 // with results that are shown
	Failed     int64 // of those, problems
	Charged    Credits
	Unfinished int64 // chunks that are not DONE
}

// JobID names a job.
type JobID struct{ Tenant, Job uuid.UUID }

// ChunkUpdate is a change of a chunk: all of it but its contents, and those of
// these that are not nil. An empty one is removed.
type ChunkUpdate struct {
	JobChunk
	SetInput, SetOutput, SetEntries bool
}

// Jobs stores jobs and their chunks. Another tenant's job and a missing one give
// ErrNotFound. All methods are safe for concurrent use; other errors carry
// KindStoreUnavailable.
type Jobs interface {
	// CreateJob: KindConflict when the tenant has MaxUnfinishedJobs, of those that
	// are RECEIVING such as have not expired. Of several at once, more than the last
	// free places can be taken.
	CreateJob(ctx context.Context, j *Job) error
	Job(ctx context.Context, tenant, id uuid.UUID) (*Job, error)
	// ListJobs returns a page of a tenant's jobs in the order in which they were
	// made; of a credential's, if that is not zero.
	ListJobs(ctx context.Context, tenant, credential uuid.UUID, page Page) ([]*Job, string, error)
	// JobByClaim returns the job that was stored with a claim.
	JobByClaim(ctx context.Context, tenant uuid.UUID, claim [32]byte) (*Job, error)
	// UpdateJob stores the state that follows the revision before j's;
	// KindPreconditionFailed when that is not the present one, KindConflict when
	// another job of the tenant has the claim.
	UpdateJob(ctx context.Context, j *Job) error
	// DelayJob has a job's items wait; a missing one is none to delay.
	DelayJob(ctx context.Context, tenant, id uuid.UUID, until time.Time, why string) error
	// DeleteJob removes a job with its chunks. Those that are COMPUTED stay, and
	// the job with them, unless all are to go: KindConflict then.
	DeleteJob(ctx context.Context, tenant, id uuid.UUID, all bool) error
	JobProgress(ctx context.Context, tenant, id uuid.UUID) (JobProgress, error)

	// DueJobs returns the first due job of up to limit tenants that are not busy,
	// in their order and behind after: of those that are RUNNING one that has a
	// chunk to take, or none that is not DONE.
	DueJobs(ctx context.Context, now time.Time, after uuid.UUID, busy []uuid.UUID, limit int) ([]JobID, error)
	// ExpiredJobs returns up to limit jobs whose Expires is over.
	ExpiredJobs(ctx context.Context, now time.Time, limit int) ([]JobID, error)

	// AddChunk stores a chunk of a job.
	AddChunk(ctx context.Context, c *JobChunk) error
	// Chunk returns a chunk with its contents.
	Chunk(ctx context.Context, tenant, job uuid.UUID, number int) (*JobChunk, error)
	// ChunkOf returns the chunk that holds an item, with its output.
	ChunkOf(ctx context.Context, tenant, job uuid.UUID, item int64) (*JobChunk, error)
	// DueChunks returns the numbers of up to limit chunks that are due.
	DueChunks(ctx context.Context, tenant, job uuid.UUID, now time.Time, limit int) ([]int, error)
	// UpdateChunk is UpdateJob for a chunk.
	UpdateChunk(ctx context.Context, u *ChunkUpdate) error
	// RenewChunk moves Due of a RUNNING chunk that still has a revision;
	// KindPreconditionFailed otherwise.
	RenewChunk(ctx context.Context, c *JobChunk, due time.Time) error
	// ReleaseChunks makes all RUNNING chunks of an API node due, which begins and
	// so runs none.
	ReleaseChunks(ctx context.Context, node string, now time.Time) error
	// ComputedChunks returns up to limit COMPUTED chunks of an API node, of which
	// Tenant, Job and Number are set.
	ComputedChunks(ctx context.Context, node string, limit int) ([]JobChunk, error)
}

// JobJournal is what jobs read of their own API node's journal.
type JobJournal interface {
	// Position returns the sequence of the last durable record.
	Position() uint64
	// Since calls fn with the request id of each outcome behind a position, up to
	// the last durable one. An error of fn ends the reading.
	Since(ctx context.Context, position uint64, fn func(request uuid.UUID) error) error
}

// JobItems makes calls of the items of a chunk.
type JobItems interface {
	// JobCalls makes the calls of items for a ticket, which are the caller's to
	// run, and to Release when their results were taken.
	JobCalls(ctx context.Context, t *Ticket, items [][]byte) JobCalls
}

// JobCalls are items of a chunk as calls of the service.
type JobCalls interface {
	Items() []BatchItem
	// Result returns the line that says what became of the item of a place, which
	// is over: index is the item's in the job.
	Result(place int, index int64) []byte
	Release()
}
