package wire_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/cmd/sluice/wire"
	"github.com/sluice-kms/sluice/cmd/sluice/wire/wiretest"
	"github.com/sluice-kms/sluice/kms"
	"github.com/sluice-kms/sluice/quota"
)

// site is a service that is stopped, whose database is damaged, and that is
// started again.
type site struct {
	log      *journalOfLines
	open     func(t *testing.T) (*wire.App, error)
	raw      func(t *testing.T) *rawDatabase
	operator func(t *testing.T, app *wire.App) string
}

// journalOfLines collects a log.
type journalOfLines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *journalOfLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *journalOfLines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func sqliteSite(t *testing.T) *site {
	wiretest.Require(t)
	dir := t.TempDir()
	s := &site{log: &journalOfLines{}}
	s.open = func(t *testing.T) (*wire.App, error) {
		dev := &wire.Dev{Dir: dir, Nodes: 1, Log: slog.New(slog.NewTextHandler(s.log, nil))}
		app, _, err := dev.Open(context.Background())
		return app, err
	}
	s.raw = func(t *testing.T) *rawDatabase { return rawSQLite(t, wire.DevConfig(dir).Database.Path) }
	s.operator = func(t *testing.T, _ *wire.App) string {
		return strings.TrimSpace(string(read(t, dir, wire.OperatorCredentialFile)))
	}
	return s
}

func postgresSite(t *testing.T) *site {
	c := newCluster(t)
	s := &site{log: &journalOfLines{}, operator: c.operator}
	s.open = func(t *testing.T) (*wire.App, error) { return c.open(t, 1, slog.New(slog.NewTextHandler(s.log, nil))) }
	s.raw = func(t *testing.T) *rawDatabase { return rawPostgres(t, c.urls.Admin) }
	return s
}

// serve opens the service with its API, until stop is called.
func (s *site) serve(t *testing.T) (running *wiretest.Service, stop func()) {
	t.Helper()
	app, err := s.open(t)
	if err != nil {
		t.Fatalf("the service does not start: %v", err)
	}
	handler, err := app.API("test")
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(handler.Handler())
	running = &wiretest.Service{App: app, URL: server.URL, Operator: s.operator(t, app)}
	return running, func() {
		server.Close()
		if err := app.Close(); err != nil {
			t.Errorf("stopping: %v", err)
		}
	}
}

// undecided are columns, and values, that decide nothing: an object whose row
// is damaged there may be used or refused.
var undecided = map[string]bool{
	"keys.last_used": true, "keys.last_used_op": true,
	"credentials.last_used": true, "credentials.last_address": true,
	"webhooks.failing_since": true, "webhooks.delivered": true,
	// The answer of a request, for a day; once it is over the request is made.
	"idempotency.expires": true,
	// No request reads the row; that there is one is a foreign key.
	"projects.tenant": true, "projects.name": true, "projects.created": true, "projects.mac": true, "projects.mac_version": true,
	// The order of a credential's secrets, of which there is one.
	"credential_secrets.position": true,
	// Like the row of no tenant: its own has none yet, and revisions go on from
	// those of its secrets.
	"secret_revisions.tenant": true,
	// Like the row of no tenant or alias: an alias without one, or a route that
	// never was, which is found where more is known.
	"alias_revisions.tenant": true, "alias_revisions.name": true, "route_ends.tenant": true, "route_ends.name": true,
	// When items are run, of what is done.
	"jobs.due": true, "jobs.waits": true, "job_chunks.due": true,
	// What it finds has to have the credential and the items of the request.
	"jobs.claim": true,
	// Of a chunk that is done nobody asks for them.
	"job_chunks.input": true, "job_chunks.entries": true,
	// As NULL: nobody yet.
	"approvals.approved_by = '00000000-0000-0000-0000-000000000000'": true,
}

// ownTables hold what belongs to the service itself, without which there is
// none: see TestDamagedRowOfTheServiceItselfStopsTheStart. What changes tells
// is read while the service runs: see
// TestDamagedChangesAreFollowedAllTheSame. Of heads of journals see
// TestDamagedAnchorsAreReportedAndStopNothing.
var ownTables = map[string]bool{"system_secrets": true, "journal_heads": true, "row_authentication": true, "changes": true,
	// Copies of the journals, which count in their place, and no state.
	"shipped": true, "shipping": true, "audit_entries": true, "usage_rollups": true}

// bystander is an object that is damaged, and how it is used.
type bystander struct {
	name  string // table.column = value
	where string
	use   func(t *testing.T, s *wiretest.Service) int // the status
	spare bool                                        // it may be used after the damage, too
}

// village is a service with objects of all kinds.
type village struct {
	*wiretest.Service
	raw        *rawDatabase
	crowd      string // credential of the tenant in which objects are damaged
	crowdID    uuid.UUID
	hook       uuid.UUID // of the crowd, with all deliveries
	good       string    // credential of a tenant in which none is
	ciphertext []byte
	count      int
}

func newVillage(t *testing.T, s *wiretest.Service, raw *rawDatabase) *village {
	t.Helper()
	v := &village{Service: s, raw: raw}
	var crowd string
	crowd, v.crowd = v.tenant(t, "crowd")
	v.crowdID = uuid.MustParse(crowd)
	_, v.good = v.tenant(t, "good")
	for _, credential := range []string{v.crowd, v.good} {
		v.make(t, credential, "/v1/keys", object{"name": "works", "spec": "AES_256"})
	}
	v.ciphertext = v.make(t, v.good, "/v1/keys/works/encrypt", object{"plaintext": []byte("kept")}).Ciphertext
	return v
}

func (v *village) make(t *testing.T, credential, path string, body object) answer {
	t.Helper()
	status, a := call(t, v.Service, credential, http.MethodPost, path, body)
	if status/100 != 2 {
		t.Fatalf("POST %s: %d %s", path, status, a.Detail)
	}
	return a
}

// tenant makes a tenant and a credential that may do everything in it.
func (v *village) tenant(t *testing.T, name string) (id, credential string) {
	t.Helper()
	id = v.make(t, v.Operator, "/v1/tenants", object{"name": name, "tier": "platinum", "force": true}).ID
	return id, v.make(t, v.Operator, "/v1/tenants/"+name+"/credentials",
		object{"name": "app", "scopes": []string{"key:*", "key:manage", "secret:*", "route:*", "tenant:admin", "usage:read"}}).Credential
}

// asks is a use by one request.
func asks(credential, method, path string, body any, header ...string) func(*testing.T, *wiretest.Service) int {
	return func(t *testing.T, s *wiretest.Service) int {
		t.Helper()
		status, _ := call(t, s, credential, method, path, body, header...)
		return status
	}
}

// bystander makes an object whose row of a table can be damaged.
func (v *village) bystander(t *testing.T, table string) *bystander {
	t.Helper()
	v.count++
	name := fmt.Sprintf("bystander-%d", v.count)
	id := v.raw.id
	encrypt := object{"plaintext": []byte("x")}
	switch table {
	case "tenants":
		tenant, credential := v.tenant(t, name)
		return &bystander{where: "id = " + id(tenant), use: asks(credential, http.MethodGet, "/v1/keys", nil)}
	case "projects":
		tenant, credential := v.tenant(t, name)
		return &bystander{where: "tenant = " + id(tenant), use: asks(credential, http.MethodPost, "/v1/keys", object{"spec": "AES_256"})}
	case "keys", "key_versions", "key_names":
		key := v.make(t, v.crowd, "/v1/keys", object{"name": name, "spec": "AES_256"}).ID
		column := map[string]string{"keys": "id"}[table]
		if column == "" {
			column = "key_id"
		}
		return &bystander{where: column + " = " + id(key), use: asks(v.crowd, http.MethodPost, "/v1/keys/"+name+"/encrypt", encrypt)}
	case "credentials", "credential_secrets":
		made := v.make(t, v.crowd, "/v1/credentials", object{"name": name, "scopes": []string{"key:*"}})
		column := map[string]string{"credentials": "id", "credential_secrets": "credential"}[table]
		return &bystander{where: column + " = " + id(made.ID), use: asks(made.Credential, http.MethodGet, "/v1/keys", nil)}
	case "approvals":
		a := &kms.Approval{ID: uuid.NewV7(), Op: kms.OpDeleteTenant, Resource: "tenant " + name, RequestedBy: uuid.NewV7(),
			Created: time.Now(), Expires: time.Now().Add(time.Hour)}
		if err := v.App.Store.CreateApproval(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		return &bystander{where: "id = " + id(a.ID.String()), use: asks(v.Operator, http.MethodGet, "/v1/approvals/"+a.ID.String(), nil)}
	case "node_settings":
		// Of a node that is not in the pool, whose tokens are needed.
		node := kms.NodeID(name)
		if _, err := v.App.Store.SetNodeMode(t.Context(), node, 0, kms.NodeDrained); err != nil {
			t.Fatal(err)
		}
		return &bystander{where: "node = '" + name + "'", use: func(t *testing.T, s *wiretest.Service) int {
			if _, err := s.App.Store.NodeSetting(t.Context(), node); err != nil {
				return http.StatusInternalServerError
			}
			return http.StatusOK
		}}
	case "policies":
		newest, err := v.App.Store.NewestPolicy(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		// One that can be put into force: the start looks for the newest.
		document, err := quota.DefaultPolicy().Document()
		if err != nil {
			t.Fatal(err)
		}
		p := &kms.PolicyVersion{Version: newest + 1, Document: document, Digest: sha256.Sum256(document), Created: time.Now(), By: uuid.NewV7()}
		if err := v.App.Store.PutPolicy(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		version := strconv.FormatUint(p.Version, 10)
		return &bystander{where: "version = " + version, use: asks(v.Operator, http.MethodGet, "/v1/policy/versions/"+version, nil)}
	case "webhooks":
		tenant, credential := v.tenant(t, name) // one has but a few
		hook := v.webhook(t, uuid.MustParse(tenant))
		return &bystander{where: "id = " + id(hook.String()), use: asks(credential, http.MethodGet, "/v1/webhooks/"+hook.String(), nil)}
	case "deliveries":
		// Nobody asks for one; that a damaged one is not sent is the store's
		// promise. It is not due while the test runs.
		if v.hook == uuid.Nil() {
			v.hook = v.webhook(t, v.crowdID)
		}
		d := kms.Delivery{Tenant: v.crowdID, Webhook: v.hook, Event: uuid.NewV7(), Type: kms.EventDaySoft, Body: []byte("{}"), Created: time.Now().Add(time.Hour)}
		d.Once = d.Event.String()
		if _, err := v.App.Store.Enqueue(t.Context(), d.Tenant, []kms.Delivery{d}); err != nil {
			t.Fatal(err)
		}
		return &bystander{where: "event = " + id(d.Event.String()), use: asks(v.crowd, http.MethodGet, "/v1/webhooks?page_size=1000", nil), spare: true}
	case "request_records":
		r := kms.RequestRecord{RequestID: uuid.NewV7(), Tenant: v.crowdID, Project: kms.DefaultProject, Time: time.Now(), Op: kms.OpEncrypt, Outcome: "ok"}
		if err := v.App.Store.StoreRecords(t.Context(), []kms.RequestRecord{r}); err != nil {
			t.Fatal(err)
		}
		// It decides nothing, so one that can be read is believed.
		return &bystander{where: "request = " + id(r.RequestID.String()), use: asks(v.crowd, http.MethodGet, "/v1/requests/"+r.RequestID.String()+"/why", nil), spare: true}
	case "secrets", "secret_versions":
		secret := v.secret(t, v.crowd, name)
		column := map[string]string{"secrets": "id", "secret_versions": "secret_id"}[table]
		return &bystander{where: column + " = " + id(secret), use: fetches(v.crowd, name)}
	case "secret_revisions", "secret_changes":
		// A change that was lost or forged has watches fetch once more or less;
		// what a fetch gives is decided elsewhere.
		tenant, credential := v.tenant(t, name)
		v.secret(t, credential, name)
		return &bystander{where: "tenant = " + id(tenant), use: fetches(credential, name), spare: table == "secret_changes"}
	case "secret_outcomes":
		// Counts of a rollout: what is damaged holds it up, and the secret serves.
		tenant, credential := v.tenant(t, name)
		secret := v.secret(t, credential, name)
		v.make(t, credential, "/v1/secrets/"+secret+"/versions", object{"value": "sk-2"})
		v.make(t, credential, "/v1/secrets/"+secret+"/activate", object{"version": 2, "steps": []int{10, 100}, "step_interval": 3600})
		v.make(t, credential, "/v1/secret-values/report", object{"items": []object{{"secret_id": secret, "version": 2, "ok": 1}}})
		return &bystander{where: "tenant = " + id(tenant), use: fetches(credential, name), spare: true}
	case "alias_revisions":
		v.make(t, v.crowd, "/v1/keys", object{"name": name, "spec": "AES_256"})
		alias := name + "-alias"
		if status := asks(v.crowd, http.MethodPut, "/v1/aliases/"+alias, object{"key": name})(t, v.Service); status != http.StatusOK {
			t.Fatalf("setting an alias: %d", status)
		}
		return &bystander{where: "name = '" + alias + "'", use: asks(v.crowd, http.MethodPost, "/v1/keys/"+alias+"/encrypt", encrypt)}
	case "route_ends":
		tenant, credential := v.tenant(t, name)
		v.route(t, credential, name)
		if status := asks(credential, http.MethodDelete, "/v1/routes/"+name, nil)(t, v.Service); status != http.StatusOK {
			t.Fatalf("deleting a route: %d", status)
		}
		return &bystander{where: "tenant = " + id(tenant), use: func(t *testing.T, s *wiretest.Service) int {
			if _, err := s.App.Store.RouteRevision(t.Context(), uuid.MustParse(tenant), name); err != nil {
				return http.StatusInternalServerError
			}
			return http.StatusOK
		}}
	case "routes", "route_health":
		// Of a health that is damaged nothing is known, and the route serves.
		tenant, credential := v.tenant(t, name) // one has a hundred
		v.route(t, credential, name)
		return &bystander{where: "tenant = " + id(tenant), use: asks(credential, http.MethodGet, "/v1/routes/"+name, nil), spare: table == "route_health"}
	case "endpoint_probes":
		// Probes decide nothing by themselves: calls that get through overrule them.
		url := "https://" + name + ".example/v1"
		if err := v.App.Store.WantEndpoints(t.Context(), []string{url}, time.Now().Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
		return &bystander{where: "url = '" + url + "'", use: asks(v.crowd, http.MethodGet, "/v1/routes", nil), spare: true}
	case "jobs", "job_chunks":
		// What is not sealed, and when it may be run, decides nothing of one that is
		// done.
		_, credential := v.tenant(t, name)
		job := submitJob(t, v.Service, credential, strings.NewReader(`{"op":"random","bytes":8}`))
		awaitJob(t, v.Service, credential, job, "DONE")
		if table == "jobs" {
			return &bystander{where: "id = " + id(job), use: asks(credential, http.MethodGet, "/v1/jobs/"+job, nil)}
		}
		return &bystander{where: "job = " + id(job), use: func(t *testing.T, s *wiretest.Service) int {
			t.Helper()
			status, _ := jobResults(t, s, credential, job)
			return status
		}}
	case "credential_baselines":
		// Of a baseline that is damaged nothing is known, and the credential works.
		tenant, admin := v.tenant(t, name)
		made := v.make(t, admin, "/v1/credentials", object{"name": name, "scopes": []string{"key:*"}})
		baseline := kms.StoredBaseline{Tenant: uuid.MustParse(tenant), Credential: uuid.MustParse(made.ID), Document: []byte(name)}
		if err := v.App.Store.PutBaselines(t.Context(), []kms.StoredBaseline{baseline}); err != nil {
			t.Fatal(err)
		}
		return &bystander{where: "credential = " + id(made.ID), use: asks(made.Credential, http.MethodGet, "/v1/keys", nil), spare: true}
	case "cost_incidents":
		tenant, credential := v.tenant(t, name)
		began := time.Now().Add(-time.Hour).UTC().Truncate(time.Microsecond)
		i := &kms.CostIncident{ID: uuid.NewV7(), Tenant: uuid.MustParse(tenant), Node: "api-1", Began: began, Ended: began.Add(time.Minute),
			Tier: kms.TierGold, Factor: 400, Line: 2000, Recover: 1000, PeakRisk: 3000, PeakAt: began, SpanSeconds: 60}
		if err := v.App.Store.AddCostIncident(t.Context(), i); err != nil {
			t.Fatal(err)
		}
		return &bystander{where: "id = " + id(i.ID.String()), use: asks(credential, http.MethodGet, "/v1/quota/incidents/"+i.ID.String(), nil)}
	case "cost_lifts":
		// When a stop was lifted decides nothing while there is no incident.
		tenant, credential := v.tenant(t, name)
		if err := v.App.Store.NoteCostLift(t.Context(), uuid.MustParse(tenant)); err != nil {
			t.Fatal(err)
		}
		return &bystander{where: "tenant = " + id(tenant), use: asks(credential, http.MethodGet, "/v1/quota", nil), spare: true}
	case "idempotency":
		return &bystander{where: "claim = " + v.raw.bytes(name),
			use: asks(v.crowd, http.MethodPost, "/v1/keys", object{"name": name, "spec": "AES_256"}, "Idempotency-Key", name)}
	}
	t.Fatalf("the table %s: say how its rows are used", table)
	return nil
}

// route makes a route and reports over it, so that there is a health.
func (v *village) route(t *testing.T, credential, name string) {
	t.Helper()
	status, _, a := raw(t, v.Service, credential, http.MethodPut, "/v1/routes/"+name,
		`{"models":["m"],"primary":{"name":"one","provider":"openai","base_url":"https://93.184.215.14/v1","region":"eu"}}`)
	if status != http.StatusOK {
		t.Fatalf("%d %v", status, a)
	}
	v.make(t, credential, "/v1/routes/"+name+"/report", object{"items": []object{{"target": "one", "model": "m", "ok": 1}}})
}

// secret makes a provider secret and returns its id.
func (v *village) secret(t *testing.T, credential, path string) string {
	t.Helper()
	return v.make(t, credential, "/v1/secrets", object{"path": path, "provider": "openai", "value": "sk-1"}).ID
}

// fetches is the fetch of a secret: 200 if its value comes.
func fetches(credential, path string) func(*testing.T, *wiretest.Service) int {
	return func(t *testing.T, s *wiretest.Service) int {
		t.Helper()
		status, _, answer := raw(t, s, credential, http.MethodPost, "/v1/secret-values/fetch", `{"items":[{"path":"`+path+`"}]}`)
		if status != http.StatusOK {
			return status
		}
		if answer["items"].([]any)[0].(map[string]any)["status"] != "ok" {
			return http.StatusInternalServerError
		}
		return status
	}
}

func (v *village) webhook(t *testing.T, tenant uuid.UUID) uuid.UUID {
	t.Helper()
	w := &kms.Webhook{ID: uuid.NewV7(), Tenant: tenant, URL: "https://hooks.example.com/", Secret: []byte("sealed"), State: kms.WebhookActive,
		Created: time.Now(), Revision: 1}
	if err := v.App.Store.CreateWebhook(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	return w.ID
}

// works expects that everything works that was not damaged.
func (v *village) works(t *testing.T) {
	t.Helper()
	got := v.make(t, v.good, "/v1/keys/works/decrypt", object{"ciphertext": v.ciphertext})
	if string(got.Plaintext) != "kept" {
		t.Errorf("decrypted %q", got.Plaintext)
	}
	for _, credential := range []string{v.good, v.crowd} {
		v.make(t, credential, "/v1/keys/works/encrypt", object{"plaintext": []byte("x")})
		v.make(t, credential, "/v1/keys", object{"spec": "AES_256"})
		for _, list := range []string{"/v1/keys", "/v1/credentials", "/v1/aliases"} {
			if status, a := call(t, v.Service, credential, http.MethodGet, list+"?page_size=1000", nil); status != http.StatusOK {
				t.Errorf("%s: %d %s", list, status, a.Detail)
			}
		}
	}
	for _, list := range []string{"/v1/tenants", "/v1/approvals", "/v1/policy/versions"} {
		if status, a := call(t, v.Service, v.Operator, http.MethodGet, list+"?page_size=1000", nil); status != http.StatusOK {
			t.Errorf("%s: %d %s", list, status, a.Detail)
		}
	}
}

// bystanders makes one object for each value that each column can turn out to
// hold.
func (v *village) bystanders(t *testing.T) (all []*bystander, damage func(t *testing.T)) {
	t.Helper()
	type blow struct{ table, column, value string }
	var blows []blow
	for table, columns := range v.raw.columns {
		if ownTables[table] {
			continue
		}
		for _, column := range columns {
			for _, value := range column.values {
				b := v.bystander(t, table)
				b.name = fmt.Sprintf("%s.%s = %s", table, column.name, value)
				b.spare = b.spare || undecided[table+"."+column.name] || undecided[b.name]
				if status := b.use(t, v.Service); status/100 != 2 {
					t.Fatalf("%s: before the damage: %d", b.name, status)
				}
				all, blows = append(all, b), append(blows, blow{table, column.name, value})
			}
		}
	}
	return all, func(t *testing.T) {
		for i, b := range blows {
			if !v.raw.damage(t, b.table, b.column, b.value, all[i].where) {
				all[i].use = nil
			}
		}
	}
}

// A blank or unknown field of one row took a whole service down, everywhere,
// and kept it from starting (Google Cloud, 12 June 2025). Here any value in any
// column of a stored row disables its own object: the service starts, and
// everything else works.
func TestDamagedRowsStopNeitherTheStartNorOthers(t *testing.T) {
	for name, open := range map[string]func(*testing.T) *site{"SQLite": sqliteSite, "PostgreSQL": postgresSite} {
		t.Run(name, func(t *testing.T) {
			site := open(t)
			_, stop := site.serve(t) // it makes the schema
			stop()
			raw := site.raw(t)
			running, stop := site.serve(t)
			v := newVillage(t, running, raw)
			all, damage := v.bystanders(t)
			stop()
			damage(t)

			began := time.Now()
			v.Service, stop = site.serve(t)
			defer stop()
			took := time.Since(began)
			v.works(t)
			damaged, spared := 0, 0
			for _, b := range all {
				if b.use == nil {
					spared++ // the database cannot be damaged so
					continue
				}
				damaged++
				status := b.use(t, v.Service)
				if status/100 == 2 && !b.spare || status == http.StatusServiceUnavailable {
					t.Errorf("%s: the answer is %d", b.name, status)
				}
			}
			v.works(t)
			if log := site.log.String(); strings.Contains(log, "panic") {
				t.Errorf("something panicked: %.2000s", log[strings.Index(log, "panic"):])
			}
			if damaged < 200 {
				t.Errorf("only %d objects were damaged", damaged)
			}
			t.Logf("%d damaged objects, %d that could not be; the service started in %v", damaged, spared, took.Round(time.Millisecond))
		})
	}
}
