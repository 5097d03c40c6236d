package wire_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	spans "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-kms/sluice/cmd/sluice/wire"
	"github.com/sluice-kms/sluice/cmd/sluice/wire/wiretest"
)

// spanCollector takes OTLP over HTTP.
type spanCollector struct {
	*httptest.Server
	mu    sync.Mutex // guards the rest
	spans []*spans.Span
	raw   []byte
}

func newSpanCollector(t *testing.T) *spanCollector {
	c := new(spanCollector)
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var request collector.ExportTraceServiceRequest
		if err == nil {
			err = proto.Unmarshal(body, &request)
		}
		if err != nil {
			t.Error(err)
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.raw = append(c.raw, body...)
		for _, resource := range request.ResourceSpans {
			for _, scope := range resource.ScopeSpans {
				c.spans = append(c.spans, scope.Spans...)
			}
		}
	}))
	t.Cleanup(c.Close)
	return c
}

// traced runs f on a service that is traced and returns the spans of its
// requests when the service has ended.
func traced(t *testing.T, sample float64, f func(*wiretest.Service)) *spanCollector {
	t.Helper()
	wiretest.Require(t)
	c, dir := newSpanCollector(t), t.TempDir()
	app, _, err := (&wire.Dev{Dir: dir, Nodes: 1, Log: slog.New(slog.DiscardHandler),
		Tracing: wire.TracingConfig{OTLPEndpoint: c.URL + "/v1/traces", Sample: sample}}).Open(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	handler, err := app.API("test")
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(handler.Handler())
	demo, err := os.ReadFile(filepath.Join(dir, wire.DemoCredentialFile))
	if err != nil {
		t.Fatal(err)
	}
	s := &wiretest.Service{App: app, URL: server.URL, Demo: strings.TrimSpace(string(demo))}
	f(s)
	server.Close()
	if err := app.Close(); err != nil {
		t.Error(err)
	}
	return c
}

func attributes(s *spans.Span) string {
	var list []string
	for _, a := range s.Attributes {
		list = append(list, a.Key)
	}
	slices.Sort(list)
	return strings.Join(list, " ")
}

// A request's trace has its steps one after the other inside the whole, under
// the client's span, and nothing of what the client sent.
func TestTraceShowsTheStepsOfARequest(t *testing.T) {
	const trace, parent, secret = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7", "a plaintext that nobody may see"
	c := traced(t, 1, func(s *wiretest.Service) {
		post := func(path, body, traceparent string) {
			t.Helper()
			r, err := http.NewRequest("POST", s.URL+path, strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Authorization", "Bearer "+s.Demo)
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Traceparent", traceparent)
			r.Header.Set("Baggage", "k=baggage-of-the-client")
			r.Header.Set("User-Agent", "agent-of-the-client")
			resp, err := s.Client().Do(r)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode/100 != 2 {
				t.Errorf("%s: %s", path, resp.Status)
			}
		}
		post("/v1/keys", `{"name":"name-of-the-key","spec":"AES_256"}`, "00-11111111111111111111111111111111-2222222222222222-01")
		body := fmt.Sprintf(`{"plaintext":%q}`, base64.StdEncoding.EncodeToString([]byte(secret)))
		post("/v1/keys/name-of-the-key/encrypt", body, "00-"+trace+"-"+parent+"-01")
		post("/v1/keys/name-of-the-key/encrypt", body, "00-33333333333333333333333333333333-4444444444444444-00") // not sampled
	})
	byTrace := map[string][]*spans.Span{}
	for _, s := range c.spans {
		id := fmt.Sprintf("%x", s.TraceId)
		byTrace[id] = append(byTrace[id], s)
	}
	if len(byTrace) != 2 {
		t.Errorf("there are traces %v", byTrace)
	}
	var root *spans.Span
	for _, s := range byTrace[trace] {
		if fmt.Sprintf("%x", s.ParentSpanId) == parent {
			root = s
		}
	}
	if root == nil || root.Name != "POST /v1/keys/{key}/encrypt" {
		t.Fatalf("the whole is %v", root)
	}
	if got := attributes(root); got != "http.response.status_code http.route sluice.key sluice.op sluice.request_id sluice.spec sluice.tenant sluice.tier" {
		t.Errorf("the whole has %s", got)
	}
	steps := func(of []*spans.Span) (names []string) {
		list := slices.DeleteFunc(slices.Clone(of), func(s *spans.Span) bool { return strings.Contains(s.Name, " ") })
		slices.SortFunc(list, func(a, b *spans.Span) int { return int(int64(a.EndTimeUnixNano) - int64(b.EndTimeUnixNano)) })
		for i, s := range list {
			names = append(names, s.Name)
			if i > 0 && s.StartTimeUnixNano != list[i-1].EndTimeUnixNano {
				t.Errorf("%s begins %d ns after the step before ended", s.Name, int64(s.StartTimeUnixNano-list[i-1].EndTimeUnixNano))
			}
		}
		return names
	}
	if got := fmt.Sprint(steps(byTrace[trace])); got != "[authenticate lookup admit queue hsm journal]" {
		t.Errorf("encrypting has the steps %s", got)
	}
	if got := fmt.Sprint(steps(byTrace["11111111111111111111111111111111"])); got != "[authenticate admit intent queue hsm store journal]" {
		t.Errorf("making a key has the steps %s", got)
	}
	for _, s := range byTrace[trace] {
		if s != root && (string(s.ParentSpanId) != string(root.SpanId) || s.StartTimeUnixNano < root.StartTimeUnixNano || s.EndTimeUnixNano > root.EndTimeUnixNano) {
			t.Errorf("%s is not inside the whole", s.Name)
		}
	}
	for _, text := range []string{secret, base64.StdEncoding.EncodeToString([]byte(secret)), "name-of-the-key", "of-the-client", "slk_"} {
		if strings.Contains(string(c.raw), text) {
			t.Errorf("the spans hold %q", text)
		}
	}
}

// The part is ours to say: whatever a client sets in its header.
func TestClientCannotHaveItsRequestsTraced(t *testing.T) {
	c := traced(t, 1e-9, func(s *wiretest.Service) {
		for i := range 200 {
			r, err := http.NewRequest("GET", s.URL+"/openapi.json", nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Traceparent", fmt.Sprintf("00-%032x-2222222222222222-01", i+1))
			resp, err := s.Client().Do(r)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
		}
	})
	if len(c.spans) != 0 {
		t.Errorf("%d spans", len(c.spans))
	}
}
