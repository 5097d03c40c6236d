package api

import (
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// CostBreaker is the state of a tenant's cost breaker. Amounts are in credits.
type CostBreaker struct {
	Enabled   bool        `json:"enabled"`
	Risk      int         `json:"risk_permille" doc:"Use of the last minute ÷ what the rest of the day or month allows a minute × the factor, in thousandths" min:"0"`
	Line      int         `json:"line_permille" doc:"A risk above it, for a minute, is the way to the next stage" min:"0"`
	Recover   int         `json:"recover_permille" doc:"A risk below it, for a minute, ends an incident" min:"0"`
	PerMinute Cost        `json:"used_per_minute"`
	Allowed   Cost        `json:"allowed_per_minute" doc:"What the rest of the day or month allows, the less of both"`
	Exhausted time.Time   `json:"exhausted_at,omitzero" doc:"When nothing is left if the use goes on; absent while the risk is not above the line"`
	Lifted    bool        `json:"lifted,omitzero" doc:"The stop was lifted until the incident is over"`
	Stages    []CostStage `json:"stages,omitempty" doc:"Of components, and of the tenant without them, that are not calm"`
}

// StageName is the name of a stage of the cost breaker: see kms.CostStage.
type StageName string

// CostStage is a component that has come to a stage, or the tenant without the
// components that have one of their own.
type CostStage struct {
	Component   string    `json:"component"`
	WholeTenant bool      `json:"whole_tenant"`
	Stage       StageName `json:"stage" doc:"no_bulk: bulk work is refused; marked: answers say when all is used up; stopped: everything is refused"`
	Risk        int       `json:"risk_permille" min:"0"`
	PerMinute   Cost      `json:"used_per_minute"`
	StopsAt     time.Time `json:"stops_at" doc:"When everything is refused if the use goes on, as the first stage said"`
	StopCredits Cost      `json:"credits_at_stop" doc:"What it will have used of the incident by then"`
}

// CostIncidentSummary is an incident in a list.
type CostIncidentSummary struct {
	ID        uuid.UUID `json:"id"`
	Node      string    `json:"api_node" doc:"Which saw it: each has its own part"`
	Began     time.Time `json:"began_at"`
	Ended     time.Time `json:"ended_at"`
	Stopped   time.Time `json:"stopped_at,omitzero" doc:"Absent: nothing was stopped"`
	PeakRisk  int       `json:"peak_risk_permille" min:"0"`
	Used      Cost      `json:"used"`
	Over      Cost      `json:"over" doc:"Used beyond what the plan allowed in that time"`
	Refused   Cost      `json:"refused" doc:"The price of what the breaker refused"`
	Component string    `json:"component" doc:"The one that used most"`
	Causes    []string  `json:"causes" doc:"The codes of likely causes, the most likely first"`
}

// CostIncidentListResponse is a page of incidents.
type CostIncidentListResponse struct {
	Incidents     []CostIncidentSummary `json:"incidents" doc:"The latest first"`
	NextPageToken string                `json:"next_page_token,omitzero"`
	Charge
}

// CostIncidentResponse is the report of an incident. Amounts are in credits.
type CostIncidentResponse struct {
	CostIncidentSummary
	Tier           kms.Tier     `json:"tier"`
	PolicyVersion  uint64       `json:"policy_version"`
	Factor         int          `json:"factor_permille"`
	Line           int          `json:"line_permille"`
	Recover        int          `json:"recover_permille"`
	PeakAt         time.Time    `json:"peak_at"`
	Calls          int64        `json:"calls" doc:"Requests that were admitted"`
	RefusedCalls   int64        `json:"refused_calls"`
	Planned        Cost         `json:"planned" doc:"What the plan allowed in that time"`
	StoppedUsed    Cost         `json:"used_until_stopped"`
	PredictedStop  time.Time    `json:"predicted_stop_at,omitzero" doc:"What the first stage said"`
	PredictedTotal Cost         `json:"predicted_credits"`
	Lifted         bool         `json:"lifted"`
	SpanSeconds    int          `json:"span_seconds" doc:"Of a point of the timeline"`
	Timeline       []CostPoint  `json:"timeline"`
	Changes        []CostChange `json:"changes" doc:"Of stages, in their order"`
	Components     []CostShare  `json:"components" doc:"The largest by credits, admitted or refused"`
	Keys           []CostShare  `json:"keys"`
	Operations     []CostShare  `json:"operations"`
	Credentials    []CostShare  `json:"credentials"`
	Advice         []CostAdvice `json:"advice"`
	Charge
}

// CostPoint is a span of a timeline.
type CostPoint struct {
	At      time.Time `json:"at"`
	Used    Cost      `json:"used"`
	Refused Cost      `json:"refused"`
	Calls   int64     `json:"calls"`
	Risk    int       `json:"risk_permille" min:"0"`
	Stage   StageName `json:"stage"`
}

// CostChange is a change of a stage.
type CostChange struct {
	At          time.Time `json:"at"`
	Component   string    `json:"component"`
	WholeTenant bool      `json:"whole_tenant"`
	From        StageName `json:"from"`
	To          StageName `json:"to"`
	Risk        int       `json:"risk_permille" min:"0"`
	PerMinute   Cost      `json:"used_per_minute"`
}

// CostShare is what one of its kind used.
type CostShare struct {
	Name    string `json:"name"`
	Credits Cost   `json:"credits"`
	Calls   int64  `json:"calls"`
}

// CostAdvice is a likely cause and what to do about it.
type CostAdvice struct {
	Cause  string `json:"cause"`
	Detail string `json:"detail"`
	Advice string `json:"advice"`
}

// CostBreakerResponse is the breaker after a stop was lifted.
type CostBreakerResponse struct {
	CostBreaker CostBreaker `json:"cost_breaker"`
	Charge
}
