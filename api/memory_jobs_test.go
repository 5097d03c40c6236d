package api_test

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// jobBook is the part of memory for jobs.
type jobBook struct {
	jobs   map[kms.JobID]*kms.Job
	chunks map[kms.JobID][]*kms.JobChunk
	claims map[[32]byte]kms.JobID
}

func newJobBook() jobBook {
	return jobBook{map[kms.JobID]*kms.Job{}, map[kms.JobID][]*kms.JobChunk{}, map[[32]byte]kms.JobID{}}
}

var errJobRevision = kms.Errorf(kms.KindPreconditionFailed, "the revision is another")

func (m *memory) CreateJob(_ context.Context, j *kms.Job) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.storeFault != nil {
		return m.storeFault
	}
	unfinished := 0
	for id, other := range m.work.jobs {
		if id.Tenant == j.Tenant && !other.State.Ended() && (other.State != kms.JobReceiving || other.Expires.After(j.Created)) {
			unfinished++
		}
	}
	if unfinished >= kms.MaxUnfinishedJobs {
		return kms.Errorf(kms.KindConflict, "the tenant has as many jobs as it may")
	}
	stored := *j
	m.work.jobs[kms.JobID{Tenant: j.Tenant, Job: j.ID}] = &stored
	return nil
}

func (m *memory) Job(_ context.Context, tenant, id uuid.UUID) (*kms.Job, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if j := m.work.jobs[kms.JobID{Tenant: tenant, Job: id}]; j != nil {
		found := *j
		return &found, nil
	}
	return nil, kms.ErrNotFound
}

func (m *memory) JobByClaim(_ context.Context, tenant uuid.UUID, claim [32]byte) (*kms.Job, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.storeFault != nil {
		return nil, m.storeFault
	}
	if j := m.work.jobs[m.work.claims[claim]]; j != nil && j.Tenant == tenant {
		found := *j
		return &found, nil
	}
	return nil, kms.ErrNotFound
}

func (m *memory) ListJobs(_ context.Context, tenant, credential uuid.UUID, p kms.Page) ([]*kms.Job, string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var list []*kms.Job
	for id, j := range m.work.jobs {
		if id.Tenant == tenant && (credential == uuid.Nil() || credential == j.Credential) {
			found := *j
			list = append(list, &found)
		}
	}
	return page(list, func(j *kms.Job) string { return j.ID.String() }, p)
}

func (m *memory) UpdateJob(_ context.Context, j *kms.Job) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	id := kms.JobID{Tenant: j.Tenant, Job: j.ID}
	was := m.work.jobs[id]
	if was == nil || was.Revision != j.Revision-1 {
		return errJobRevision
	}
	if j.Claim != ([32]byte{}) {
		if other := m.work.claims[j.Claim]; m.work.jobs[other] != nil && other != id {
			return kms.Errorf(kms.KindConflict, "another job has the claim")
		}
		m.work.claims[j.Claim] = id
	}
	next := *j
	next.Due, next.Waits = was.Due, was.Waits
	m.work.jobs[id] = &next
	return nil
}

func (m *memory) DelayJob(_ context.Context, tenant, id uuid.UUID, until time.Time, why string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if j := m.work.jobs[kms.JobID{Tenant: tenant, Job: id}]; j != nil {
		j.Due, j.Waits = until, why
	}
	return nil
}

func (m *memory) DeleteJob(_ context.Context, tenant, job uuid.UUID, all bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	id := kms.JobID{Tenant: tenant, Job: job}
	if m.work.jobs[id] == nil {
		return kms.ErrNotFound
	}
	if !all && slices.ContainsFunc(m.work.chunks[id], func(c *kms.JobChunk) bool { return c.State == kms.ChunkComputed }) {
		return kms.Errorf(kms.KindConflict, "results are being recorded")
	}
	delete(m.work.jobs, id)
	delete(m.work.chunks, id)
	return nil
}

func (m *memory) JobProgress(_ context.Context, tenant, id uuid.UUID) (p kms.JobProgress, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.work.chunks[kms.JobID{Tenant: tenant, Job: id}] {
		p.Items += int64(c.Items)
		if c.State != kms.ChunkComputed {
			p.Charged += c.Charged
		}
		if c.State != kms.ChunkDone {
			p.Unfinished++
			continue
		}
		p.Done, p.Failed = p.Done+int64(c.Items), p.Failed+int64(c.Failed)
	}
	return p, nil
}

func (m *memory) DueJobs(_ context.Context, now time.Time, after uuid.UUID, busy []uuid.UUID, limit int) (due []kms.JobID, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	ids := slices.SortedFunc(maps.Keys(m.work.jobs), func(a, b kms.JobID) int { return cmp.Or(a.Tenant.Compare(b.Tenant), a.Job.Compare(b.Job)) })
	for _, id := range ids {
		j, chunks := m.work.jobs[id], m.work.chunks[id]
		if j.State != kms.JobRunning || j.Due.After(now) || id.Tenant.Compare(after) <= 0 || slices.Contains(busy, id.Tenant) || len(due) == limit ||
			len(due) > 0 && due[len(due)-1].Tenant == id.Tenant {
			continue
		}
		if slices.ContainsFunc(chunks, func(c *kms.JobChunk) bool { return !c.Due.IsZero() && !c.Due.After(now) }) ||
			!slices.ContainsFunc(chunks, func(c *kms.JobChunk) bool { return c.State != kms.ChunkDone }) {
			due = append(due, id)
		}
	}
	return due, nil
}

func (m *memory) ExpiredJobs(_ context.Context, now time.Time, limit int) (list []kms.JobID, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for id, j := range m.work.jobs {
		if !j.Expires.After(now) && len(list) < limit {
			list = append(list, id)
		}
	}
	return list, nil
}

func (m *memory) AddChunk(_ context.Context, c *kms.JobChunk) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	id := kms.JobID{Tenant: c.Tenant, Job: c.Job}
	if m.work.jobs[id] == nil {
		return kms.ErrNotFound
	}
	stored := *c
	m.work.chunks[id] = append(m.work.chunks[id], &stored)
	return nil
}

func (m *memory) Chunk(_ context.Context, tenant, job uuid.UUID, number int) (*kms.JobChunk, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if chunks := m.work.chunks[kms.JobID{Tenant: tenant, Job: job}]; number < len(chunks) {
		found := *chunks[number]
		return &found, nil
	}
	return nil, kms.ErrNotFound
}

func (m *memory) ChunkOf(_ context.Context, tenant, job uuid.UUID, item int64) (*kms.JobChunk, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.work.chunks[kms.JobID{Tenant: tenant, Job: job}] {
		if c.First <= item && item < c.First+int64(c.Items) {
			found := *c
			return &found, nil
		}
	}
	return nil, kms.ErrNotFound
}

func (m *memory) DueChunks(_ context.Context, tenant, job uuid.UUID, now time.Time, limit int) (numbers []int, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.work.chunks[kms.JobID{Tenant: tenant, Job: job}] {
		if !c.Due.IsZero() && !c.Due.After(now) && len(numbers) < limit {
			numbers = append(numbers, c.Number)
		}
	}
	return numbers, nil
}

func (m *memory) UpdateChunk(_ context.Context, u *kms.ChunkUpdate) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	chunks := m.work.chunks[kms.JobID{Tenant: u.Tenant, Job: u.Job}]
	if u.Number >= len(chunks) || chunks[u.Number].Revision != u.Revision-1 {
		return errJobRevision
	}
	was, next := chunks[u.Number], u.JobChunk
	for _, content := range []struct {
		set  bool
		into *[]byte
		was  []byte
	}{{u.SetInput, &next.Input, was.Input}, {u.SetOutput, &next.Output, was.Output}, {u.SetEntries, &next.Entries, was.Entries}} {
		if !content.set {
			*content.into = content.was
		}
	}
	chunks[u.Number] = &next
	return nil
}

func (m *memory) RenewChunk(_ context.Context, c *kms.JobChunk, due time.Time) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	chunks := m.work.chunks[kms.JobID{Tenant: c.Tenant, Job: c.Job}]
	if c.Number >= len(chunks) || chunks[c.Number].Revision != c.Revision {
		return errJobRevision
	}
	chunks[c.Number].Due = due
	return nil
}

func (m *memory) ReleaseChunks(_ context.Context, node string, now time.Time) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, chunks := range m.work.chunks {
		for _, c := range chunks {
			if c.Owner == node && c.State == kms.ChunkRunning {
				c.Due = now
			}
		}
	}
	return nil
}

func (m *memory) ComputedChunks(_ context.Context, node string, limit int) (list []kms.JobChunk, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, chunks := range m.work.chunks {
		for _, c := range chunks {
			if c.Owner == node && c.State == kms.ChunkComputed && len(list) < limit {
				list = append(list, *c)
			}
		}
	}
	return list, nil
}

// Position implements kms.JobJournal. What outcomes has taken does not count.
func (m *memory) Position() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return uint64(len(m.entries))
}

func (m *memory) Since(_ context.Context, position uint64, fn func(uuid.UUID) error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range m.entries[min(int(position), len(m.entries)):] {
		if e.Phase == kms.PhaseOutcome {
			if err := fn(e.RequestID); err != nil {
				return err
			}
		}
	}
	return nil
}
