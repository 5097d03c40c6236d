package wire_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-kms/sluice/client"
)

// balancer stands before API nodes: it gives each request to the next one that
// is up.
type balancer struct {
	mu   sync.Mutex
	next int
	up   []string // addresses
}

func (b *balancer) set(addresses ...string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.up = addresses
}

func (b *balancer) RoundTrip(r *http.Request) (*http.Response, error) {
	b.mu.Lock()
	if len(b.up) == 0 {
		b.mu.Unlock()
		return nil, syscall.ECONNREFUSED
	}
	b.next++
	address := b.up[b.next%len(b.up)]
	b.mu.Unlock()
	node, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	out := r.Clone(r.Context())
	out.URL.Scheme, out.URL.Host = node.Scheme, node.Host
	return http.DefaultTransport.RoundTrip(out)
}

// secretsOfTwoNodes is a tenant with the secret llm/openai, whose version 1 is
// in use.
type secretsOfTwoNodes struct {
	balancer *balancer
	admin    *client.Client // of the first node
	gateway  string         // credential
	id       string
}

func newSecretsOfTwoNodes(t *testing.T, a, b *apiNode) *secretsOfTwoNodes {
	t.Helper()
	s := &secretsOfTwoNodes{balancer: &balancer{}}
	s.balancer.set(a.URL, b.URL)
	if status, tenant := call(t, a.Service, a.Operator, http.MethodPost, "/v1/tenants", object{"name": "acme", "tier": "platinum"}); status != http.StatusCreated {
		t.Fatalf("%d %s", status, tenant.Detail)
	}
	credential := func(scopes ...string) string {
		status, c := call(t, a.Service, a.Operator, http.MethodPost, "/v1/tenants/acme/credentials", object{"name": "x", "scopes": scopes})
		if status != http.StatusCreated {
			t.Fatalf("%d %s", status, c.Detail)
		}
		return c.Credential
	}
	s.admin = newClientOf(t, credential("secret:*"), a.URL, http.DefaultTransport)
	s.gateway = credential("secret:read:llm/*", "secret:report")
	made, err := s.admin.CreateSecret(t.Context(), client.CreateSecretInput{Path: "llm/openai", Provider: "openai", Value: client.NewValue("sk-1")})
	if err != nil {
		t.Fatal(err)
	}
	s.id = made.ID
	return s
}

func newClientOf(t *testing.T, credential, address string, transport http.RoundTripper) *client.Client {
	t.Helper()
	c, err := client.New(client.Options{Address: address, Credential: client.NewToken(credential), HTTPClient: &http.Client{Transport: transport}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(http.DefaultTransport.(*http.Transport).CloseIdleConnections)
	return c
}

// open starts a gateway's cache, which holds the secret.
func (s *secretsOfTwoNodes) open(t *testing.T) (*client.Secrets, *client.Handle) {
	t.Helper()
	cache, err := newClientOf(t, s.gateway, "http://kms.test", s.balancer).Secrets(client.SecretsOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cache.Close)
	if err := cache.Preload(t.Context(), "llm/openai"); err != nil {
		t.Fatal(err)
	}
	return cache, cache.Handle("llm/openai")
}

// rotate makes a value the one in use, at once.
func (s *secretsOfTwoNodes) rotate(t *testing.T, value string) (version uint32) {
	t.Helper()
	added, err := s.admin.AddSecretVersion(t.Context(), s.id, client.AddSecretVersionInput{Value: client.NewValue(value)})
	if err == nil {
		_, err = s.admin.ActivateSecret(t.Context(), s.id, client.ActivateSecretInput{Version: added.Version})
	}
	if err != nil {
		t.Fatal(err)
	}
	return added.Version
}

func gives(h *client.Handle, value string) func() bool {
	return func() bool {
		v, err := h.Get("request")
		return err == nil && v.Reveal() == value
	}
}

// Whatever node takes the change and whatever nodes the gateways watch.
func TestADisabledSecretIsGivenOutNoMoreAfterASecond(t *testing.T) {
	a, b, _ := twoNodes(t)
	s := newSecretsOfTwoNodes(t, a, b)
	var gateways []*client.Handle
	for range 4 {
		_, h := s.open(t)
		gateways = append(gateways, h)
	}
	const trials, value = 60, "sk-2"
	var lags []time.Duration // from the request to disable to the last use anywhere
	version := s.rotate(t, value)
	for i := range trials {
		for _, h := range gateways {
			within(t, 5*time.Second, "a rotation", gives(h, value))
		}
		var last atomic.Int64
		var gone sync.WaitGroup
		for _, h := range gateways {
			gone.Go(func() {
				for v, err := h.Get("request"); err == nil; v, err = h.Get("request") {
					if v.Reveal() == value {
						last.Store(max(last.Load(), time.Now().UnixNano()))
					}
					<-time.After(time.Millisecond)
				}
			})
		}
		start := time.Now()
		if _, err := s.admin.DisableSecretVersion(t.Context(), s.id, version, 0); err != nil {
			t.Fatal(err)
		}
		gone.Wait()
		lags = append(lags, time.Unix(0, last.Load()).Sub(start))
		for _, h := range gateways {
			if _, err := h.Get("request"); !errors.Is(err, client.ErrRevoked) {
				t.Errorf("trial %d: %v", i, err)
			}
		}
		_, err := s.admin.RestoreSecretVersion(t.Context(), s.id, version, 0)
		if err == nil {
			_, err = s.admin.ActivateSecret(t.Context(), s.id, client.ActivateSecretInput{Version: version})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(lags)
	p99 := lags[len(lags)*99/100]
	t.Logf("from disable to the last use in 4 gateways, %d trials: median %v, P99 %v, most %v", trials, lags[len(lags)/2], p99, lags[len(lags)-1])
	if p99 > time.Second {
		t.Errorf("P99 is %v, want at most 1 s", p99)
	}
}

func TestCachedGatewaysOutliveAStopOfTheServiceAndFollowItAfterwards(t *testing.T) {
	c := newCluster(t)
	a := c.start(t, 1)
	a.Operator = c.operator(t, a.app)
	b, stop := c.startStoppable(t, 2)
	s := newSecretsOfTwoNodes(t, a, b)
	s.balancer.set(b.URL) // the gateway knows the second node only
	_, h := s.open(t)
	s.balancer.set()
	stop()
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end); <-time.After(10 * time.Millisecond) {
		if !gives(h, "sk-1")() {
			t.Fatal("the value is lost while the service is stopped")
		}
	}
	s.rotate(t, "sk-2") // by the other node, of which the gateway hears nothing
	if !gives(h, "sk-1")() {
		t.Fatal("the value is lost while the service is stopped")
	}
	b = c.start(t, 2)
	s.balancer.set(b.URL)
	within(t, 15*time.Second, "the rotation of before the start", gives(h, "sk-2"))
}

// llm is a provider that knows which keys are good.
type llm struct {
	mu      sync.Mutex
	good    map[string]bool
	refused map[string]int
	served  map[string]int
}

func newLLM(t *testing.T, good ...string) (*llm, string) {
	p := &llm{good: map[string]bool{}, refused: map[string]int{}, served: map[string]int{}}
	for _, key := range good {
		p.good[key] = true
	}
	server := httptest.NewServer(p)
	t.Cleanup(server.Close)
	return p, server.URL
}

func (p *llm) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.good[key] {
		p.refused[key]++
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusUnauthorized)
		io.WriteString(w, `{"error":{"code":"invalid_api_key"}}`)
		return
	}
	p.served[key]++
}

// load asks a provider until stop is called, from some goroutines, and counts
// the requests that failed.
func load(t *testing.T, h *client.Handle, address string) (stop func() (requests, failed int64)) {
	ctx, cancel := context.WithCancel(t.Context())
	c := &http.Client{Transport: h.Transport(client.TransportOptions{})}
	var all, bad atomic.Int64
	var done sync.WaitGroup
	for g := range 4 {
		done.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				req, err := http.NewRequest(http.MethodPost, address, strings.NewReader("{}"))
				if err != nil {
					panic(err)
				}
				req.Header.Set("X-Request-Id", fmt.Sprintf("request-%d-%d", g, i))
				res, err := c.Do(req)
				all.Add(1)
				if err != nil || res.StatusCode != http.StatusOK {
					bad.Add(1)
				}
				if err == nil {
					io.Copy(io.Discard, res.Body)
					res.Body.Close()
				}
				<-time.After(time.Millisecond)
			}
		})
	}
	return func() (int64, int64) {
		cancel()
		done.Wait()
		return all.Load(), bad.Load()
	}
}

func TestRotationsUnderLoadFailNoRequest(t *testing.T) {
	a, b, _ := twoNodes(t)
	s := newSecretsOfTwoNodes(t, a, b)
	_, h := s.open(t)
	p, address := newLLM(t, "sk-1")
	stop := load(t, h, address)
	last := "sk-1"
	for i := range 20 {
		next := fmt.Sprintf("sk-rotated-%d", i)
		p.mu.Lock()
		p.good[next] = true // the provider has it before it is activated
		p.mu.Unlock()
		s.rotate(t, next)
		within(t, 5*time.Second, "a rotation", gives(h, next))
		<-time.After(20 * time.Millisecond) // requests with the old key end
		p.mu.Lock()
		delete(p.good, last)
		p.mu.Unlock()
		last = next
	}
	requests, failed := stop()
	t.Logf("%d requests during 20 rotations, %d failed", requests, failed)
	if failed > 0 || requests < 500 {
		t.Errorf("%d of %d requests failed", failed, requests)
	}
}

// The gateway's reports are what the service decides by.
func TestABadNewKeyIsRolledBackByWhatGatewaysReport(t *testing.T) {
	a, b, _ := twoNodes(t)
	s := newSecretsOfTwoNodes(t, a, b)
	_, h := s.open(t)
	p, address := newLLM(t, "sk-1")
	stop := load(t, h, address)
	added, err := s.admin.AddSecretVersion(t.Context(), s.id, client.AddSecretVersionInput{Value: client.NewValue("sk-bad")})
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	if _, err := s.admin.ActivateSecret(t.Context(), s.id, client.ActivateSecretInput{Version: added.Version, Steps: []uint32{10, 30, 100}}); err != nil {
		t.Fatal(err)
	}
	within(t, 15*time.Second, "the roll back", func() bool {
		secret, err := s.admin.GetSecret(t.Context(), s.id)
		return err == nil && secret.Rollout != nil && secret.Rollout.State == "ROLLED_BACK"
	})
	took := time.Since(start)
	<-time.After(time.Second)
	p.mu.Lock()
	refused := p.refused["sk-bad"]
	p.mu.Unlock()
	<-time.After(500 * time.Millisecond)
	requests, failed := stop()
	p.mu.Lock()
	defer p.mu.Unlock()
	t.Logf("rolled back after %v; %d of %d requests met the bad key", took, failed, requests)
	if p.refused["sk-bad"] != refused {
		t.Error("the bad key is used a second after it was rolled back")
	}
	if share := float64(failed) / float64(requests); failed == 0 || share > 0.15 {
		t.Errorf("%d of %d requests met the bad key, want a tenth of those in the first step", failed, requests)
	}
}
