package kms

import (
	"context"
	"time"
)

// Endpoint is an address of a provider that is probed.
type Endpoint struct {
	URL    string
	Misses int       // probes in a row that were not answered
	Wanted time.Time // until when it is probed
}

// EndpointProbes stores which endpoints are probed, once for all tenants and API
// nodes. All methods are safe for concurrent use.
type EndpointProbes interface {
	// WantEndpoints has endpoints probed until a time.
	WantEndpoints(ctx context.Context, urls []string, until time.Time) error
	// Endpoints returns those of the given ones that are probed.
	Endpoints(ctx context.Context, urls []string) ([]Endpoint, error)
	// ClaimEndpoints takes up to limit endpoints that are due and wanted, and
	// nobody else gets them until the lease is over.
	ClaimEndpoints(ctx context.Context, lease time.Duration, limit int) ([]Endpoint, error)
	// EndProbe stores what a probe came to, and when the next one is due.
	EndProbe(ctx context.Context, url string, misses int, due time.Time) error
}

const (
	// probeWanted is for how long an endpoint is probed after it was asked for,
	// and probeRenewed how long before the end that is said again.
	probeWanted  = time.Hour
	probeRenewed = 50 * time.Minute
)

// down returns the targets of a route whose endpoint is not reached, and has all
// of them probed. want tells whether calls are being made over the route.
func (s *Service) down(ctx context.Context, v *RouteView, want bool) error {
	byURL := map[string][]string{}
	var urls, wanted []string
	for i := range v.Route.Targets {
		t := &v.Route.Targets[i]
		if byURL[t.BaseURL] == nil {
			urls = append(urls, t.BaseURL)
		}
		byURL[t.BaseURL] = append(byURL[t.BaseURL], t.Name)
	}
	known, err := s.probes.Endpoints(ctx, urls)
	if err != nil {
		return err
	}
	renewed := map[string]bool{}
	for _, e := range known {
		renewed[e.URL] = e.Wanted.After(v.Now.Add(probeRenewed))
		for _, name := range byURL[e.URL] {
			v.Down[name] = e.Misses >= v.Rules.ProbeFailures && e.Wanted.After(v.Now)
		}
	}
	for _, url := range urls {
		if want && !renewed[url] {
			wanted = append(wanted, url)
		}
	}
	if len(wanted) == 0 {
		return nil
	}
	return s.probes.WantEndpoints(ctx, wanted, v.Now.Add(probeWanted))
}
