package client

import (
	"context"
	"encoding/json/jsontext"
	"iter"
	"net/http"
	"strconv"
	"time"
)

// PolicyVersion is a version of the policy: the document of tiers, prices,
// lines and times.
type PolicyVersion struct {
	Version   uint64    `json:"version"` // from 1; 0 is the policy that Sluice comes with
	SHA256    string    `json:"sha256"`  // of the document, in hexadecimal
	Comment   string    `json:"comment,omitzero"`
	CreatedAt time.Time `json:"created_at,omitzero"`
	CreatedBy string    `json:"created_by,omitzero"` // id of the credential that put it; "" for version 0
}

// PolicyOutput is the policy in force on the API node that answered.
type PolicyOutput struct {
	PolicyVersion
	Stored   uint64         `json:"stored"`           // newest stored version, 0 for none
	Problem  string         `json:"problem,omitzero"` // why that one is not in force; "" when it is
	Document jsontext.Value `json:"document"`
	Charge
}

// PolicyVersionOutput is a version with its document.
type PolicyVersionOutput struct {
	PolicyVersion
	Document jsontext.Value `json:"document"`
	Charge
}

// PutPolicyOutput is the version that a call made.
type PutPolicyOutput struct {
	PolicyVersion
	Charge
}

// GetPolicy returns the policy in force. It takes an operator's credential, as
// do all methods on policies.
func (c *Client) GetPolicy(ctx context.Context) (*PolicyOutput, error) {
	return invoke[PolicyOutput](ctx, c, call{method: http.MethodGet, path: []string{"v1", "policy"}})
}

// GetPolicyVersion returns a version, 0 for the policy that Sluice comes with.
func (c *Client) GetPolicyVersion(ctx context.Context, version uint64) (*PolicyVersionOutput, error) {
	return invoke[PolicyVersionOutput](ctx, c, call{method: http.MethodGet,
		path: []string{"v1", "policy", "versions", strconv.FormatUint(version, 10)}})
}

type policyPage struct {
	Versions []*PolicyVersion `json:"versions"`
	Next     string           `json:"next_page_token"`
}

// ListPolicyVersions returns the stored versions, the newest first. See
// ListTenants.
func (c *Client) ListPolicyVersions(ctx context.Context) iter.Seq2[*PolicyVersion, error] {
	return list(ctx, c, call{method: http.MethodGet, path: []string{"v1", "policy", "versions"}},
		func(p *policyPage) ([]*PolicyVersion, string) { return p.Versions, p.Next })
}

// CheckPolicyOutput tells what is wrong with a document.
type CheckPolicyOutput struct {
	Valid  bool            `json:"valid"`
	SHA256 string          `json:"sha256,omitzero"` // what the version's would be
	Errors []PolicyMistake `json:"errors,omitempty"`
	Charge
}

// PolicyMistake is what is wrong in one place of a document.
type PolicyMistake struct {
	Path    string `json:"path,omitzero"` // such as "tiers.gold.burst_credits"; "" for the whole
	Message string `json:"message"`
}

// CheckPolicy validates a document, a JSON object, without storing it.
func (c *Client) CheckPolicy(ctx context.Context, document []byte) (*CheckPolicyOutput, error) {
	in := struct {
		Document jsontext.Value `json:"document"`
	}{document}
	return invoke[CheckPolicyOutput](ctx, c, call{method: http.MethodPost, path: []string{"v1", "policy", "check"}, in: in, prepares: true})
}

// DiffPolicyInput is the input of DiffPolicy: either a document or a version.
type DiffPolicyInput struct {
	Document jsontext.Value `json:"document,omitzero"`
	Version  *uint32        `json:"version,omitzero"` // 0 is the policy that Sluice comes with
}

// DiffPolicyOutput tells in what a policy differs from the one in force.
type DiffPolicyOutput struct {
	Version uint64         `json:"version"` // in force
	Changes []PolicyChange `json:"changes"` // ordered by path
	Charge
}

// PolicyChange is a field in which two policies differ. From and To are JSON,
// "" where a policy has no such field.
type PolicyChange struct {
	Path string `json:"path"`
	From string `json:"from,omitzero"`
	To   string `json:"to,omitzero"`
}

// DiffPolicy compares a policy with the one in force.
func (c *Client) DiffPolicy(ctx context.Context, in DiffPolicyInput) (*DiffPolicyOutput, error) {
	return invoke[DiffPolicyOutput](ctx, c, call{method: http.MethodPost, path: []string{"v1", "policy", "diff"}, in: in, prepares: true})
}

// PutPolicyInput is the input of PutPolicy.
type PutPolicyInput struct {
	Document jsontext.Value `json:"document"`
	// Previous is the newest stored version that the caller knows of
	// (PolicyOutput.Stored), 0 for none: with another one the call is refused.
	Previous uint32 `json:"previous"`
	Comment  string `json:"comment,omitzero"` // why, for the history; at most 1024 bytes
	// Force puts it although the HSMs cannot keep the rates that it raises: see
	// ReasonCapacity.
	Force bool `json:"force,omitzero"`
}

// PutPolicy puts a policy into force, as the next version. See Approval: it
// can take two operators.
func (c *Client) PutPolicy(ctx context.Context, in PutPolicyInput) (*PutPolicyOutput, error) {
	return invoke[PutPolicyOutput](ctx, c, call{method: http.MethodPut, path: []string{"v1", "policy"}, in: in, changes: true})
}

// RollbackPolicyInput is the input of RollbackPolicy.
type RollbackPolicyInput struct {
	Version uint32 `json:"version"` // 0 is the policy that Sluice comes with
	Comment string `json:"comment,omitzero"`
	Force   bool   `json:"force,omitzero"` // as in PutPolicyInput
}

// RollbackPolicy puts the document of an earlier version into force again, as
// the next version. See Approval: it can take two operators.
func (c *Client) RollbackPolicy(ctx context.Context, in RollbackPolicyInput) (*PutPolicyOutput, error) {
	return invoke[PutPolicyOutput](ctx, c, call{method: http.MethodPost, path: []string{"v1", "policy", "rollback"}, in: in, changes: true})
}
