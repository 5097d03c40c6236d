package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"

	"github.com/sluice-kms/sluice/client"
	"github.com/sluice-kms/sluice/client/outcome"
)

// gateway sends calls over the targets of a route, by its order.
type gateway struct {
	client  *client.Client
	route   string
	targets map[string]*target
	order   client.RouteOrder
	retries int // on other targets, until the next report
}

// target is an endpoint with the client that puts its key into each call.
type target struct {
	url  string
	http *http.Client

	mu   sync.Mutex // guards the rest
	seen map[uint32]*client.RouteOutcome
	last uint32 // the version of the key that the last call had
}

func newTarget(secrets *client.Secrets, path string, p *provider) *target {
	t := &target{url: p.server.URL, seen: map[uint32]*client.RouteOutcome{}}
	t.http = &http.Client{Transport: secrets.Handle(path).Transport(client.TransportOptions{MaxAttempts: 1, Observe: t.observe})}
	return t
}

// observe counts what came of a call, for the next report.
func (t *target) observe(a client.Attempt) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last = a.Version
	o := t.seen[a.Version]
	if o == nil {
		o = &client.RouteOutcome{Model: "m", Version: a.Version}
		t.seen[a.Version] = o
	}
	switch a.Class {
	case outcome.OK:
		o.OK++
	case outcome.Credential:
		o.Credential++
	case outcome.Transient:
		o.Transient++
	}
}

// follow reports what calls came to and takes the order that follows from it.
func (g *gateway) follow(ctx context.Context) error {
	report := client.RouteReport{Generation: g.order.Generation, Model: "m"}
	for name, t := range g.targets {
		t.mu.Lock()
		for _, o := range t.seen {
			o.Target = name
			report.Items = append(report.Items, *o)
		}
		clear(t.seen)
		t.mu.Unlock()
	}
	answer, err := g.client.ReportRoute(ctx, g.route, report)
	if err != nil {
		return err
	}
	g.order, g.retries = answer.Order, answer.Order.Retries
	return nil
}

// tally counts calls by what came of them and by the version of the key.
type tally struct {
	ok, failed int
	by         map[string]int // target and version
}

func newTally() tally { return tally{by: map[string]int{}} }

func (t *tally) add(o tally) {
	t.ok, t.failed = t.ok+o.ok, t.failed+o.failed
	for k, n := range o.by {
		t.by[k] += n
	}
}

// calls makes calls one after the other: each to the first target, and again to
// the next ones if it fails, as far as the route grants that.
func (g *gateway) calls(ctx context.Context, n int) tally {
	count := newTally()
	for range n {
		served := false
		for i, choice := range g.order.Targets {
			t := g.targets[choice.Target]
			if i > 0 {
				if served || g.retries == 0 || i > g.order.RetriesPerRequest {
					break
				}
				g.retries--
			}
			if served = t.call(ctx); served {
				count.by[fmt.Sprintf("%s, key version %d", choice.Target, t.version())]++
			}
		}
		if served {
			count.ok++
		} else {
			count.failed++
		}
	}
	return count
}

func (t *target) version() uint32 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.last
}

func (t *target) call(ctx context.Context) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.url+"/v1/chat/completions", strings.NewReader(`{"model":"m"}`))
	if err != nil {
		return false
	}
	res, err := t.http.Do(req)
	if err != nil {
		return false
	}
	defer res.Body.Close()
	_, err = io.Copy(io.Discard, res.Body)
	return err == nil && res.StatusCode == http.StatusOK
}

func (g *gateway) tell(when string, t tally) {
	var by []string
	for _, k := range slices.Sorted(maps.Keys(t.by)) {
		by = append(by, fmt.Sprintf("%d by %s", t.by[k], k))
	}
	fmt.Printf("%s: %d calls, %d failed; %s\n", when, t.ok+t.failed, t.failed, strings.Join(by, ", "))
}

// provider takes the keys that it was told of, until it is stopped.
type provider struct {
	server *httptest.Server

	mu   sync.Mutex // guards the rest
	keys map[string]bool
	down bool
}

func newProvider(key string) *provider {
	p := &provider{keys: map[string]bool{key: true}}
	p.server = httptest.NewServer(p)
	return p
}

func (p *provider) accept(key string) { p.set(func() { p.keys[key] = true }) }
func (p *provider) refuse(key string) { p.set(func() { delete(p.keys, key) }) }
func (p *provider) stop()             { p.set(func() { p.down = true }) }

func (p *provider) set(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
}

// ServeHTTP implements http.Handler.
func (p *provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	key, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	switch {
	case p.down:
		http.Error(w, `{"error":{"type":"server_error"}}`, http.StatusServiceUnavailable)
	case !p.keys[key]:
		http.Error(w, `{"error":{"code":"invalid_api_key"}}`, http.StatusUnauthorized)
	default:
		fmt.Fprintln(w, `{"choices":[]}`)
	}
}
