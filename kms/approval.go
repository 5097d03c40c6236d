package kms

import (
	"context"
	"time"
	"uuid"
)

// Some acts take two operators, where the service is set so: those whose
// operation is marked TwoOperators. The first one's request is answered with
// KindApprovalRequired and the id of an approval; a second operator gives it;
// then the first one repeats the request and names it. An approval is good for
// that one act, by who asked for it, once.
//
// Two operators are two credentials, so whoever could make himself a second
// one would be both. That is why minting an operator's credential is such an
// act, and giving another's a new secret. The operator who sets the service up
// mints the second credential alone; that can happen once, since revoked
// credentials count.

const (
	// approvalTTL is how long an act can wait for its second operator and then
	// for being repeated: a day, so that a request of the evening can be
	// approved in the morning.
	approvalTTL = 24 * time.Hour
	// maxOpenApprovals bounds the approvals that are open at once, so that a
	// repeated request without one cannot fill the table. Operators see a
	// single page of them.
	maxOpenApprovals = MaxPageSize
)

const labelApproval = "sluice approval\x00"

// act is what two operators agree on.
type act struct {
	// resource tells the second operator in words what is acted on.
	resource string
	// arguments are all that tells the act from others of its operation.
	arguments [][]byte
}

// fingerprint is the act's as it is stored: a code, so that the store cannot
// be searched for arguments.
func (s *Service) fingerprint(op Op, a *act) [32]byte {
	parts := append([][]byte{[]byte(op), []byte(a.resource)}, a.arguments...)
	sum, _ := s.pepper.mac(s.pepper.current, labelApproval, lengthPrefixed(parts)...)
	return sum
}

// agree lets an act pass that needs no second operator, or that has the
// approval of one, which it spends.
func (s *Service) agree(ctx context.Context, t *Ticket, k *task) error {
	if !s.twoOperators {
		return nil
	}
	a, err := k.act(ctx, t)
	if err != nil || a == nil {
		return err
	}
	fingerprint := s.fingerprint(k.op, a)
	if t.Approval == uuid.Nil() {
		return s.askApproval(ctx, t, a, fingerprint)
	}
	approval, err := s.approvals.Approval(ctx, t.Approval)
	switch {
	case KindOf(err) == KindNotFound && err != nil:
		return errOtherApproval
	case err != nil:
		return err
	case approval.RequestedBy != t.By.Credential || approval.Op != k.op || approval.Fingerprint != fingerprint:
		return errOtherApproval
	case approval.ApprovedBy == uuid.Nil():
		return approvalRequired(approval)
	}
	if err := s.checkApprover(ctx, t, approval); err != nil {
		return err
	}
	return s.approvals.UseApproval(ctx, approval.ID)
}

// errOtherApproval answers for an approval that is missing, has expired, or is
// for another act.
var errOtherApproval = &Error{Kind: KindConflict, Detail: "the approval has expired or is not one for this act by this credential"}

func approvalRequired(a *Approval) *Error {
	detail := "the act takes two operators: another one has to approve it; then repeat it and name the approval"
	if a.ApprovedBy != uuid.Nil() {
		detail = "the act takes two operators, and another one has approved it: repeat it and name the approval"
	}
	return &Error{Kind: KindApprovalRequired, Detail: detail, Approval: a.ID}
}

// checkApprover refuses what an operator has approved whose credential has
// ended since.
func (s *Service) checkApprover(ctx context.Context, t *Ticket, a *Approval) error {
	c, err := s.credentials.Credential(ctx, t.By.Tenant.ID, a.ApprovedBy)
	if err != nil && KindOf(err) != KindNotFound {
		return err
	}
	if err != nil || !c.live(s.clock()) {
		return Errorf(KindConflict, "the credential that approved the act has ended")
	}
	return nil
}

// askApproval asks for an approval, unless the caller has asked for the same
// one before, and answers with its id.
func (s *Service) askApproval(ctx context.Context, t *Ticket, a *act, fingerprint [32]byte) error {
	open, _, err := s.approvals.ListApprovals(ctx, Page{Size: maxOpenApprovals})
	if err != nil {
		return err
	}
	for _, o := range open {
		if !o.Used && o.RequestedBy == t.By.Credential && o.Op == t.Op && o.Fingerprint == fingerprint {
			t.Approval = o.ID
			return approvalRequired(o)
		}
	}
	if len(open) == maxOpenApprovals {
		return Errorf(KindConflict, "there are %d approvals already; wait until some have expired", maxOpenApprovals)
	}
	now := s.clock()
	asked := &Approval{ID: newID(), Op: t.Op, Resource: a.resource, Fingerprint: fingerprint,
		RequestedBy: t.By.Credential, Created: now, Expires: now.Add(approvalTTL)}
	if err := s.approvals.CreateApproval(ctx, asked); err != nil {
		return err
	}
	t.Approval = asked.ID
	return approvalRequired(asked)
}

// Approve gives an approval that another operator has asked for.
// KindPermissionDenied when the caller has asked for it, KindConflict when it
// was given before.
func (s *Service) Approve(ctx context.Context, t *Ticket, id string) (*Approval, error) {
	var a *Approval
	err := s.run(ctx, t, &task{op: OpApprove,
		prepare: func(t *Ticket) (err error) {
			if a, err = s.findApproval(ctx, t, id); err != nil {
				return err
			}
			if a.RequestedBy == t.By.Credential {
				return Errorf(KindPermissionDenied, "who asks for an approval cannot give it")
			}
			return nil
		},
		store: func(ctx context.Context, t *Ticket) (err error) {
			a, err = s.approvals.Approve(ctx, a.ID, t.By.Credential)
			return err
		}})
	if err != nil {
		return nil, err
	}
	return a, nil
}

// DescribeApproval returns an approval.
func (s *Service) DescribeApproval(ctx context.Context, t *Ticket, id string) (*Approval, error) {
	var a *Approval
	err := s.run(ctx, t, &task{op: OpReadApprovals, store: func(ctx context.Context, t *Ticket) (err error) {
		a, err = s.findApproval(ctx, t, id)
		return err
	}})
	if err != nil {
		return nil, err
	}
	return a, nil
}

// ReplayApproval is Replay for Approve.
func (s *Service) ReplayApproval(ctx context.Context, t *Ticket, id string) (*Approval, error) {
	var a *Approval
	err := s.replayOther(ctx, t, OpApprove, nil, func(t *Ticket) (err error) {
		a, err = s.findApproval(ctx, t, id)
		return err
	})
	if err != nil {
		return nil, err
	}
	return a, nil
}

func (s *Service) findApproval(ctx context.Context, t *Ticket, id string) (*Approval, error) {
	parsed, ok := parseRef(id)
	if !ok {
		return nil, ErrNotFound
	}
	a, err := s.approvals.Approval(ctx, parsed)
	if err == nil {
		t.Resource, t.Approval = a.ID.String(), a.ID
	}
	return a, err
}

// ListApprovals returns a page of the approvals that have not expired, in the
// order in which they were asked for.
func (s *Service) ListApprovals(ctx context.Context, t *Ticket, page Page) (list []*Approval, next string, err error) {
	err = s.run(ctx, t, &task{op: OpReadApprovals,
		prepare: func(*Ticket) error { return checkPage(page) },
		store: func(ctx context.Context, t *Ticket) error {
			list, next, err = s.approvals.ListApprovals(ctx, page)
			return err
		}})
	if err != nil {
		return nil, "", err
	}
	return list, next, nil
}

// operatorsAct is what minting a credential, or giving one a new secret, has to
// be agreed on for: nothing inside ordinary tenants, nothing for the caller's
// own credential, and nothing while there has never been a second operator.
func (s *Service) operatorsAct(ctx context.Context, t *Ticket, c *Credential, arguments ...[]byte) (*act, error) {
	if !t.By.Operator() || c.Tenant != t.By.Tenant.ID || c.ID == t.By.Credential {
		return nil, nil
	}
	all, next, err := s.credentials.ListCredentials(ctx, c.Tenant, Page{Size: 2})
	if err != nil || len(all) < 2 && next == "" {
		return nil, err
	}
	return &act{resource: "operator's credential " + c.Name, arguments: arguments}, nil
}
