package kms

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
	"time"
	"uuid"
)

// CostIncidents returns a page of the incidents of a tenant's cost breaker, the
// latest first: "" is the caller's own tenant, another one takes an operator.
func (s *Service) CostIncidents(ctx context.Context, t *Ticket, ref string, page Page) (list []*CostIncident, next string, err error) {
	err = s.onCosts(ctx, t, OpReadQuota, ref, func() error { return checkPage(page) }, func(ctx context.Context, tenant *Tenant) (err error) {
		list, next, err = s.incidents.ListCostIncidents(ctx, tenant.ID, page)
		return err
	})
	if err != nil {
		return nil, "", err
	}
	return list, next, nil
}

// CostIncident returns one of them.
func (s *Service) CostIncident(ctx context.Context, t *Ticket, ref, id string) (incident *CostIncident, err error) {
	err = s.onCosts(ctx, t, OpReadQuota, ref, nil, func(ctx context.Context, tenant *Tenant) error {
		parsed, ok := parseRef(id)
		if !ok {
			return ErrNotFound
		}
		incident, err = s.incidents.CostIncident(ctx, tenant.ID, parsed)
		return err
	})
	if err != nil {
		return nil, err
	}
	return incident, nil
}

// LiftCost ends the stop of a tenant, and of its components, until the incident
// is over, and returns the breaker as this API node sees it then. Other nodes
// follow within seconds.
func (s *Service) LiftCost(ctx context.Context, t *Ticket, ref string) (breaker *CostBreaker, err error) {
	err = s.onCosts(ctx, t, OpLiftCost, ref, nil, func(ctx context.Context, tenant *Tenant) error {
		if err := s.incidents.NoteCostLift(ctx, tenant.ID); err != nil {
			return err
		}
		s.accounts.LiftCost(tenant.ID, s.clock())
		breaker = new(CostBreaker)
		*breaker = s.accounts.Account(tenant).Cost
		return nil
	})
	if err != nil {
		return nil, err
	}
	return breaker, nil
}

// ReplayLiftCost is Replay for LiftCost: it returns the breaker as it is now.
func (s *Service) ReplayLiftCost(ctx context.Context, t *Ticket, ref string) (*CostBreaker, error) {
	var breaker CostBreaker
	err := s.replayOther(ctx, t, OpLiftCost, administers(OpLiftCost, ref), func(t *Ticket) error {
		tenant, err := s.target(ctx, t, ref)
		if err != nil {
			return err
		}
		t.onTenant(tenant)
		breaker = s.accounts.Account(tenant).Cost
		return nil
	})
	if err != nil {
		return nil, err
	}
	return &breaker, nil
}

// onCosts runs an operation on the cost breaker of the tenant that ref names.
func (s *Service) onCosts(ctx context.Context, t *Ticket, op Op, ref string, check func() error, do func(context.Context, *Tenant) error) error {
	var tenant *Tenant
	return s.run(ctx, t, &task{op: op, allowed: administers(op, ref),
		prepare: func(t *Ticket) (err error) {
			if check != nil {
				if err := check(); err != nil {
					return err
				}
			}
			if tenant, err = s.target(ctx, t, ref); err == nil {
				t.onTenant(tenant)
			}
			return err
		},
		store: func(ctx context.Context, _ *Ticket) error { return do(ctx, tenant) }})
}

// foundCostLift tells what became of a lift.
func (s *Service) foundCostLift(ctx context.Context, e *Entry) string {
	at, err := s.incidents.CostLifted(ctx, e.target())
	switch {
	case err != nil:
		return OutcomeFoundUnknown
	case at.Before(e.Time.Truncate(time.Microsecond)): // as times are stored
		return OutcomeFoundUndone
	}
	return OutcomeFoundChanged
}

// costOnce is how far the beginnings of one incident can lie apart that several
// API nodes see.
const costOnce = 10 * time.Minute

// CostChanged is the event of a change of a stage of a tenant's incident that
// began at a time.
func CostChanged(tenant uuid.UUID, began time.Time, c *CostChange, p CostPrediction, exhausted time.Time) Event {
	component := c.Component
	if c.Whole {
		component = ""
	}
	e := Event{Type: EventCostRisk, Tenant: tenant, Time: c.At, Fields: []EventField{
		{"component", component}, {"whole_tenant", strconv.FormatBool(c.Whole)}, {"stage", c.To.String()}, {"before", c.From.String()},
		{"risk_permille", strconv.Itoa(c.Risk)}, {"credits_per_minute", wholeCredits(c.PerMinute)},
	}}
	if c.To > CostCalm {
		e.Fields = append(e.Fields, EventField{"stops_at", rfc3339(p.StopsAt)}, EventField{"credits_at_stop", wholeCredits(p.Credits)},
			EventField{"exhausted_at", rfc3339(exhausted)})
	}
	if c.To == CostStopped {
		e.Type = EventCostStopped
	}
	e.Once = onceOfCost(e.Type, tenant, began, component, strconv.FormatBool(c.Whole), c.To.String())
	return e
}

// Recovered is the event of an incident that is over.
func (i *CostIncident) Recovered() Event {
	codes := make([]string, len(i.Causes))
	for n, c := range i.Causes {
		codes[n] = c.Code
	}
	return Event{Type: EventCostRecovered, Tenant: i.Tenant, Time: i.Ended, Once: onceOfCost(EventCostRecovered, i.Tenant, i.Began), Fields: []EventField{
		{"incident", i.ID.String()}, {"lasted_seconds", strconv.FormatInt(int64(i.Ended.Sub(i.Began).Seconds()), 10)},
		{"credits_used", wholeCredits(i.Used)}, {"credits_over", wholeCredits(i.Over)}, {"credits_refused", wholeCredits(i.Refused)},
		{"causes", strings.Join(codes, " ")},
	}}
}

// onceOfCost is Event.Once of an incident's event: a hash, because names of
// components can be longer than it may be.
func onceOfCost(t EventType, tenant uuid.UUID, began time.Time, of ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(of, "\x00")))
	return string(t) + "/" + tenant.String() + "/" + strconv.FormatInt(began.Unix()/int64(costOnce.Seconds()), 10) + "/" + hex.EncodeToString(sum[:8])
}

func wholeCredits(c Credits) string { return strconv.FormatInt(int64(c/Credit), 10) }

func rfc3339(t time.Time) string { return t.UTC().Format(time.RFC3339) }
