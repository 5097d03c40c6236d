package postgres

import (
	"context"
	"uuid"

	"github.com/jackc/pgx/v5"

	"github.com/sluice-kms/sluice/keystore"
)

// Approvals are the operators', of no tenant.
const (
	approvalColumns = `id, op, resource, fingerprint, requested_by, approved_by, used, created, expires, revision,
		mac, mac_version`

	selectApproval = `SELECT ` + approvalColumns + ` FROM approvals WHERE id = $1 AND expires > $2`
	listApprovals  = `SELECT ` + approvalColumns + ` FROM approvals WHERE id > $1 AND expires > $2 ORDER BY id LIMIT $3`
	insertApproval = `INSERT INTO approvals (` + approvalColumns + `)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)`
	updateApproval = `UPDATE approvals SET approved_by = $3, used = $4, revision = $5, mac = $6, mac_version = $7
		WHERE id = $1 AND revision = $2`

	// An array, because the planner would join with a list of unknown length by
	// reading the whole table.
	deleteExpiredApprovals = `DELETE FROM approvals WHERE id = ANY
		(ARRAY(SELECT id FROM approvals WHERE expires <= $1 ORDER BY expires LIMIT $2 FOR UPDATE SKIP LOCKED))`
)

func approvalTargets(r *keystore.ApprovalRow) []any {
	return []any{idColumn{&r.ID}, &r.Op, &r.Resource, &r.Fingerprint, idColumn{&r.RequestedBy}, idColumn{&r.ApprovedBy},
		boolColumn{&r.Used}, timeColumn{&r.Created}, timeColumn{&r.Expires}, &r.Revision, &r.Code.MAC, &r.Code.Version}
}

// Approval implements keystore.ApprovalDriver.
func (db *DB) Approval(ctx context.Context, p keystore.ApprovalParams) (*keystore.ApprovalRow, error) {
	var r keystore.ApprovalRow
	return &r, db.row(ctx, everybody, approvalTargets(&r), selectApproval, id(p.ID), moment(p.Now))
}

// ListApprovals implements keystore.ApprovalDriver.
func (db *DB) ListApprovals(ctx context.Context, p keystore.ListApprovalsParams) (all []*keystore.ApprovalRow, err error) {
	var after uuid.UUID // the lowest, which no approval has, for the first page
	copy(after[:], p.After)
	err = db.list(ctx, everybody, func(rows pgx.Rows) error {
		r := new(keystore.ApprovalRow)
		all = append(all, r)
		return rows.Scan(approvalTargets(r)...)
	}, listApprovals, id(after), moment(p.Now), p.Limit)
	return all, err
}

// InsertApproval implements keystore.ApprovalDriver.
func (db *DB) InsertApproval(ctx context.Context, p keystore.InsertApprovalParams) error {
	a := &p.Approval
	return db.write(ctx, everybody, func(tx transaction) error {
		_, err := tx.exec(ctx, insertApproval, id(a.ID), a.Op, a.Resource, a.Fingerprint, id(a.RequestedBy),
			maybeID(a.ApprovedBy), a.Used, moment(a.Created), moment(a.Expires), a.Revision, a.Code.MAC, codeVersion(a.Code))
		return err
	})
}

// UpdateApproval implements keystore.ApprovalDriver.
func (db *DB) UpdateApproval(ctx context.Context, p keystore.UpdateApprovalParams) error {
	a := &p.Approval
	return db.write(ctx, everybody, func(tx transaction) error {
		return tx.execOne(ctx, keystore.ErrStale, updateApproval, id(a.ID), a.Revision-1, maybeID(a.ApprovedBy), a.Used,
			a.Revision, a.Code.MAC, codeVersion(a.Code))
	})
}

// DeleteExpiredApprovals implements keystore.ApprovalDriver.
func (db *DB) DeleteExpiredApprovals(ctx context.Context, p keystore.DeleteExpiredApprovalsParams) (removed int, err error) {
	err = db.write(ctx, everybody, func(tx transaction) error {
		n, err := tx.exec(ctx, deleteExpiredApprovals, moment(p.Now), p.Limit)
		removed = int(n)
		return err
	})
	return removed, err
}
