package kms

import (
	"context"
	"encoding/json/v2"
	"strings"
	"time"
	"uuid"
)

// Events tell people what happens beside requests: that a tenant comes to a
// limit, that a node is lost. They go to the log and to webhooks. An event
// holds nothing secret and little else: its fields are names, ids and numbers.

// EventType names what happened. The types are those of EventTypes.
type EventType string

// The types of events.
const (
	EventDaySoft       EventType = "quota.day_soft_limit"
	EventMonthSoft     EventType = "quota.month_soft_limit"
	EventBandwidthSoft EventType = "quota.bandwidth_soft_limit"

	EventCostRisk      EventType = "cost.risk"
	EventCostStopped   EventType = "cost.stopped"
	EventCostRecovered EventType = "cost.recovered"

	EventNodeDown EventType = "node.down"
	EventNodeOut  EventType = "node.out"
	EventNodeUp   EventType = "node.up"

	EventHotKey          EventType = "key.hot"
	EventDecryptFailures EventType = "key.decrypt_failures"
	EventDenials         EventType = "credential.denials"
	EventSuspicious      EventType = "credential.suspicious"
	EventRetries         EventType = "tenant.retries"
	EventGateTrips       EventType = "pool.gate_trips"
	EventPoolIdle        EventType = "pool.idle"
	EventPoolBusy        EventType = "pool.busy"
	EventPoolSaturated   EventType = "pool.saturated"
	EventOversold        EventType = "capacity.oversold"
	EventJournalLag      EventType = "journal.lag"

	EventSecretRolledBack EventType = "secret.rolled_back"
	EventSecretDamaged    EventType = "secret.damaged"

	EventProviderUnhealthy  EventType = "provider.unhealthy"
	EventProviderKeyInvalid EventType = "provider.key_invalid"
	EventRouteFailOver      EventType = "route.fail_over"
	EventRouteFailback      EventType = "route.failback"

	EventWebhookDisabled EventType = "webhook.disabled"
	EventsDropped        EventType = "events.dropped"
	EventTest            EventType = "webhook.test"
)

// Severity says how much an event is in need of a person.
type Severity string

// The severities.
const (
	SeverityInfo    Severity = "info"
	SeverityWarning Severity = "warning"
	SeverityError   Severity = "error"
)

// EventInfo is a type's row in the table of types of events.
type EventInfo struct {
	Type     EventType
	Severity Severity
	// Operators tells whether only the operators' webhooks get it. Others go to
	// those of the tenant that they are about, and to the operators'.
	Operators bool
	// Fields are what its events say beside what all say.
	Fields []string
	Doc    string
}

var eventTypes = []EventInfo{
	{Type: EventDaySoft, Severity: SeverityWarning, Fields: []string{"window", "used", "limit"},
		Doc: "a tenant has used the soft part of its day's credits: window is the day, used and limit are credits"},
	{Type: EventMonthSoft, Severity: SeverityWarning, Fields: []string{"window", "used", "limit"},
		Doc: "a tenant has used the soft part of its month's credits: window is the month, used and limit are credits"},
	{Type: EventBandwidthSoft, Severity: SeverityWarning, Fields: []string{"window", "used", "limit"},
		Doc: "a tenant has used the soft part of its day's bandwidth: window is the day, used and limit are bytes"},
	{Type: EventCostRisk, Severity: SeverityWarning, Fields: []string{"component", "whole_tenant", "stage", "before", "risk_permille", "credits_per_minute", "stops_at", "credits_at_stop", "exhausted_at"},
		Doc: "a stage of the cost breaker: at the present rate the day or month is used up long before its end; no_bulk refuses bulk work, marked marks answers, calm is over; stops_at and credits_at_stop are when everything will be refused and what the incident will have used by then"},
	{Type: EventCostStopped, Severity: SeverityError, Fields: []string{"component", "whole_tenant", "stage", "before", "risk_permille", "credits_per_minute", "stops_at", "credits_at_stop", "exhausted_at"},
		Doc: "the cost breaker refuses everything of a component, or of the tenant, until its use is low again for a minute or an administrator lifts the stop"},
	{Type: EventCostRecovered, Severity: SeverityInfo, Fields: []string{"incident", "lasted_seconds", "credits_used", "credits_over", "credits_refused", "causes"},
		Doc: "an incident of the cost breaker is over, and its report is there: `sluice quota incidents ID`; credits_over is what was used beyond the plan"},
	{Type: EventNodeDown, Severity: SeverityError, Operators: true, Fields: []string{"node", "api_node"},
		Doc: "an API node has lost an HSM node and goes on trying it"},
	{Type: EventNodeOut, Severity: SeverityError, Operators: true, Fields: []string{"node", "api_node"},
		Doc: "an API node has given an HSM node up until an operator enables it"},
	{Type: EventNodeUp, Severity: SeverityInfo, Operators: true, Fields: []string{"node", "api_node"},
		Doc: "an HSM node that was down or out serves again"},
	{Type: EventHotKey, Severity: SeverityWarning, Fields: []string{"state", "api_node", "key"},
		Doc: "most calls with a key were refused, so its hot-spot breaker holds all of them back for moments"},
	{Type: EventDecryptFailures, Severity: SeverityWarning, Fields: []string{"state", "api_node", "key", "failures"},
		Doc: "more than 20 calls a minute with a key could not decrypt what they were given"},
	{Type: EventDenials, Severity: SeverityWarning, Fields: []string{"state", "api_node", "credential", "denials"},
		Doc: "a credential asked more than 20 times in a minute for what it may not do or have"},
	{Type: EventSuspicious, Severity: SeverityWarning, Fields: []string{"credential", "action", "signals", "text"},
		Doc: "a credential was used in a way that is unusual for it: signals are names, text says them with numbers, action is what followed"},
	{Type: EventRetries, Severity: SeverityWarning, Fields: []string{"state", "api_node", "calls", "early", "spike"},
		Doc: "more than a tenth of a tenant's calls of a minute came before the Retry-After that it was given was over, or its calls came together when it was: spike times as many in that second as in others"},
	{Type: EventGateTrips, Severity: SeverityWarning, Operators: true, Fields: []string{"state", "api_node", "domain", "trips"},
		Doc: "utilisation came to the gate's hard line more than 3 times in an hour"},
	{Type: EventPoolIdle, Severity: SeverityInfo, Operators: true, Fields: []string{"state", "api_node", "domain", "percent"},
		Doc: "less than 60 % of a domain's slots were in use for 15 minutes"},
	{Type: EventPoolBusy, Severity: SeverityWarning, Operators: true, Fields: []string{"state", "api_node", "domain", "percent"},
		Doc: "more than 85 % of a domain's slots were in use for 15 minutes"},
	{Type: EventPoolSaturated, Severity: SeverityError, Operators: true, Fields: []string{"state", "api_node", "domain", "percent"},
		Doc: "more than 95 % of a domain's slots were in use for a minute"},
	{Type: EventOversold, Severity: SeverityWarning, Operators: true, Fields: []string{"state", "api_node", "committed", "sellable"},
		Doc: "more credits a second are promised to tenants than the HSMs can do with safety"},
	{Type: EventJournalLag, Severity: SeverityError, Operators: true, Fields: []string{"state", "api_node", "seconds"},
		Doc: "entries have waited for the journal's disk for more than 10 seconds"},
	{Type: EventSecretRolledBack, Severity: SeverityError, Fields: []string{"secret", "path", "version", "back_to", "credential_errors", "calls"},
		Doc: "a provider refused the new version of a secret more often than the one before, which has all calls again"},
	{Type: EventSecretDamaged, Severity: SeverityError, Fields: []string{"secret", "path", "version"},
		Doc: "the stored value of a secret is not authentic and is handed out to nobody: somebody changed the database; told once a day"},
	{Type: EventProviderUnhealthy, Severity: SeverityError, Fields: []string{"route", "target", "cause", "generation"},
		Doc: "the endpoint of a route's target fails, and its breaker is open: cause is endpoint, latency or probe"},
	{Type: EventProviderKeyInvalid, Severity: SeverityError, Fields: []string{"route", "target", "version", "generation"},
		Doc: "a provider takes a version of a key no more"},
	{Type: EventRouteFailOver, Severity: SeverityWarning, Fields: []string{"route", "target", "cause", "share", "generation"},
		Doc: "the calls of a route's target begin to go to others: share is the part that it still gets, in hundredths"},
	{Type: EventRouteFailback, Severity: SeverityInfo, Fields: []string{"route", "target", "cause", "share", "generation"},
		Doc: "a route's target gets calls again: share is the part that it gets now, 100 at the end"},
	{Type: EventWebhookDisabled, Severity: SeverityWarning, Fields: []string{"webhook", "failing_since"},
		Doc: "a webhook has failed for so long that nothing more is sent to it"},
	{Type: EventsDropped, Severity: SeverityWarning, Fields: []string{"count"},
		Doc: "a webhook of the tenant has more events waiting than are kept; the oldest were dropped"},
	{Type: EventTest, Severity: SeverityInfo, Fields: []string{"webhook"},
		Doc: "sent when it is asked for, to the webhook that it is asked for"},
}

// EventTypes returns the table of types. The caller must not change it.
func EventTypes() []EventInfo { return eventTypes }

// Info returns the type's row, nil for an unknown type.
func (e EventType) Info() *EventInfo {
	for i := range eventTypes {
		if eventTypes[i].Type == e {
			return &eventTypes[i]
		}
	}
	return nil
}

// Event is one thing that happened.
type Event struct {
	ID   uuid.UUID // UUIDv7
	Type EventType
	Time time.Time
	// Tenant is whom it is about; zero: the service.
	Tenant uuid.UUID
	Fields []EventField
	// Once is the same for what several API nodes notice of one happening,
	// which is then told to each webhook once. "": each event is of its own.
	Once string
}

// EventField is a detail of an event.
type EventField struct{ Name, Value string }

// Events takes events. Publish does not block and does not fail: what cannot be
// taken is counted and logged.
type Events interface {
	Publish(e Event)
}

// WebhookState is the state of a webhook.
type WebhookState string

// The states of a webhook.
const (
	WebhookActive   WebhookState = "ACTIVE"
	WebhookDisabled WebhookState = "DISABLED" // failed for too long; it can only be deleted
)

// Webhook is an address to which a tenant's events are sent.
type Webhook struct {
	ID     uuid.UUID
	Tenant uuid.UUID
	URL    string
	// Types are those that it gets; empty: all that its tenant may have.
	Types []EventType
	// Secret is what its deliveries are signed with, sealed under the tenant's
	// sealing key: see WebhookSecretName.
	Secret   []byte
	State    WebhookState
	Created  time.Time
	Revision uint64 // grows by one with every change, from 1

	// FailingSince is when the first of the failures in a row was, zero while
	// it does not fail; Delivered is when it last took an event. They are no
	// state: they change without the revision.
	FailingSince, Delivered time.Time
}

// Wants tells whether a webhook gets events of a type about a tenant. operators
// tells whether it is one of the operators'.
func (w *Webhook) Wants(e *Event, operators bool) bool {
	info := e.Type.Info()
	if w.State != WebhookActive || info == nil || info.Operators && !operators {
		return false
	}
	if len(w.Types) == 0 {
		return true
	}
	for _, t := range w.Types {
		if t == e.Type {
			return true
		}
	}
	return false
}

// WebhookSecretName names a webhook's secret to Device.Seal; its version is 1.
func WebhookSecretName(id uuid.UUID) string { return "webhook " + id.String() }

// Webhooks stores webhooks. Another tenant's webhook and a missing one give
// ErrNotFound.
type Webhooks interface {
	// CreateWebhook: KindConflict when the tenant has MaxWebhooks already.
	CreateWebhook(ctx context.Context, w *Webhook) error
	Webhook(ctx context.Context, tenant, id uuid.UUID) (*Webhook, error)
	// ListWebhooks returns a page of a tenant's webhooks in the order in which
	// they were made.
	ListWebhooks(ctx context.Context, tenant uuid.UUID, page Page) ([]*Webhook, string, error)
	// DisableWebhook sets the state, if the revision is still the given one;
	// KindPreconditionFailed otherwise.
	DisableWebhook(ctx context.Context, tenant, id uuid.UUID, revision uint64) error
	// DeleteWebhook removes it with what waits for it.
	DeleteWebhook(ctx context.Context, tenant, id uuid.UUID) error
}

// MaxWebhookURL bounds the URL of a webhook in bytes.
const MaxWebhookURL = 2048

// MaxWebhooks is how many webhooks a tenant has at most: what it does and does
// not get is then decided in one read.
const MaxWebhooks = 16

// Delivery is an event on its way to a webhook.
type Delivery struct {
	Tenant  uuid.UUID // whose webhook it is
	Webhook uuid.UUID
	Event   uuid.UUID
	Once    string // of the event, its id where it has none
	Type    EventType
	Body    []byte // what is sent, the same every time
	Created time.Time
	// Attempts is how often it was tried, this time included.
	Attempts int
}

// Deliveries is the durable queue of deliveries. Each API node sends what it
// claims.
type Deliveries interface {
	// Enqueue stores deliveries to webhooks of one tenant, all or none, but for
	// those that the webhook had before (the same Once) and those whose webhook
	// is gone. Of a webhook for which more than MaxWaiting
	// wait the oldest are dropped; it returns how many.
	Enqueue(ctx context.Context, tenant uuid.UUID, list []Delivery) (dropped int, err error)
	// ClaimDeliveries takes deliveries that are due, and nobody else gets them
	// until the lease is over: at most one of a webhook and MaxClaims of a
	// tenant at a time, none of the tenants that are busy.
	ClaimDeliveries(ctx context.Context, lease time.Duration, busy []uuid.UUID, limit int) ([]Delivery, error)
	// EndDelivery ends one that was taken or given up.
	EndDelivery(ctx context.Context, d *Delivery) error
	// RetryDelivery makes one due again at a time.
	RetryDelivery(ctx context.Context, d *Delivery, due time.Time) error
	// NoteDelivery notes of a webhook that it took an event, or that it failed.
	NoteDelivery(ctx context.Context, tenant, webhook uuid.UUID, taken bool) error
}

// Bounds of the queue.
const (
	// MaxWaiting is how many deliveries are kept for one webhook.
	MaxWaiting = 1000
	// MaxClaims is how many deliveries of one tenant are claimed at once: its
	// dead receivers take up no more of a sender.
	MaxClaims = 2
	// DeliveriesKept is how long a delivery that has ended is kept, so that what
	// another API node notices later is not sent again: longer than a month,
	// which is the longest that happenings last.
	DeliveriesKept = 32 * 24 * time.Hour
	// MaxEventBody bounds the body of a delivery in bytes.
	MaxEventBody = 4096
)

// eventBody is an event as it is sent.
type eventBody struct {
	ID        uuid.UUID         `json:"id"`
	Type      EventType         `json:"type"`
	Timestamp time.Time         `json:"timestamp"`
	Severity  Severity          `json:"severity"`
	Tenant    string            `json:"tenant,omitzero"`
	Data      map[string]string `json:"data"`
}

// Delivery makes the delivery of an event to a webhook. Its body is JSON:
//
//	{"id": …, "type": …, "timestamp": …, "severity": …, "tenant": …, "data": {…}}
//
// KindInternal when it is longer than MaxEventBody.
func (e *Event) Delivery(w *Webhook) (Delivery, error) {
	body := eventBody{ID: e.ID, Type: e.Type, Timestamp: e.Time.UTC(), Data: make(map[string]string, len(e.Fields))}
	if info := e.Type.Info(); info != nil {
		body.Severity = info.Severity
	}
	if e.Tenant != uuid.Nil() {
		body.Tenant = e.Tenant.String()
	}
	for _, f := range e.Fields {
		body.Data[f.Name] = strings.ToValidUTF8(f.Value, "\uFFFD")
	}
	text, err := json.Marshal(&body, json.Deterministic(true))
	if err != nil || len(text) > MaxEventBody {
		return Delivery{}, Wrap(KindInternal, err, "the event cannot be written")
	}
	d := Delivery{Tenant: w.Tenant, Webhook: w.ID, Event: e.ID, Once: e.Once, Type: e.Type, Body: text, Created: e.Time, Attempts: 0}
	if d.Once == "" {
		d.Once = e.ID.String()
	}
	return d, nil
}
