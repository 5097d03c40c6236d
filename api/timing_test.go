package api_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
	"uuid"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-kms/sluice/api"
	"github.com/sluice-kms/sluice/cmd/sluice/wire/wiretest"
)

// stepMetrics are the counters of what takes time in a request: look-ups that
// the caches could not answer, work on the nodes, answers by operation and
// outcome, and the price. The seconds that they took are not compared, since a
// machine is never quiet; the steps decide them. Entries of the journal are
// not counted: those of many refusals are written together.
var stepMetrics = []string{
	"sluice_keystore_cache_loads_total", "sluice_keystore_cache_absences", "sluice_keystore_cache_evictions_total",
	"sluice_node_operations_total", "sluice_node_handle_misses_total", "sluice_node_handle_hits_total",
	"sluice_requests_total", "sluice_credits_total",
}

// steps reads the counters.
func steps(t *testing.T, metrics prometheus.Gatherer) map[string]float64 {
	t.Helper()
	families, err := metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]float64{}
	for _, f := range families {
		if !slices.Contains(stepMetrics, f.GetName()) {
			continue
		}
		for _, m := range f.Metric {
			all[fmt.Sprint(f.GetName(), m.GetLabel())] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	if len(all) == 0 {
		t.Fatal("the service counts nothing")
	}
	return all
}

// taken returns the steps that f takes.
func taken(t *testing.T, metrics prometheus.Gatherer, f func()) map[string]float64 {
	before := steps(t, metrics)
	f()
	after := steps(t, metrics)
	for name, n := range after {
		if after[name] = n - before[name]; after[name] == 0 {
			delete(after, name)
		}
	}
	return after
}

// freshObjects makes objects of a tenant that nobody has asked for, each with a
// reference of the same form to one that does not exist.
func (w *world) freshObjects(of tenant, n int, r *api.Route) (foreign, absent []map[api.Object]string) {
	w.t.Helper()
	for form := range 2 {
		name := fmt.Sprintf("fresh-%d-%d-%s", n, form, of.name)
		key := w.must(201, "POST", "/v1/keys", of.token, `{"name":"`+name+`","spec":"AES_256"}`).text("id")
		w.must(200, "PUT", "/v1/aliases/"+name+"-alias", of.token, `{"key":"`+key+`"}`)
		credential := w.must(201, "POST", "/v1/credentials", of.token, `{"name":"`+name+`","scopes":["key:sign"]}`).text("id")
		webhook := ""
		if slices.Contains(r.Objects(), api.ObjectWebhook) { // a tenant has few
			webhook = w.must(201, "POST", "/v1/webhooks", of.token, `{"url":"https://93.184.215.14/`+name+`"}`).text("id")
		}
		secret := ""
		if slices.Contains(r.Objects(), api.ObjectSecret) || slices.Contains(r.Objects(), api.ObjectPath) {
			secret = w.must(201, "POST", "/v1/secrets", of.token, `{"path":"`+name+`","provider":"openai","value":"sk-1"}`).text("id")
		}
		if slices.Contains(r.Objects(), api.ObjectRoute) {
			w.must(200, "PUT", "/v1/routes/"+name, of.token, samples["put-route"])
		}
		incident := ""
		if slices.Contains(r.Objects(), api.ObjectIncident) {
			incident = w.incident(of).ID.String()
		}
		job := ""
		if slices.Contains(r.Objects(), api.ObjectJob) {
			job = w.must(202, "POST", "/v1/jobs", of.token, samples["create-job"]).text("id")
			for w.must(200, "GET", "/v1/jobs/"+job, of.token, "").text("state") != "DONE" {
				<-time.After(time.Millisecond) // its items take steps as well
			}
		}
		f := map[api.Object]string{
			api.ObjectIncident: incident,
			api.ObjectKey:      key, api.ObjectVersion: "1", api.ObjectCredential: credential,
			api.ObjectAlias: name + "-alias", api.ObjectTenant: of.id, api.ObjectApproval: credential, api.ObjectNode: "node-1", api.ObjectPolicy: "0",
			api.ObjectWebhook: webhook, api.ObjectSecret: secret, api.ObjectPath: name, api.ObjectRoute: name, api.ObjectJob: job,
			api.ObjectRequest: w.must(200, "POST", "/v1/keys/"+key+"/encrypt", of.token, `{"plaintext":"aGVsbG8="}`).text("request_id"),
		}
		none := func() string { return uuid.NewV7().String() }
		a := map[api.Object]string{
			api.ObjectIncident: none(),
			api.ObjectKey:      none(), api.ObjectVersion: "1", api.ObjectCredential: none(),
			api.ObjectAlias: name + "-nobody", api.ObjectTenant: none(), api.ObjectApproval: none(), api.ObjectNode: "node-9", api.ObjectPolicy: "9",
			api.ObjectWebhook: none(), api.ObjectSecret: none(), api.ObjectPath: name + "-nobody", api.ObjectRoute: name + "-nobody", api.ObjectJob: none(),
			api.ObjectRequest: none(),
		}
		if form == 1 {
			f[api.ObjectKey], a[api.ObjectKey] = name, name+"-none"
			f[api.ObjectTenant], a[api.ObjectTenant] = of.name, "nobody"
		}
		foreign, absent = append(foreign, f), append(absent, a)
	}
	return foreign, absent
}

// TestForeignAndMissingObjectsTakeTheSameSteps is the timing half of the
// matrix: for every route that names an object, a reference to another
// tenant's object costs what one to a missing object costs: the same look-ups
// in the database the first time, the same answers of the caches afterwards,
// no work on a node, the same price.
func TestForeignAndMissingObjectsTakeTheSameSteps(t *testing.T) {
	wiretest.Require(t)
	service := wiretest.StartQuiet(t, t.TempDir())
	w := &world{t: t, operator: service.Operator, incidents: service.App.Store}
	w.attach(service.URL, service.Client(), service.Handler)
	compared := 0
	for n, r := range api.Routes() {
		if len(r.Objects()) == 0 || r.Public {
			continue
		}
		t.Run(r.Name, func(t *testing.T) {
			foreign, absent := w.freshObjects(w.rival, n, &r)
			// What the two have in common is looked up before: the caller's
			// credential, the objects that the body names.
			w.send(r.Method, strings.NewReplacer("{", "", "}", "").Replace(r.Path), w.acme.token, samples[r.Name])
			for form := range foreign {
				for _, times := range []string{"the first time", "again"} {
					of := func(references map[api.Object]string) map[string]float64 {
						path := r.Path
						for o, reference := range references {
							path = strings.Replace(path, "{"+string(o)+"}", reference, 1)
						}
						return taken(t, service.App.Metrics, func() { w.send(r.Method, path, w.acme.token, samples[r.Name]) })
					}
					f, a := of(foreign[form]), of(absent[form])
					if !maps.Equal(f, a) {
						t.Errorf("%s, form %d: another tenant's object takes %v\na missing one %v", times, form, f, a)
					}
					if len(f) == 0 {
						t.Errorf("%s: a request took no step at all", times)
					}
					compared++
				}
			}
		})
	}
	if compared < 100 {
		t.Errorf("only %d pairs were compared", compared)
	}
}
