package kms

import "time"

// TargetState says how much of its calls a target gets.
type TargetState string

// The states of a target. A SUSPECT one gets less, an UNHEALTHY one less and
// less and then nothing, a RECOVERING one more and more.
const (
	TargetHealthy    TargetState = "healthy"
	TargetSuspect    TargetState = "suspect"
	TargetUnhealthy  TargetState = "unhealthy"
	TargetRecovering TargetState = "recovering"
)

// TargetStates returns the states. The caller must not change them.
func TargetStates() []TargetState {
	return []TargetState{TargetHealthy, TargetSuspect, TargetUnhealthy, TargetRecovering}
}

// TargetCause says what took a target's calls away.
type TargetCause string

// The causes. Only CauseEndpoint, CauseLatency and CauseProbe are faults of the
// endpoint.
const (
	CauseEndpoint  TargetCause = "endpoint"
	CauseLatency   TargetCause = "latency"
	CauseProbe     TargetCause = "probe"
	CauseRateLimit TargetCause = "rate_limit"
	CauseKey       TargetCause = "key"
)

// ProviderKeyState is what is known of a version of a key.
type ProviderKeyState string

// The states of a key.
const (
	KeyOK        ProviderKeyState = "ok"
	KeyRefused   ProviderKeyState = "refused"   // some calls, not enough to call it invalid
	KeyInvalid   ProviderKeyState = "invalid"   // the provider takes it no more
	KeyExhausted ProviderKeyState = "exhausted" // its account is out of money
)

// RouteReason says why a target has its place and weight.
type RouteReason string

// The reasons.
const (
	RouteHealthy      RouteReason = "healthy"
	RouteSuspect      RouteReason = "suspect"
	RouteBreakerOpen  RouteReason = "breaker_open"
	RouteHalfOpen     RouteReason = "half_open"
	RouteProbeDown    RouteReason = "probe_down"
	RouteLatency      RouteReason = "latency"
	RouteRateLimited  RouteReason = "rate_limited"
	RouteCooling      RouteReason = "cooling"
	RouteKeyInvalid   RouteReason = "key_invalid"
	RouteKeyExhausted RouteReason = "key_exhausted"
	RouteKeyMissing   RouteReason = "key_missing"
	RouteSwitching    RouteReason = "switching"
	RouteFailback     RouteReason = "failback"
	RouteStandsIn     RouteReason = "stands_in" // it has a part of another's calls
	RouteLastResort   RouteReason = "last_resort"
	RoutePanic        RouteReason = "panic"
)

// RouteReasons returns the reasons. The caller must not change them.
func RouteReasons() []RouteReason {
	return []RouteReason{RouteHealthy, RouteSuspect, RouteBreakerOpen, RouteHalfOpen, RouteProbeDown, RouteLatency, RouteRateLimited, RouteCooling,
		RouteKeyInvalid, RouteKeyExhausted, RouteKeyMissing, RouteSwitching, RouteFailback, RouteStandsIn, RouteLastResort, RoutePanic}
}

// RouteOutcome counts what calls of a model over a target with a version of its
// key came to since the last report. The classes are those of client/outcome.
type RouteOutcome struct {
	Target  string
	Model   string
	Version uint32 // 0: the target needs no key
	OK      int64
	// Credential and Quota are about the key, RateLimit about key and model,
	// Transient about the endpoint.
	Credential, Quota, RateLimit, Transient int64
	// Connections are those of Transient that got no answer at all.
	Connections int64
	// Retries are those of the calls that had failed on another target before.
	Retries int64
	// RetryAfter is the longest that the provider asked to wait; 0: it did not.
	RetryAfter time.Duration
	// P99 is the latency that 99 of 100 calls stayed below; 0: not measured.
	P99 time.Duration
	// Lease is the lease under which the call was made: see RouteChoice.Lease.
	Lease uint64
}

// Calls is how many calls an outcome counts.
func (o *RouteOutcome) Calls() int64 {
	return o.OK + o.Credential + o.Quota + o.RateLimit + o.Transient
}

// RouteReport is what a gateway tells of a route.
type RouteReport struct {
	// Generation is that of the order by which the calls were made. What is
	// older than a target's last transition says nothing of its endpoint now.
	Generation uint64
	Outcomes   []RouteOutcome
}

// RouteOrder is how to spread calls now.
type RouteOrder struct {
	// Generation grows with every transition of a target.
	Generation uint64
	// Choices are all targets, the best first; never empty.
	Choices []RouteChoice
	// Panic tells that no target is good: then they are tried one at a time.
	Panic bool
	// Retries is how often the reporter may try a call that failed on another
	// target until its next report. Only reports are granted any.
	Retries int
	// RetriesPerRequest is on how many further targets one call may be tried.
	RetriesPerRequest int
	// RetryAfter is when an order may be better, in a panic.
	RetryAfter time.Duration
}

// RouteChoice is a target in an order.
type RouteChoice struct {
	Target  string
	Weight  uint32 // of the first attempts, in hundredths
	Reasons []RouteReason
	State   TargetState
	Cause   TargetCause // "" of a healthy one
	Since   time.Time   // of the state
	// Endpoint is the health of the endpoint alone, which no key spoils.
	Endpoint TargetState
	Breaker  BreakerState
	// Until is when an unhealthy one is tried again.
	Until time.Time
	Keys  []RouteKey
	Cools []RouteCool
	// Lease lets its holder make one call to a target that gets none, and report
	// it under this number before LeaseUntil; 0: none.
	Lease      uint64
	LeaseUntil time.Time
}

// RouteKey is what is known of a version of a target's key.
type RouteKey struct {
	Version uint32
	State   ProviderKeyState
	Until   time.Time // when it may be tried again; zero: now
	// Validation is what the provider said when it was last tried out; nil: it
	// was not.
	Validation *KeyValidation
}

// RouteCool says that a version of a key must leave a model alone for a while.
type RouteCool struct {
	Version uint32
	Model   string
	Until   time.Time
}

// RouteKeys are the versions of a target's key that may be used now.
type RouteKeys struct {
	Needed   bool // false: the target needs no key
	Versions []uint32
}

// RouteRules are the numbers by which the health of routes is decided, by the
// policy in force.
type RouteRules struct {
	// BreakerFailures in a row open an endpoint's breaker, for OpenFirst and then
	// twice as long each time, OpenLast at most.
	BreakerFailures     int64
	OpenFirst, OpenLast time.Duration
	// Switch are the parts of its calls that leave a failing target, ascending
	// to 100, one each SwitchTime; Failback those that a returning one gets, each
	// observed for FailbackTime.
	Switch, Failback         []uint32
	SwitchTime, FailbackTime time.Duration
	// LimitLasts is how long a rate limit lasts before it is a fail-over.
	LimitLasts time.Duration
	// An endpoint that answers none of ProbeFailures probes in a row, which are
	// made every ProbeTime, is down.
	ProbeFailures int
	ProbeTime     time.Duration
	// RetriesPerRequest is on how many further targets a call that failed may be
	// tried; 0: on none.
	RetriesPerRequest int
}

// DefaultRouteRules are the numbers of the default policy.
func DefaultRouteRules() RouteRules {
	return RouteRules{
		BreakerFailures: 5, OpenFirst: 2 * time.Minute, OpenLast: 15 * time.Minute,
		Switch: []uint32{10, 30, 100}, Failback: []uint32{20, 50, 100}, SwitchTime: time.Minute, FailbackTime: 5 * time.Minute,
		LimitLasts: 2 * time.Minute, ProbeFailures: 3, ProbeTime: 30 * time.Second, RetriesPerRequest: 1,
	}
}

// RouteView is what a decision on a route is made from beside its health.
type RouteView struct {
	Route *ProviderRoute
	Rules RouteRules
	Now   time.Time
	Model string // whose order is asked for; "": of the route as a whole
	// Keys are by the target's name.
	Keys map[string]RouteKeys
	// Down are the targets whose endpoint the service does not reach.
	Down map[string]bool
}

// RouteEvent is a transition that people are told of.
type RouteEvent struct {
	Type       EventType
	Target     string
	Cause      TargetCause
	Version    uint32 // of the key that it is about; 0: none
	Share      uint32 // of its calls that the target gets now, in hundredths
	Generation uint64
}

// RouteHealth decides on the health of routes. Its functions are pure: health is
// a document that only they read, nil for a route that nothing is known of.
type RouteHealth interface {
	// Order returns the order at a time. Nothing is granted.
	Order(v *RouteView, health []byte) (RouteOrder, error)
	// Report takes a report, and returns the next health, and the order with
	// what is granted to the reporter.
	Report(v *RouteView, health []byte, in *RouteReport) (next []byte, order RouteOrder, events []RouteEvent, err error)
	// Validated takes what trying a version of a target's key out came to.
	Validated(v *RouteView, health []byte, target string, version uint32, answer KeyValidation) (next []byte, events []RouteEvent, err error)
}
