package api

import (
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// SchedulerResponse is what the scheduler of the API node that was asked does.
type SchedulerResponse struct {
	Nodes          []SchedulerNode   `json:"nodes"`
	Domains        []SchedulerDomain `json:"domains" doc:"Sets of nodes that share their work"`
	Waiting        int               `json:"waiting" doc:"Requests that wait for a slot"`
	MaxWaiting     int               `json:"max_waiting" doc:"That may wait in all"`
	MaxTenant      int               `json:"max_tenant" doc:"That may wait of one tenant in a domain"`
	WaitingTenants int               `json:"waiting_tenants" doc:"Tenants with requests that wait, counted by domain"`
	OldestMS       float64           `json:"oldest_ms" doc:"How long the longest waiting request has waited"`
	Charge
}

// SchedulerNode is a node as the scheduler sees it.
type SchedulerNode struct {
	Node     kms.NodeID `json:"node"`
	Domain   string     `json:"domain"`
	Down     bool       `json:"down"`
	Slots    int        `json:"slots"`
	Busy     int        `json:"busy"`
	Waiting  int        `json:"waiting" doc:"Requests that could run here; one may count on several nodes"`
	Granted  uint64     `json:"granted" doc:"Slots taken since the service started"`
	Away     uint64     `json:"away" doc:"Of those, by requests that prefer another node"`
	BehindMS float64    `json:"behind_ms" doc:"Expected wait of a request that joins here"`
}

// SchedulerDomain is a set of nodes that share their work.
type SchedulerDomain struct {
	Name        string            `json:"name"`
	Slots       int               `json:"slots" doc:"Of the nodes that serve"`
	Busy        int               `json:"busy"`
	Waiting     int               `json:"waiting"`
	Band        string            `json:"band" doc:"Of the utilisation gate: below_safe, below_hard or from_hard" example:"below_safe"`
	Fast        float64           `json:"utilisation_fast" doc:"0 to 1, over a fifth of a second"`
	Slow        float64           `json:"utilisation_slow" doc:"0 to 1, over two seconds"`
	MaxInFlight int               `json:"max_in_flight" doc:"Slots that a tenant may hold while the cap applies"`
	Capped      bool              `json:"cap_applies"`
	LoadCostMS  float64           `json:"load_cost_ms" doc:"What running a request away from its node costs"`
	Classes     []SchedulerClass  `json:"classes" doc:"HIGH first"`
	Tenants     []SchedulerTenant `json:"tenants" doc:"Those with work, the largest users of the last second first, at most 100"`
}

// SchedulerClass is what requests of a class have waited for since the service
// started.
type SchedulerClass struct {
	Class   kms.Class       `json:"class"`
	Refused uint64          `json:"refused" doc:"By the utilisation gate"`
	Waited  []SchedulerWait `json:"waited" doc:"By reason"`
}

// SchedulerWait is the time waited for a reason.
type SchedulerWait struct {
	Code    string  `json:"code" example:"SHARE"`
	Seconds float64 `json:"seconds"`
}

// SchedulerTenant is a tenant with work.
type SchedulerTenant struct {
	ID          uuid.UUID `json:"id"`
	Name        string    `json:"name,omitzero"`
	Weight      int64     `json:"weight" doc:"What it bought: credits/s"`
	Running     int       `json:"running" doc:"Slots in use"`
	Interactive int       `json:"interactive" doc:"Requests that wait, by urgency"`
	Normal      int       `json:"normal"`
	Bulk        int       `json:"bulk"`
	UsedMS      float64   `json:"used_ms" doc:"Slot time of the last second"`
	Share       float64   `json:"share" doc:"Its fair share, in slots"`
	LagMS       float64   `json:"lag_ms" doc:"Slot time that it is owed; negative: it is ahead"`
	Over        bool      `json:"over" doc:"Above its fair share"`
	Parked      string    `json:"parked,omitzero" doc:"The cap that holds it; absent: none" example:"TENANT_CAP"`
}
