package client

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// UsageRow is the usage of a period. Dimensions that were not asked for are
// empty.
type UsageRow struct {
	Start     time.Time `json:"start"`
	Tenant    string    `json:"tenant,omitzero"`
	Project   string    `json:"project,omitzero"`
	Component string    `json:"component,omitzero"`
	Key       string    `json:"key,omitzero"`
	Algorithm string    `json:"algorithm,omitzero"` // the key's spec where the operation has none
	Operation string    `json:"operation,omitzero"`
	Reason    string    `json:"reason,omitzero"` // why the requests were not served; "": they were
	Policy    uint64    `json:"policy_version,omitzero"`
	UsageSum
}

// UsageSum is how much was used.
type UsageSum struct {
	Requests int64   `json:"requests"`
	Credits  float64 `json:"credits"` // charged
	Bytes    int64   `json:"bytes"`   // of input
	HSMMS    float64 `json:"hsm_ms"`
	QueueMS  float64 `json:"queue_ms"`
}

// UsageReport is usage by period and dimensions.
type UsageReport struct {
	Granularity string     `json:"granularity"`
	From        time.Time  `json:"from"`
	To          time.Time  `json:"to"`
	Rows        []UsageRow `json:"rows"`
	Completeness
	Charge
}

// UsageQuery asks for usage.
type UsageQuery struct {
	From, To    time.Time // zero: today, now
	Granularity string    // "minute", "hour" or "day"; "": day
	// By are dimensions: project, component, key, algorithm, operation, reason
	// and policy, and tenant for operators who ask about all.
	By []string
	// Where keeps the usage of one value of a dimension.
	Where map[string]string
}

// Usage reports usage: of the credential's tenant, of the one that tenant names
// (operators only), or, for an operator who names none, of all.
func (c *Client) Usage(ctx context.Context, tenant string, q UsageQuery) (*UsageReport, error) {
	v := url.Values{}
	set(v, "from", moment(q.From))
	set(v, "to", moment(q.To))
	set(v, "granularity", q.Granularity)
	set(v, "by", strings.Join(q.By, ","))
	for name, value := range q.Where {
		v.Set(name, value)
	}
	return invoke[UsageReport](ctx, c, call{method: http.MethodGet, path: inTenant(tenant, "usage"), query: v})
}

// Bill is what a tenant is charged for a day of UTC.
type Bill struct {
	Tenant string     `json:"tenant"`
	Day    string     `json:"day"`
	Lines  []UsageRow `json:"lines"` // by project, component, key and policy
	Total  UsageSum   `json:"total"`
	Final  bool       `json:"final"` // nothing can be added to it
	Completeness
	Charge
}

// Bill reports what a tenant, "" for the credential's, is charged for a day
// ("2026-01-31"; "" is today).
func (c *Client) Bill(ctx context.Context, tenant, day string) (*Bill, error) {
	v := url.Values{}
	set(v, "day", day)
	return invoke[Bill](ctx, c, call{method: http.MethodGet, path: inTenant(tenant, "usage", "bill"), query: v})
}

// ServiceLevel is what share of a month's requests the service did not fail.
type ServiceLevel struct {
	Month   string      `json:"month"`
	Promise float64     `json:"promise"` // the share that is promised
	Kept    bool        `json:"kept"`    // by every tier
	Tiers   []TierLevel `json:"tiers"`
	Final   bool        `json:"final"` // nothing can be added to it
	Completeness
	Charge
}

// TierLevel is the level of service of a tier.
type TierLevel struct {
	Tier         string  `json:"tier"`
	Tenants      int64   `json:"tenants"`
	Requests     int64   `json:"requests"`
	Failed       int64   `json:"failed"` // by the service's fault
	Success      float64 `json:"success"`
	Kept         bool    `json:"kept"`
	TenantsBelow int64   `json:"tenants_below"` // those that have less than the promised share
}

// ServiceLevel reports by tier what share of a month's requests succeeded
// ("2026-01"; "" is this month). It is for operators.
func (c *Client) ServiceLevel(ctx context.Context, month string) (*ServiceLevel, error) {
	v := url.Values{}
	set(v, "month", month)
	return invoke[ServiceLevel](ctx, c, call{method: http.MethodGet, path: []string{"v1", "service-level"}, query: v})
}
