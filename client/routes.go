package client

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"time"
)

// RouteTarget is a provider's endpoint with the key for it.
type RouteTarget struct {
	Name     string `json:"name"` // unique in the route
	Provider string `json:"provider"`
	BaseURL  string `json:"base_url"`
	Region   string `json:"region"`
	// RetentionDays is for how long the provider keeps what it is sent.
	RetentionDays int `json:"retention_days,omitzero"`
	// Capabilities are what the provider may do with a call.
	Capabilities []string `json:"capabilities,omitempty"`
	Secret       string   `json:"secret,omitzero"` // path of the key; "": none is needed
}

// Route says over which providers the calls of some models go.
type Route struct {
	Name      string        `json:"name"`
	Models    []string      `json:"models"`
	Primary   RouteTarget   `json:"primary"`
	Fallbacks []RouteTarget `json:"fallbacks"` // in the order in which they are tried
	// Weights are the parts of the calls while all is well, by target, in
	// hundredths.
	Weights map[string]uint32 `json:"weights"`
	// AuthHeader is "authorization: bearer", or the name of the header that
	// holds the key.
	AuthHeader      string       `json:"auth_header"`
	Residency       string       `json:"residency,omitzero"` // the region that no call leaves
	LocalLastResort *RouteTarget `json:"local_last_resort,omitzero"`
	CreatedAt       time.Time    `json:"created_at"`
	Revision        uint64       `json:"revision"` // grows by one with every change
}

// RouteOutput is a route as one call returns it.
type RouteOutput struct {
	Route
	Charge
}

// RouteStatus is a route with the order to use now.
type RouteStatus struct {
	Route
	Order RouteOrder `json:"order"`
	Charge
}

// RouteOrder is how to spread calls now. First attempts go to the targets by
// their weights; what fails may be tried on the next RetriesPerRequest targets of
// the list, as long as Retries lasts.
type RouteOrder struct {
	Generation uint64        `json:"generation"` // for the next report
	Targets    []RouteChoice `json:"targets"`    // all of them, the best first
	// Panic tells that no target is good: then they are tried one at a time, by
	// who has a lease.
	Panic bool `json:"panic"`
	// Retries is how often calls that failed may be tried on another target until
	// the next report, each of them on RetriesPerRequest targets.
	Retries           int   `json:"retries"`
	RetriesPerRequest int   `json:"retries_per_request"`
	RetryAfterMS      int64 `json:"retry_after_ms,omitzero"`
}

// RouteChoice is a target in an order.
type RouteChoice struct {
	Target  string   `json:"target"`
	Weight  uint32   `json:"weight"` // its part of the first attempts, in hundredths
	Reasons []string `json:"reasons"`
	// State is healthy, suspect, unhealthy or recovering; Cause is what took its
	// calls away: endpoint, latency, probe, rate_limit or key.
	State    string    `json:"state"`
	Cause    string    `json:"cause,omitzero"`
	Since    time.Time `json:"since"`
	Endpoint string    `json:"endpoint"` // the endpoint's health, which no key spoils
	Breaker  string    `json:"breaker"`  // closed, open or half-open
	Until    time.Time `json:"until,omitzero"`
	// Keys are what is known of versions of its key, CoolDowns the models that a
	// version must leave alone for a while.
	Keys      []RouteKey  `json:"keys,omitempty"`
	CoolDowns []RouteCool `json:"cool_downs,omitempty"`
	// Lease lets its holder make one call, which is reported under this number
	// before LeaseUntil; 0: none.
	Lease      uint64    `json:"lease,omitzero"`
	LeaseUntil time.Time `json:"lease_until,omitzero"`
}

// RouteKey is what is known of a version of a key.
type RouteKey struct {
	Version uint32    `json:"version"`
	State   string    `json:"state"` // ok, refused, invalid or exhausted
	Until   time.Time `json:"until,omitzero"`
	// Validation is what the provider said when it was last tried out; nil: it
	// was not.
	Validation *KeyValidation `json:"validation,omitempty"`
}

// KeyValidation is what a provider said to a key that was tried out.
type KeyValidation struct {
	Status string    `json:"status"` // ok, invalid, exhausted or unknown
	Class  string    `json:"class"`  // of the answer; see the package outcome
	At     time.Time `json:"at"`
}

// RouteCool says that a version of a key must leave a model alone.
type RouteCool struct {
	Version uint32    `json:"version"`
	Model   string    `json:"model"`
	Until   time.Time `json:"until"`
}

// PutRouteInput is the input of PutRoute; what is absent has the default that
// the service's document tells of.
type PutRouteInput struct {
	Models           []string          `json:"models"`
	Primary          RouteTarget       `json:"primary"`
	Fallbacks        []RouteTarget     `json:"fallbacks,omitempty"`
	Weights          map[string]uint32 `json:"weights,omitempty"`
	AuthHeader       string            `json:"auth_header,omitzero"`
	Residency        string            `json:"residency,omitzero"`
	LocalLastResort  *RouteTarget      `json:"local_last_resort,omitzero"`
	ExpectedRevision uint64            `json:"expected_revision,omitzero"` // 0: any, or none
}

// PutRoute makes a route, or replaces the one of that name.
func (c *Client) PutRoute(ctx context.Context, name string, in PutRouteInput) (*RouteOutput, error) {
	return invoke[RouteOutput](ctx, c, call{method: http.MethodPut, path: []string{"v1", "routes", name}, in: in, changes: true})
}

// GetRoute returns a route with the order to use now for a model; "": for the
// route as a whole. Leases and retries come with ReportRoute only.
func (c *Client) GetRoute(ctx context.Context, name, model string) (*RouteStatus, error) {
	k := call{method: http.MethodGet, path: []string{"v1", "routes", name}}
	if model != "" {
		k.query = url.Values{"model": {model}}
	}
	return invoke[RouteStatus](ctx, c, k)
}

type routePage struct {
	Routes []*Route `json:"routes"`
	Next   string   `json:"next_page_token"`
}

// ListRoutes returns the routes, ordered by name. See ListTenants.
func (c *Client) ListRoutes(ctx context.Context) iter.Seq2[*Route, error] {
	return list(ctx, c, call{method: http.MethodGet, path: []string{"v1", "routes"}},
		func(p *routePage) ([]*Route, string) { return p.Routes, p.Next })
}

// DeletedRoute names a route that is gone.
type DeletedRoute struct {
	Name string `json:"name"`
	Charge
}

// DeleteRoute removes a route with what is known of its health.
func (c *Client) DeleteRoute(ctx context.Context, name string) (*DeletedRoute, error) {
	return invoke[DeletedRoute](ctx, c, call{method: http.MethodDelete, path: []string{"v1", "routes", name}, changes: true})
}

// RouteReport is what calls over a route came to since the last report.
type RouteReport struct {
	Generation uint64         `json:"generation,omitzero"` // of the order that they followed
	Model      string         `json:"model,omitzero"`      // whose order is asked for
	Items      []RouteOutcome `json:"items,omitempty"`
}

// RouteOutcome counts calls of a model over a target with a version of its key.
// The classes are those of the package outcome.
type RouteOutcome struct {
	Target       string `json:"target"`
	Model        string `json:"model"`
	Version      uint32 `json:"version,omitzero"`
	OK           uint32 `json:"ok,omitzero"`
	Credential   uint32 `json:"credential,omitzero"`
	Quota        uint32 `json:"quota,omitzero"`
	RateLimit    uint32 `json:"rate_limit,omitzero"`
	Transient    uint32 `json:"transient,omitzero"`
	Connections  uint32 `json:"connections,omitzero"` // those of Transient without an answer
	Retries      uint32 `json:"retries,omitzero"`     // those of all that had failed elsewhere before
	RetryAfterMS uint32 `json:"retry_after_ms,omitzero"`
	P99MS        uint32 `json:"p99_ms,omitzero"`
	Lease        uint64 `json:"lease,omitzero"` // under which the one call was made
}

// RouteReported is the order to use now, with what is granted to the reporter.
type RouteReported struct {
	Order RouteOrder `json:"order"`
	Charge
}

// ReportRoute tells what calls came to, and returns the order to use now. A
// report whose answer was lost may count twice.
func (c *Client) ReportRoute(ctx context.Context, name string, in RouteReport) (*RouteReported, error) {
	return invoke[RouteReported](ctx, c, call{method: http.MethodPost, path: []string{"v1", "routes", name, "report"}, in: in, prepares: true})
}
