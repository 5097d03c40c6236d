package keystore

import (
	"context"
	"errors"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// storedApproval is an approval with the revision by which changes of it are
// told apart.
type storedApproval struct {
	kms.Approval
	revision uint64
}

// CreateApproval implements kms.Approvals. KindConflict when the id is taken.
func (s *Store) CreateApproval(ctx context.Context, a *kms.Approval) error {
	stored := storedApproval{*a, 1}
	err := argument(func(fail failFunc) {
		if a.Used || a.ApprovedBy != uuid.Nil() {
			fail("approval", "must be a new one")
		}
		checkApproval(&stored, fail)
	})
	if err != nil {
		return err
	}
	c, err := s.coder()
	if err != nil {
		return err
	}
	record, err := c.approval(&stored)
	if err != nil {
		return err
	}
	return translate(s.driver.InsertApproval(ctx, InsertApprovalParams{Approval: record}))
}

// Approval implements kms.Approvals.
func (s *Store) Approval(ctx context.Context, id uuid.UUID) (*kms.Approval, error) {
	c, err := s.coder()
	if err != nil {
		return nil, err
	}
	a, err := s.approval(ctx, c, id)
	if err != nil {
		return nil, err
	}
	return &a.Approval, nil
}

func (s *Store) approval(ctx context.Context, c *rowCoder, id uuid.UUID) (*storedApproval, error) {
	row, err := s.driver.Approval(ctx, ApprovalParams{ID: id, Now: timestamp(s.now())})
	if err != nil {
		return nil, translate(err)
	}
	a, err := decodeApproval(c, row, &id)
	if err != nil {
		return nil, s.decoded(err)
	}
	return a, nil
}

// Approve implements kms.Approvals.
func (s *Store) Approve(ctx context.Context, id, by uuid.UUID) (*kms.Approval, error) {
	if by == uuid.Nil() {
		return nil, errArgument("approver", reasonMissing)
	}
	return s.changeApproval(ctx, id, func(a *storedApproval) error {
		switch {
		case a.Used || a.ApprovedBy != uuid.Nil():
			return kms.Errorf(kms.KindConflict, "the approval was given already")
		case a.RequestedBy == by:
			return kms.Errorf(kms.KindConflict, "who asks for an approval cannot give it")
		}
		a.ApprovedBy = by
		return nil
	})
}

// UseApproval implements kms.Approvals.
func (s *Store) UseApproval(ctx context.Context, id uuid.UUID) error {
	_, err := s.changeApproval(ctx, id, func(a *storedApproval) error {
		switch {
		case a.ApprovedBy == uuid.Nil():
			return kms.Errorf(kms.KindConflict, "the approval was not given yet")
		case a.Used:
			return kms.Errorf(kms.KindConflict, "the approval was used already")
		}
		a.Used = true
		return nil
	})
	return err
}

// changeApproval makes a change if nobody else makes one meanwhile; then it is
// a conflict, because each change can be made once.
func (s *Store) changeApproval(ctx context.Context, id uuid.UUID, change func(*storedApproval) error) (*kms.Approval, error) {
	c, err := s.coder()
	if err != nil {
		return nil, err
	}
	a, err := s.approval(ctx, c, id)
	if err != nil {
		return nil, err
	}
	if err := change(a); err != nil {
		return nil, err
	}
	a.revision++
	record, err := c.approval(a)
	if err != nil {
		return nil, err
	}
	err = s.driver.UpdateApproval(ctx, UpdateApprovalParams{Approval: record})
	if errors.Is(err, ErrStale) {
		return nil, kms.Wrap(kms.KindConflict, err, "the approval was given or used meanwhile")
	}
	if err != nil {
		return nil, translate(err)
	}
	s.known.raise(rowOf(ObjectApproval, uuid.Nil(), id), a.revision)
	return &a.Approval, nil
}

// ListApprovals implements kms.Approvals, in the order of the ids. Expired
// approvals are missing. Damaged ones are reported to the log and left out.
func (s *Store) ListApprovals(ctx context.Context, page kms.Page) ([]*kms.Approval, string, error) {
	c, err := s.coder()
	if err != nil {
		return nil, "", err
	}
	l := listing[*ApprovalRow, *kms.Approval]{
		scope: scope{kind: 'o'},
		rows: func(ctx context.Context, after position, limit int) ([]*ApprovalRow, error) {
			return s.driver.ListApprovals(ctx, ListApprovalsParams{
				Now: timestamp(s.now()), After: []byte(after.id), Limit: limit})
		},
		rowPosition: func(r *ApprovalRow) position { return position{id: string(r.ID.Bytes)} },
		decode: func(r *ApprovalRow) (*kms.Approval, error) {
			a, err := decodeApproval(c, r, nil)
			return &a.Approval, err
		},
		damaged: s.damaged,
	}
	return l.page(ctx, page)
}

func checkApproval(a *storedApproval, fail failFunc) {
	switch {
	case a.ID == uuid.Nil():
		fail("id", reasonMissing)
	case a.Op.Info() == nil:
		fail("op", reasonUnknown)
	case !storableText(a.Resource):
		fail("resource", "is not text")
	case a.RequestedBy == uuid.Nil():
		fail("requested_by", reasonMissing)
	case a.ApprovedBy == a.RequestedBy:
		fail("approved_by", "is who asked")
	case a.Used && a.ApprovedBy == uuid.Nil():
		fail("used", "without being approved")
	case a.Created.IsZero() || !a.Expires.After(a.Created):
		fail("expires", reasonRange)
	}
}

func encodeApproval(a *storedApproval) ApprovalRecord {
	r := ApprovalRecord{
		ID: a.ID, Op: string(a.Op), Resource: a.Resource, Fingerprint: a.Fingerprint[:],
		RequestedBy: a.RequestedBy, Used: a.Used,
		Created: timestamp(a.Created), Expires: timestamp(a.Expires), Revision: a.revision,
	}
	if a.ApprovedBy != uuid.Nil() {
		r.ApprovedBy = &a.ApprovedBy
	}
	return r
}

func decodeApproval(c *rowCoder, r *ApprovalRow, want *uuid.UUID) (*storedApproval, error) {
	d := newDecoder(ObjectApproval, uuid.Nil(), rowID(r.ID))
	a := &storedApproval{
		Approval: kms.Approval{
			ID:          d.id(r.ID, "id"),
			Op:          kms.Op(d.text(r.Op, "op")),
			Resource:    d.maybeBlank(r.Resource, "resource"),
			RequestedBy: d.id(r.RequestedBy, "requested_by"),
			Used:        d.boolean(r.Used, "used"),
			Created:     d.time(r.Created, "created"),
			Expires:     d.time(r.Expires, "expires"),
		},
		revision: d.revision(r.Revision),
	}
	if !r.ApprovedBy.Null {
		a.ApprovedBy = d.id(r.ApprovedBy, "approved_by")
	}
	fingerprint := d.bytes(r.Fingerprint, "fingerprint")
	d.require(len(fingerprint) == len(a.Fingerprint), "fingerprint", "has the wrong length")
	copy(a.Fingerprint[:], fingerprint)
	d.wanted(a.ID, want)
	if d.result() == nil {
		checkApproval(a, d.fail)
	}
	if d.result() == nil {
		record := encodeApproval(a)
		c.check(d, codeApproval, record.fields(), r.Code)
		c.current(d, rowOf(ObjectApproval, uuid.Nil(), a.ID), a.revision)
	}
	return a, d.result()
}
