package sqlite

import (
	"context"
	"database/sql"
	"uuid"

	"github.com/sluice-kms/sluice/keystore"
)

// Approvals are the operators', of no tenant.
const (
	approvalColumns = `id, op, resource, fingerprint, requested_by, approved_by, used, created, expires, revision,
		mac, mac_version`

	selectApproval = `SELECT ` + approvalColumns + ` FROM approvals WHERE id = ? AND expires > ?`
	listApprovals  = `SELECT ` + approvalColumns + ` FROM approvals WHERE id > ? AND expires > ? ORDER BY id LIMIT ?`
	insertApproval = `INSERT INTO approvals (` + approvalColumns + `) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`
	updateApproval = `UPDATE approvals SET approved_by = ?, used = ?, revision = ?, mac = ?, mac_version = ?
		WHERE id = ? AND revision = ?`

	deleteExpiredApprovals = `DELETE FROM approvals WHERE rowid IN
		(SELECT rowid FROM approvals WHERE expires <= ? ORDER BY expires LIMIT ?)`
)

func approvalTargets(r *keystore.ApprovalRow) []any {
	return []any{&r.ID, &r.Op, &r.Resource, &r.Fingerprint, &r.RequestedBy, &r.ApprovedBy, &r.Used, &r.Created,
		&r.Expires, &r.Revision, &r.Code.MAC, &r.Code.Version}
}

// maybeID is an id as an argument, NULL for none.
func maybeID(id *uuid.UUID) []byte {
	if id == nil {
		return nil
	}
	return id[:]
}

// Approval implements keystore.ApprovalDriver.
func (db *DB) Approval(ctx context.Context, p keystore.ApprovalParams) (*keystore.ApprovalRow, error) {
	var r keystore.ApprovalRow
	err := db.row(ctx, selectApproval, p.ID[:], p.Now).Scan(approvalTargets(&r)...)
	return &r, db.translate(err)
}

// ListApprovals implements keystore.ApprovalDriver.
func (db *DB) ListApprovals(ctx context.Context, p keystore.ListApprovalsParams) (all []*keystore.ApprovalRow, err error) {
	err = db.list(ctx, func(rows *sql.Rows) error {
		r := new(keystore.ApprovalRow)
		all = append(all, r)
		return rows.Scan(approvalTargets(r)...)
	}, listApprovals, p.After, p.Now, p.Limit)
	return all, err
}

// InsertApproval implements keystore.ApprovalDriver.
func (db *DB) InsertApproval(ctx context.Context, p keystore.InsertApprovalParams) error {
	a := &p.Approval
	return db.write(ctx, func(tx transaction) error {
		_, err := tx.exec(ctx, insertApproval, a.ID[:], a.Op, a.Resource, a.Fingerprint, a.RequestedBy[:],
			maybeID(a.ApprovedBy), a.Used, a.Created, a.Expires, a.Revision, a.Code.MAC, codeVersion(a.Code))
		return err
	})
}

// UpdateApproval implements keystore.ApprovalDriver.
func (db *DB) UpdateApproval(ctx context.Context, p keystore.UpdateApprovalParams) error {
	a := &p.Approval
	return db.write(ctx, func(tx transaction) error {
		return tx.execOne(ctx, keystore.ErrStale, updateApproval, maybeID(a.ApprovedBy), a.Used, a.Revision,
			a.Code.MAC, codeVersion(a.Code), a.ID[:], a.Revision-1)
	})
}

// DeleteExpiredApprovals implements keystore.ApprovalDriver.
func (db *DB) DeleteExpiredApprovals(ctx context.Context, p keystore.DeleteExpiredApprovalsParams) (removed int, err error) {
	err = db.write(ctx, func(tx transaction) error {
		n, err := tx.exec(ctx, deleteExpiredApprovals, p.Now, p.Limit)
		removed = int(n)
		return err
	})
	return removed, err
}
