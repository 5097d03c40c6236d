package provider_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-kms/sluice/client/outcome"
	"github.com/sluice-kms/sluice/client/outcome/outcometest"
	"github.com/sluice-kms/sluice/kms"
	"github.com/sluice-kms/sluice/provider"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// callers are gateways that call real servers as their order says, under the
// clock of the route.
type callers struct {
	*gateway
	servers map[string]*outcometest.Provider
	client  *http.Client
}

func newCallers(t *testing.T) *callers {
	c := &callers{gateway: newGateway(t, "b"), servers: map[string]*outcometest.Provider{}}
	transport := &http.Transport{}
	c.client = &http.Client{Transport: transport, Timeout: 10 * time.Second}
	for i := range c.view.Route.Targets {
		target := &c.view.Route.Targets[i]
		c.servers[target.Name] = &outcometest.Provider{}
		server := httptest.NewServer(c.servers[target.Name])
		target.BaseURL = server.URL
		t.Cleanup(server.Close)
	}
	t.Cleanup(transport.CloseIdleConnections)
	return c
}

// call makes one call and adds what it came to to an outcome.
func (c *callers) call(o *kms.RouteOutcome) outcome.Class {
	c.t.Helper()
	v := c.send(c.view.Route.Target(o.Target).BaseURL)
	provider.Count(o, v)
	return v.Class
}

func (c *callers) send(url string) outcome.Verdict {
	r, err := http.NewRequestWithContext(context.Background(), http.MethodPost, url, http.NoBody)
	if err != nil {
		c.t.Fatal(err)
	}
	answer, err := c.client.Do(r)
	if err != nil {
		return outcome.OfError(err)
	}
	defer answer.Body.Close()
	stream := outcome.NewStream("openai", answer.Header.Get("Content-Type"))
	body, err := io.ReadAll(io.TeeReader(answer.Body, stream))
	if err != nil {
		return outcome.Broken(err)
	}
	if v := stream.Verdict(); answer.StatusCode == http.StatusOK && v.Class != outcome.OK {
		return v
	}
	return outcome.Of("openai", answer.StatusCode, answer.Header, body, c.view.Now)
}

// minute sends 200 calls by the order, tries what fails once elsewhere while
// retries last, and reports. It returns how many calls each server got, and how
// many callers got no answer.
func (c *callers) minute() (a, b, lost int) {
	c.t.Helper()
	const calls = 200
	before := [2]int{c.servers["a"].Requests(), c.servers["b"].Requests()}
	retries := c.order.Retries
	firstA := calls * int(c.choice("a").Weight) / 100
	outcomes := map[string]*kms.RouteOutcome{"a": {Target: "a"}, "b": {Target: "b"}}
	other := map[string]string{"a": "b", "b": "a"}
	for i := range calls {
		to := "a"
		if i >= firstA {
			to = "b"
		}
		if class := c.call(outcomes[to]); class == outcome.OK {
			continue
		}
		if retries == 0 {
			lost++
			continue
		}
		retries--
		second := outcomes[other[to]]
		second.Retries++
		if c.call(second) != outcome.OK {
			lost++
		}
	}
	c.report(*outcomes["a"], *outcomes["b"])
	if lease := c.choice("a").Lease; lease != 0 {
		granted := c.order.Retries
		probe := kms.RouteOutcome{Target: "a", Lease: lease}
		c.call(&probe)
		c.report(probe)
		c.order.Retries += granted
	}
	c.pass(time.Minute)
	return c.servers["a"].Requests() - before[0], c.servers["b"].Requests() - before[1], lost
}

// A primary fails in the way that gateways overlook, with errors in streams that
// began with 200; its calls leave in steps; it comes back in steps.
func TestARouteLivesThroughAnOutage(t *testing.T) {
	c := newCallers(t)
	if a, b, lost := c.minute(); a != 200 || b != 0 || lost != 0 {
		t.Fatalf("while all is well: %d, %d, %d lost", a, b, lost)
	}
	c.servers["a"].Default = streamError(t)
	// It is healthy until the first report; then 10, 30 and 100 % leave.
	for i, want := range []struct{ a, b int }{{200, 0}, {180, 20}, {140, 60}, {0, 200}} {
		granted := c.order.Retries
		a, b, _ := c.minute()
		if a == want.a+1 {
			a-- // one call under a lease: the breaker may be open for a little less than calls take to leave
		}
		if a != want.a || b < want.b || b > want.b+granted {
			t.Fatalf("minute %d: %d and %d calls, want %d and %d to %d", i, a, b, want.a, want.b, want.b+granted)
		}
		if i > 0 && granted > 20+60 { // a tenth of the calls, and one a second
			t.Fatalf("minute %d: %d retries", i, granted)
		}
	}
	// While it is down it gets one call at a time, after longer and longer times.
	probes := 0
	for range 30 {
		a, b, lost := c.minute()
		if a > 1 || b != 200 || lost != 0 {
			t.Fatalf("while it is down: %d, %d, %d lost", a, b, lost)
		}
		probes += a
	}
	if probes < 2 || probes > 6 {
		t.Errorf("%d calls in half an hour to a provider that is down", probes)
	}
	c.servers["a"].Default = outcometest.Case{}
	var shares []int
	for range 40 {
		a, _, lost := c.minute()
		if lost != 0 {
			t.Fatalf("%d lost while it comes back", lost)
		}
		if len(shares) == 0 || shares[len(shares)-1] != a {
			shares = append(shares, a)
		}
	}
	want := []int{0, 1, 40, 100, 200}
	if len(shares) > 0 && shares[0] == 1 {
		want = want[1:]
	}
	if !slices.Equal(shares, want) {
		t.Errorf("it came back with %v calls a minute, want %v", shares, want)
	}
	for e, n := range map[kms.EventType]int{kms.EventProviderUnhealthy: 1, kms.EventRouteFailOver: 1, kms.EventRouteFailback: 2, kms.EventProviderKeyInvalid: 0} {
		if c.told(e) != n {
			t.Errorf("%s was told %d times, want %d", e, c.told(e), n)
		}
	}
}

// streamError is an answer of 200 whose stream holds an error of the endpoint.
func streamError(t *testing.T) outcometest.Case {
	for _, c := range outcometest.Answers() {
		if c.Stream && !c.Frames && c.Status == http.StatusOK && c.Provider == "openai" && c.Want.Class == outcome.Transient && c.Want.MidStream {
			return c
		}
	}
	t.Fatal("no case of an error in a stream")
	return outcometest.Case{}
}
