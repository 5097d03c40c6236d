package api_test

import (
	"bytes"
	"context"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"
	"uuid"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-kms/sluice/api"
	"github.com/sluice-kms/sluice/costreport"
	"github.com/sluice-kms/sluice/kms"
	"github.com/sluice-kms/sluice/provider"
)

// world is a running server with two tenants. Every answer it gives is checked
// against its own OpenAPI document, and so is every request that a test does
// not send to be refused.
type world struct {
	t        testing.TB
	url      string
	client   *http.Client
	handler  http.Handler
	document *openapi3.T
	logs     *lockedBuffer

	operator string // credential
	acme     tenant
	rival    tenant

	*memory   // nil on a whole service
	incidents kms.CostIncidents
	metrics   *prometheus.Registry
}

// tenant is one of the two, with a credential that may do everything in it.
type tenant struct {
	id    string
	name  string
	token string
}

var everything = []string{"key:*", "key:manage", "key:destroy", "key:cancel-deletion", "key:import", "secret:*", "secret:destroy", "route:*", "tenant:admin", "usage:read"}

// lockedBuffer collects a log.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// Lines of JSON are a text to the document.
func init() { openapi3filter.RegisterBodyDecoder(linesType, openapi3filter.PlainBodyDecoder) }

// newWorld starts a server on the ports in memory. changes may alter its
// configuration.
func newWorld(t testing.TB, changes ...func(*api.Config)) *world {
	t.Helper()
	return newWorldWith(t, atOnce{}, true, changes...)
}

// newWorldOfOne is newWorld where one operator is enough for everything.
func newWorldOfOne(t testing.TB) *world {
	t.Helper()
	return newWorldWith(t, atOnce{}, false)
}

// newWorldScheduled is newWorld with a scheduler.
func newWorldScheduled(t testing.TB, scheduler kms.Scheduler, changes ...func(*api.Config)) *world {
	t.Helper()
	return newWorldWith(t, scheduler, true, changes...)
}

func newWorldWith(t testing.TB, scheduler kms.Scheduler, twoOperators bool, changes ...func(*api.Config)) *world {
	t.Helper()
	return newWorldServing(t, func(c *kms.Config) { c.Scheduler, c.TwoOperators = scheduler, twoOperators },
		func(kms.Config, *kms.Service, *api.Server) {}, changes...)
}

// newWorldServing is newWorld with a service that serving may alter; made is given
// what was made of that.
func newWorldServing(t testing.TB, serving func(*kms.Config), made func(kms.Config, *kms.Service, *api.Server), changes ...func(*api.Config)) *world {
	t.Helper()
	m := newMemory(t)
	clock := time.Now
	system, secrets, err := kms.Bootstrap(context.Background(), kms.BootstrapConfig{
		Tenants: m, Secrets: m, Device: device{m}, Clock: clock,
	})
	if err != nil {
		t.Fatal(err)
	}
	operator, err := kms.FirstCredential(context.Background(), m, secrets.Pepper, clock, kms.FirstCredentialInput{
		Tenant: system, Name: "operator", Scopes: []string{"operator:admin", "tenant:admin", "key:*"},
	})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, logs: &lockedBuffer{}, operator: operator, memory: m, incidents: m, metrics: prometheus.NewRegistry()}
	log := slog.New(slog.NewJSONHandler(w.logs, &slog.HandlerOptions{Level: slog.LevelDebug}))
	c := kms.Config{
		Keys: m, Tenants: m, Credentials: m, Lifecycle: m, Aliases: m, Idempotency: m, CredentialUses: m, Records: m, Queues: m,
		Approvals: m, Deletions: m, Nodes: m, Policies: m, PolicyEngine: m.engine, Capacity: m, Webhooks: m, Deliveries: m, Addresses: addresses,
		RootRotation: rootRotation, BackupRetention: backupRetention, Jobs: m,
		SuccessLine: func() int64 { return 9950 }, Trail: m, ReadEntry: m.readEntry, Secrets: m, Events: m, Incidents: m, Routes: m, Probes: m, RouteHealth: provider.Health{}, KeyTrials: m,
		Quota: m, Accounts: m, Scheduler: atOnce{}, Device: device{m}, Journal: m,
		Pepper: secrets.Pepper, Observer: m, Log: log, Clock: clock,
	}
	serving(&c)
	config := api.Config{
		Service:       kms.NewService(c),
		Authenticator: kms.NewAuthenticator(m, m, secrets.Pepper, clock),
		Log:           log, Clock: clock, Registerer: w.metrics, Version: "test", Reports: costreport.Reports{},
	}
	for _, change := range changes {
		change(&config)
	}
	server := api.New(config)
	made(c, config.Service, server)
	w.start(server.Handler(), log)
	return w
}

// start serves the handler and makes the tenants.
func (w *world) start(h http.Handler, log *slog.Logger) {
	w.t.Helper()
	server := httptest.NewUnstartedServer(h)
	server.Config = api.NewHTTPServer(h, log)
	server.Start()
	w.t.Cleanup(server.Close)
	w.attach(server.URL, server.Client(), h)
}

// attach makes the tenants on a running server.
func (w *world) attach(url string, client *http.Client, h http.Handler) {
	w.t.Helper()
	w.url, w.client, w.handler = url, client, h
	w.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	w.document = loadDocument(w.t, w.raw(http.MethodGet, "/openapi.json", "", nil, nil).body)
	w.acme, w.rival = w.newTenant("acme"), w.newTenant("rival")
}

func (w *world) newTenant(name string) tenant {
	w.t.Helper()
	made := w.must(http.StatusCreated, "POST", "/v1/tenants", w.operator, `{"name":"`+name+`","tier":"platinum","allow_sealed":true}`)
	scopes, err := json.Marshal(everything)
	if err != nil {
		w.t.Fatal(err)
	}
	minted := w.must(http.StatusCreated, "POST", "/v1/tenants/"+name+"/credentials", w.operator,
		`{"name":"admin","scopes":`+string(scopes)+`}`)
	return tenant{id: made.text("id"), name: name, token: minted.text("credential")}
}

// loadDocument parses and validates an OpenAPI document, and closes its
// answers, so that an undocumented field in one is noticed.
func loadDocument(t testing.TB, body []byte) *openapi3.T {
	t.Helper()
	document, err := openapi3.NewLoader().LoadFromData(body)
	if err != nil {
		t.Fatal(err)
	}
	if err := document.Validate(context.Background()); err != nil {
		t.Fatal(err)
	}
	for _, schema := range document.Components.Schemas {
		if schema.Value.AdditionalProperties.Has == nil {
			no := false
			schema.Value.AdditionalProperties.Has = &no
		}
	}
	return document
}

// answer is what came back.
type answer struct {
	t      testing.TB
	status int
	header http.Header
	body   []byte
	fields map[string]any // nil unless it is a JSON object
}

func (a *answer) text(field string) string {
	a.t.Helper()
	s, ok := a.fields[field].(string)
	if !ok {
		a.t.Fatalf("%s is %v in %s", field, a.fields[field], a.body)
	}
	return s
}

// code is the code of a problem.
func (a *answer) code() string {
	a.t.Helper()
	if got := a.header.Get("Content-Type"); got != "application/problem+json" {
		a.t.Fatalf("%d with %s, no problem: %s", a.status, got, a.body)
	}
	return a.text("code")
}

// anonymous is the answer without what names the request, for comparison.
func (a *answer) anonymous() (status int, header http.Header, body string) {
	id := a.header.Get("X-Request-Id")
	header = a.header.Clone()
	for _, name := range []string{"X-Request-Id", "Date", "Content-Length", "Server-Timing"} {
		header.Del(name)
	}
	return a.status, header, strings.ReplaceAll(string(a.body), id, "ID")
}

// send sends a request that the document must allow.
func (w *world) send(method, path, token, body string, header ...string) *answer {
	w.t.Helper()
	return w.exchange(true, method, path, token, body, header...)
}

// sendBad sends a request that the document may forbid. The answer must be
// documented all the same.
func (w *world) sendBad(method, path, token, body string, header ...string) *answer {
	w.t.Helper()
	return w.exchange(false, method, path, token, body, header...)
}

// must is send with the status that is expected.
func (w *world) must(status int, method, path, token, body string, header ...string) *answer {
	w.t.Helper()
	a := w.send(method, path, token, body, header...)
	if a.status != status {
		w.t.Fatalf("%s %s: %d, want %d: %s", method, path, a.status, status, a.body)
	}
	return a
}

func (w *world) exchange(valid bool, method, path, token, body string, header ...string) *answer {
	w.t.Helper()
	h := http.Header{}
	if route, _ := matchRoute(method, path); route != nil && route.Body != "" {
		h.Set("Content-Type", route.Body)
	} else if body != "" {
		h.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		if header[i+1] == "" {
			h.Del(header[i])
		} else {
			h.Add(header[i], header[i+1])
		}
	}
	var reader io.Reader
	if body != "" {
		reader = strings.NewReader(body)
	}
	a := w.raw(method, path, token, reader, h)
	w.check(valid, method, path, body, h, a)
	return a
}

// raw sends a request as it is and reads the answer, of which it checks what
// holds for every answer.
func (w *world) raw(method, path, token string, body io.Reader, header http.Header) *answer {
	w.t.Helper()
	request, err := http.NewRequest(method, w.url, body)
	if err != nil {
		w.t.Fatal(err)
	}
	target, err := url.Parse(w.url + path)
	if err != nil {
		w.t.Fatal(err)
	}
	request.URL = target
	for name, values := range header {
		request.Header[name] = values
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := w.client.Do(request)
	if err != nil {
		w.t.Fatal(err)
	}
	defer response.Body.Close()
	a := &answer{t: w.t, status: response.StatusCode, header: response.Header}
	if a.body, err = io.ReadAll(response.Body); err != nil {
		w.t.Fatal(err)
	}
	if len(a.body) > 0 && a.body[0] == '{' && a.header.Get("Content-Type") != linesType {
		if err := json.Unmarshal(a.body, &a.fields); err != nil {
			w.t.Fatalf("%v in %s", err, a.body)
		}
	}
	w.checkCommon(a)
	return a
}

// checkCommon checks what every answer must have, whatever it is about.
func (w *world) checkCommon(a *answer) {
	w.t.Helper()
	id, err := uuid.Parse(a.header.Get("X-Request-Id"))
	if err != nil || id[6]>>4 != 7 {
		w.t.Errorf("request id %q is no UUIDv7", a.header.Get("X-Request-Id"))
	}
	if a.header.Get("X-Content-Type-Options") != "nosniff" || a.header.Get("Cache-Control") != "no-store" {
		w.t.Errorf("security headers are missing: %v", a.header)
	}
	problem := strings.HasPrefix(a.header.Get("Content-Type"), "application/problem+json")
	if problem && a.fields != nil && a.fields["request_id"] != id.String() {
		w.t.Errorf("the problem names request %v, the header %v", a.fields["request_id"], id)
	}
}

// matchRoute finds a route by the segments of a path.
func matchRoute(method, path string) (*api.Route, map[string]string) {
	path, _, _ = strings.Cut(path, "?")
	given := strings.Split(path, "/")
	table := api.Routes()
next:
	for i := range table {
		want := strings.Split(table[i].Path, "/")
		if table[i].Method != method || len(want) != len(given) {
			continue
		}
		objects := map[string]string{}
		for j := range want {
			if name, is := strings.CutPrefix(want[j], "{"); is {
				objects[strings.TrimSuffix(name, "}")], _ = url.PathUnescape(given[j])
			} else if want[j] != given[j] {
				continue next
			}
		}
		return &table[i], objects
	}
	return nil, nil
}

// largestChecked bounds the exchanges that are held against the document: a
// megabyte of base64 tells no more than a kilobyte and takes seconds under
// the race detector.
const largestChecked = 256 << 10

// check holds an exchange against the document.
func (w *world) check(valid bool, method, path, body string, header http.Header, a *answer) {
	w.t.Helper()
	route, objects := matchRoute(method, path)
	if route == nil || method == "LIST" || len(body)+len(a.body) > largestChecked {
		return
	}
	item := w.document.Paths.Value(route.Path)
	if item == nil || item.GetOperation(method) == nil {
		w.t.Fatalf("%s %s is not in the document", method, route.Path)
	}
	request := httptest.NewRequest(method, path, strings.NewReader(body))
	request.Header = header.Clone()
	input := &openapi3filter.RequestValidationInput{
		Request: request, PathParams: objects, QueryParams: request.URL.Query(),
		Route: &routers.Route{Spec: w.document, Path: route.Path, PathItem: item, Method: method, Operation: item.GetOperation(method)},
		Options: &openapi3filter.Options{AuthenticationFunc: openapi3filter.NoopAuthenticationFunc,
			IncludeResponseStatus: true, RejectWhenRequestBodyNotSpecified: true},
	}
	if err := openapi3filter.ValidateRequest(context.Background(), input); valid && err != nil {
		w.t.Errorf("%s %s: the document forbids the request: %v", method, path, err)
	}
	err := openapi3filter.ValidateResponse(context.Background(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: input, Status: a.status, Header: a.header,
		Body: io.NopCloser(bytes.NewReader(a.body)), Options: input.Options,
	})
	if err != nil {
		w.t.Errorf("%s %s: the document does not know this answer: %v", method, path, err)
	}
}

// key makes a key for a tenant and returns its id.
func (w *world) key(of tenant, spec kms.Spec, usage kms.Usage, name string) string {
	w.t.Helper()
	body := map[string]any{"spec": spec}
	if usage != "" {
		body["usage"] = usage
	}
	if name != "" {
		body["name"] = name
	}
	return w.must(http.StatusCreated, "POST", "/v1/keys", of.token, object(body)).text("id")
}

// object is a JSON object of fields.
func object(fields map[string]any) string {
	body, err := json.Marshal(fields, json.Deterministic(true), jsontext.EscapeForHTML(false))
	if err != nil {
		panic(err)
	}
	return string(body)
}
