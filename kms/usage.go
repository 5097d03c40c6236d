package kms

import (
	"time"
	"uuid"
)

// Granularity is the length of the periods by which usage is summed up. All
// periods are those of UTC.
type Granularity string

// The granularities.
const (
	ByMinute Granularity = "minute"
	ByHour   Granularity = "hour"
	ByDay    Granularity = "day"
)

// Granularities returns all, the shortest first. The caller must not change
// it.
func Granularities() []Granularity { return granularities }

var granularities = []Granularity{ByMinute, ByHour, ByDay}

// Period is the length of a period.
func (g Granularity) Period() time.Duration {
	switch g {
	case ByMinute:
		return time.Minute
	case ByHour:
		return time.Hour
	}
	return 24 * time.Hour
}

// Start is the beginning of the period that a time lies in.
func (g Granularity) Start(t time.Time) time.Time { return t.UTC().Truncate(g.Period()) }

// Dimension is what usage can be told apart by.
type Dimension string

// The dimensions. Only operators who read the usage of all tenants may use
// DimensionTenant.
const (
	DimensionTenant    Dimension = "tenant"
	DimensionProject   Dimension = "project"
	DimensionComponent Dimension = "component"
	DimensionKey       Dimension = "key"
	DimensionAlgorithm Dimension = "algorithm"
	DimensionOperation Dimension = "operation"
	DimensionReason    Dimension = "reason"
	DimensionPolicy    Dimension = "policy"
)

// Dimensions returns all, in the order in which rows are sorted. The caller
// must not change it.
func Dimensions() []Dimension { return dimensions }

var dimensions = []Dimension{DimensionTenant, DimensionProject, DimensionComponent, DimensionKey,
	DimensionAlgorithm, DimensionOperation, DimensionReason, DimensionPolicy}

// The reasons of usage that no refusal has.
const (
	// UsageDryRun is that of requests that were only priced.
	UsageDryRun = "dry_run"
	// UsageReplayed is that of requests that were carried out before.
	UsageReplayed = "replayed"
)

// UsageKey is what a row of usage is of. Where rows are grouped, dimensions by
// which they are not are zero.
type UsageKey struct {
	Tenant    uuid.UUID // zero: nobody was authenticated
	Project   string
	Component string
	Key       uuid.UUID // zero: it acted on none
	// Algorithm is the spec of the key where the operation has no algorithm.
	Algorithm string
	Operation Op
	// Reason is why the requests were not served: "" they were; the reason that
	// refused them, or the kind of the error; UsageDryRun, UsageReplayed.
	Reason string
	Policy uint64 // the version of the policy, with its cost table, that decided
}

// UsageSum is how much was used.
type UsageSum struct {
	Requests int64
	Charged  Credits
	Bytes    int64 // of input
	SlotTime time.Duration
	Wait     time.Duration // for slots
}

// Add adds another sum.
func (s *UsageSum) Add(o UsageSum) {
	s.Requests += o.Requests
	s.Charged += o.Charged
	s.Bytes += o.Bytes
	s.SlotTime += o.SlotTime
	s.Wait += o.Wait
}

// UsageRow is the usage of a period.
type UsageRow struct {
	Start time.Time // of the period
	UsageKey
	UsageSum
}

// Usage tells what an entry of the journal counts for; ok is false for an
// intent, whose outcome counts.
func (e *Entry) Usage() (key UsageKey, sum UsageSum, ok bool) {
	if e.Phase != PhaseOutcome {
		return key, sum, false
	}
	key = UsageKey{Tenant: e.Tenant, Project: e.Project, Component: e.Component, Key: e.Key, Algorithm: string(e.Algorithm),
		Operation: e.Op, Reason: e.usageReason(), Policy: e.PolicyVersion}
	if key.Algorithm == "" {
		key.Algorithm = string(e.Spec)
	}
	sum = UsageSum{Requests: 1, Charged: e.Charged, Bytes: int64(e.Bytes), SlotTime: e.SlotTime, Wait: e.Wait}
	if e.Op != OpRewrapKeys { // whose Count is of versions
		sum.Requests = int64(max(e.Count, 1))
	}
	if e.DryRun {
		sum.Bytes = 0 // nothing was done with them
	}
	return key, sum, true
}

func (e *Entry) usageReason() string {
	switch {
	case e.Outcome == "ok" && e.DryRun:
		return UsageDryRun
	case e.Outcome == "ok" && e.Replayed:
		return UsageReplayed
	case e.Outcome == "ok":
		return "" // what it waited for is no reason not to be served
	}
	for i := range e.Reasons {
		if e.Reasons[i].Waited == 0 {
			return e.Reasons[i].Code
		}
	}
	return e.Outcome
}

// UsageQuery asks for usage.
type UsageQuery struct {
	// Tenant is whose usage; zero: everybody's, for operators.
	Tenant      uuid.UUID
	Granularity Granularity
	From, To    time.Time // periods that begin at From or later and before To
	// By are the dimensions of the rows beside the period.
	By []Dimension
	// Where keeps usage of these values only; Tenant is not one of them.
	Where map[Dimension]string
}

// MaxUsageRows bounds an answer. It is 24 hours by the minute of seven groups.
const MaxUsageRows = 10_000

// MaxUsagePeriods bounds the periods of one question: a week by the minute, a
// year by the hour, a life by the day.
const MaxUsagePeriods = 10_080

// Bill is what a tenant is charged for a day of UTC.
type Bill struct {
	Tenant uuid.UUID
	Day    time.Time
	// Lines are by project, component, key and the version of the policy.
	Lines []UsageRow
	Total UsageSum
	// Nodes tell up to when the bill is complete.
	Nodes []ShippedNode
}
