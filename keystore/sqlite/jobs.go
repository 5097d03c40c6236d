package sqlite

import (
	"context"
	"database/sql"
	"encoding/hex"
	"encoding/json/v2"
	"strings"

	"github.com/sluice-kms/sluice/keystore"
)

const (
	jobColumns = `id, credential, state, expires, document, revision, mac, mac_version, due, waits`
	selectJob  = `SELECT ` + jobColumns + ` FROM jobs WHERE tenant = ? AND id = ?`
	listJobs   = `SELECT ` + jobColumns + ` FROM jobs WHERE tenant = ?1 AND id > ?2 AND (?3 IS NULL OR credential = ?3)
		ORDER BY id LIMIT ?4`
	insertJob = `INSERT INTO jobs (tenant, id, credential, state, expires, document, revision, mac, mac_version, due, waits)
		SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11
		WHERE (SELECT count(*) FROM jobs WHERE tenant = ?1 AND state IN ('RECEIVING', 'RUNNING')
			AND (state = 'RUNNING' OR expires > ?13)) < ?12`
	selectJobByClaim = `SELECT ` + jobColumns + ` FROM jobs WHERE tenant = ? AND claim = ?`
	updateJob        = `UPDATE jobs SET state = ?3, expires = ?4, document = ?5, revision = ?6, mac = ?7, mac_version = ?8, claim = coalesce(?9, claim)
		WHERE tenant = ?1 AND id = ?2 AND revision = ?6 - 1`
	delayJob        = `UPDATE jobs SET due = ?3, waits = ?4 WHERE tenant = ?1 AND id = ?2`
	deleteJobChunks = `DELETE FROM job_chunks WHERE tenant = ?1 AND job = ?2 AND number IN
		(SELECT number FROM job_chunks WHERE tenant = ?1 AND job = ?2 AND (?3 OR state <> 'COMPUTED') ORDER BY number LIMIT ?4)`
	deleteJob = `DELETE FROM jobs WHERE tenant = ?1 AND id = ?2
		AND NOT EXISTS (SELECT 1 FROM job_chunks WHERE tenant = ?1 AND job = ?2)`
	touchJob    = `UPDATE jobs SET waits = waits WHERE tenant = ?1 AND id = ?2`
	jobProgress = `SELECT coalesce(sum(items), 0), coalesce(sum(CASE state WHEN 'DONE' THEN items END), 0),
		coalesce(sum(CASE state WHEN 'DONE' THEN failed END), 0), coalesce(sum(CASE WHEN state <> 'COMPUTED' THEN charged END), 0),
		coalesce(sum(state <> 'DONE'), 0) FROM job_chunks WHERE tenant = ? AND job = ?`

	chunkColumns   = `number, id, first, items, state, pass, pending, failed, charged, owner, position, due, revision, mac, mac_version`
	selectJobChunk = `SELECT ` + chunkColumns + `, input, output, entries FROM job_chunks
		WHERE tenant = ? AND job = ? AND number = ?`
	selectJobChunkOf = `SELECT ` + chunkColumns + `, NULL, output, NULL FROM job_chunks
		WHERE tenant = ? AND job = ? AND first <= ? ORDER BY first DESC LIMIT 1`
	selectDueJobChunks = `SELECT number FROM job_chunks WHERE tenant = ? AND job = ? AND due <= ? ORDER BY due, number LIMIT ?`
	insertJobChunk     = `INSERT INTO job_chunks (tenant, job, number, id, first, items, state, pass, pending, failed, charged, owner, position,
		due, revision, mac, mac_version, input) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`
	updateJobChunk = `UPDATE job_chunks SET state = ?4, pass = ?5, pending = ?6, failed = ?7, charged = ?8, owner = ?9, position = ?10,
		due = ?11, revision = ?12, mac = ?13, mac_version = ?14, input = CASE WHEN ?15 THEN ?16 ELSE input END,
		output = CASE WHEN ?17 THEN ?18 ELSE output END, entries = CASE WHEN ?19 THEN ?20 ELSE entries END
		WHERE tenant = ?1 AND job = ?2 AND number = ?3 AND revision = ?12 - 1`
	renewJobChunk = `UPDATE job_chunks SET due = ?5 WHERE tenant = ?1 AND job = ?2 AND number = ?3 AND revision = ?4 AND state = 'RUNNING'`

	// API nodes act for all tenants. The tenants that are busy are a JSON array of
	// hexadecimal ids.
	selectDueJobs = `SELECT j.tenant, min(j.id) FROM jobs j
		WHERE j.state = 'RUNNING' AND j.due <= ?1 AND j.tenant > ?2 AND hex(j.tenant) NOT IN (SELECT value FROM json_each(?3))
			AND (EXISTS (SELECT 1 FROM job_chunks c WHERE c.tenant = j.tenant AND c.job = j.id AND c.due <= ?1)
				OR NOT EXISTS (SELECT 1 FROM job_chunks c WHERE c.tenant = j.tenant AND c.job = j.id AND c.state <> 'DONE'))
		GROUP BY j.tenant ORDER BY j.tenant LIMIT ?4`
	selectExpiredJobs    = `SELECT tenant, id FROM jobs WHERE expires <= ? ORDER BY expires LIMIT ?`
	selectComputedChunks = `SELECT tenant, job, number FROM job_chunks WHERE owner = ? AND state = 'COMPUTED' LIMIT ?`
	releaseJobChunks     = `UPDATE job_chunks SET due = ?2 WHERE owner = ?1 AND state = 'RUNNING'`
)

func jobTargets(r *keystore.JobRow) []any {
	return []any{&r.ID, &r.Credential, &r.State, &r.Expires, &r.Document, &r.Revision, &r.Code.MAC, &r.Code.Version, &r.Due, &r.Waits}
}

// Job implements keystore.JobDriver.
func (db *DB) Job(ctx context.Context, p keystore.JobParams) (*keystore.JobRow, error) {
	var r keystore.JobRow
	err := db.row(ctx, selectJob, p.Tenant[:], p.ID[:]).Scan(jobTargets(&r)...)
	return &r, db.translate(err)
}

// JobByClaim implements keystore.JobDriver.
func (db *DB) JobByClaim(ctx context.Context, p keystore.JobByClaimParams) (*keystore.JobRow, error) {
	var r keystore.JobRow
	err := db.row(ctx, selectJobByClaim, p.Tenant[:], p.Claim).Scan(jobTargets(&r)...)
	return &r, db.translate(err)
}

// ListJobs implements keystore.JobDriver.
func (db *DB) ListJobs(ctx context.Context, p keystore.ListJobsParams) (all []*keystore.JobRow, err error) {
	var credential []byte
	if p.Credential != nil {
		credential = p.Credential[:]
	}
	err = db.list(ctx, func(rows *sql.Rows) error {
		r := new(keystore.JobRow)
		all = append(all, r)
		return rows.Scan(jobTargets(r)...)
	}, listJobs, p.Tenant[:], p.After[:], credential, p.Limit)
	return all, err
}

// InsertJob implements keystore.JobDriver.
func (db *DB) InsertJob(ctx context.Context, p keystore.InsertJobParams) error {
	r := &p.Job
	return db.write(ctx, func(tx transaction) error {
		return tx.execOne(ctx, keystore.ErrStale, insertJob, r.Tenant[:], r.ID[:], r.Credential[:], r.State, r.Expires, r.Document, r.Revision,
			r.Code.MAC, codeVersion(r.Code), r.Due, r.Waits, p.Most, p.Now)
	})
}

// UpdateJob implements keystore.JobDriver.
func (db *DB) UpdateJob(ctx context.Context, p keystore.UpdateJobParams) error {
	r := &p.Job
	return db.write(ctx, func(tx transaction) error {
		return tx.execOne(ctx, keystore.ErrStale, updateJob, r.Tenant[:], r.ID[:], r.State, r.Expires, r.Document, r.Revision,
			r.Code.MAC, codeVersion(r.Code), p.Claim)
	})
}

// DelayJob implements keystore.JobDriver.
func (db *DB) DelayJob(ctx context.Context, p keystore.DelayJobParams) error {
	return db.write(ctx, func(tx transaction) error {
		_, err := tx.exec(ctx, delayJob, p.Tenant[:], p.ID[:], p.Due, p.Waits)
		return err
	})
}

// DeleteJobChunks implements keystore.JobDriver.
func (db *DB) DeleteJobChunks(ctx context.Context, p keystore.DeleteJobChunksParams) (removed int, err error) {
	err = db.write(ctx, func(tx transaction) error {
		n, err := tx.exec(ctx, deleteJobChunks, p.Tenant[:], p.ID[:], p.All, p.Limit)
		removed = int(n)
		return err
	})
	return removed, err
}

// DeleteJob implements keystore.JobDriver.
func (db *DB) DeleteJob(ctx context.Context, p keystore.JobParams) error {
	return db.write(ctx, func(tx transaction) error {
		if n, err := tx.exec(ctx, deleteJob, p.Tenant[:], p.ID[:]); err != nil || n > 0 {
			return err
		}
		if err := tx.execOne(ctx, keystore.ErrMissing, touchJob, p.Tenant[:], p.ID[:]); err != nil {
			return err
		}
		return keystore.ErrStale // it has chunks
	})
}

// JobProgress implements keystore.JobDriver.
func (db *DB) JobProgress(ctx context.Context, p keystore.JobParams) (*keystore.JobProgressRow, error) {
	var r keystore.JobProgressRow
	err := db.row(ctx, jobProgress, p.Tenant[:], p.ID[:]).Scan(&r.Items, &r.Done, &r.Failed, &r.Charged, &r.Unfinished)
	return &r, db.translate(err)
}

// DueJobs implements keystore.JobDriver.
func (db *DB) DueJobs(ctx context.Context, p keystore.DueJobsParams) ([]*keystore.JobNameRow, error) {
	names := make([]string, len(p.Busy))
	for i, tenant := range p.Busy {
		names[i] = strings.ToUpper(hex.EncodeToString(tenant[:]))
	}
	busy, err := json.Marshal(names)
	if err != nil {
		return nil, db.translate(err)
	}
	return db.jobNames(ctx, selectDueJobs, p.Now, p.After[:], string(busy), p.Limit)
}

// ExpiredJobs implements keystore.JobDriver.
func (db *DB) ExpiredJobs(ctx context.Context, p keystore.ExpiredJobsParams) ([]*keystore.JobNameRow, error) {
	return db.jobNames(ctx, selectExpiredJobs, p.Now, p.Limit)
}

func (db *DB) jobNames(ctx context.Context, statement string, args ...any) (all []*keystore.JobNameRow, err error) {
	err = db.list(ctx, func(rows *sql.Rows) error {
		r := new(keystore.JobNameRow)
		all = append(all, r)
		return rows.Scan(&r.Tenant, &r.ID)
	}, statement, args...)
	return all, err
}

// InsertJobChunk implements keystore.JobDriver.
func (db *DB) InsertJobChunk(ctx context.Context, p keystore.InsertJobChunkParams) error {
	r := &p.Chunk
	return db.write(ctx, func(tx transaction) error {
		_, err := tx.exec(ctx, insertJobChunk, r.Tenant[:], r.Job[:], r.Number, r.ID[:], r.First, r.Items, r.State, r.Pass, r.Pending, r.Failed,
			r.Charged, r.Owner, r.Position, r.Due, r.Revision, r.Code.MAC, codeVersion(r.Code), p.Input)
		return err
	})
}

func chunkTargets(r *keystore.JobChunkRow) []any {
	return []any{&r.Number, &r.ID, &r.First, &r.Items, &r.State, &r.Pass, &r.Pending, &r.Failed, &r.Charged, &r.Owner, &r.Position,
		&r.Due, &r.Revision, &r.Code.MAC, &r.Code.Version, &r.Input, &r.Output, &r.Entries}
}

// JobChunk implements keystore.JobDriver.
func (db *DB) JobChunk(ctx context.Context, p keystore.JobChunkParams) (*keystore.JobChunkRow, error) {
	var r keystore.JobChunkRow
	err := db.row(ctx, selectJobChunk, p.Tenant[:], p.ID[:], p.Number).Scan(chunkTargets(&r)...)
	return &r, db.translate(err)
}

// JobChunkOf implements keystore.JobDriver.
func (db *DB) JobChunkOf(ctx context.Context, p keystore.JobChunkOfParams) (*keystore.JobChunkRow, error) {
	var r keystore.JobChunkRow
	err := db.row(ctx, selectJobChunkOf, p.Tenant[:], p.ID[:], p.Item).Scan(chunkTargets(&r)...)
	return &r, db.translate(err)
}

// DueJobChunks implements keystore.JobDriver.
func (db *DB) DueJobChunks(ctx context.Context, p keystore.DueJobChunksParams) (all []keystore.Integer, err error) {
	err = db.list(ctx, func(rows *sql.Rows) error {
		all = append(all, keystore.Integer{})
		return rows.Scan(&all[len(all)-1])
	}, selectDueJobChunks, p.Tenant[:], p.ID[:], p.Now, p.Limit)
	return all, err
}

// UpdateJobChunk implements keystore.JobDriver.
func (db *DB) UpdateJobChunk(ctx context.Context, p keystore.UpdateJobChunkParams) error {
	r := &p.Chunk
	return db.write(ctx, func(tx transaction) error {
		return tx.execOne(ctx, keystore.ErrStale, updateJobChunk, r.Tenant[:], r.Job[:], r.Number, r.State, r.Pass, r.Pending, r.Failed, r.Charged,
			r.Owner, r.Position, r.Due, r.Revision, r.Code.MAC, codeVersion(r.Code),
			p.Input.Set, p.Input.Bytes, p.Output.Set, p.Output.Bytes, p.Entries.Set, p.Entries.Bytes)
	})
}

// RenewJobChunk implements keystore.JobDriver.
func (db *DB) RenewJobChunk(ctx context.Context, p keystore.RenewJobChunkParams) error {
	return db.write(ctx, func(tx transaction) error {
		return tx.execOne(ctx, keystore.ErrStale, renewJobChunk, p.Tenant[:], p.ID[:], p.Number, p.Revision, p.Due)
	})
}

// ReleaseJobChunks implements keystore.JobDriver.
func (db *DB) ReleaseJobChunks(ctx context.Context, p keystore.ReleaseJobChunksParams) error {
	return db.write(ctx, func(tx transaction) error {
		_, err := tx.exec(ctx, releaseJobChunks, p.Node, p.Now)
		return err
	})
}

// ComputedJobChunks implements keystore.JobDriver.
func (db *DB) ComputedJobChunks(ctx context.Context, p keystore.ComputedJobChunksParams) (all []*keystore.JobChunkNameRow, err error) {
	err = db.list(ctx, func(rows *sql.Rows) error {
		r := new(keystore.JobChunkNameRow)
		all = append(all, r)
		return rows.Scan(&r.Tenant, &r.Job, &r.Number)
	}, selectComputedChunks, p.Node, p.Limit)
	return all, err
}
