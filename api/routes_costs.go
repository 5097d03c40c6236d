package api

import (
	"net/http"
	"time"

	"github.com/sluice-kms/sluice/kms"
)

// The forms of an incident's report beside our JSON.
const (
	mediaHTML = "text/html"
	mediaPDF  = "application/pdf"
)

// CostReports write the report of an incident down.
type CostReports interface {
	// HTML is a page that needs nothing else.
	HTML(i *kms.CostIncident) ([]byte, error)
	PDF(i *kms.CostIncident) ([]byte, error)
}

func costRoutes(a administration) []Route {
	incidents := a.prefix + "/quota/incidents"
	return []Route{
		define(Route{Name: a.name + "list-cost-incidents", Group: a.group, Method: http.MethodGet, Path: incidents, Op: kms.OpReadQuota,
			Errors: makeErrors, Query: pageParameters, Summary: "List incidents of the cost breaker",
			Description: "Those of the last 400 days, at most 100. Each API node has its own part of an incident."},
			func(c *call, _ *NoBody) (*CostIncidentListResponse, error) {
				list, next, err := c.service.CostIncidents(c.context, &c.ticket, a.tenant(c), c.page())
				if err != nil {
					return nil, err
				}
				out := &CostIncidentListResponse{Incidents: make([]CostIncidentSummary, len(list)), NextPageToken: next, Charge: c.charge()}
				for i := range list {
					out.Incidents[i] = costSummary(list[i])
				}
				return out, nil
			}),
		define(Route{Name: a.name + "describe-cost-incident", Group: a.group, Method: http.MethodGet, Path: incidents + "/{incident}", Op: kms.OpReadQuota,
			Errors: keyErrors, Media: []string{mediaHTML, mediaPDF}, Summary: "Show the report of an incident of the cost breaker",
			Description: "Timeline, changes of stages, who used most, credits over the plan, likely causes and advice. JSON by default; a page or a PDF by Accept."},
			func(c *call, _ *NoBody) (*CostIncidentResponse, error) {
				i, err := c.service.CostIncident(c.context, &c.ticket, a.tenant(c), a.incident(c))
				if err != nil {
					return nil, err
				}
				return c.costReport(i)
			}),
		change(Route{Name: a.name + "lift-cost", Group: a.group, Method: http.MethodPost, Path: a.prefix + "/quota/cost-breaker/reset", Op: kms.OpLiftCost,
			Errors: makeErrors, Summary: "Lift the stop of the cost breaker",
			Description: "Everything is let through again until the incident is over; answers go on to be marked. The next incident is another one. Other API nodes follow within seconds."},
			func(c *call, _ *Empty) (*CostBreakerResponse, error) {
				b, err := c.service.LiftCost(c.context, &c.ticket, a.tenant(c))
				if err := c.carriedOut(err); err != nil {
					return nil, err
				}
				return &CostBreakerResponse{costBreakerOf(b), c.charge()}, nil
			},
			func(c *call, _ string) (*CostBreakerResponse, error) {
				b, err := c.service.ReplayLiftCost(c.context, &c.ticket, a.tenant(c))
				if err != nil {
					return nil, err
				}
				return &CostBreakerResponse{costBreakerOf(b), c.charge()}, nil
			}),
	}
}

// incident is the id of the incident: the last object.
func (a administration) incident(c *call) string { return a.credential(c) }

// costReport answers with the report in the form that is asked for.
func (c *call) costReport(i *kms.CostIncident) (*CostIncidentResponse, error) {
	var write func(*kms.CostIncident) ([]byte, error)
	media := preferred(c.request.Header["Accept"], c.route.Media)
	switch media {
	case mediaHTML:
		write = c.server.reports.HTML
		// The page is of names that clients chose: it may run and load nothing.
		c.set(c.Header(), "Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; sandbox")
	case mediaPDF:
		write = c.server.reports.PDF
	default:
		return costIncidentOf(i, c.charge()), nil
	}
	body, err := write(i)
	if err != nil {
		return nil, err
	}
	if media == mediaHTML {
		media += "; charset=utf-8"
	}
	c.answerRaw(media, body)
	return new(CostIncidentResponse), nil
}

func costBreakerOf(b *kms.CostBreaker) CostBreaker {
	out := CostBreaker{Enabled: b.Factor > 0, Risk: b.Risk, Line: b.Line, Recover: b.Recover, PerMinute: Cost(b.PerMinute), Allowed: Cost(b.Allowed),
		Exhausted: b.Exhausted.UTC(), Lifted: b.Lifted}
	for _, s := range b.Stages {
		out.Stages = append(out.Stages, CostStage{Component: s.Component, WholeTenant: s.Whole, Stage: stageName(s.Stage), Risk: s.Risk,
			PerMinute: Cost(s.PerMinute), StopsAt: s.StopsAt.UTC(), StopCredits: Cost(s.StopCredits)})
	}
	return out
}

func costSummary(i *kms.CostIncident) CostIncidentSummary {
	out := CostIncidentSummary{ID: i.ID, Node: i.Node, Began: i.Began.UTC(), Ended: i.Ended.UTC(), Stopped: i.Stopped.UTC(), PeakRisk: i.PeakRisk,
		Used: Cost(i.Used), Over: Cost(i.Over), Refused: Cost(i.Refused), Causes: make([]string, len(i.Causes))}
	if len(i.Components) > 0 {
		out.Component = i.Components[0].Name
	}
	for n, c := range i.Causes {
		out.Causes[n] = c.Code
	}
	return out
}

func costIncidentOf(i *kms.CostIncident, charge Charge) *CostIncidentResponse {
	out := &CostIncidentResponse{CostIncidentSummary: costSummary(i), Tier: i.Tier, PolicyVersion: i.PolicyVersion,
		Factor: i.Factor, Line: i.Line, Recover: i.Recover, PeakAt: i.PeakAt.UTC(), Calls: i.Calls, RefusedCalls: i.RefusedCalls,
		Planned: Cost(i.Planned), StoppedUsed: Cost(i.StoppedUsed), PredictedStop: i.Predicted.StopsAt.UTC(), PredictedTotal: Cost(i.Predicted.Credits),
		Lifted: i.Lifted, SpanSeconds: i.SpanSeconds, Timeline: make([]CostPoint, len(i.Timeline)), Changes: make([]CostChange, len(i.Changes)),
		Components: costShares(i.Components), Keys: costShares(i.Keys), Operations: costShares(i.Operations), Credentials: costShares(i.Credentials),
		Advice: make([]CostAdvice, len(i.Causes)), Charge: charge}
	for n, p := range i.Timeline {
		at := i.Began.Add(time.Duration(n*i.SpanSeconds) * time.Second)
		out.Timeline[n] = CostPoint{At: at.UTC(), Used: Cost(p.Used), Refused: Cost(p.Refused), Calls: p.Calls, Risk: p.Risk, Stage: stageName(p.Stage)}
	}
	for n, c := range i.Changes {
		out.Changes[n] = CostChange{At: c.At.UTC(), Component: c.Component, WholeTenant: c.Whole, From: stageName(c.From), To: stageName(c.To),
			Risk: c.Risk, PerMinute: Cost(c.PerMinute)}
	}
	for n, c := range i.Causes {
		out.Advice[n] = CostAdvice{c.Code, c.Detail, c.Advice}
	}
	return out
}

func stageName(s kms.CostStage) StageName { return StageName(s.String()) }

func costShares(list []kms.CostShare) []CostShare {
	out := make([]CostShare, len(list))
	for i, s := range list {
		out[i] = CostShare{s.Name, Cost(s.Credits), s.Calls}
	}
	return out
}
