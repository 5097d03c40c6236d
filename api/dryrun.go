package api

import (
	"errors"
	"net/http"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// dryRunParameter asks what a request would cost and whether it is allowed.
var dryRunParameter = Parameter{Name: "dry_run", Values: []string{"true", "false"}, Default: "false",
	Doc: "true: check permission, arguments, limits and price, and do nothing. No HSM is asked and nothing is charged"}

// DryRunResponse is the answer of every route that was asked with dry_run.
type DryRunResponse struct {
	DryRun     bool           `json:"dry_run"`
	Cost       Cost           `json:"cost" doc:"Credits that it would cost"`
	RequestID  uuid.UUID      `json:"request_id" doc:"Names the request in the journal"`
	Protection kms.Protection `json:"protection,omitzero" doc:"Of the key that would be used or made"`
}

// takesDryRun tells whether the route can be asked what it would do: it uses
// a key or changes something.
func (r *Route) takesDryRun() bool {
	if r.Public || r.Stream || r.Vault != nil {
		return false
	}
	info := r.Op.Info()
	return info.Changes || info.Class == kms.ClassUse
}

// errDryRun ends a handler whose verb was not carried out.
var errDryRun = errors.New("dry run")

// carriedOut is what a handler asks between its verb, which ended with err,
// and its answer: the result of a verb that was only priced must not be used.
func (c *call) carriedOut(err error) error {
	if err == nil && c.ticket.DryRun {
		return errDryRun
	}
	return err
}

// answerDryRun tells what a request would have cost.
func (c *call) answerDryRun() (*buffer, error) {
	c.success = http.StatusOK
	out := &DryRunResponse{DryRun: true, Cost: Cost(c.ticket.Cost), RequestID: c.ticket.RequestID}
	if c.ticket.Key != nil {
		out.Protection = c.ticket.Key.Protection
	}
	return c.encode(out)
}
