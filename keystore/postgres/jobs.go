package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/sluice-kms/sluice/keystore"
)

const (
	jobColumns = `id, credential, state, expires, document, revision, mac, mac_version, due, waits`
	selectJob  = `SELECT ` + jobColumns + ` FROM jobs WHERE tenant = $1 AND id = $2`
	listJobs   = `SELECT ` + jobColumns + ` FROM jobs WHERE tenant = $1 AND id > $2 AND ($3::uuid IS NULL OR credential = $3)
		ORDER BY id LIMIT $4`
	insertJob = `INSERT INTO jobs (tenant, id, credential, state, expires, document, revision, mac, mac_version, due, waits)
		SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11
		WHERE (SELECT count(*) FROM jobs WHERE tenant = $1 AND state IN ('RECEIVING', 'RUNNING')
			AND (state = 'RUNNING' OR expires > $13)) < $12`
	selectJobByClaim = `SELECT ` + jobColumns + ` FROM jobs WHERE tenant = $1 AND claim = $2`
	updateJob        = `UPDATE jobs SET state = $3, expires = $4, document = $5, revision = $6, mac = $7, mac_version = $8, claim = coalesce($9, claim)
		WHERE tenant = $1 AND id = $2 AND revision = $6 - 1`
	delayJob        = `UPDATE jobs SET due = $3, waits = $4 WHERE tenant = $1 AND id = $2`
	deleteJobChunks = `DELETE FROM job_chunks WHERE tenant = $1 AND job = $2 AND number = ANY
		(ARRAY(SELECT number FROM job_chunks WHERE tenant = $1 AND job = $2 AND ($3 OR state <> 'COMPUTED') ORDER BY number LIMIT $4))`
	deleteJob = `DELETE FROM jobs WHERE tenant = $1 AND id = $2
		AND NOT EXISTS (SELECT 1 FROM job_chunks WHERE tenant = $1 AND job = $2)`
	touchJob    = `UPDATE jobs SET waits = waits WHERE tenant = $1 AND id = $2`
	jobProgress = `SELECT coalesce(sum(items), 0)::bigint, coalesce(sum(CASE state WHEN 'DONE' THEN items END), 0)::bigint,
		coalesce(sum(CASE state WHEN 'DONE' THEN failed END), 0)::bigint, coalesce(sum(CASE WHEN state <> 'COMPUTED' THEN charged END), 0)::bigint,
		coalesce(sum(CASE WHEN state <> 'DONE' THEN 1 END), 0)::bigint FROM job_chunks WHERE tenant = $1 AND job = $2`

	chunkColumns   = `number, id, first, items, state, pass, pending, failed, charged, owner, position, due, revision, mac, mac_version`
	selectJobChunk = `SELECT ` + chunkColumns + `, input, output, entries FROM job_chunks
		WHERE tenant = $1 AND job = $2 AND number = $3`
	selectJobChunkOf = `SELECT ` + chunkColumns + `, NULL::bytea, output, NULL::bytea FROM job_chunks
		WHERE tenant = $1 AND job = $2 AND first <= $3 ORDER BY first DESC LIMIT 1`
	selectDueJobChunks = `SELECT number FROM job_chunks WHERE tenant = $1 AND job = $2 AND due <= $3 ORDER BY due, number LIMIT $4`
	insertJobChunk     = `INSERT INTO job_chunks (tenant, job, number, id, first, items, state, pass, pending, failed, charged, owner, position,
		due, revision, mac, mac_version, input) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18)`
	updateJobChunk = `UPDATE job_chunks SET state = $4, pass = $5, pending = $6, failed = $7, charged = $8, owner = $9, position = $10,
		due = $11, revision = $12, mac = $13, mac_version = $14, input = CASE WHEN $15 THEN $16 ELSE input END,
		output = CASE WHEN $17 THEN $18 ELSE output END, entries = CASE WHEN $19 THEN $20 ELSE entries END
		WHERE tenant = $1 AND job = $2 AND number = $3 AND revision = $12 - 1`
	renewJobChunk = `UPDATE job_chunks SET due = $5 WHERE tenant = $1 AND job = $2 AND number = $3 AND revision = $4 AND state = 'RUNNING'`

	// API nodes act for all tenants.
	selectDueJobs        = `SELECT tenant, id FROM due_jobs($1, $2, $3, $4)`
	selectExpiredJobs    = `SELECT tenant, id FROM expired_jobs($1, $2)`
	selectComputedChunks = `SELECT tenant, job, number FROM computed_chunks($1, $2)`
	releaseJobChunks     = `SELECT release_chunks($1, $2)`
)

func jobTargets(r *keystore.JobRow) []any {
	return []any{idColumn{&r.ID}, idColumn{&r.Credential}, &r.State, timeColumn{&r.Expires}, &r.Document, &r.Revision, &r.Code.MAC, &r.Code.Version,
		timeColumn{&r.Due}, &r.Waits}
}

// Job implements keystore.JobDriver.
func (db *DB) Job(ctx context.Context, p keystore.JobParams) (*keystore.JobRow, error) {
	var r keystore.JobRow
	return &r, db.row(ctx, p.Tenant, jobTargets(&r), selectJob, id(p.Tenant), id(p.ID))
}

// JobByClaim implements keystore.JobDriver.
func (db *DB) JobByClaim(ctx context.Context, p keystore.JobByClaimParams) (*keystore.JobRow, error) {
	var r keystore.JobRow
	return &r, db.row(ctx, p.Tenant, jobTargets(&r), selectJobByClaim, id(p.Tenant), p.Claim)
}

// ListJobs implements keystore.JobDriver.
func (db *DB) ListJobs(ctx context.Context, p keystore.ListJobsParams) (all []*keystore.JobRow, err error) {
	err = db.list(ctx, p.Tenant, func(rows pgx.Rows) error {
		r := new(keystore.JobRow)
		all = append(all, r)
		return rows.Scan(jobTargets(r)...)
	}, listJobs, id(p.Tenant), id(p.After), maybeID(p.Credential), p.Limit)
	return all, err
}

// InsertJob implements keystore.JobDriver.
func (db *DB) InsertJob(ctx context.Context, p keystore.InsertJobParams) error {
	r := &p.Job
	return db.write(ctx, r.Tenant, func(tx transaction) error {
		return tx.execOne(ctx, keystore.ErrStale, insertJob, id(r.Tenant), id(r.ID), id(r.Credential), r.State, moment(r.Expires), r.Document,
			r.Revision, r.Code.MAC, codeVersion(r.Code), moment(r.Due), r.Waits, p.Most, moment(p.Now))
	})
}

// UpdateJob implements keystore.JobDriver.
func (db *DB) UpdateJob(ctx context.Context, p keystore.UpdateJobParams) error {
	r := &p.Job
	return db.write(ctx, r.Tenant, func(tx transaction) error {
		return tx.execOne(ctx, keystore.ErrStale, updateJob, id(r.Tenant), id(r.ID), r.State, moment(r.Expires), r.Document, r.Revision,
			r.Code.MAC, codeVersion(r.Code), p.Claim)
	})
}

// DelayJob implements keystore.JobDriver.
func (db *DB) DelayJob(ctx context.Context, p keystore.DelayJobParams) error {
	return db.write(ctx, p.Tenant, func(tx transaction) error {
		_, err := tx.exec(ctx, delayJob, id(p.Tenant), id(p.ID), moment(p.Due), p.Waits)
		return err
	})
}

// DeleteJobChunks implements keystore.JobDriver.
func (db *DB) DeleteJobChunks(ctx context.Context, p keystore.DeleteJobChunksParams) (removed int, err error) {
	err = db.write(ctx, p.Tenant, func(tx transaction) error {
		n, err := tx.exec(ctx, deleteJobChunks, id(p.Tenant), id(p.ID), p.All, p.Limit)
		removed = int(n)
		return err
	})
	return removed, err
}

// DeleteJob implements keystore.JobDriver.
func (db *DB) DeleteJob(ctx context.Context, p keystore.JobParams) error {
	return db.write(ctx, p.Tenant, func(tx transaction) error {
		if n, err := tx.exec(ctx, deleteJob, id(p.Tenant), id(p.ID)); err != nil || n > 0 {
			return err
		}
		if err := tx.execOne(ctx, keystore.ErrMissing, touchJob, id(p.Tenant), id(p.ID)); err != nil {
			return err
		}
		return keystore.ErrStale // it has chunks
	})
}

// JobProgress implements keystore.JobDriver.
func (db *DB) JobProgress(ctx context.Context, p keystore.JobParams) (*keystore.JobProgressRow, error) {
	var r keystore.JobProgressRow
	return &r, db.row(ctx, p.Tenant, []any{&r.Items, &r.Done, &r.Failed, &r.Charged, &r.Unfinished}, jobProgress, id(p.Tenant), id(p.ID))
}

// DueJobs implements keystore.JobDriver.
func (db *DB) DueJobs(ctx context.Context, p keystore.DueJobsParams) ([]*keystore.JobNameRow, error) {
	busy := make([]pgtype.UUID, len(p.Busy))
	for i, tenant := range p.Busy {
		busy[i] = id(tenant)
	}
	return db.jobNames(ctx, selectDueJobs, moment(p.Now), id(p.After), busy, p.Limit)
}

// ExpiredJobs implements keystore.JobDriver.
func (db *DB) ExpiredJobs(ctx context.Context, p keystore.ExpiredJobsParams) ([]*keystore.JobNameRow, error) {
	return db.jobNames(ctx, selectExpiredJobs, moment(p.Now), p.Limit)
}

func (db *DB) jobNames(ctx context.Context, statement string, args ...any) (all []*keystore.JobNameRow, err error) {
	err = db.list(ctx, everybody, func(rows pgx.Rows) error {
		r := new(keystore.JobNameRow)
		all = append(all, r)
		return rows.Scan(idColumn{&r.Tenant}, idColumn{&r.ID})
	}, statement, args...)
	return all, err
}

// InsertJobChunk implements keystore.JobDriver.
func (db *DB) InsertJobChunk(ctx context.Context, p keystore.InsertJobChunkParams) error {
	r := &p.Chunk
	return db.write(ctx, r.Tenant, func(tx transaction) error {
		_, err := tx.exec(ctx, insertJobChunk, id(r.Tenant), id(r.Job), r.Number, id(r.ID), r.First, r.Items, r.State, r.Pass, r.Pending, r.Failed,
			r.Charged, r.Owner, r.Position, maybeMoment(r.Due), r.Revision, r.Code.MAC, codeVersion(r.Code), p.Input)
		return err
	})
}

func chunkTargets(r *keystore.JobChunkRow) []any {
	return []any{&r.Number, idColumn{&r.ID}, &r.First, &r.Items, &r.State, &r.Pass, &r.Pending, &r.Failed, &r.Charged, &r.Owner, &r.Position,
		timeColumn{&r.Due}, &r.Revision, &r.Code.MAC, &r.Code.Version, &r.Input, &r.Output, &r.Entries}
}

// JobChunk implements keystore.JobDriver.
func (db *DB) JobChunk(ctx context.Context, p keystore.JobChunkParams) (*keystore.JobChunkRow, error) {
	var r keystore.JobChunkRow
	return &r, db.row(ctx, p.Tenant, chunkTargets(&r), selectJobChunk, id(p.Tenant), id(p.ID), p.Number)
}

// JobChunkOf implements keystore.JobDriver.
func (db *DB) JobChunkOf(ctx context.Context, p keystore.JobChunkOfParams) (*keystore.JobChunkRow, error) {
	var r keystore.JobChunkRow
	return &r, db.row(ctx, p.Tenant, chunkTargets(&r), selectJobChunkOf, id(p.Tenant), id(p.ID), p.Item)
}

// DueJobChunks implements keystore.JobDriver.
func (db *DB) DueJobChunks(ctx context.Context, p keystore.DueJobChunksParams) (all []keystore.Integer, err error) {
	err = db.list(ctx, p.Tenant, func(rows pgx.Rows) error {
		all = append(all, keystore.Integer{})
		return rows.Scan(&all[len(all)-1])
	}, selectDueJobChunks, id(p.Tenant), id(p.ID), moment(p.Now), p.Limit)
	return all, err
}

// UpdateJobChunk implements keystore.JobDriver.
func (db *DB) UpdateJobChunk(ctx context.Context, p keystore.UpdateJobChunkParams) error {
	r := &p.Chunk
	return db.write(ctx, r.Tenant, func(tx transaction) error {
		return tx.execOne(ctx, keystore.ErrStale, updateJobChunk, id(r.Tenant), id(r.Job), r.Number, r.State, r.Pass, r.Pending, r.Failed, r.Charged,
			r.Owner, r.Position, maybeMoment(r.Due), r.Revision, r.Code.MAC, codeVersion(r.Code),
			p.Input.Set, p.Input.Bytes, p.Output.Set, p.Output.Bytes, p.Entries.Set, p.Entries.Bytes)
	})
}

// RenewJobChunk implements keystore.JobDriver.
func (db *DB) RenewJobChunk(ctx context.Context, p keystore.RenewJobChunkParams) error {
	return db.write(ctx, p.Tenant, func(tx transaction) error {
		return tx.execOne(ctx, keystore.ErrStale, renewJobChunk, id(p.Tenant), id(p.ID), p.Number, p.Revision, moment(p.Due))
	})
}

// ReleaseJobChunks implements keystore.JobDriver.
func (db *DB) ReleaseJobChunks(ctx context.Context, p keystore.ReleaseJobChunksParams) error {
	return db.write(ctx, everybody, func(tx transaction) error {
		_, err := tx.exec(ctx, releaseJobChunks, p.Node, moment(p.Now))
		return err
	})
}

// ComputedJobChunks implements keystore.JobDriver.
func (db *DB) ComputedJobChunks(ctx context.Context, p keystore.ComputedJobChunksParams) (all []*keystore.JobChunkNameRow, err error) {
	err = db.list(ctx, everybody, func(rows pgx.Rows) error {
		r := new(keystore.JobChunkNameRow)
		all = append(all, r)
		return rows.Scan(idColumn{&r.Tenant}, idColumn{&r.Job}, &r.Number)
	}, selectComputedChunks, p.Node, p.Limit)
	return all, err
}
