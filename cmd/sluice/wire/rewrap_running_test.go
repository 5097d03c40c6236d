package wire_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/sluice-kms/sluice/cmd/sluice/wire"
	"github.com/sluice-kms/sluice/cmd/sluice/wire/wiretest"
	"github.com/sluice-kms/sluice/kms"
)

// rewrapCluster is two API nodes whose tokens are in processes of their own.
type rewrapCluster struct {
	*cluster
	credential string
	operator   string
}

// serve starts both API nodes until stop is called.
func (c *rewrapCluster) serve(t *testing.T) (nodes []*wiretest.Service, stop func()) {
	t.Helper()
	var stops []func()
	for i := 1; i <= 2; i++ {
		app, err := c.open(t, i, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		handler, err := app.API("test")
		if err != nil {
			t.Fatal(err)
		}
		server := httptest.NewServer(handler.Handler())
		stops = append(stops, func() {
			server.Close()
			if err := app.Close(); err != nil {
				t.Errorf("closing a node: %v", err)
			}
		})
		nodes = append(nodes, &wiretest.Service{App: app, URL: server.URL, Demo: c.credential, Operator: c.operator})
	}
	stop = sync.OnceFunc(func() {
		for _, s := range stops {
			s()
		}
	})
	t.Cleanup(stop)
	return nodes, stop
}

// Two API nodes use keys without a failed request while the roots are replaced,
// rewrapped, with an interruption, and retired, and others change the same keys.
func TestServiceRunsWhileItsRootsAreReplaced(t *testing.T) {
	ctx := context.Background()
	c := &rewrapCluster{cluster: newCluster(t)}
	for i := range c.tokens {
		c.tokens[i] = strings.Replace(c.tokens[i], "{id:", "{process: true, id:", 1)
	}
	nodes, stop := c.serve(t)
	c.operator = c.cluster.operator(t, nodes[0].App)
	status, a := call(t, nodes[0], c.operator, http.MethodPost, "/v1/tenants", object{"name": "acme", "tier": "platinum", "allow_sealed": true})
	if status != http.StatusCreated {
		t.Fatalf("%d %s", status, a.Detail)
	}
	status, a = call(t, nodes[0], c.operator, http.MethodPost, "/v1/tenants/acme/credentials",
		object{"name": "app", "scopes": []string{"key:*", "key:manage"}})
	if status != http.StatusCreated {
		t.Fatalf("%d %s", status, a.Detail)
	}
	c.credential = a.Credential
	for _, n := range nodes {
		n.Demo, n.Operator = c.credential, c.operator
	}
	var all []keepsake
	for i, spec := range rootSpecs {
		all = append(all, makeKeepsake(t, nodes[0], strings.ToLower(spec), spec))
		all = append(all, makeKeepsake(t, nodes[1], fmt.Sprintf("more-%d", i), "AES_256"))
	}

	ceremony := filepath.Join(c.dir, "ceremony.yaml")
	end := useMeanwhile(t, all, nodes...)
	if _, _, err := wire.ReplaceRoots(ctx, ceremony, agree, func(string) {}); err != nil {
		t.Fatal(err)
	}
	end()
	stop()
	nodes, stop = c.serve(t)
	defer func() { stop() }()

	config, err := wire.LoadConfig(filepath.Join(c.dir, "node-1.yaml"), func() []string { return nil })
	if err != nil {
		t.Fatal(err)
	}
	end = useMeanwhile(t, all, nodes...)
	changes := changeMeanwhile(t, nodes[1], all)
	rewrapWithInterruption(t, config, ceremony)
	changes()
	end()
	for i, n := range nodes {
		useAll(t, n, fmt.Sprintf("node %d, rewrapped", i+1), all)
		if uses, err := n.App.Service.RootUses(ctx, n.App.System.Sealing.Domain, n.App.Device); err != nil || uses[1] != (kms.RootUse{}) || uses[2].Tenants != 2 {
			t.Errorf("in use are %+v (%v)", uses, err)
		}
	}

	end = useMeanwhile(t, all, nodes...)
	if err := wire.RetireRoots(ctx, config, ceremony, 1, slog.New(slog.DiscardHandler), func(string) {}); err != nil {
		t.Error(err)
	}
	end()
	stop()
	nodes, stop = c.serve(t)
	for _, n := range nodes {
		useAll(t, n, "retired", all)
		for _, s := range n.App.Device.Status() {
			if s.ID != "cpu" && s.OldestGeneration != 2 {
				t.Errorf("node %s holds generation %d", s.ID, s.OldestGeneration)
			}
		}
	}
	rewrapIsInTheJournal(t, config.Journal.Dir+"-roots", journalOfRoots{tenants: 2, versions: 14, rewraps: 3, retired: 1})
}

// rewrapWithInterruption ends a rewrapping in the middle and repeats it.
func rewrapWithInterruption(t *testing.T, config *wire.Config, ceremony string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	settings := wire.RewrapConfig{Config: config, Ceremony: ceremony, Batch: 3, Log: slog.New(slog.DiscardHandler)}
	interrupted := settings
	interrupted.Progress = func(p kms.RewrapProgress) {
		if p.Versions == 5 {
			cancel()
		}
	}
	first, err := wire.Rewrap(ctx, interrupted)
	if !errors.Is(err, context.Canceled) || first.Versions < 5 || first.Versions >= first.Total.Versions {
		t.Errorf("interrupted: %+v, %v", first, err)
	}
	done, err := wire.Rewrap(context.Background(), settings)
	if err != nil || done.Failed != 0 || done.Total.Versions != first.Total.Versions-first.Versions || done.Versions != done.Total.Versions {
		t.Errorf("resumed: %+v, %v", done, err)
	}
	t.Logf("%d versions in %v, %.0f a second", done.Versions, done.Elapsed, done.Rate())
}

// changeMeanwhile changes what keys are described as, without pause until stop,
// which fails the test when a change that was answered as made is lost. One that
// meets another's is refused, and that is right.
func changeMeanwhile(t *testing.T, s *wiretest.Service, all []keepsake) (stop func()) {
	t.Helper()
	done, ended := make(chan struct{}), make(chan struct{})
	last := map[string]string{}
	go func() {
		defer close(ended)
		for i := 0; ; i++ {
			select {
			case <-done:
				return
			default:
			}
			name, text := all[i%len(all)].name, fmt.Sprintf("change %d", i)
			switch status, a := call(t, s, s.Demo, http.MethodPatch, "/v1/keys/"+name, object{"description": text}); status {
			case http.StatusOK:
				last[name] = text
			case http.StatusConflict, http.StatusPreconditionFailed:
			default:
				t.Errorf("changing %s: %d %s", name, status, a.Detail)
			}
		}
	}()
	return func() {
		t.Helper()
		close(done)
		<-ended
		t.Logf("%d keys changed meanwhile", len(last))
		tenant, err := s.App.Store.TenantByRef(context.Background(), "acme")
		if err != nil {
			t.Fatal(err)
		}
		for name, want := range last {
			if k, err := s.App.Store.Lookup(context.Background(), tenant.ID, name); err != nil || k.Description != want {
				t.Errorf("%s: a change was lost (%v)", name, err)
			}
		}
	}
}
