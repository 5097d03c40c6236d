package api

import (
	"cmp"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/sluice-kms/sluice/kms"
)

// providerRoutes are about routes over providers.
func providerRoutes() []Route {
	const group, all, one = "Routes", "/v1/routes", "/v1/routes/{route}"
	return []Route{
		change(Route{Name: "put-route", Group: group, Method: http.MethodPut, Path: one, Op: kms.OpPutRoute,
			Errors: append([]kms.Kind{kms.KindPreconditionFailed}, makeErrors...), Summary: "Say over which providers calls of models go",
			Description: "Replaces the route, if there is one; what is known of the health of targets whose base_url stays is kept. " +
				"A tenant has at most 100 routes of at most 8 targets."}, putRoute, replayRoute),
		define(Route{Name: "list-routes", Group: group, Method: http.MethodGet, Path: all, Op: kms.OpListRoutes, Errors: makeErrors,
			Query: pageParameters, Summary: "List routes"}, listRoutes),
		define(Route{Name: "describe-route", Group: group, Method: http.MethodGet, Path: one, Op: kms.OpReadRoute, Errors: makeErrors,
			Query:   []Parameter{{Name: "model", Doc: "Whose order is asked for. Absent: of the route as a whole"}},
			Summary: "Describe a route, with the order to use now", Description: "Nothing is granted here: leases and retries come with the answers to reports."},
			describeRoute),
		change(Route{Name: "delete-route", Group: group, Method: http.MethodDelete, Path: one, Op: kms.OpDeleteRoute, Errors: makeErrors,
			Summary: "Delete a route", Description: "With what is known of its health."}, deleteRoute, replayDeleteRoute),
		define(Route{Name: "report-route", Group: group, Method: http.MethodPost, Path: one + "/report", Op: kms.OpReportRoute, Errors: makeErrors,
			Summary: "Report what calls came to, and get the order to use now",
			Description: "Up to 100 items. What they say of versions of a running rollout counts there too, for who may read the secret. " +
				"A lease lets its holder make one call to a target that gets none; retries is how often calls that failed may be tried on another target until the next report, each of them on retries_per_request targets."},
			reportRoute),
	}
}

func routeTarget(t *RouteTarget, weight uint32) kms.RouteTarget {
	return kms.RouteTarget{Name: t.Name, Provider: t.Provider, BaseURL: t.BaseURL, Region: t.Region, RetentionDays: t.RetentionDays,
		Capabilities: t.Capabilities, Secret: t.Secret, Weight: weight}
}

// definition makes a route of a request.
func (in *PutRouteRequest) definition() (kms.ProviderRoute, error) {
	r := kms.ProviderRoute{Models: in.Models, AuthHeader: in.AuthHeader, Residency: in.Residency, LastResort: in.LocalLastResort != nil}
	if r.AuthHeader == "" {
		r.AuthHeader = kms.AuthBearer
	}
	targets := append([]RouteTarget{*in.Primary}, in.Fallbacks...)
	if in.LocalLastResort != nil {
		targets = append(targets, *in.LocalLastResort)
	}
	weights := in.Weights
	if weights == nil {
		weights = map[string]uint32{in.Primary.Name: 100}
	}
	for i := range targets {
		r.Targets = append(r.Targets, routeTarget(&targets[i], weights[targets[i].Name]))
	}
	for _, name := range slices.Sorted(maps.Keys(weights)) {
		if r.Target(name) == nil {
			return r, kms.Errorf(kms.KindInvalidArgument, "weights: names a target that there is not")
		}
	}
	return r, nil
}

func putRoute(c *call, in *PutRouteRequest) (*RouteResponse, error) {
	definition, err := in.definition()
	if err != nil {
		return nil, err
	}
	r, _, err := c.service.PutRoute(c.context, &c.ticket, kms.PutRouteInput{Name: c.object(0), Expected: in.ExpectedRevision, Route: definition})
	if err := c.carriedOut(err); err != nil {
		return nil, err
	}
	return &RouteResponse{routeOf(r), c.charge()}, nil
}

func replayRoute(c *call, name string) (*RouteResponse, error) {
	r, err := c.service.ReplayRoute(c.context, &c.ticket, c.route.Op, name)
	if err != nil {
		return nil, err
	}
	return &RouteResponse{routeOf(r), c.charge()}, nil
}

func deleteRoute(c *call, _ *NoBody) (*DeletedRouteResponse, error) {
	name := c.object(0)
	if err := c.carriedOut(c.service.DeleteRoute(c.context, &c.ticket, name)); err != nil {
		return nil, err
	}
	return &DeletedRouteResponse{name, c.charge()}, nil
}

func replayDeleteRoute(c *call, name string) (*DeletedRouteResponse, error) {
	if _, err := c.service.Replay(c.context, &c.ticket, c.route.Op, ""); err != nil {
		return nil, err
	}
	return &DeletedRouteResponse{name, c.charge()}, nil
}

func listRoutes(c *call, _ *NoBody) (*RouteListResponse, error) {
	list, next, err := c.service.ListRoutes(c.context, &c.ticket, c.page())
	if err != nil {
		return nil, err
	}
	out := &RouteListResponse{Routes: make([]ProviderRoute, len(list)), NextPageToken: next, Charge: c.charge()}
	for i, r := range list {
		out.Routes[i] = routeOf(r)
	}
	return out, nil
}

func describeRoute(c *call, _ *NoBody) (*RouteStatusResponse, error) {
	r, order, err := c.service.ReadRoute(c.context, &c.ticket, c.object(0), c.query["model"])
	if err != nil {
		return nil, err
	}
	return &RouteStatusResponse{routeOf(r), orderOf(&order), c.charge()}, nil
}

func reportRoute(c *call, in *ReportRouteRequest) (*ReportRouteResponse, error) {
	report := kms.RouteReport{Generation: in.Generation, Outcomes: make([]kms.RouteOutcome, len(in.Items))}
	for i := range in.Items {
		o := &in.Items[i]
		report.Outcomes[i] = kms.RouteOutcome{Target: o.Target, Model: o.Model, Version: o.Version, OK: int64(o.OK), Credential: int64(o.Credential),
			Quota: int64(o.Quota), RateLimit: int64(o.RateLimit), Transient: int64(o.Transient), Connections: int64(o.Connections),
			Retries: int64(o.Retries), RetryAfter: time.Duration(o.RetryAfterMS) * time.Millisecond,
			P99: time.Duration(o.P99MS) * time.Millisecond, Lease: o.Lease}
	}
	order, err := c.service.ReportRoute(c.context, &c.ticket, c.object(0), in.Model, report)
	if err != nil {
		return nil, err
	}
	return &ReportRouteResponse{orderOf(&order), c.charge()}, nil
}

func routeOf(r *kms.ProviderRoute) ProviderRoute {
	out := ProviderRoute{Name: r.Name, Models: r.Models, Fallbacks: []RouteTarget{}, Weights: map[string]uint32{}, AuthHeader: r.AuthHeader,
		Residency: r.Residency, CreatedAt: r.Created.UTC(), Revision: r.Revision}
	for i := range r.Targets {
		t := &r.Targets[i]
		shown := RouteTarget{Name: t.Name, Provider: t.Provider, BaseURL: t.BaseURL, Region: t.Region, RetentionDays: t.RetentionDays,
			Capabilities: t.Capabilities, Secret: t.Secret}
		switch {
		case i == 0:
			out.Primary = shown
		case r.LastResort && i == len(r.Targets)-1:
			out.LocalLastResort = &shown
		default:
			out.Fallbacks = append(out.Fallbacks, shown)
		}
		if t.Weight > 0 {
			out.Weights[t.Name] = t.Weight
		}
	}
	return out
}

func orderOf(o *kms.RouteOrder) RouteOrder {
	out := RouteOrder{Generation: o.Generation, Panic: o.Panic, Retries: o.Retries, RetriesPerRequest: o.RetriesPerRequest, RetryAfterMS: o.RetryAfter.Milliseconds(),
		Targets: make([]RouteChoice, len(o.Choices))}
	for i := range o.Choices {
		c := &o.Choices[i]
		shown := RouteChoice{Target: c.Target, Weight: c.Weight, Reasons: c.Reasons, State: c.State, Cause: c.Cause, Since: c.Since.UTC(),
			Endpoint: c.Endpoint, Breaker: c.Breaker, Until: c.Until.UTC(), Lease: c.Lease, LeaseUntil: c.LeaseUntil.UTC()}
		for _, k := range c.Keys {
			key := RouteKey{Version: k.Version, State: k.State, Until: k.Until.UTC()}
			if v := k.Validation; v != nil {
				key.Validation = &KeyValidation{cmp.Or(string(v.State), "unknown"), v.Class, v.At.UTC()}
			}
			shown.Keys = append(shown.Keys, key)
		}
		for _, k := range c.Cools {
			shown.CoolDowns = append(shown.CoolDowns, RouteCool{k.Version, k.Model, k.Until.UTC()})
		}
		out.Targets[i] = shown
	}
	return out
}
