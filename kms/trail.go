package kms

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"
	"uuid"
)

// EntryReader reads the payload of an entry of the journal.
type EntryReader func(payload []byte) (*Entry, error)

// errEntryTenant is of an entry that is listed as another tenant's.
var errEntryTenant = errors.New("it is another tenant's")

// readsTrail decides on reading the audit trail or usage: inside the own tenant
// by the scopes, in another one and in all together as an operator.
func readsTrail(op Op, ref string) func(*Ticket) bool {
	return func(t *Ticket) bool {
		return ref == "" && t.By.Allowed(op, nil) || readsAllTrails(t, op)
	}
}

func readsAllTrails(t *Ticket, op Op) bool { return administers(op, SystemTenantName)(t) }

// trailOf finds whose entries a request reads: "" is the caller's tenant, for an
// operator all, which is the zero id. project is "" where all of a tenant's may
// be seen.
func (s *Service) trailOf(ctx context.Context, t *Ticket, ref string) (tenant uuid.UUID, project string, err error) {
	all := readsAllTrails(t, t.Op)
	if ref == "" && all {
		return uuid.Nil(), "", nil
	}
	of, err := s.target(ctx, t, ref)
	if err != nil {
		return uuid.Nil(), "", err
	}
	t.onTenant(of)
	if !all && !t.By.Scopes.allProjects {
		project = t.By.Project
	}
	return of.ID, project, nil
}

// AuditAnswer is a page of the audit trail and up to when it is complete.
type AuditAnswer struct {
	TrailPage
	Nodes []ShippedNode
}

// AuditEntries reads the audit trail: of the caller's tenant, of one that an
// operator names, or, for an operator who names none, of all and of requests
// that nobody was authenticated for. A credential that sees one project reads
// that project's. q's Tenant is set here.
func (s *Service) AuditEntries(ctx context.Context, t *Ticket, ref string, q TrailQuery) (answer *AuditAnswer, err error) {
	err = s.run(ctx, t, &task{op: OpReadAudit, allowed: readsTrail(OpReadAudit, ref),
		prepare: func(t *Ticket) error {
			tenant, project, err := s.trailOf(ctx, t, ref)
			if err != nil {
				return err
			}
			q.Tenant = tenant
			if project != "" {
				if q.Project != "" && q.Project != project {
					return ErrNotFound
				}
				q.Project = project
			}
			return q.check()
		},
		store: func(ctx context.Context, t *Ticket) error {
			// First, so that what is said to be complete is.
			nodes, err := s.trail.ShippedNodes(ctx)
			if err != nil {
				return err
			}
			page, err := s.trail.TrailEntries(ctx, &q)
			if err != nil {
				return err
			}
			for i := range page.Entries {
				if _, err := s.openEntry(&page.Entries[i]); err != nil {
					return err
				}
			}
			answer = &AuditAnswer{*page, nodes}
			return nil
		}})
	if err != nil {
		return nil, err
	}
	return answer, nil
}

// openEntry reads the payload of an entry.
func (s *Service) openEntry(e *TrailEntry) (entry *Entry, err error) {
	if e.Entry, err = s.readEntry(e.Payload); err == nil && e.Entry.Tenant != e.Tenant {
		err = errEntryTenant
	}
	if err != nil {
		return nil, Wrap(KindInternal, fmt.Errorf("record %d of node %s: %w", e.Sequence, e.Node, err), "a stored entry is damaged; the journal has it")
	}
	return e.Entry, nil
}

func (q *TrailQuery) check() error {
	switch {
	case q.Order != ByArrival && (q.After != nil || q.AtEnd):
		return Errorf(KindInvalidArgument, "after: goes with the order of arrival")
	case q.Page.Token != "" && (q.After != nil || q.AtEnd):
		return Errorf(KindInvalidArgument, "after: is where the first page begins; a token says that too")
	case !q.From.IsZero() && !q.To.IsZero() && !q.From.Before(q.To):
		return Errorf(KindInvalidArgument, "from: must be before to")
	}
	return nil
}

// UsageAnswer is usage and up to when it is complete.
type UsageAnswer struct {
	Rows  []UsageRow
	Nodes []ShippedNode
}

// Usage reports usage by period: of the caller's tenant, of one that an operator
// names, or, for an operator who names none, of all. q's Tenant is set here.
func (s *Service) Usage(ctx context.Context, t *Ticket, ref string, q UsageQuery) (answer *UsageAnswer, err error) {
	err = s.run(ctx, t, &task{op: OpReadUsage, allowed: readsTrail(OpReadUsage, ref),
		prepare: func(t *Ticket) error { return s.prepareUsage(ctx, t, ref, &q) },
		store: func(ctx context.Context, _ *Ticket) (err error) {
			answer, err = s.usage(ctx, &q)
			return err
		}})
	if err != nil {
		return nil, err
	}
	return answer, nil
}

func (s *Service) prepareUsage(ctx context.Context, t *Ticket, ref string, q *UsageQuery) error {
	tenant, project, err := s.trailOf(ctx, t, ref)
	if err != nil {
		return err
	}
	q.Tenant = tenant
	if project != "" {
		if asked, ok := q.Where[DimensionProject]; ok && asked != project {
			return ErrNotFound
		}
		where := maps.Clone(q.Where)
		if where == nil {
			where = make(map[Dimension]string)
		}
		where[DimensionProject] = project
		q.Where = where
	}
	return q.check()
}

func (q *UsageQuery) check() error {
	for _, d := range q.By {
		if d == DimensionTenant && q.Tenant != uuid.Nil() {
			return Errorf(KindInvalidArgument, "by: tenant is for operators who ask about all")
		}
	}
	// Periods are whole: the one that From lies in is part of it.
	q.From = q.Granularity.Start(q.From)
	switch {
	case !q.From.Before(q.To):
		return Errorf(KindInvalidArgument, "from: must be before to")
	case q.To.Sub(q.From) > MaxUsagePeriods*q.Granularity.Period():
		return Errorf(KindInvalidArgument, "from: an answer has at most %d periods; choose a later one, or a larger granularity", MaxUsagePeriods)
	}
	return nil
}

func (s *Service) usage(ctx context.Context, q *UsageQuery) (*UsageAnswer, error) {
	nodes, err := s.trail.ShippedNodes(ctx)
	if err != nil {
		return nil, err
	}
	rows, err := s.trail.Usage(ctx, q)
	if err != nil {
		return nil, err
	}
	return &UsageAnswer{rows, nodes}, nil
}

// billBy is what the lines of a bill are by.
var billBy = []Dimension{DimensionProject, DimensionComponent, DimensionKey, DimensionPolicy}

// Bill reports what a tenant is charged for the day of UTC that a time lies in:
// of the caller's tenant or of one that an operator names. Its total is the sum
// of what the day's entries of the audit trail were charged; each line is that
// of the entries with its project, component and key.
func (s *Service) Bill(ctx context.Context, t *Ticket, ref string, day time.Time) (bill *Bill, err error) {
	q := UsageQuery{Granularity: ByDay, From: ByDay.Start(day), By: billBy}
	q.To = q.From.Add(ByDay.Period())
	err = s.run(ctx, t, &task{op: OpReadUsage, allowed: administers(OpReadUsage, ref),
		prepare: func(t *Ticket) error {
			if err := s.prepareUsage(ctx, t, ref, &q); err != nil {
				return err
			}
			if q.Tenant == uuid.Nil() { // a bill is of one tenant
				q.Tenant = t.By.Tenant.ID
			}
			return nil
		},
		store: func(ctx context.Context, _ *Ticket) error {
			answer, err := s.usage(ctx, &q)
			if err != nil {
				return err
			}
			bill = &Bill{Tenant: q.Tenant, Day: q.From, Lines: answer.Rows, Nodes: answer.Nodes}
			for i := range bill.Lines {
				bill.Total.Add(bill.Lines[i].UsageSum)
			}
			return nil
		}})
	if err != nil {
		return nil, err
	}
	return bill, nil
}

// CompleteUntil is the time up to which the trail has all entries of the nodes
// that have not ended; zero: no node ships. Entries of floods may still follow
// for a node that ended.
func CompleteUntil(nodes []ShippedNode) (until time.Time) {
	for _, n := range nodes {
		if !n.Ended && (until.IsZero() || n.Until.Before(until)) {
			until = n.Until
		}
	}
	return until
}
