package api

import (
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// AuditEntry is an entry of a node's journal.
type AuditEntry struct {
	APINode  string `json:"api_node" doc:"The API node whose journal holds it"`
	Sequence uint64 `json:"sequence" doc:"Its number in that journal"`

	Time            time.Time `json:"time"`
	Phase           kms.Phase `json:"phase" doc:"intent: a change is about to be made; outcome: what a request led to"`
	RequestID       uuid.UUID `json:"request_id"`
	ClientRequestID string    `json:"client_request_id,omitzero"`
	TraceID         string    `json:"trace_id,omitzero"`
	Tenant          uuid.UUID `json:"tenant,omitzero" doc:"Absent: nobody was authenticated"`
	Project         string    `json:"project,omitzero"`
	Credential      uuid.UUID `json:"credential,omitzero"`
	Subject         string    `json:"subject,omitzero"`
	Component       string    `json:"component,omitzero"`
	Address         string    `json:"address,omitzero"`
	UserAgent       string    `json:"user_agent,omitzero"`

	Operation  string    `json:"operation"`
	Key        uuid.UUID `json:"key,omitzero"`
	KeyName    string    `json:"key_name,omitzero"`
	Version    uint32    `json:"version,omitzero"`
	Spec       string    `json:"spec,omitzero"`
	Algorithm  string    `json:"algorithm,omitzero"`
	Protection string    `json:"protection,omitzero"`
	Resource   string    `json:"resource,omitzero" doc:"What was acted on other than a key"`
	Target     uuid.UUID `json:"target,omitzero" doc:"The tenant acted on, where it is another"`
	Bytes      int       `json:"bytes,omitzero" doc:"Of input"`
	Node       string    `json:"node,omitzero" doc:"That ran it"`

	Outcome    string        `json:"outcome,omitzero" doc:"ok, or the code of the problem; absent: an intent"`
	Reasons    []AuditReason `json:"reasons,omitempty" doc:"Why it was refused and what it waited for"`
	Class      string        `json:"class,omitzero"`
	Urgency    string        `json:"urgency,omitzero"`
	Reserved   Cost          `json:"reserved" doc:"Its price in credits"`
	Charged    Cost          `json:"charged" doc:"What of that was charged"`
	Settlement string        `json:"settlement,omitzero"`
	QueueMS    float64       `json:"queue_ms" doc:"The wait for a slot"`
	HSMMS      float64       `json:"hsm_ms" doc:"Slot time"`
	TotalMS    float64       `json:"total_ms"`
	Count      uint32        `json:"count,omitzero" doc:"Requests that it stands for; absent: one"`
	DryRun     bool          `json:"dry_run,omitzero" doc:"It was only priced"`
	Replayed   bool          `json:"replayed,omitzero" doc:"It was carried out before"`
	Grouped    bool          `json:"grouped,omitzero" doc:"The answer did not wait until the entry was durable"`
	Approval   uuid.UUID     `json:"approval,omitzero"`
	Revision   uint64        `json:"revision,omitzero" doc:"In an intent: that of the object before the change"`

	PolicyVersion uint64 `json:"policy_version" doc:"Of the policy that decided"`

	Items []AuditItem `json:"items,omitempty" doc:"What a fetch of secrets did with each"`
}

// AuditItem is what a fetch did with one secret.
type AuditItem struct {
	Secret   uuid.UUID       `json:"secret,omitzero" doc:"Absent: none was found"`
	Status   kms.FetchStatus `json:"status"`
	Versions []uint32        `json:"versions,omitempty" doc:"That were handed out, or may be used on"`
	LeaseEnd time.Time       `json:"lease_end,omitzero" doc:"Until when"`
}

// AuditReason is a reason in an entry.
type AuditReason struct {
	Code    string  `json:"code" example:"SHARE"`
	Limit   int64   `json:"limit,omitzero"`
	Need    int64   `json:"need,omitzero"`
	Have    int64   `json:"have,omitzero"`
	RetryMS int64   `json:"retry_ms,omitzero"`
	WaitMS  float64 `json:"wait_ms,omitzero" doc:"Milliseconds waited for it; absent: it refused"`
}

// Shipped tells how far a node's journal is in the audit trail.
type Shipped struct {
	APINode  string    `json:"api_node"`
	Sequence uint64    `json:"sequence" doc:"Of the last entry that is there"`
	Until    time.Time `json:"until" doc:"All that it recorded until then is there"`
	Ended    bool      `json:"ended,omitzero" doc:"It stopped in order, with nothing left"`
}

// Completeness is the part of an answer that says up to when it is complete.
type Completeness struct {
	CompleteUntil time.Time `json:"complete_until,omitzero" doc:"What all running API nodes recorded until then is counted; absent: none has told"`
	APINodes      []Shipped `json:"api_nodes"`
}

// AuditResponse is a page of the audit trail.
type AuditResponse struct {
	Entries       []AuditEntry `json:"entries"`
	NextPageToken string       `json:"next_page_token,omitzero" doc:"Absent at the end. A page with one can be short, or empty: not all that was looked at was asked for"`
	ResumeToken   string       `json:"resume_token,omitzero" doc:"In the order of arrival: page_token of what will come after this page"`
	Completeness
	Charge
}

// UsageRow is the usage of a period. Dimensions that are not in by are absent,
// and so are those that are empty.
type UsageRow struct {
	Start     time.Time `json:"start" doc:"Of the period, in UTC"`
	Tenant    uuid.UUID `json:"tenant,omitzero"`
	Project   string    `json:"project,omitzero"`
	Component string    `json:"component,omitzero"`
	Key       uuid.UUID `json:"key,omitzero"`
	Algorithm string    `json:"algorithm,omitzero" doc:"The spec of the key where the operation has none"`
	Operation string    `json:"operation,omitzero"`
	Reason    string    `json:"reason,omitzero" doc:"Why the requests were not served: the reason that refused them, the code of the problem, dry_run or replayed; absent: they were"`
	Policy    uint64    `json:"policy_version,omitzero" doc:"Of the policy, with its cost table, that decided"`
	UsageSum
}

// UsageSum is how much was used.
type UsageSum struct {
	Requests int64   `json:"requests"`
	Credits  Cost    `json:"credits" doc:"Charged"`
	Bytes    int64   `json:"bytes" doc:"Of input"`
	HSMMS    float64 `json:"hsm_ms" doc:"Slot time"`
	QueueMS  float64 `json:"queue_ms" doc:"Waits for slots"`
}

// UsageResponse is usage by period and dimensions.
type UsageResponse struct {
	Granularity kms.Granularity `json:"granularity"`
	From        time.Time       `json:"from" doc:"Beginning of the first period"`
	To          time.Time       `json:"to"`
	Rows        []UsageRow      `json:"rows" doc:"In the order of period and dimensions"`
	Completeness
	Charge
}

// ServiceLevelResponse is what share of a month's requests the service did not
// fail.
type ServiceLevelResponse struct {
	Month   string      `json:"month" doc:"Of UTC" example:"2026-01"`
	Promise float64     `json:"promise" doc:"The share that is promised, by the policy in force" example:"0.995"`
	Kept    bool        `json:"kept" doc:"Every tier has the promised share"`
	Tiers   []TierLevel `json:"tiers" doc:"By the tiers that tenants have now"`
	Final   bool        `json:"final" doc:"The month is over and all running API nodes have told what they recorded in it"`
	Completeness
	Charge
}

// TierLevel is the level of service of a tier.
type TierLevel struct {
	Tier         kms.Tier `json:"tier"`
	Tenants      int64    `json:"tenants" doc:"That asked for something"`
	Requests     int64    `json:"requests"`
	Failed       int64    `json:"failed" doc:"By the service's fault: 5xx, and refusals for want of HSMs; not by what was asked or the tenant's own limits"`
	Success      float64  `json:"success" doc:"Share of requests that did not fail, in ten-thousandths rounded down" example:"0.9998"`
	Kept         bool     `json:"kept"`
	TenantsBelow int64    `json:"tenants_below" doc:"Tenants of which less than the promised share succeeded"`
}

// BillResponse is what a tenant is charged for a day.
type BillResponse struct {
	Tenant uuid.UUID  `json:"tenant"`
	Day    string     `json:"day" doc:"Of UTC" example:"2026-01-31"`
	Lines  []UsageRow `json:"lines" doc:"By project, component, key and version of the policy"`
	Total  UsageSum   `json:"total" doc:"Sum of the lines: what the day's entries of the audit trail were charged"`
	Final  bool       `json:"final" doc:"The day is over and all running API nodes have told what they recorded in it"`
	Completeness
	Charge
}
