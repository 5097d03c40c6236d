package kms

import (
	"context"
	"time"
	"uuid"
)

// CostStage is how far the cost breaker of a tenant, or of a component, has
// gone. Each stage has the effects of those before it.
type CostStage int

// The stages.
const (
	CostCalm    CostStage = iota
	CostNoBulk            // bulk work and batches are refused
	CostMarked            // answers say when the quota will be used up
	CostStopped           // everything is refused but administration
)

// String is the stage's name in answers, events and reports.
func (s CostStage) String() string {
	switch s {
	case CostNoBulk:
		return "no_bulk"
	case CostMarked:
		return "marked"
	case CostStopped:
		return "stopped"
	}
	return "calm"
}

// CostBreaker is the state of a tenant's cost breaker. Risks are in thousandths.
type CostBreaker struct {
	// Factor is that of the risk; 0: the breaker is off.
	Factor        int
	Risk          int
	Line, Recover int
	PerMinute     Credits // used in the last minute
	Allowed       Credits // what the rest of the day or month allows a minute
	Exhausted     time.Time
	Lifted        bool // the stop was lifted until the incident is over
	// Stages are those of the whole tenant ("") and of components that are not
	// calm.
	Stages []CostStaged
}

// CostStaged is a component that has come to a stage; "": the whole tenant.
type CostStaged struct {
	Component string
	Whole     bool // it is the tenant without the components that have stages of their own
	Stage     CostStage
	Risk      int
	PerMinute Credits
	// StopsAt is when everything will be refused, or was, and StopCredits what
	// it will have used of the incident by then: both as the first stage said,
	// if the use goes on as it was.
	StopsAt     time.Time
	StopCredits Credits
}

// CostIncident is what is known of a time in which a tenant's cost breaker was
// not calm: the one model of its report. It holds ids, names of components and
// numbers. It is what one API node saw.
type CostIncident struct {
	ID            uuid.UUID `json:"id"`
	Tenant        uuid.UUID `json:"tenant"`
	Node          string    `json:"node"` // the API node
	Began         time.Time `json:"began"`
	Ended         time.Time `json:"ended"`
	Tier          Tier      `json:"tier"`
	PolicyVersion uint64    `json:"policy_version"`
	Factor        int       `json:"factor"` // thousandths, as those that follow
	Line          int       `json:"line"`
	Recover       int       `json:"recover"`
	PeakRisk      int       `json:"peak_risk"`
	PeakAt        time.Time `json:"peak_at"`

	Used         Credits `json:"used"`    // admitted in the incident
	Refused      Credits `json:"refused"` // price of what the breaker refused
	Calls        int64   `json:"calls"`   // admitted
	RefusedCalls int64   `json:"refused_calls"`
	Planned      Credits `json:"planned"` // what the plan allowed when it began, for that time
	Over         Credits `json:"over"`    // Used beyond it

	// Stopped is when the last stage was entered, zero: it was not; StoppedUsed
	// is what was used by then. Predicted is what the first stage said.
	Stopped     time.Time      `json:"stopped,omitzero"`
	StoppedUsed Credits        `json:"stopped_used,omitzero"`
	Predicted   CostPrediction `json:"predicted"`
	Lifted      bool           `json:"lifted,omitzero"`

	SpanSeconds int          `json:"span_seconds"` // of a point of the timeline
	Timeline    []CostPoint  `json:"timeline"`
	Changes     []CostChange `json:"changes"`

	// The largest by credits, admitted or refused. Sums are bounds from above
	// when there were more than are kept.
	Components  []CostShare `json:"components"`
	Keys        []CostShare `json:"keys"`
	Operations  []CostShare `json:"operations"`
	Credentials []CostShare `json:"credentials"`

	Causes []CostCause `json:"causes"` // the most likely first
}

// CostPrediction is what is expected of a use that goes on as it is.
type CostPrediction struct {
	StopsAt time.Time `json:"stops_at,omitzero"`
	Credits Credits   `json:"credits,omitzero"`
}

// CostPoint is a span of an incident's timeline.
type CostPoint struct {
	Used    Credits   `json:"used"`
	Refused Credits   `json:"refused,omitzero"`
	Calls   int64     `json:"calls"` // refused ones too
	Risk    int       `json:"risk"`  // the highest
	Stage   CostStage `json:"stage"` // the highest
}

// CostChange is a change of a stage.
type CostChange struct {
	At        time.Time `json:"at"`
	Component string    `json:"component"`
	Whole     bool      `json:"whole,omitzero"`
	From      CostStage `json:"from"`
	To        CostStage `json:"to"`
	Risk      int       `json:"risk"`
	PerMinute Credits   `json:"per_minute"`
}

// CostShare is what one of its kind used of an incident.
type CostShare struct {
	Name    string  `json:"name"`
	Credits Credits `json:"credits"`
	Calls   int64   `json:"calls"`
}

// CostCause is a likely cause of an incident, with what to do about it.
type CostCause struct {
	Code   string `json:"code"`
	Detail string `json:"detail"` // what speaks for it
	Advice string `json:"advice"`
}

// The codes of causes.
const (
	CauseRetryLoop   = "RETRY_LOOP"
	CauseDataKeys    = "DATA_KEYS_NOT_CACHED"
	CauseBulk        = "BULK_WORK"
	CauseHotKey      = "HOT_KEY"
	CauseOneCaller   = "ONE_CALLER"
	CauseQuotaTooLow = "QUOTA_TOO_SMALL"
)

// Bounds of what is kept of incidents.
const (
	// MaxCostIncidents is how many are kept of a tenant: of more the oldest go.
	MaxCostIncidents = 100
	// CostIncidentsKept is for how long: longer than the year in which somebody
	// asks about a bill.
	CostIncidentsKept = 400 * 24 * time.Hour
	// MaxCostIncidentSize bounds a stored one in bytes.
	MaxCostIncidentSize = 128 << 10
)

// CostIncidents stores the incidents of cost breakers, and when their stops
// were lifted. Another tenant's incident and a missing one give ErrNotFound.
type CostIncidents interface {
	// AddCostIncident stores an incident, and removes the tenant's oldest beyond
	// MaxCostIncidents. One that is there already is left as it is.
	AddCostIncident(ctx context.Context, i *CostIncident) error
	CostIncident(ctx context.Context, tenant, id uuid.UUID) (*CostIncident, error)
	// ListCostIncidents returns a page of a tenant's incidents, the latest first.
	ListCostIncidents(ctx context.Context, tenant uuid.UUID, page Page) ([]*CostIncident, string, error)
	// NoteCostLift notes that a tenant's incidents of this moment are not to stop it.
	NoteCostLift(ctx context.Context, tenant uuid.UUID) error
	// CostLifted returns when that was noted last; zero: never.
	CostLifted(ctx context.Context, tenant uuid.UUID) (time.Time, error)
}
