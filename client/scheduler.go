package client

import (
	"context"
	"net/http"
)

// SchedulerState is what the scheduler of the API node that was asked does.
type SchedulerState struct {
	Nodes          []SchedulerNode   `json:"nodes"`
	Domains        []SchedulerDomain `json:"domains"` // sets of nodes that share their work
	Waiting        int               `json:"waiting"` // requests that wait for a slot
	MaxWaiting     int               `json:"max_waiting"`
	MaxTenant      int               `json:"max_tenant"`
	WaitingTenants int               `json:"waiting_tenants"`
	OldestMS       float64           `json:"oldest_ms"` // of the longest waiting request
	Charge
}

// SchedulerNode is a node as the scheduler sees it.
type SchedulerNode struct {
	Node     string  `json:"node"`
	Domain   string  `json:"domain"`
	Down     bool    `json:"down"`
	Slots    int     `json:"slots"`
	Busy     int     `json:"busy"`
	Waiting  int     `json:"waiting"`   // requests that could run here; one may count on several
	Granted  uint64  `json:"granted"`   // slots taken
	Away     uint64  `json:"away"`      // of those, by requests that prefer another node
	BehindMS float64 `json:"behind_ms"` // expected wait of a request that joins here
}

// SchedulerDomain is a set of nodes that share their work.
type SchedulerDomain struct {
	Name        string            `json:"name"`
	Slots       int               `json:"slots"`
	Busy        int               `json:"busy"`
	Waiting     int               `json:"waiting"`
	Band        string            `json:"band"` // of the utilisation gate
	Fast        float64           `json:"utilisation_fast"`
	Slow        float64           `json:"utilisation_slow"`
	MaxInFlight int               `json:"max_in_flight"` // of a tenant, while the cap applies
	Capped      bool              `json:"cap_applies"`
	LoadCostMS  float64           `json:"load_cost_ms"`
	Classes     []SchedulerClass  `json:"classes"`
	Tenants     []SchedulerTenant `json:"tenants"` // with work, the largest users first
}

// SchedulerClass is what requests of a class have waited for since the service
// started.
type SchedulerClass struct {
	Class   string          `json:"class"`
	Refused uint64          `json:"refused"` // by the utilisation gate
	Waited  []SchedulerWait `json:"waited"`
}

// SchedulerWait is the time waited for a reason.
type SchedulerWait struct {
	Code    string  `json:"code"`
	Seconds float64 `json:"seconds"`
}

// SchedulerTenant is a tenant with work.
type SchedulerTenant struct {
	ID          string  `json:"id"`
	Name        string  `json:"name,omitzero"`
	Weight      int64   `json:"weight"` // credits/s that it bought
	Running     int     `json:"running"`
	Interactive int     `json:"interactive"` // requests that wait, by urgency
	Normal      int     `json:"normal"`
	Bulk        int     `json:"bulk"`
	UsedMS      float64 `json:"used_ms"` // slot time of the last second
	Share       float64 `json:"share"`   // in slots
	LagMS       float64 `json:"lag_ms"`  // slot time that it is owed; negative: it is ahead
	Over        bool    `json:"over"`    // above its fair share
	Parked      string  `json:"parked,omitzero"`
}

// Scheduler reports what the scheduler of an API node does. It takes an
// operator's credential.
func (c *Client) Scheduler(ctx context.Context) (*SchedulerState, error) {
	return invoke[SchedulerState](ctx, c, call{method: http.MethodGet, path: []string{"v1", "scheduler"}})
}
