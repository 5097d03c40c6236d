package api

import (
	"time"
	"uuid"
)

// Approval is an act that needs two operators.
type Approval struct {
	ID          uuid.UUID `json:"id"`
	Operation   string    `json:"operation" doc:"What is to be done" example:"delete-tenant"`
	Resource    string    `json:"resource" doc:"To what, in words" example:"tenant acme"`
	RequestedBy uuid.UUID `json:"requested_by" doc:"Id of the credential that asks for it and may then do it"`
	ApprovedBy  uuid.UUID `json:"approved_by,omitzero" doc:"Id of the credential that approved it; absent: not yet approved"`
	Used        bool      `json:"used" doc:"Whether it was done"`
	CreatedAt   time.Time `json:"created_at"`
	ExpiresAt   time.Time `json:"expires_at"`
}

// ApprovalResponse is an approval.
type ApprovalResponse struct {
	Approval
	Charge
}

// ApprovalListResponse is a page of approvals.
type ApprovalListResponse struct {
	Approvals     []Approval `json:"approvals"`
	NextPageToken string     `json:"next_page_token,omitzero" doc:"Absent at the end"`
	Charge
}
