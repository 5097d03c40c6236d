package api_test

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
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
	err := testutil.GatherAndCompare(w.metrics, strings.NewReader(`
# HELP sluice_http_requests_in_flight Requests under way.
# TYPE sluice_http_requests_in_flight gauge
sluice_http_requests_in_flight 0
# HELP sluice_http_requests_total Requests by route and class of status.
# TYPE sluice_http_requests_total counter
sluice_http_requests_total{route="GET /openapi.json",status="2xx"} 1
sluice_http_requests_total{route="POST /v1/random",status="2xx"} 1
sluice_http_requests_total{route="POST /v1/random",status="4xx"} 1
sluice_http_requests_total{route="POST /v1/tenants",status="2xx"} 2
sluice_http_requests_total{route="POST /v1/tenants/{tenant}/credentials",status="2xx"} 2
sluice_http_requests_total{route="unmatched",status="4xx"} 1
`), "sluice_http_requests_in_flight", "sluice_http_requests_total")
	if err != nil {
		t.Error(err)
	}
}
