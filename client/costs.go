package client

import (
	"context"
	"fmt"
	"iter"
	"net/http"
	"time"
)

// CostBreaker is the state of a tenant's cost breaker. Amounts are in credits,
// risks in thousandths.
type CostBreaker struct {
	Enabled   bool        `json:"enabled"`
	Risk      int         `json:"risk_permille"`      // use of the last minute ÷ what the rest of the day or month allows × the factor
	Line      int         `json:"line_permille"`      // above it for a minute: the next stage
	Recover   int         `json:"recover_permille"`   // below it for a minute: the incident is over
	PerMinute float64     `json:"used_per_minute"`    // in the last one
	Allowed   float64     `json:"allowed_per_minute"` // by the rest of the day or month
	Exhausted time.Time   `json:"exhausted_at"`       // when nothing is left; zero: the risk is not above the line
	Lifted    bool        `json:"lifted"`             // the stop was lifted until the incident is over
	Stages    []CostStage `json:"stages,omitempty"`   // that are not calm
}

// CostStage is a component that has come to a stage: no_bulk, marked or
// stopped; or the tenant without the components that have one of their own.
type CostStage struct {
	Component   string  `json:"component"`
	WholeTenant bool    `json:"whole_tenant"`
	Stage       string  `json:"stage"`
	Risk        int     `json:"risk_permille"`
	PerMinute   float64 `json:"used_per_minute"`
	// StopsAt is when everything is refused if the use goes on, and StopCredits
	// what it will have used of the incident by then.
	StopsAt     time.Time `json:"stops_at"`
	StopCredits float64   `json:"credits_at_stop"`
}

// CostIncident is an incident of a cost breaker, as one API node saw it.
type CostIncident struct {
	ID        string    `json:"id"`
	Node      string    `json:"api_node"`
	Began     time.Time `json:"began_at"`
	Ended     time.Time `json:"ended_at"`
	Stopped   time.Time `json:"stopped_at"` // zero: nothing was stopped
	PeakRisk  int       `json:"peak_risk_permille"`
	Used      float64   `json:"used"`
	Over      float64   `json:"over"`    // beyond what the plan allowed in that time
	Refused   float64   `json:"refused"` // the price of what the breaker refused
	Component string    `json:"component"`
	Causes    []string  `json:"causes"` // codes, the most likely first
}

type costIncidentPage struct {
	Incidents []*CostIncident `json:"incidents"`
	Next      string          `json:"next_page_token"`
}

// CostReport is the report of an incident.
type CostReport struct {
	CostIncident
	Tier           Tier         `json:"tier"`
	PolicyVersion  uint64       `json:"policy_version"`
	Factor         int          `json:"factor_permille"`
	Line           int          `json:"line_permille"`
	Recover        int          `json:"recover_permille"`
	PeakAt         time.Time    `json:"peak_at"`
	Calls          int64        `json:"calls"`
	RefusedCalls   int64        `json:"refused_calls"`
	Planned        float64      `json:"planned"`
	StoppedUsed    float64      `json:"used_until_stopped"`
	PredictedStop  time.Time    `json:"predicted_stop_at"` // what the first stage said
	PredictedTotal float64      `json:"predicted_credits"`
	Lifted         bool         `json:"lifted"`
	SpanSeconds    int          `json:"span_seconds"` // of a point of the timeline
	Timeline       []CostPoint  `json:"timeline"`
	Changes        []CostChange `json:"changes"`
	// The largest by credits, admitted or refused.
	Components  []CostShare  `json:"components"`
	Keys        []CostShare  `json:"keys"`
	Operations  []CostShare  `json:"operations"`
	Credentials []CostShare  `json:"credentials"`
	Advice      []CostAdvice `json:"advice"`
	Charge
}

// CostPoint is a span of a timeline.
type CostPoint struct {
	At      time.Time `json:"at"`
	Used    float64   `json:"used"`
	Refused float64   `json:"refused"`
	Calls   int64     `json:"calls"`
	Risk    int       `json:"risk_permille"`
	Stage   string    `json:"stage"`
}

// CostChange is a change of a stage.
type CostChange struct {
	At          time.Time `json:"at"`
	Component   string    `json:"component"`
	WholeTenant bool      `json:"whole_tenant"`
	From        string    `json:"from"`
	To          string    `json:"to"`
	Risk        int       `json:"risk_permille"`
	PerMinute   float64   `json:"used_per_minute"`
}

// CostShare is what one of its kind used.
type CostShare struct {
	Name    string  `json:"name"`
	Credits float64 `json:"credits"`
	Calls   int64   `json:"calls"`
}

// CostAdvice is a likely cause and what to do about it.
type CostAdvice struct {
	Cause  string `json:"cause"`
	Detail string `json:"detail"`
	Advice string `json:"advice"`
}

// CostIncidents returns the incidents of a tenant's cost breaker, the latest
// first: "" is the credential's own tenant, another one takes an operator's
// credential. See ListTenants.
func (c *Client) CostIncidents(ctx context.Context, tenant string) iter.Seq2[*CostIncident, error] {
	return list(ctx, c, call{method: http.MethodGet, path: inTenant(tenant, "quota", "incidents")},
		func(p *costIncidentPage) ([]*CostIncident, string) { return p.Incidents, p.Next })
}

// CostReport returns the report of an incident.
func (c *Client) CostReport(ctx context.Context, tenant, id string) (*CostReport, error) {
	return invoke[CostReport](ctx, c, call{method: http.MethodGet, path: inTenant(tenant, "quota", "incidents", id)})
}

// The forms of a report that is a document.
const (
	ReportHTML = "text/html"
	ReportPDF  = "application/pdf"
)

// CostReportDocument returns the report of an incident as a document of a form,
// ReportHTML or ReportPDF.
func (c *Client) CostReportDocument(ctx context.Context, tenant, id, form string) ([]byte, error) {
	out := &document{form: form}
	err := c.do(ctx, call{method: http.MethodGet, path: inTenant(tenant, "quota", "incidents", id), accept: form}, out)
	return out.body, err
}

// document is an answer that is not JSON.
type document struct {
	form string
	body []byte
}

// take takes the body of an answer, if it has the form that was asked for.
func (d *document) take(h http.Header, body []byte) error {
	if mediaType(h) != d.form {
		return fmt.Errorf("%w: it is not of the form that was asked for", ErrBadAnswer)
	}
	d.body = body
	return nil
}

// LiftedCost is the cost breaker after its stop was lifted.
type LiftedCost struct {
	CostBreaker CostBreaker `json:"cost_breaker"`
	Charge
}

// LiftCost lifts the stop of a tenant's cost breaker until the incident is over:
// "" is the credential's own tenant, another one takes an operator's credential.
func (c *Client) LiftCost(ctx context.Context, tenant string) (*LiftedCost, error) {
	return invoke[LiftedCost](ctx, c, call{method: http.MethodPost, path: inTenant(tenant, "quota", "cost-breaker", "reset"), changes: true})
}
