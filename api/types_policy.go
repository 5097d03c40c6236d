package api

import (
	"bytes"
	"encoding/json/jsontext"
	"errors"
	"time"
	"uuid"
)

// PolicyDocument is a policy as JSON, which this package passes on as it is.
type PolicyDocument []byte

var errPolicyDocument = errors.New("not an object")

// UnmarshalJSONFrom copies an object.
func (p *PolicyDocument) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	raw, err := d.ReadValue()
	if err != nil {
		return err
	}
	if raw.Kind() != jsontext.KindBeginObject {
		return errPolicyDocument
	}
	*p = bytes.Clone(raw)
	return nil
}

// MarshalJSONTo writes the object.
func (p PolicyDocument) MarshalJSONTo(e *jsontext.Encoder) error {
	return e.WriteValue(jsontext.Value(p))
}

// PolicyVersion is a version of the policy without its document.
type PolicyVersion struct {
	Version   uint64    `json:"version" doc:"From 1; 0 is the policy that Sluice comes with, of which nobody is the author"`
	SHA256    string    `json:"sha256" doc:"SHA-256 of the document, in hexadecimal"`
	Comment   string    `json:"comment,omitzero"`
	CreatedAt time.Time `json:"created_at,omitzero"`
	CreatedBy uuid.UUID `json:"created_by,omitzero" doc:"Id of the credential that put it"`
}

// PolicyResponse is the policy in force on the API node that answers.
type PolicyResponse struct {
	PolicyVersion
	Stored   uint64         `json:"stored" doc:"Newest stored version, 0 for none: the one in force, but within a second after a change"`
	Problem  string         `json:"problem,omitzero" doc:"Why the newest stored version is not in force; absent when it is"`
	Document PolicyDocument `json:"document"`
	Charge
}

// PolicyVersionResponse is a version with its document.
type PolicyVersionResponse struct {
	PolicyVersion
	Document PolicyDocument `json:"document"`
	Charge
}

// PolicyListResponse is a page of the stored versions.
type PolicyListResponse struct {
	Versions      []PolicyVersion `json:"versions" doc:"The newest first"`
	NextPageToken string          `json:"next_page_token,omitzero" doc:"Absent at the end"`
	Charge
}

// CheckPolicyRequest is the body of check-policy.
type CheckPolicyRequest struct {
	Document PolicyDocument `json:"document" api:"required"`
}

// CheckPolicyResponse tells what is wrong with a document.
type CheckPolicyResponse struct {
	Valid  bool            `json:"valid"`
	SHA256 string          `json:"sha256,omitzero" doc:"What the version's would be"`
	Errors []PolicyMistake `json:"errors,omitempty"`
	Charge
}

// PolicyMistake is what is wrong in one place of a document.
type PolicyMistake struct {
	Path    string `json:"path,omitzero" example:"tiers.gold.burst_credits" doc:"Absent when it is the whole"`
	Message string `json:"message"`
}

// DiffPolicyRequest is the body of diff-policy: what to compare.
type DiffPolicyRequest struct {
	Document PolicyDocument `json:"document"`
	Version  *uint32        `json:"version" doc:"Instead of a document: a version, 0 for the policy that Sluice comes with"`
}

// DiffPolicyResponse tells in what a policy differs from the one in force.
type DiffPolicyResponse struct {
	Version uint64         `json:"version" doc:"In force"`
	Changes []PolicyChange `json:"changes" doc:"Ordered by path"`
	Charge
}

// PolicyChange is a field in which two policies differ.
type PolicyChange struct {
	Path string `json:"path" example:"tiers.gold.burst_credits"`
	From string `json:"from,omitzero" doc:"As JSON; absent: the policy in force has no such field"`
	To   string `json:"to,omitzero" doc:"As JSON; absent: the other one has no such field"`
}

// PutPolicyRequest is the body of put-policy.
type PutPolicyRequest struct {
	Document PolicyDocument `json:"document" api:"required"`
	Previous uint32         `json:"previous" doc:"Newest stored version that you know of, 0 for none: another one is refused"`
	Comment  string         `json:"comment" maxlen:"MaxPolicyComment" doc:"Why, for the history"`
	Force    bool           `json:"force" doc:"Put it although the HSMs cannot keep the rates that it raises"`
}

// RollbackPolicyRequest is the body of rollback-policy.
type RollbackPolicyRequest struct {
	Version *uint32 `json:"version" api:"required" doc:"Whose document to put again; 0 is the policy that Sluice comes with"`
	Comment string  `json:"comment" maxlen:"MaxPolicyComment" doc:"Absent: that it is a return to the version"`
	Force   bool    `json:"force" doc:"Put it although the HSMs cannot keep the rates that it raises"`
}

// PutPolicyResponse is the version that was made.
type PutPolicyResponse struct {
	PolicyVersion
	Charge
}
