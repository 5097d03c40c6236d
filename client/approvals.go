package client

import (
	"context"
	"iter"
	"net/http"
	"time"
)

// Approval is an act that needs two operators. A call that takes two gives
// ErrApprovalRequired and names the approval (Error.Approval); another operator
// gives it; then the call is repeated on the Client that WithApproval returns.
type Approval struct {
	ID          string    `json:"id"`
	Operation   string    `json:"operation"`            // what is to be done
	Resource    string    `json:"resource"`             // to what, in words
	RequestedBy string    `json:"requested_by"`         // id of the credential that asks for it and may then do it
	ApprovedBy  string    `json:"approved_by,omitzero"` // id of the credential that approved it; "": not yet
	Used        bool      `json:"used"`
	CreatedAt   time.Time `json:"created_at"`
	ExpiresAt   time.Time `json:"expires_at"`
}

// ApprovalOutput is an approval as one call returns it.
type ApprovalOutput struct {
	Approval
	Charge
}

// WithApproval returns a Client whose calls name an approval; it shares the
// connections. An approval is good for the one call that it was asked for by,
// once.
func (c *Client) WithApproval(id string) *Client {
	with := *c
	with.approval = id
	return &with
}

// GetApproval returns an approval. It takes an operator's credential, as do all
// methods on approvals.
func (c *Client) GetApproval(ctx context.Context, id string) (*ApprovalOutput, error) {
	return invoke[ApprovalOutput](ctx, c, call{method: http.MethodGet, path: []string{"v1", "approvals", id}})
}

type approvalPage struct {
	Approvals []*Approval `json:"approvals"`
	Next      string      `json:"next_page_token"`
}

// ListApprovals returns the approvals that have not expired, in the order in
// which they were asked for. See ListTenants.
func (c *Client) ListApprovals(ctx context.Context) iter.Seq2[*Approval, error] {
	return list(ctx, c, call{method: http.MethodGet, path: []string{"v1", "approvals"}},
		func(p *approvalPage) ([]*Approval, string) { return p.Approvals, p.Next })
}

// Approve gives an approval that another operator asks for.
func (c *Client) Approve(ctx context.Context, id string) (*ApprovalOutput, error) {
	return invoke[ApprovalOutput](ctx, c, call{method: http.MethodPost, path: []string{"v1", "approvals", id, "approve"}, changes: true})
}
