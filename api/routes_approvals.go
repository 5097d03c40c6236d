package api

import (
	"net/http"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

func approvalRoutes() []Route {
	group := anyTenant.group
	return []Route{
		define(Route{Name: "list-approvals", Group: group, Method: http.MethodGet, Path: "/v1/approvals", Op: kms.OpReadApprovals,
			Errors: makeErrors, Query: pageParameters, Summary: "List what operators ask others to approve",
			Description: "In the order in which it was asked for, until it expires."}, listApprovals),
		define(Route{Name: "describe-approval", Group: group, Method: http.MethodGet, Path: "/v1/approvals/{approval}", Op: kms.OpReadApprovals,
			Errors: keyErrors, Summary: "Describe an approval"},
			func(c *call, _ *NoBody) (*ApprovalResponse, error) {
				return c.approvalOr(c.service.DescribeApproval(c.context, &c.ticket, c.object(0)))
			}),
		change(Route{Name: "approve", Group: group, Method: http.MethodPost, Path: "/v1/approvals/{approval}/approve", Op: kms.OpApprove,
			Errors: makeErrors, Summary: "Approve what another operator asks for",
			Description: "Who asked then repeats the request with the header " + headerApproval + ". An approval is good for that one request, once, until it expires."},
			func(c *call, _ *Empty) (*ApprovalResponse, error) {
				return c.approvalOr(c.service.Approve(c.context, &c.ticket, c.object(0)))
			},
			func(c *call, id string) (*ApprovalResponse, error) {
				return c.approvalOr(c.service.ReplayApproval(c.context, &c.ticket, id))
			}),
	}
}

func listApprovals(c *call, _ *NoBody) (*ApprovalListResponse, error) {
	list, next, err := c.service.ListApprovals(c.context, &c.ticket, c.page())
	if err != nil {
		return nil, err
	}
	out := &ApprovalListResponse{Approvals: make([]Approval, len(list)), NextPageToken: next, Charge: c.charge()}
	for i, a := range list {
		out.Approvals[i] = approvalOf(a)
	}
	return out, nil
}

func (c *call) approvalOr(a *kms.Approval, err error) (*ApprovalResponse, error) {
	if err := c.carriedOut(err); err != nil {
		return nil, err
	}
	return &ApprovalResponse{approvalOf(a), c.charge()}, nil
}

func approvalOf(a *kms.Approval) Approval {
	return Approval{ID: a.ID, Operation: string(a.Op), Resource: a.Resource, RequestedBy: a.RequestedBy, ApprovedBy: a.ApprovedBy,
		Used: a.Used, CreatedAt: a.Created.UTC(), ExpiresAt: a.Expires.UTC()}
}

// readApproval reads which approval a request of an act names that can need
// one.
func (c *call) readApproval() error {
	values := c.request.Header[headerApproval]
	if len(values) == 0 || !c.route.Op.Info().TwoOperators {
		return nil
	}
	id, err := uuid.Parse(values[0])
	if err != nil || len(values) > 1 {
		return kms.Errorf(kms.KindMalformed, "header %s: must be given once, as the id of an approval", headerApproval)
	}
	c.ticket.Approval = id
	return nil
}
