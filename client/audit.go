package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// AuditEntry is an entry of an API node's journal.
type AuditEntry struct {
	APINode  string `json:"api_node"` // whose journal holds it
	Sequence uint64 `json:"sequence"` // its number there

	Time            time.Time `json:"time"`
	Phase           string    `json:"phase"` // "intent" of a change, or "outcome"
	RequestID       string    `json:"request_id"`
	ClientRequestID string    `json:"client_request_id,omitzero"`
	TraceID         string    `json:"trace_id,omitzero"`
	Tenant          string    `json:"tenant,omitzero"` // "": nobody was authenticated
	Project         string    `json:"project,omitzero"`
	Credential      string    `json:"credential,omitzero"`
	Subject         string    `json:"subject,omitzero"`
	Component       string    `json:"component,omitzero"`
	Address         string    `json:"address,omitzero"`
	UserAgent       string    `json:"user_agent,omitzero"`

	Operation  string `json:"operation"`
	Key        string `json:"key,omitzero"`
	KeyName    string `json:"key_name,omitzero"`
	Version    uint32 `json:"version,omitzero"`
	Spec       string `json:"spec,omitzero"`
	Algorithm  string `json:"algorithm,omitzero"`
	Protection string `json:"protection,omitzero"`
	Resource   string `json:"resource,omitzero"` // acted on other than a key
	Target     string `json:"target,omitzero"`   // the tenant acted on, where it is another
	Bytes      int    `json:"bytes,omitzero"`    // of input
	Node       string `json:"node,omitzero"`     // that ran it

	Outcome    string        `json:"outcome,omitzero"` // "ok" or the code of the problem
	Reasons    []AuditReason `json:"reasons,omitempty"`
	Class      string        `json:"class,omitzero"`
	Urgency    string        `json:"urgency,omitzero"`
	Reserved   float64       `json:"reserved"` // credits
	Charged    float64       `json:"charged"`
	Settlement string        `json:"settlement,omitzero"`
	QueueMS    float64       `json:"queue_ms"`
	HSMMS      float64       `json:"hsm_ms"`
	TotalMS    float64       `json:"total_ms"`
	Count      uint32        `json:"count,omitzero"` // requests that it stands for; 0: one
	DryRun     bool          `json:"dry_run,omitzero"`
	Replayed   bool          `json:"replayed,omitzero"`
	Grouped    bool          `json:"grouped,omitzero"` // the answer did not wait for the disk
	Approval   string        `json:"approval,omitzero"`
	Revision   uint64        `json:"revision,omitzero"`

	PolicyVersion uint64 `json:"policy_version"`

	Items []AuditItem `json:"items,omitempty"` // of a fetch of secrets
}

// AuditItem is what a fetch did with one secret.
type AuditItem struct {
	Secret   string    `json:"secret,omitzero"` // "": none was found
	Status   string    `json:"status"`
	Versions []uint32  `json:"versions,omitempty"` // handed out, or that may be used on
	LeaseEnd time.Time `json:"lease_end,omitzero"` // until when
}

// AuditReason is a reason in an entry.
type AuditReason struct {
	Code    string  `json:"code"`
	Limit   int64   `json:"limit,omitzero"`
	Need    int64   `json:"need,omitzero"`
	Have    int64   `json:"have,omitzero"`
	RetryMS int64   `json:"retry_ms,omitzero"`
	WaitMS  float64 `json:"wait_ms,omitzero"` // 0: it refused
}

// Position names the entry, for AuditQuery.After.
func (e *AuditEntry) Position() string { return e.APINode + "/" + strconv.FormatUint(e.Sequence, 10) }

// Shipped tells how far an API node's journal is in the audit trail.
type Shipped struct {
	APINode  string    `json:"api_node"`
	Sequence uint64    `json:"sequence"`
	Until    time.Time `json:"until"`
	Ended    bool      `json:"ended,omitzero"` // it stopped in order
}

// Completeness says up to when an answer is complete.
type Completeness struct {
	CompleteUntil time.Time `json:"complete_until,omitzero"` // zero: no running node has told
	APINodes      []Shipped `json:"api_nodes"`
}

// AuditPage is a page of the audit trail.
type AuditPage struct {
	Entries []AuditEntry `json:"entries"`
	// Next is the token of the next page, "" at the end. A page with one can be
	// short, or empty.
	Next string `json:"next_page_token,omitzero"`
	// Resume is, by arrival, the token of what will come after this page.
	Resume string `json:"resume_token,omitzero"`
	Completeness
	Charge
}

// AuditQuery asks for entries. Zero fields ask for any.
type AuditQuery struct {
	From, To   time.Time // From or later, before To
	Operation  string
	Key        string // id
	Credential string // id
	Outcome    string
	Request    string // id
	Project    string
	Component  string
	APINode    string
	// ByArrival gives entries as they came into the trail, which for each API
	// tenant and node is the order of the journal, instead of the newest first. After
	// begins behind the entry with that Position, or, as "end", behind the last.
	ByArrival bool
	After     string
	PageSize  int    // 1 to 1000; 0: 100
	PageToken string // Next or Resume of another page
}

func (q *AuditQuery) values() url.Values {
	v := url.Values{}
	set(v, "from", moment(q.From))
	set(v, "to", moment(q.To))
	set(v, "operation", q.Operation)
	set(v, "key", q.Key)
	set(v, "credential", q.Credential)
	set(v, "outcome", q.Outcome)
	set(v, "request", q.Request)
	set(v, "project", q.Project)
	set(v, "component", q.Component)
	set(v, "api_node", q.APINode)
	if q.ByArrival {
		v.Set("order", "arrival")
	}
	set(v, "after", q.After)
	if q.PageSize > 0 {
		v.Set("page_size", strconv.Itoa(q.PageSize))
	}
	set(v, "page_token", q.PageToken)
	return v
}

func set(v url.Values, name, value string) {
	if value != "" {
		v.Set(name, value)
	}
}

// moment is a time as it stands in a query; "" for the zero time.
func moment(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

// Audit reads a page of the audit trail: of the credential's tenant, of the one
// that tenant names (operators only), or, for an operator who names none, of
// all.
func (c *Client) Audit(ctx context.Context, tenant string, q AuditQuery) (*AuditPage, error) {
	return invoke[AuditPage](ctx, c, call{method: http.MethodGet, path: inTenant(tenant, "audit"), query: q.values()})
}
