package api

import (
	"time"

	"github.com/sluice-kms/sluice/kms"
)

// RouteTarget is a provider's endpoint with the key for it.
type RouteTarget struct {
	Name          string   `json:"name" doc:"Unique in the route: lower-case letters, digits and -_." example:"openai-eu"`
	Provider      string   `json:"provider" doc:"Lower-case letters, digits and -_." example:"openai"`
	BaseURL       string   `json:"base_url" doc:"https, a public address, no query" example:"https://api.openai.com/v1"`
	Region        string   `json:"region" doc:"Lower-case letters, digits and -" example:"eu-west-1"`
	RetentionDays int      `json:"retention_days,omitzero" doc:"For how long the provider keeps what it is sent; of others at most the primary's"`
	Capabilities  []string `json:"capabilities,omitempty" doc:"What the provider may do with a call; of others none that the primary has not" example:"[\"tools\"]"`
	Secret        string   `json:"secret,omitzero" doc:"Path of the key. Absent: it needs none" example:"llm/openai"`
}

// ProviderRoute says over which providers the calls of some models go.
type ProviderRoute struct {
	Name            string            `json:"name" example:"chat"`
	Models          []string          `json:"models" example:"[\"gpt-5\"]"`
	Primary         RouteTarget       `json:"primary"`
	Fallbacks       []RouteTarget     `json:"fallbacks" doc:"In the order in which they are tried"`
	Weights         map[string]uint32 `json:"weights" doc:"The parts of the calls while all is well, by target, in hundredths"`
	AuthHeader      string            `json:"auth_header" doc:"authorization: bearer, or the name of the header that holds the key" example:"authorization: bearer"`
	Residency       string            `json:"residency,omitzero" doc:"The region that no call leaves; absent: the primary's" example:"eu"`
	LocalLastResort *RouteTarget      `json:"local_last_resort,omitzero" doc:"The tenant's own, for when no other can take a call"`
	CreatedAt       time.Time         `json:"created_at"`
	Revision        uint64            `json:"revision" min:"1"`
}

// PutRouteRequest is the body of put-route.
type PutRouteRequest struct {
	Models           []string          `json:"models" api:"required" doc:"Whose calls take the route" maxlen:"MaxRouteModels" example:"[\"gpt-5\"]"`
	Primary          *RouteTarget      `json:"primary" api:"required"`
	Fallbacks        []RouteTarget     `json:"fallbacks" doc:"In the order in which they are tried. None may be in a region, keep what it is sent for longer, or have a capability, that the primary does not" maxlen:"MaxFallbacks"`
	Weights          map[string]uint32 `json:"weights" doc:"The parts of the calls while all is well, by target; they add up to 100. Absent: all go to the primary"`
	AuthHeader       string            `json:"auth_header" doc:"Absent: authorization: bearer" maxlen:"MaxRouteName" example:"x-api-key"`
	Residency        string            `json:"residency" doc:"The region that no call leaves: those of all targets are it, or begin with it and -. Absent: all have the primary's" maxlen:"MaxRegion" example:"eu"`
	LocalLastResort  *RouteTarget      `json:"local_last_resort" doc:"The tenant's own, for when no other can take a call"`
	ExpectedRevision uint64            `json:"expected_revision" doc:"The revision that the route must still have. Absent: any, or none"`
}

// RouteResponse is a route.
type RouteResponse struct {
	ProviderRoute
	Charge
}

// RouteListResponse is a page of routes.
type RouteListResponse struct {
	Routes        []ProviderRoute `json:"routes" doc:"Ordered by name"`
	NextPageToken string          `json:"next_page_token,omitzero" doc:"Absent at the end"`
	Charge
}

// RouteStatusResponse is a route with the order to use now.
type RouteStatusResponse struct {
	ProviderRoute
	Order RouteOrder `json:"order"`
	Charge
}

// DeletedRouteResponse says that a route is gone.
type DeletedRouteResponse struct {
	Name string `json:"name"`
	Charge
}

// RouteOrder is how to spread calls now.
type RouteOrder struct {
	Generation        uint64        `json:"generation" doc:"Grows with every change of a target's state; reports name it" min:"1"`
	Targets           []RouteChoice `json:"targets" doc:"All of them, the best first"`
	Panic             bool          `json:"panic" doc:"No target is good: they are tried one at a time, under leases"`
	Retries           int           `json:"retries" doc:"How often calls that failed may be tried on another target until the next report; 0 but in the answer to a report"`
	RetriesPerRequest int           `json:"retries_per_request" doc:"On how many further targets one call may be tried, by the policy" max:"10"`
	RetryAfterMS      int64         `json:"retry_after_ms,omitzero" doc:"When an order may be better, in a panic"`
}

// RouteChoice is a target in an order.
type RouteChoice struct {
	Target     string            `json:"target"`
	Weight     uint32            `json:"weight" doc:"Its part of the first attempts, in hundredths" max:"100"`
	Reasons    []kms.RouteReason `json:"reasons" doc:"Why it has its place and weight"`
	State      kms.TargetState   `json:"state" doc:"A suspect gets less; unhealthy: its calls leave it in steps of 10, 30 and 100 %; recovering: they come back in steps of 20, 50 and 100 %"`
	Cause      kms.TargetCause   `json:"cause,omitzero" doc:"What took its calls away: endpoint, latency and probe are faults of the endpoint, rate_limit and key are not"`
	Since      time.Time         `json:"since"`
	Endpoint   kms.TargetState   `json:"endpoint" doc:"The endpoint's health, which no key spoils"`
	Breaker    kms.BreakerState  `json:"breaker"`
	Until      time.Time         `json:"until,omitzero" doc:"When an unhealthy one is tried again"`
	Keys       []RouteKey        `json:"keys,omitempty" doc:"What is known of versions of its key"`
	CoolDowns  []RouteCool       `json:"cool_downs,omitempty" doc:"Models that a version must leave alone for a while"`
	Lease      uint64            `json:"lease,omitzero" doc:"Its holder may make one call, and reports it under this number before lease_until"`
	LeaseUntil time.Time         `json:"lease_until,omitzero"`
}

// RouteKey is what is known of a version of a key.
type RouteKey struct {
	Version uint32               `json:"version"`
	State   kms.ProviderKeyState `json:"state"`
	Until   time.Time            `json:"until,omitzero" doc:"When it may be tried again"`
	// Validation is nil for a key that was not tried out.
	Validation *KeyValidation `json:"validation,omitempty" doc:"What the provider said when the key was last tried out"`
}

// KeyValidation is what a provider said to a key that was tried out.
type KeyValidation struct {
	Status string    `json:"status" doc:"ok, invalid, exhausted, or unknown: the answer said nothing of the key"`
	Class  string    `json:"class" doc:"Of the answer: ok, credential, quota, rate_limit, transient or caller"`
	At     time.Time `json:"at"`
}

// RouteCool says that a version of a key must leave a model alone.
type RouteCool struct {
	Version uint32    `json:"version"`
	Model   string    `json:"model"`
	Until   time.Time `json:"until"`
}

// ReportRouteRequest is the body of report-route.
type ReportRouteRequest struct {
	Generation uint64      `json:"generation" doc:"Of the order that the calls followed: what is older than a target's last change of state says nothing of its endpoint"`
	Model      string      `json:"model" doc:"Whose order is asked for. Absent: of the route as a whole" maxlen:"MaxModel"`
	Items      []RouteItem `json:"items" doc:"Absent: the order is asked for, with a lease and retries" maxlen:"MaxRouteReportItems"`
}

// RouteItem counts what calls of a model over a target with a version of its key
// came to since the last report.
type RouteItem struct {
	Target       string `json:"target"`
	Model        string `json:"model"`
	Version      uint32 `json:"version" doc:"Absent: the target needs no key"`
	OK           uint32 `json:"ok" doc:"Calls that the provider carried out"`
	Credential   uint32 `json:"credential" doc:"Refusals of the key: 401, 403"`
	Quota        uint32 `json:"quota" doc:"Refusals because the account is out of credit: 402, 429 insufficient_quota"`
	RateLimit    uint32 `json:"rate_limit" doc:"429"`
	Transient    uint32 `json:"transient" doc:"Failures of the endpoint: 5xx, time-outs, connections, errors in a stream"`
	Connections  uint32 `json:"connections" doc:"Those of transient that got no answer"`
	Retries      uint32 `json:"retries" doc:"Those of all that had failed on another target before"`
	RetryAfterMS uint32 `json:"retry_after_ms" doc:"The longest that the provider asked to wait"`
	P99MS        uint32 `json:"p99_ms" doc:"Latency that 99 of 100 calls stayed below"`
	Lease        uint64 `json:"lease" doc:"Under which the one call was made"`
}

// ReportRouteResponse is the order to use now.
type ReportRouteResponse struct {
	Order RouteOrder `json:"order"`
	Charge
}
