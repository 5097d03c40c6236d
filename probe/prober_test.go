package probe

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"github.com/sluice-kms/sluice/client/outcome/outcometest"
	"github.com/sluice-kms/sluice/kms"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// probes holds endpoints in memory.
type probes struct {
	mu     sync.Mutex
	misses map[string]int
	due    map[string]time.Time
}

func newProbes(urls ...string) *probes {
	p := &probes{misses: map[string]int{}, due: map[string]time.Time{}}
	for _, u := range urls {
		p.due[u] = time.Time{}
	}
	return p
}

func (p *probes) WantEndpoints(context.Context, []string, time.Time) error { return nil }

func (p *probes) Endpoints(context.Context, []string) ([]kms.Endpoint, error) { return nil, nil }

func (p *probes) ClaimEndpoints(_ context.Context, lease time.Duration, _ int) (list []kms.Endpoint, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	for url, due := range p.due {
		if !due.After(now) {
			p.due[url] = now.Add(lease)
			list = append(list, kms.Endpoint{URL: url, Misses: p.misses[url]})
		}
	}
	return list, nil
}

func (p *probes) EndProbe(_ context.Context, url string, misses int, due time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.misses[url], p.due[url] = misses, due
	return nil
}

func (p *probes) of(url string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.misses[url]
}

// answers answers requests in memory, by host.
type answers struct {
	mu    sync.Mutex
	asked []*http.Request
	by    map[string]outcometest.Case
}

func (a *answers) get(r *http.Request) (*http.Response, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked = append(a.asked, r)
	c := a.by[r.URL.Host]
	if c.Err != nil {
		return nil, c.Err
	}
	w := httptest.NewRecorder()
	w.WriteHeader(c.Status)
	w.WriteString(c.Body)
	return w.Result(), nil
}

func (a *answers) requests() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.asked)
}

func start(t *testing.T, p *probes, a *answers) *Prober {
	prober := Start(Config{Probes: p, Get: a.get, Interval: func() time.Duration { return 30 * time.Second }, Log: slog.New(slog.DiscardHandler), Clock: time.Now, Registerer: prometheus.NewRegistry()})
	t.Cleanup(func() { prober.Close() })
	return prober
}

var (
	refused = outcometest.Case{Status: http.StatusUnauthorized, Body: `{"error":{"code":"invalid_api_key"}}`}
	broken  = outcometest.Case{Status: http.StatusServiceUnavailable}
)

const one, two, three = "https://one.example/v1", "https://two.example/v1/", "https://three.example"

func TestAnEndpointThatRefusesIsUpAndOneThatFailsMisses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProbes(one, two, three)
		a := &answers{by: map[string]outcometest.Case{"one.example": refused, "two.example": broken, "three.example": outcometest.Errors()[0]}}
		prober := start(t, p, a)
		time.Sleep(2*time.Minute + time.Second)
		synctest.Wait()
		// 30 seconds, give or take a fifth, found within a second: 3 to 6 probes.
		if p.of(one) != 0 || p.of(two) < 3 || p.of(two) > 6 {
			t.Errorf("misses %d, %d and %d", p.of(one), p.of(two), p.of(three))
		}
		if n := a.requests(); n < 9 || n > 18 {
			t.Errorf("%d probes of three endpoints in two minutes", n)
		}
		if testutil.ToFloat64(prober.probed.WithLabelValues("up")) < 3 || testutil.ToFloat64(prober.probed.WithLabelValues("missed")) < 6 {
			t.Error("probes are not counted")
		}
		a.mu.Lock()
		a.by["two.example"] = refused
		a.mu.Unlock()
		time.Sleep(time.Minute)
		synctest.Wait()
		if p.of(two) != 0 {
			t.Errorf("%d misses of one that answers again", p.of(two))
		}
	})
}

// higress sent chat completions with tenants' keys to see whether they work.
func TestProbesHaveNoKeyAndNoBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &answers{by: map[string]outcometest.Case{"two.example": refused}}
		start(t, newProbes(two), a)
		synctest.Wait()
		r := a.asked[0]
		if r.Method != http.MethodGet || r.URL.String() != "https://two.example/v1/models" || r.ContentLength != 0 || len(r.Header) != 1 ||
			r.Header.Get("User-Agent") != userAgent {
			t.Errorf("%s %s %v", r.Method, r.URL, r.Header)
		}
	})
}

func TestANodeWithoutANetworkCountsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProbes(one, two, three)
		a := &answers{by: map[string]outcometest.Case{"one.example": broken, "two.example": broken, "three.example": broken}}
		start(t, p, a)
		synctest.Wait()
		for _, url := range []string{one, two, three} {
			if p.of(url) != 0 {
				t.Errorf("%s has missed %d probes", url, p.of(url))
			}
		}
	})
}

// Of two nodes that share the store one probes an endpoint.
func TestAnEndpointIsProbedOnceForAllNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProbes(one)
		a := &answers{by: map[string]outcometest.Case{"one.example": refused}}
		start(t, p, a)
		start(t, p, a)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if n := a.requests(); n < 3 || n > 6 {
			t.Errorf("%d probes in two minutes", n)
		}
	})
}
