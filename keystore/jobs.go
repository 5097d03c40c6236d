package keystore

import (
	"context"
	"encoding/json/v2"
	"errors"
	"math"
	"slices"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// CreateJob implements kms.Jobs.
func (s *Store) CreateJob(ctx context.Context, j *kms.Job) error {
	record, err := s.jobRecord(j)
	if err != nil {
		return err
	}
	err = s.driver.InsertJob(ctx, InsertJobParams{Job: record, Most: kms.MaxUnfinishedJobs, Now: timestamp(s.now())})
	if errors.Is(err, ErrStale) {
		return kms.Errorf(kms.KindConflict, "the tenant has %d jobs that are not over already", kms.MaxUnfinishedJobs)
	}
	return translate(err)
}

// Job implements kms.Jobs.
func (s *Store) Job(ctx context.Context, tenant, id uuid.UUID) (*kms.Job, error) {
	c, err := s.coder()
	if err != nil {
		return nil, err
	}
	row, err := s.driver.Job(ctx, JobParams{tenant, id})
	if err != nil {
		return nil, translate(err)
	}
	j, err := decodeJob(c, tenant, row, &id)
	if err != nil {
		return nil, s.decoded(err)
	}
	return j, nil
}

// JobByClaim implements kms.Jobs.
func (s *Store) JobByClaim(ctx context.Context, tenant uuid.UUID, claim [32]byte) (*kms.Job, error) {
	c, err := s.coder()
	if err != nil {
		return nil, err
	}
	row, err := s.driver.JobByClaim(ctx, JobByClaimParams{tenant, claim[:]})
	if err != nil {
		return nil, translate(err)
	}
	j, err := decodeJob(c, tenant, row, nil)
	if err != nil {
		return nil, s.decoded(err)
	}
	return j, nil
}

// ListJobs implements kms.Jobs. Damaged ones are reported to the log and left
// out.
func (s *Store) ListJobs(ctx context.Context, tenant, credential uuid.UUID, page kms.Page) ([]*kms.Job, string, error) {
	c, err := s.coder()
	if err != nil {
		return nil, "", err
	}
	if _, err := s.tenants.get(ctx, tenant); err != nil {
		return nil, "", err
	}
	l := listing[*JobRow, *kms.Job]{
		scope: scope{kind: 'j', tenant: tenant},
		rows: func(ctx context.Context, after position, limit int) ([]*JobRow, error) {
			p := ListJobsParams{Tenant: tenant, Limit: limit}
			copy(p.After[:], after.id)
			if credential != uuid.Nil() {
				p.Credential = &credential
			}
			return s.driver.ListJobs(ctx, p)
		},
		rowPosition: func(r *JobRow) position { return position{id: string(r.ID.Bytes)} },
		decode:      func(r *JobRow) (*kms.Job, error) { return decodeJob(c, tenant, r, nil) },
		damaged:     s.damaged,
	}
	return l.page(ctx, page)
}

// UpdateJob implements kms.Jobs.
func (s *Store) UpdateJob(ctx context.Context, j *kms.Job) error {
	record, err := s.jobRecord(j)
	if err != nil {
		return err
	}
	var claim []byte
	if j.Claim != ([32]byte{}) {
		claim = j.Claim[:]
	}
	return translate(s.driver.UpdateJob(ctx, UpdateJobParams{record, claim}))
}

func (s *Store) jobRecord(j *kms.Job) (record JobRecord, err error) {
	for _, t := range []*time.Time{&j.Created, &j.Submitted, &j.Ended, &j.Expires, &j.Due} {
		*t = storedTime(*t)
	}
	if err := argument(func(fail failFunc) { checkJob(j, fail) }); err != nil {
		return record, err
	}
	c, err := s.coder()
	if err != nil {
		return record, err
	}
	if record, err = encodeJob(j); err != nil {
		return record, err
	}
	record.Code, err = c.code(codeJob, record.fields())
	return record, err
}

// DelayJob implements kms.Jobs.
func (s *Store) DelayJob(ctx context.Context, tenant, id uuid.UUID, until time.Time, why string) error {
	if _, err := s.coder(); err != nil {
		return err
	}
	if !storableText(why) {
		return errArgument("why", "is not text")
	}
	return translate(s.driver.DelayJob(ctx, DelayJobParams{JobParams{tenant, id}, timestamp(until), why}))
}

// deletedChunks is how many chunks of a job one transaction removes: of the
// largest ones some ten megabytes, which holds nobody up for long.
const deletedChunks = 16

// DeleteJob implements kms.Jobs.
func (s *Store) DeleteJob(ctx context.Context, tenant, id uuid.UUID, all bool) error {
	if _, err := s.coder(); err != nil {
		return err
	}
	for removed := deletedChunks; removed == deletedChunks; {
		var err error
		if removed, err = s.driver.DeleteJobChunks(ctx, DeleteJobChunksParams{JobParams{tenant, id}, all, deletedChunks}); err != nil {
			return translate(err)
		}
	}
	err := s.driver.DeleteJob(ctx, JobParams{tenant, id})
	if errors.Is(err, ErrStale) {
		return kms.Errorf(kms.KindConflict, "results of the job are being recorded; try again")
	}
	return translate(err)
}

// JobProgress implements kms.Jobs. It believes the rows.
func (s *Store) JobProgress(ctx context.Context, tenant, id uuid.UUID) (p kms.JobProgress, err error) {
	if _, err := s.coder(); err != nil {
		return p, err
	}
	row, err := s.driver.JobProgress(ctx, JobParams{tenant, id})
	if err != nil {
		return p, translate(err)
	}
	d := newDecoder(ObjectJobChunk, tenant, id)
	sum := func(c Integer, column string) int64 { return d.integer(c, column, 0, math.MaxInt64) }
	p = kms.JobProgress{Items: sum(row.Items, "items"), Done: sum(row.Done, "pending"), Failed: sum(row.Failed, "failed"),
		Charged: kms.Credits(sum(row.Charged, "charged")), Unfinished: sum(row.Unfinished, "state")}
	if err := d.result(); err != nil {
		return kms.JobProgress{}, s.decoded(err)
	}
	return p, nil
}

// DueJobs implements kms.Jobs.
func (s *Store) DueJobs(ctx context.Context, now time.Time, after uuid.UUID, busy []uuid.UUID, limit int) ([]kms.JobID, error) {
	if _, err := s.coder(); err != nil {
		return nil, err
	}
	rows, err := s.driver.DueJobs(ctx, DueJobsParams{Now: timestamp(now), After: after, Busy: busy, Limit: limit})
	return s.jobNames(rows, err)
}

// ExpiredJobs implements kms.Jobs.
func (s *Store) ExpiredJobs(ctx context.Context, now time.Time, limit int) ([]kms.JobID, error) {
	if _, err := s.coder(); err != nil {
		return nil, err
	}
	rows, err := s.driver.ExpiredJobs(ctx, ExpiredJobsParams{Now: timestamp(now), Limit: limit})
	return s.jobNames(rows, err)
}

// jobNames leaves rows out that name no job, and reports them.
func (s *Store) jobNames(rows []*JobNameRow, err error) ([]kms.JobID, error) {
	if err != nil {
		return nil, translate(err)
	}
	list := make([]kms.JobID, 0, len(rows))
	for _, row := range rows {
		d := newDecoder(ObjectJob, rowID(row.Tenant), rowID(row.ID))
		name := kms.JobID{Tenant: d.id(row.Tenant, "tenant"), Job: d.id(row.ID, "id")}
		if err := d.result(); err != nil {
			s.damaged(err)
			continue
		}
		list = append(list, name)
	}
	return list, nil
}

func checkJob(j *kms.Job, fail failFunc) {
	switch {
	case j.ID == uuid.Nil() || j.Tenant == uuid.Nil():
		fail("id", reasonMissing)
	case j.Credential == uuid.Nil():
		fail("credential", reasonMissing)
	case !kms.ValidName(j.Project):
		fail("project", "is not a valid name")
	case !slices.Contains(kms.JobStates(), j.State):
		fail("state", reasonUnknown)
	case j.Created.IsZero():
		fail("created", reasonMissing)
	case j.Submitted.IsZero() && j.State != kms.JobReceiving && j.State != kms.JobCancelled:
		fail("submitted", reasonMissing)
	case j.Ended.IsZero() == j.State.Ended():
		fail("ended", "does not go with the state")
	case j.Expires.IsZero():
		fail("expires", reasonMissing)
	case j.Retain < time.Hour || j.Retain > kms.MaxJobRetain:
		fail("retain", reasonRange)
	case j.Items < 0 || j.Items > kms.MaxJobItems || j.Bytes < 0 || j.Chunks < 0 || int64(j.Chunks) > j.Items:
		fail("items", reasonRange)
	case len(j.DataKey) == 0:
		fail("data_key", reasonMissing)
	case !storableText(j.Reason) || !storableText(j.Waits):
		fail("reason", "is not text")
	case j.Revision == 0:
		fail("revision", reasonRange)
	}
}

// jobDocument is what is said of a job, as it is stored: JSON in its one
// encoding.
type jobDocument struct {
	Project   string    `json:"project"`
	Created   Timestamp `json:"created"`
	Submitted Timestamp `json:"submitted,omitzero"`
	Ended     Timestamp `json:"ended,omitzero"`
	Retain    int64     `json:"retain"` // seconds
	Items     int64     `json:"items,omitzero"`
	Chunks    int       `json:"chunks,omitzero"`
	Bytes     int64     `json:"bytes,omitzero"`
	Digest    []byte    `json:"digest"`
	DataKey   []byte    `json:"data_key"`
	Reason    string    `json:"reason,omitzero"`
}

func encodeJob(j *kms.Job) (JobRecord, error) {
	d := jobDocument{Project: j.Project, Created: timestamp(j.Created), Retain: int64(j.Retain / time.Second),
		Items: j.Items, Chunks: j.Chunks, Bytes: j.Bytes, Digest: j.Digest[:], DataKey: j.DataKey, Reason: j.Reason}
	for into, t := range map[*Timestamp]time.Time{&d.Submitted: j.Submitted, &d.Ended: j.Ended} {
		if !t.IsZero() {
			*into = timestamp(t)
		}
	}
	document, err := json.Marshal(&d, json.Deterministic(true))
	if err != nil {
		return JobRecord{}, errArgument("job", "is not text")
	}
	return JobRecord{Tenant: j.Tenant, ID: j.ID, Credential: j.Credential, State: string(j.State), Expires: timestamp(j.Expires),
		Document: document, Revision: j.Revision, Due: timestamp(j.Due), Waits: j.Waits}, nil
}

func decodeJob(c *rowCoder, tenant uuid.UUID, row *JobRow, id *uuid.UUID) (*kms.Job, error) {
	d := newDecoder(ObjectJob, tenant, rowID(row.ID))
	record := JobRecord{Tenant: tenant, ID: d.id(row.ID, "id"), Credential: d.id(row.Credential, "credential"), State: d.text(row.State, "state"),
		Expires: timestamp(d.time(row.Expires, "expires")), Document: d.bytes(row.Document, "document"), Revision: d.revision(row.Revision)}
	due, waits := d.time(row.Due, "due"), d.maybeBlank(row.Waits, "waits")
	d.require(id == nil || record.ID == *id, "id", "is not the one asked for")
	if d.result() == nil {
		// Before what it says is looked at.
		c.check(d, codeJob, record.fields(), row.Code)
	}
	if d.result() != nil {
		return nil, d.result()
	}
	var doc jobDocument
	if err := json.Unmarshal(record.Document, &doc, json.RejectUnknownMembers(true)); err != nil {
		d.fail("document", reasonFormat)
		return nil, d.result()
	}
	j := &kms.Job{ID: record.ID, Tenant: tenant, Project: doc.Project, Credential: record.Credential, State: kms.JobState(record.State),
		Created: timeOfDocument(doc.Created), Retain: time.Duration(doc.Retain) * time.Second, Expires: time.UnixMicro(record.Expires).UTC(),
		Items: doc.Items, Chunks: doc.Chunks, Bytes: doc.Bytes, DataKey: doc.DataKey, Reason: doc.Reason, Revision: record.Revision,
		Due: due, Waits: waits}
	for into, t := range map[*time.Time]Timestamp{&j.Submitted: doc.Submitted, &j.Ended: doc.Ended} {
		if t != 0 {
			*into = timeOfDocument(t)
		}
	}
	copy(j.Digest[:], doc.Digest)
	checkJob(j, d.fail)
	return j, d.result()
}

func (r *JobRecord) fields() fields {
	return fields{}.id(r.Tenant).id(r.ID).id(r.Credential).text(r.State).time(r.Expires).bytes(r.Document).number(r.Revision)
}
