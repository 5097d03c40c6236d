package kms

import (
	"context"
	"log/slog"
	"slices"
	"strconv"
)

// PutRouteInput is the input of Service.PutRoute.
type PutRouteInput struct {
	Name     string
	Expected uint64 // the revision that the route must still have; 0: any, or none
	Route    ProviderRoute
}

// PutRoute makes a route, or replaces all of one but what is known of its
// health. created tells which.
func (s *Service) PutRoute(ctx context.Context, t *Ticket, in PutRouteInput) (r *ProviderRoute, created bool, err error) {
	next := in.Route
	next.Name = in.Name
	err = s.run(ctx, t, &task{op: OpPutRoute,
		prepare: func(t *Ticket) error {
			next.Tenant, t.Resource = t.By.Tenant.ID, next.Name
			if err := next.Check(); err != nil {
				return err
			}
			was, err := s.routes.Route(ctx, t.By.Tenant.ID, in.Name)
			switch {
			case err == nil:
				next.ID, next.Created, next.Revision = was.ID, was.Created, was.Revision+1
			case KindOf(err) == KindNotFound:
				before, err := s.routes.RouteRevision(ctx, t.By.Tenant.ID, in.Name)
				if err != nil {
					return err
				}
				next.ID, next.Revision, created = newID(), before+1, true
			default:
				return err
			}
			if in.Expected != 0 && (created || in.Expected != next.Revision-1) {
				return Errorf(KindPreconditionFailed, "the route has another revision")
			}
			t.Revision = RouteRevisions + next.Revision - 1
			return s.checkEndpoints(ctx, &next)
		},
		store: func(ctx context.Context, t *Ticket) error {
			if created {
				next.Created = s.clock()
			}
			err := s.routes.PutRoute(ctx, &next)
			if in.Expected == 0 {
				err = concurrently(err)
			}
			return err
		}})
	if err != nil {
		return nil, false, err
	}
	for i := range next.Targets {
		if path := next.Targets[i].Secret; path != "" {
			s.try(next.Tenant, path, 0)
		}
	}
	return &next, created, nil
}

// checkEndpoints refuses addresses that a tenant may not give.
func (s *Service) checkEndpoints(ctx context.Context, r *ProviderRoute) error {
	for i := range r.Targets {
		if err := s.addresses.CheckURL(ctx, r.Targets[i].BaseURL); err != nil {
			return Errorf(KindInvalidArgument, "%s.base_url: %v", r.field(i), err)
		}
	}
	return nil
}

func (s *Service) route(ctx context.Context, t *Ticket, name string) (*ProviderRoute, error) {
	if !ValidRouteName(name) {
		return nil, ErrNotFound
	}
	r, err := s.routes.Route(ctx, t.By.Tenant.ID, name)
	if err == nil {
		t.Resource, t.Revision = r.Name, r.Revision
	}
	return r, err
}

// ReadRoute returns a route with the order to use now for a model; "": for the
// route as a whole.
func (s *Service) ReadRoute(ctx context.Context, t *Ticket, name, model string) (r *ProviderRoute, order RouteOrder, err error) {
	err = s.run(ctx, t, &task{op: OpReadRoute, store: func(ctx context.Context, t *Ticket) error {
		if r, err = s.route(ctx, t, name); err != nil {
			return err
		}
		if model != "" && !slices.Contains(r.Models, model) {
			return Errorf(KindInvalidArgument, "model: is none of the route's")
		}
		order, err = s.orderOf(ctx, r, model)
		return err
	}})
	if err != nil {
		return nil, RouteOrder{}, err
	}
	return r, order, nil
}

func (s *Service) orderOf(ctx context.Context, r *ProviderRoute, model string) (RouteOrder, error) {
	health, _, err := s.routes.HealthOfRoute(ctx, r)
	if err != nil {
		return RouteOrder{}, err
	}
	view, err := s.viewOf(ctx, r, false)
	if err != nil {
		return RouteOrder{}, err
	}
	view.Model = model
	order, err := s.routing.Order(view, health)
	if err != nil {
		return RouteOrder{}, Wrap(KindInternal, err, "the route's health cannot be read")
	}
	return order, nil
}

// routeRules are the policy's.
func (s *Service) routeRules() RouteRules {
	if s.policyRules == nil {
		return DefaultRouteRules()
	}
	return s.policyRules()
}

// viewOf collects what a decision on a route is made from. calls tells whether
// calls are made over it, by which its endpoints are probed.
func (s *Service) viewOf(ctx context.Context, r *ProviderRoute, calls bool) (*RouteView, error) {
	v := &RouteView{Route: r, Rules: s.routeRules(), Now: s.clock(), Keys: make(map[string]RouteKeys, len(r.Targets)), Down: map[string]bool{}}
	for i := range r.Targets {
		t := &r.Targets[i]
		if t.Secret == "" {
			continue
		}
		keys := RouteKeys{Needed: true}
		secret, err := s.secrets.SecretByPath(ctx, r.Tenant, t.Secret)
		switch {
		case err == nil:
			for _, version := range secret.usable(v.Now) {
				keys.Versions = append(keys.Versions, version.Number)
			}
		case KindOf(err) != KindNotFound:
			return nil, err
		}
		v.Keys[t.Name] = keys
	}
	return v, s.down(ctx, v, calls)
}

// ListRoutes returns a page of the tenant's routes, ordered by name.
func (s *Service) ListRoutes(ctx context.Context, t *Ticket, page Page) (list []*ProviderRoute, next string, err error) {
	err = s.run(ctx, t, &task{op: OpListRoutes,
		prepare: func(*Ticket) error { return checkPage(page) },
		store: func(ctx context.Context, t *Ticket) (err error) {
			list, next, err = s.routes.ListRoutes(ctx, t.By.Tenant.ID, page)
			return err
		}})
	if err != nil {
		return nil, "", err
	}
	return list, next, nil
}

// DeleteRoute removes a route with what is known of its health, also one that is
// refused, because its row is damaged or an old one: so it can be made anew.
func (s *Service) DeleteRoute(ctx context.Context, t *Ticket, name string) error {
	return s.run(ctx, t, &task{op: OpDeleteRoute,
		prepare: func(t *Ticket) error {
			if _, err := s.route(ctx, t, name); err != nil && KindOf(err) != KindInternal {
				return err
			}
			revision, err := s.routes.RouteRevision(ctx, t.By.Tenant.ID, name)
			t.Resource, t.Revision = name, RouteRevisions+revision
			return err
		},
		store: func(ctx context.Context, t *Ticket) error {
			return concurrently(s.routes.DeleteRoute(ctx, t.By.Tenant.ID, name))
		}})
}

// eraseRoutes removes the routes of a deleted tenant. They hold names and
// addresses and nothing that opens anything, so that the deletion's own entries
// are enough.
func (s *Service) eraseRoutes(ctx context.Context, tenant *Tenant) error {
	list, _, err := s.routes.ListRoutes(ctx, tenant.ID, Page{Size: MaxRoutes})
	if err != nil {
		return err
	}
	for _, r := range list {
		if err := s.routes.DeleteRoute(ctx, tenant.ID, r.Name); err != nil && KindOf(err) != KindNotFound {
			return err
		}
	}
	return nil
}

// ReplayRoute is Replay for PutRoute: it returns the route as it is now.
func (s *Service) ReplayRoute(ctx context.Context, t *Ticket, op Op, name string) (r *ProviderRoute, err error) {
	err = s.replayOther(ctx, t, op, nil, func(t *Ticket) error {
		r, err = s.route(ctx, t, name)
		return err
	})
	if err != nil {
		return nil, err
	}
	return r, nil
}

func (s *Service) foundRoute(ctx context.Context, e *Entry) string {
	before := e.Revision
	if before >= RouteRevisions {
		before -= RouteRevisions
	}
	r, err := s.routes.Route(ctx, e.Tenant, e.Resource)
	switch {
	case err == nil:
		return since(before, r.Revision)
	case KindOf(err) == KindNotFound && e.Op == OpDeleteRoute:
		return OutcomeFoundDone
	case KindOf(err) == KindNotFound && before > 0:
		// It may have been deleted before, and not made anew.
		if revision, err := s.routes.RouteRevision(ctx, e.Tenant, e.Resource); err == nil && revision <= before {
			return OutcomeFoundUndone
		}
	}
	return missing(err, before)
}

// maxHealthTries is how often a report is applied to the health of a route
// before it is given up: each time another one was faster.
const maxHealthTries = 32

// ReportRoute takes what calls over a route came to, and returns the order for a
// model ("": for the route as a whole) with what is granted to the reporter.
// What it says of the versions of a running rollout counts there too.
func (s *Service) ReportRoute(ctx context.Context, t *Ticket, name, model string, in RouteReport) (order RouteOrder, err error) {
	var r *ProviderRoute
	var failing []*ProviderSecret
	var events []RouteEvent
	err = s.run(ctx, t, &task{op: OpReportRoute,
		prepare: func(t *Ticket) (err error) {
			if r, err = s.route(ctx, t, name); err != nil {
				return err
			}
			if model != "" && !slices.Contains(r.Models, model) {
				return Errorf(KindInvalidArgument, "model: is none of the route's")
			}
			return r.checkReport(&in)
		},
		store: func(ctx context.Context, t *Ticket) (err error) {
			if order, events, err = s.applyReport(ctx, r, model, &in); err != nil {
				return err
			}
			list, err := s.secretOutcomes(ctx, r, in.Outcomes)
			if err == nil {
				failing, err = s.countOutcomes(ctx, t, list)
			}
			return err
		}})
	s.publishRoute(r, events)
	if err != nil {
		return RouteOrder{}, err
	}
	for _, secret := range failing {
		s.guardRollout(ctx, t.By.Tenant, secret)
	}
	s.tryRefused(r, in.Outcomes)
	return order, nil
}

// checkReport refuses a report that cannot be of the route.
func (r *ProviderRoute) checkReport(in *RouteReport) error {
	if len(in.Outcomes) > MaxRouteReportItems {
		return Errorf(KindInvalidArgument, "items: at most %d", MaxRouteReportItems)
	}
	for i := range in.Outcomes {
		o := &in.Outcomes[i]
		for _, n := range []int64{o.OK, o.Credential, o.Quota, o.RateLimit, o.Transient, o.Connections, o.Retries} {
			if n < 0 || n > maxOutcomes {
				return Errorf(KindInvalidArgument, "items[%d]: counts must be 0 to %d", i, maxOutcomes)
			}
		}
		switch {
		case !slices.Contains(r.Models, o.Model):
			return Errorf(KindInvalidArgument, "items[%d].model: is none of the route's", i)
		case !ValidProvider(o.Target):
			return Errorf(KindInvalidArgument, "items[%d].target: is no name", i)
		case o.Connections > o.Transient || o.Retries > o.Calls():
			return Errorf(KindInvalidArgument, "items[%d]: connections are part of transient, and retries of all calls", i)
		case o.RetryAfter < 0 || o.P99 < 0 || o.P99 > maxRouteLatency:
			return Errorf(KindInvalidArgument, "items[%d]: retry_after_ms and p99_ms must not be negative, p99_ms at most %d", i, maxRouteLatency.Milliseconds())
		}
	}
	return nil
}

// applyReport applies a report to the health that is stored, of which there is
// one for all API nodes: who comes second applies his to what the first stored.
func (s *Service) applyReport(ctx context.Context, r *ProviderRoute, model string, in *RouteReport) (order RouteOrder, events []RouteEvent, err error) {
	view, err := s.viewOf(ctx, r, true)
	if err != nil {
		return order, nil, err
	}
	view.Model = model
	err = s.changeHealth(ctx, r, func(health []byte) (next []byte, err error) {
		next, order, events, err = s.routing.Report(view, health, in)
		return next, err
	})
	if err != nil {
		events = nil
	}
	return order, events, err
}

// changeHealth stores what change makes of a route's health.
func (s *Service) changeHealth(ctx context.Context, r *ProviderRoute, change func(health []byte) ([]byte, error)) error {
	for range maxHealthTries {
		health, revision, err := s.routes.HealthOfRoute(ctx, r)
		if err != nil {
			return err
		}
		next, err := change(health)
		if err != nil {
			return Wrap(KindInternal, err, "the route's health cannot be read")
		}
		if err = s.routes.SetHealthOfRoute(ctx, r, next, revision); err == nil || KindOf(err) != KindPreconditionFailed {
			return err
		}
	}
	return Errorf(KindConflict, "too many reports at the same time; try again")
}

// secretOutcomes are the outcomes by secret.
func (s *Service) secretOutcomes(ctx context.Context, r *ProviderRoute, list []RouteOutcome) (out []SecretOutcome, err error) {
	for i := range list {
		o := &list[i]
		target := r.Target(o.Target)
		if target == nil || target.Secret == "" || o.Version == 0 {
			continue
		}
		secret, err := s.secrets.SecretByPath(ctx, r.Tenant, target.Secret)
		switch {
		case err == nil:
			out = append(out, SecretOutcome{Secret: secret.ID, Version: o.Version, OK: o.OK, Credential: o.Credential, Quota: o.Quota,
				RateLimit: o.RateLimit, Transient: o.Transient})
		case KindOf(err) != KindNotFound:
			return nil, err
		}
	}
	return out, nil
}

// publishRoute tells the tenant of transitions.
func (s *Service) publishRoute(r *ProviderRoute, events []RouteEvent) {
	for i := range events {
		e := &events[i]
		generation := strconv.FormatUint(e.Generation, 10)
		all := map[string]string{"route": r.Name, "target": e.Target, "cause": string(e.Cause), "generation": generation,
			"share": strconv.FormatUint(uint64(e.Share), 10), "version": strconv.FormatUint(uint64(e.Version), 10)}
		var fields []EventField
		for _, name := range e.Type.Info().Fields {
			fields = append(fields, EventField{name, all[name]})
		}
		s.events.Publish(Event{Type: e.Type, Tenant: r.Tenant, Fields: fields,
			Once: string(e.Type) + "/" + r.ID.String() + "/" + generation + "/" + strconv.Itoa(r.index(e.Target))})
		s.log.Info("a target of a route changed", slog.String("event", string(e.Type)), slog.String("route", r.ID.String()),
			slog.String("target", e.Target), slog.String("cause", string(e.Cause)))
	}
}
