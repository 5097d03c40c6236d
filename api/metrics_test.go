package api_test

import (
	"fmt"
	"net/http/httptest"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/sluice-kms/sluice/api"
)

// TestSeriesDoNotGrowWithWhatClientsSend sends thousands of distinct methods,
// paths and names (CVE-2022-21698, CVE-2026-49835).
func TestSeriesDoNotGrowWithWhatClientsSend(t *testing.T) {
	w := newWorld(t)
	send := func(n int) {
		for i := range n {
			for _, r := range []struct{ method, path string }{
				{"GET", fmt.Sprintf("/v1/keys/name-%d", i)}, {"GET", fmt.Sprintf("/path/%d", i)},
				{fmt.Sprintf("METHOD%d", i), "/v1/keys"}, {"POST", fmt.Sprintf("/v1/keys/n%d/sign", i)},
			} {
				w.handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(r.method, r.path, nil))
			}
		}
	}
	send(1)
	first, err := testutil.GatherAndCount(w.metrics)
	if err != nil {
		t.Fatal(err)
	}
	send(1000)
	second, err := testutil.GatherAndCount(w.metrics)
	if err != nil {
		t.Fatal(err)
	}
	if first != second {
		t.Errorf("%d series became %d", first, second)
	}
}

func TestRequestsAreCountedByRouteAndStatus(t *testing.T) {
	w := newWorld(t)
	w.must(200, "POST", "/v1/random", w.acme.token, `{"bytes":16}`)
	w.sendBad("POST", "/v1/random", w.acme.token, `{`)
	// Past the network, so that it is over when the metrics are read.
	w.handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/nowhere", nil))
	if n, err := testutil.GatherAndCount(w.metrics, "sluice_http_requests_total"); err != nil || n < len(api.Routes()) {
		t.Errorf("%d series, %v: a route's success is to be seen before it first happens", n, err)
	}
	want := map[string]float64{
		`GET /openapi.json 2xx`:                     1,
		`POST /v1/random 2xx`:                       1,
		`POST /v1/random 4xx`:                       1,
		`POST /v1/tenants 2xx`:                      2,
		`POST /v1/tenants/{tenant}/credentials 2xx`: 2,
		`unmatched 4xx`:                             1,
	}
	families, err := w.metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			switch f.GetName() {
			case "sluice_http_requests_in_flight":
				if v := m.GetGauge().GetValue(); v != 0 {
					t.Errorf("%v requests are in flight", v)
				}
			case "sluice_http_requests_total":
				name := m.GetLabel()[0].GetValue() + " " + m.GetLabel()[1].GetValue()
				if v := m.GetCounter().GetValue(); v != want[name] {
					t.Errorf("%s: %v, want %v", name, v, want[name])
				}
				delete(want, name)
			}
		}
	}
	if len(want) > 0 {
		t.Errorf("not counted: %v", want)
	}
}
