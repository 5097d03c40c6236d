package keystore

import (
	"context"
	"math"
	"slices"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// AddChunk implements kms.Jobs.
func (s *Store) AddChunk(ctx context.Context, chunk *kms.JobChunk) error {
	record, err := s.chunkRecord(chunk)
	if err != nil {
		return err
	}
	if len(chunk.Input) == 0 || len(chunk.Input) > kms.MaxSealedChunk {
		return errArgument("input", reasonRange)
	}
	return translate(s.driver.InsertJobChunk(ctx, InsertJobChunkParams{record, chunk.Input}))
}

// Chunk implements kms.Jobs.
func (s *Store) Chunk(ctx context.Context, tenant, job uuid.UUID, number int) (*kms.JobChunk, error) {
	c, err := s.coder()
	if err != nil {
		return nil, err
	}
	row, err := s.driver.JobChunk(ctx, JobChunkParams{JobParams{tenant, job}, number})
	if err != nil {
		return nil, translate(err)
	}
	chunk, err := decodeChunk(c, tenant, job, row)
	if err == nil && chunk.Number != number {
		err = &RowError{Object: ObjectJobChunk, Tenant: tenant, ID: job, Column: "number", Reason: "is not the one asked for"}
	}
	if err != nil {
		return nil, s.decoded(err)
	}
	return chunk, nil
}

// ChunkOf implements kms.Jobs. ErrNotFound when no chunk has the item.
func (s *Store) ChunkOf(ctx context.Context, tenant, job uuid.UUID, item int64) (*kms.JobChunk, error) {
	c, err := s.coder()
	if err != nil {
		return nil, err
	}
	row, err := s.driver.JobChunkOf(ctx, JobChunkOfParams{JobParams{tenant, job}, item})
	if err != nil {
		return nil, translate(err)
	}
	chunk, err := decodeChunk(c, tenant, job, row)
	switch {
	case err != nil:
		return nil, s.decoded(err)
	case item < chunk.First || item >= chunk.First+int64(chunk.Items):
		return nil, kms.ErrNotFound
	}
	return chunk, nil
}

// DueChunks implements kms.Jobs.
func (s *Store) DueChunks(ctx context.Context, tenant, job uuid.UUID, now time.Time, limit int) ([]int, error) {
	if _, err := s.coder(); err != nil {
		return nil, err
	}
	rows, err := s.driver.DueJobChunks(ctx, DueJobChunksParams{JobParams{tenant, job}, timestamp(now), limit})
	if err != nil {
		return nil, translate(err)
	}
	numbers := make([]int, 0, len(rows))
	for _, row := range rows {
		d := newDecoder(ObjectJobChunk, tenant, job)
		number := d.integer(row, "number", 0, kms.MaxJobItems)
		if err := d.result(); err != nil {
			s.damaged(err)
			continue
		}
		numbers = append(numbers, int(number))
	}
	return numbers, nil
}

// UpdateChunk implements kms.Jobs.
func (s *Store) UpdateChunk(ctx context.Context, u *kms.ChunkUpdate) error {
	record, err := s.chunkRecord(&u.JobChunk)
	if err != nil {
		return err
	}
	if max(len(u.Input), len(u.Output), len(u.Entries)) > kms.MaxSealedChunk {
		return errArgument("chunk", reasonRange)
	}
	content := func(set bool, b []byte) JobContent {
		if len(b) == 0 {
			b = nil
		}
		return JobContent{set, b}
	}
	return translate(s.driver.UpdateJobChunk(ctx, UpdateJobChunkParams{Chunk: record, Input: content(u.SetInput, u.Input),
		Output: content(u.SetOutput, u.Output), Entries: content(u.SetEntries, u.Entries)}))
}

// RenewChunk implements kms.Jobs.
func (s *Store) RenewChunk(ctx context.Context, c *kms.JobChunk, due time.Time) error {
	if _, err := s.coder(); err != nil {
		return err
	}
	return translate(s.driver.RenewJobChunk(ctx, RenewJobChunkParams{JobChunkParams{JobParams{c.Tenant, c.Job}, c.Number}, c.Revision, timestamp(due)}))
}

// ReleaseChunks implements kms.Jobs.
func (s *Store) ReleaseChunks(ctx context.Context, node string, now time.Time) error {
	if _, err := s.coder(); err != nil {
		return err
	}
	return translate(s.driver.ReleaseJobChunks(ctx, ReleaseJobChunksParams{node, timestamp(now)}))
}

// ComputedChunks implements kms.Jobs.
func (s *Store) ComputedChunks(ctx context.Context, node string, limit int) ([]kms.JobChunk, error) {
	if _, err := s.coder(); err != nil {
		return nil, err
	}
	rows, err := s.driver.ComputedJobChunks(ctx, ComputedJobChunksParams{node, limit})
	if err != nil {
		return nil, translate(err)
	}
	list := make([]kms.JobChunk, 0, len(rows))
	for _, row := range rows {
		d := newDecoder(ObjectJobChunk, rowID(row.Tenant), rowID(row.Job))
		chunk := kms.JobChunk{Tenant: d.id(row.Tenant, "tenant"), Job: d.id(row.Job, "job"), Number: int(d.integer(row.Number, "number", 0, kms.MaxJobItems))}
		if err := d.result(); err != nil {
			s.damaged(err)
			continue
		}
		list = append(list, chunk)
	}
	return list, nil
}

func (s *Store) chunkRecord(chunk *kms.JobChunk) (record JobChunkRecord, err error) {
	chunk.Due = storedTime(chunk.Due)
	if err := argument(func(fail failFunc) { checkChunk(chunk, fail) }); err != nil {
		return record, err
	}
	c, err := s.coder()
	if err != nil {
		return record, err
	}
	record = encodeChunk(chunk)
	record.Code, err = c.code(codeJobChunk, record.fields())
	return record, err
}

func checkChunk(c *kms.JobChunk, fail failFunc) {
	switch {
	case c.Tenant == uuid.Nil() || c.Job == uuid.Nil():
		fail("job", reasonMissing)
	case c.ID == uuid.Nil():
		fail("id", reasonMissing)
	case c.Number < 0 || c.Number >= kms.MaxJobItems || c.First < int64(c.Number) || c.First >= kms.MaxJobItems:
		fail("number", reasonRange)
	case c.Items < 1 || c.Items > kms.MaxChunkItems:
		fail("items", reasonRange)
	case !slices.Contains(kms.ChunkStates(), c.State):
		fail("state", reasonUnknown)
	case c.Pending < 0 || c.Pending > c.Items || c.State == kms.ChunkDone && c.Pending > 0:
		fail("pending", reasonRange)
	case c.Failed < 0 || c.Failed > c.Items-c.Pending:
		fail("failed", reasonRange)
	case c.Charged < 0:
		fail("charged", reasonRange)
	case !storableText(c.Owner) || c.Owner == "" && c.State != kms.ChunkQueued:
		fail("owner", reasonMissing)
	case c.Position > math.MaxInt64:
		fail("position", reasonRange)
	case c.Revision == 0:
		fail("revision", reasonRange)
	}
}

func encodeChunk(c *kms.JobChunk) JobChunkRecord {
	return JobChunkRecord{Tenant: c.Tenant, Job: c.Job, Number: c.Number, ID: c.ID, First: c.First, Items: c.Items, State: string(c.State),
		Pass: c.Pass, Pending: c.Pending, Failed: c.Failed, Charged: int64(c.Charged), Owner: c.Owner, Position: c.Position,
		Due: maybeTimestamp(c.Due), Revision: c.Revision}
}

func decodeChunk(c *rowCoder, tenant, job uuid.UUID, row *JobChunkRow) (*kms.JobChunk, error) {
	d := newDecoder(ObjectJobChunk, tenant, job)
	count := func(c Integer, column string, most int64) int { return int(d.integer(c, column, 0, most)) }
	chunk := &kms.JobChunk{
		Tenant: tenant, Job: job, Number: count(row.Number, "number", kms.MaxJobItems), ID: d.id(row.ID, "id"),
		First: d.integer(row.First, "first", 0, kms.MaxJobItems), Items: count(row.Items, "items", kms.MaxChunkItems),
		State: kms.ChunkState(d.text(row.State, "state")), Pass: uint32(d.integer(row.Pass, "pass", 0, math.MaxUint32)),
		Pending: count(row.Pending, "pending", kms.MaxChunkItems), Failed: count(row.Failed, "failed", kms.MaxChunkItems),
		Charged: kms.Credits(d.integer(row.Charged, "charged", 0, math.MaxInt64)), Owner: d.maybeBlank(row.Owner, "owner"),
		Position: uint64(d.integer(row.Position, "position", 0, math.MaxInt64)), Due: d.maybeTime(row.Due, "due"), Revision: d.revision(row.Revision),
		Input: d.maybeBytes(row.Input, "input"), Output: d.maybeBytes(row.Output, "output"), Entries: d.maybeBytes(row.Entries, "entries"),
	}
	if d.result() == nil {
		checkChunk(chunk, d.fail)
	}
	if d.result() == nil {
		record := encodeChunk(chunk)
		c.check(d, codeJobChunk, record.fields(), row.Code)
	}
	return chunk, d.result()
}

// fields leaves out the date, and what is sealed, which binds tenant, job, number
// and pass.
func (r *JobChunkRecord) fields() fields {
	return fields{}.id(r.Tenant).id(r.Job).number(uint64(r.Number)).id(r.ID).number(uint64(r.First)).number(uint64(r.Items)).text(r.State).
		number(uint64(r.Pass)).number(uint64(r.Pending)).number(uint64(r.Failed)).number(uint64(r.Charged)).text(r.Owner).number(r.Position).
		number(r.Revision)
}
