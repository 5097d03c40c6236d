package client_test

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
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-kms/sluice/client"
	"github.com/sluice-kms/sluice/client/outcome"
	"github.com/sluice-kms/sluice/client/outcome/outcometest"
)

// gateway is a program that asks a provider with a secret's value.
type gateway struct {
	service  *fakeService
	secrets  *client.Secrets
	handle   *client.Handle
	provider *outcometest.Provider
	address  string
	http     *http.Client

	mu       sync.Mutex
	attempts []client.Attempt
	keys     []string // that the provider was shown
}

// newGateway starts a provider on the loopback interface.
func newGateway(t *testing.T, o client.TransportOptions) *gateway {
	t.Helper()
	g := &gateway{service: newFake(), provider: &outcometest.Provider{}}
	g.provider.Check = func(r *http.Request) {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.keys = append(g.keys, r.Header.Get("Authorization")+r.Header.Get("X-Api-Key")+r.Header.Get("Api-Key")+r.Header.Get("X-Goog-Api-Key"))
	}
	server := httptest.NewServer(g.provider)
	t.Cleanup(server.Close)
	g.address = server.URL
	g.service.set("a", 1)
	g.secrets = newSecrets(t, g.service, client.SecretsOptions{})
	g.handle = g.secrets.Handle("a")
	o.Base = server.Client().Transport
	o.Observe = func(a client.Attempt) {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.attempts = append(g.attempts, a)
	}
	g.http = &http.Client{Transport: g.handle.Transport(o)}
	return g
}

// ask makes a request and reads the answer.
func (g *gateway) ask(t *testing.T, ctx context.Context) (status int, body string, err error) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, g.address, strings.NewReader(`{"model":"m"}`))
	if err != nil {
		t.Fatal(err)
	}
	res, err := g.http.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	return res.StatusCode, string(b), err
}

func (g *gateway) seen() ([]client.Attempt, []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.attempts), slices.Clone(g.keys)
}

// Every answer of every provider comes to the program as it was, is judged, and
// is counted for the version that was used.
func TestATransportJudgesEveryAnswerAndPassesItOnAsItIs(t *testing.T) {
	for _, c := range outcometest.Answers() {
		t.Run(c.Name, func(t *testing.T) {
			g := newGateway(t, client.TransportOptions{Provider: c.Provider, MaxAttempts: 1})
			g.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
			g.provider.Play(c)
			status, body, err := g.ask(t, t.Context())
			if status != c.Status || body != c.Body || (err != nil) != c.Breaks {
				t.Errorf("status %d, body %q, %v", status, body, err)
			}
			attempts, _ := g.seen()
			want := c.Want
			if c.Status == 200 && !c.Stream {
				want = outcome.Verdict{Class: outcome.OK, Row: "ok"} // bodies of success are not read
			}
			if len(attempts) != 1 || attempts[0].Path != "a" || attempts[0].Version != 1 {
				t.Fatalf("attempts: %+v", attempts)
			}
			got := attempts[0].Verdict
			if c.Header.Get("Date") != "" { // the server's own date is another
				got.RetryAfter, got.Cool, want.RetryAfter, want.Cool = 0, 0, 0, 0
			}
			if got != want {
				t.Errorf("\n got %+v\nwant %+v", got, want)
			}
		})
	}
}

func TestEachProviderIsGivenTheKeyInItsHeaderAndNoOther(t *testing.T) {
	for provider, want := range map[outcome.Provider]string{
		outcome.OpenAI: "Authorization", outcome.Anthropic: "X-Api-Key", outcome.AzureOpenAI: "Api-Key", outcome.Gemini: "X-Goog-Api-Key",
		"": "Authorization", // the secret's own provider is openai
	} {
		var got http.Header
		g := newGateway(t, client.TransportOptions{Provider: provider})
		g.provider.Check = func(r *http.Request) { got = r.Header.Clone() }
		req, _ := http.NewRequest(http.MethodGet, g.address, nil)
		for _, h := range []string{"Authorization", "X-Api-Key", "Api-Key", "X-Goog-Api-Key"} {
			req.Header.Set(h, "the client's own")
		}
		res, err := g.http.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		for _, h := range []string{"Authorization", "X-Api-Key", "Api-Key", "X-Goog-Api-Key"} {
			value := ""
			if h == want {
				value = strings.TrimPrefix("Bearer "+valueOf("a", 1), map[bool]string{true: "Bearer "}[h != "Authorization"])
			}
			if got.Get(h) != value {
				t.Errorf("%s: header %s is %q, want %q", provider, h, got.Get(h), value)
			}
		}
		if req.Header.Get("Authorization") != "the client's own" || strings.Contains(fmt.Sprint(res.Request.Header), "canary") {
			t.Error("the program's request was changed, or it was shown the value")
		}
	}
}

func TestARedirectNeverTakesTheValueElsewhere(t *testing.T) {
	g := newGateway(t, client.TransportOptions{})
	var stolen []string
	thief := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		stolen = append(stolen, fmt.Sprint(r.Header))
	}))
	defer thief.Close()
	g.provider.Play(outcometest.Case{Status: 307, Header: http.Header{"Location": {thief.URL}}})
	if _, _, err := g.ask(t, t.Context()); err == nil {
		t.Error("the redirect was followed")
	}
	if len(stolen) > 0 {
		t.Errorf("sent elsewhere: %v", stolen)
	}
	// Within the provider it is followed.
	g.provider.Play(outcometest.Case{Status: 307, Header: http.Header{"Location": {g.address + "/v2"}}})
	if status, _, err := g.ask(t, t.Context()); err != nil || status != 200 {
		t.Errorf("within the provider: %d, %v", status, err)
	}
}

func TestTheValueIsNotSentWithoutTLSToOtherHosts(t *testing.T) {
	f := newFake()
	f.set("a", 1)
	s := newSecrets(t, f, client.SecretsOptions{})
	sent := 0
	base := roundTripper(func(*http.Request) (*http.Response, error) { sent++; return ok(`{}`), nil })
	for address, want := range map[string]int{"http://llm.test/": 0, "https://llm.test/": 1, "http://127.0.0.1/": 1, "http://localhost/": 1, "http://[::1]/": 1} {
		sent = 0
		req, _ := http.NewRequest(http.MethodGet, address, nil)
		res, err := s.Handle("a").Transport(client.TransportOptions{Base: base}).RoundTrip(req)
		if err == nil {
			res.Body.Close()
		}
		if sent != want || (err == nil) != (want == 1) {
			t.Errorf("%s: sent %d, %v", address, sent, err)
		}
	}
	req, _ := http.NewRequest(http.MethodGet, "http://llm.test/", nil)
	if _, err := s.Handle("a").Transport(client.TransportOptions{Base: base, PlainHTTP: true}).RoundTrip(req); err != nil {
		t.Error(err)
	}
}

// inBubble is a handle whose provider is a function, in virtual time.
func inBubble(t *testing.T, o client.TransportOptions, provider roundTripper) (*fakeService, *client.Handle, http.RoundTripper) {
	f := newFake()
	f.set("a", 1)
	s := newSecrets(t, f, client.SecretsOptions{})
	h := s.Handle("a")
	preload(t, s, "a")
	synctest.Wait()
	o.Base = provider
	return f, h, h.Transport(o)
}

func post(ctx context.Context, rt http.RoundTripper) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://llm.test/v1/chat", strings.NewReader(`{"model":"m"}`))
	if err != nil {
		return nil, err
	}
	res, err := rt.RoundTrip(req)
	if err == nil {
		io.Copy(io.Discard, res.Body)
		res.Body.Close()
	}
	return res, err
}

func TestARetryWaitsForWhatTheProviderSaysAndKeepsItsVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var keys, bodies []string
		var times []time.Time
		request := 0
		name := func(*http.Request) string { request++; return fmt.Sprint(request) }
		f, _, rt := inBubble(t, client.TransportOptions{RoutingKey: name}, func(r *http.Request) (*http.Response, error) {
			keys, times = append(keys, r.Header.Get("Authorization")), append(times, time.Now())
			bodies = append(bodies, readAll(t, r.Body))
			if len(keys)%2 == 1 {
				return answer(429, http.Header{"Retry-After": {"7"}}, "application/json", `{"error":{"code":"rate_limit_exceeded"}}`), nil
			}
			return ok(`{}`), nil
		})
		f.put("a", "changed", "ok", fakeVersion{1, 50, valueOf("a", 1)}, fakeVersion{2, 50, valueOf("a", 2)})
		synctest.Wait()
		versions := map[string]bool{}
		for range 8 {
			keys, times, bodies = nil, nil, nil
			res, err := post(t.Context(), rt)
			if err != nil || res.StatusCode != 200 || len(keys) != 2 {
				t.Fatalf("%v, %v, %d attempts", res, err, len(keys))
			}
			if keys[0] != keys[1] || bodies[0] != bodies[1] {
				t.Errorf("the repetition is another request: %q, %q", keys, bodies)
			}
			if d := times[1].Sub(times[0]); d < 7*time.Second || d > 7700*time.Millisecond {
				t.Errorf("it was repeated after %v, want 7 s and up to a tenth", d)
			}
			versions[keys[0]] = true
		}
		if len(versions) != 2 {
			t.Errorf("of two versions of equal weight, 8 requests used %d", len(versions))
		}
	})
}

func TestOnlyWhatAPauseMayHelpIsRepeated(t *testing.T) {
	for _, c := range append(outcometest.Answers(), outcometest.Errors()...) {
		if c.Stream || c.Status == 200 {
			continue
		}
		synctest.Test(t, func(t *testing.T) {
			attempts := 0
			_, _, rt := inBubble(t, client.TransportOptions{Provider: c.Provider, MaxAttempts: 3}, func(r *http.Request) (*http.Response, error) {
				attempts++
				if c.Err != nil {
					return nil, c.Err
				}
				res := answer(c.Status, nil, "", c.Body)
				res.Header = c.FullHeader()
				return res, nil
			})
			post(t.Context(), rt)
			want := 1
			if c.Want.Retryable && c.Want.RetryAfter <= 30*time.Second {
				want = 3
			}
			if attempts != want {
				t.Errorf("%s: %d attempts, want %d", c.Name, attempts, want)
			}
		})
	}
}

func TestRepetitionsAreATenthOfTheRequestsAndAFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		attempts := 0
		_, _, rt := inBubble(t, client.TransportOptions{}, func(r *http.Request) (*http.Response, error) {
			attempts++
			return answer(503, nil, "application/json", `{}`), nil
		})
		const requests = 1000
		for range requests {
			post(t.Context(), rt)
		}
		if extra := attempts - requests; extra < requests/10 || extra > requests/10+11 {
			t.Errorf("%d repetitions of %d requests", extra, requests)
		}
	})
}

func TestOutcomesAreReportedInBatchesByVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turn := 0
		cases := map[int]*outcometest.Case{}
		for _, c := range outcometest.Answers() {
			if i := slices.Index([]string{"openai: insufficient quota", "openai: overloaded", "openai: bad prompt", "any: 429 without headers"}, c.Name); i >= 0 {
				cases[i] = &c
			}
		}
		f, _, rt := inBubble(t, client.TransportOptions{MaxAttempts: 1}, func(r *http.Request) (*http.Response, error) {
			turn++
			if c := cases[turn%6]; c != nil {
				res := answer(c.Status, nil, "", c.Body)
				res.Header = c.FullHeader()
				return res, nil
			}
			return ok(`{}`), nil
		})
		for range 600 {
			post(t.Context(), rt)
		}
		time.Sleep(11 * time.Second)
		synctest.Wait()
		want := []fakeReport{{SecretID: "id-a", Version: 1, OK: 200, Quota: 100, RateLimit: 100, Transient: 100}}
		if !slices.Equal(f.reports, want) {
			t.Errorf("reports: %+v, want %+v", f.reports, want)
		}
	})
}

func TestARefusedKeyIsReportedWithinASecondAndFetchedAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, _, rt := inBubble(t, client.TransportOptions{}, func(r *http.Request) (*http.Response, error) {
			return answer(401, nil, "application/json", `{"error":{"code":"invalid_api_key"}}`), nil
		})
		n := len(f.fetches())
		for range 50 {
			post(t.Context(), rt)
		}
		time.Sleep(1100 * time.Millisecond)
		synctest.Wait()
		if len(f.reports) != 1 || f.reports[0].Credential != 50 {
			t.Errorf("reports: %+v", f.reports)
		}
		if more := len(f.fetches()) - n; more != 1 {
			t.Errorf("%d fetches for 50 refusals, want 1", more)
		}
	})
}

func TestReportsThatCannotBeMadeAreBoundedAndCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		s := newSecrets(t, f, client.SecretsOptions{MaxReports: 10})
		for i := range 15 {
			path := fmt.Sprintf("p%d", i)
			f.set(path, 1)
			preload(t, s, path)
			if err := s.Handle(path).Do("r", func(client.Value) error { return nil }); err != nil {
				t.Fatal(err)
			}
		}
		if lost := s.Stats().LostReports; lost != 5 {
			t.Errorf("%d outcomes lost, want the 5 beyond the bound", lost)
		}
		status := 503
		f.do(func() {
			f.fault = func(r *http.Request) (*http.Response, error) {
				if !strings.HasSuffix(r.URL.Path, "report") {
					return nil, nil
				} else if status == 0 {
					return nil, errBroken
				}
				return problem(status, client.ErrStoreUnavailable, nil), nil
			}
		})
		time.Sleep(time.Minute)
		if lost := s.Stats().LostReports; lost != 5 {
			t.Errorf("%d outcomes lost, want none of those that the service refused for now", lost)
		}
		f.do(func() { status = 0 })
		time.Sleep(time.Minute)
		if lost := s.Stats().LostReports; lost != 15 {
			t.Errorf("%d outcomes lost, want those whose reports may have been counted", lost)
		}
	})
}

func TestCloseReportsWhatIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, h, _ := inBubble(t, client.TransportOptions{}, nil)
		s := newSecrets(t, f, client.SecretsOptions{})
		preload(t, s, "a")
		if err := s.Handle("a").Do("r", func(client.Value) error { return nil }); err != nil {
			t.Fatal(err)
		}
		err := h.Do("r", func(client.Value) error { return &client.ProviderError{Verdict: outcome.Verdict{Class: outcome.Quota}} })
		if p, is := errors.AsType[*client.ProviderError](err); !is || p.Class != outcome.Quota {
			t.Error(err)
		}
		s.Close()
		if len(f.reports) != 1 || f.reports[0].OK != 1 {
			t.Errorf("reports: %+v", f.reports)
		}
	})
}

// Errors of HTTP clients quote URLs, and people put keys into them.
func TestNoErrorOfDoOrOfATransportShowsTheValue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, h, rt := inBubble(t, client.TransportOptions{MaxAttempts: 1}, func(r *http.Request) (*http.Response, error) {
			return nil, fmt.Errorf("proxy said: no access with %q", r.Header.Get("Authorization"))
		})
		_, failed := post(t.Context(), rt)
		held, _ := h.Get("r")
		for what, err := range map[string]error{
			"transport": failed,
			"URL": h.Do("r", func(v client.Value) error {
				return &url.Error{Op: "Get", URL: "https://llm.test/?key=" + v.Reveal(), Err: errRefused}
			}),
			"wrapped": h.Do("r", func(v client.Value) error { return fmt.Errorf("asking: %w", errors.New(v.Reveal())) }),
		} {
			if err == nil {
				t.Fatalf("%s: no error", what)
			}
			for e := err; e != nil; e = errors.Unwrap(e) {
				if text := fmt.Sprintf("%v %+v %#v", e, e, e); strings.Contains(text, "canary") {
					t.Errorf("%s: %s", what, text)
				}
			}
		}
		harmless := errors.New("harmless")
		if err := h.Do("r", func(client.Value) error { return harmless }); err != harmless || held.IsZero() {
			t.Errorf("another error became %v", err)
		}
	})
}

func TestARequestWaitsForAValueUntilItsContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, h, rt := inBubble(t, client.TransportOptions{}, func(*http.Request) (*http.Response, error) { return ok(`{}`), nil })
		f.do(func() { f.delay = 2 * time.Second })
		f.put("a", "revoked", "ok", fakeVersion{2, 1, valueOf("a", 2)})
		synctest.Wait()
		expect(t, h, 0, client.ErrRevoked)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := post(ctx, rt); !errors.Is(err, client.ErrRevoked) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("within a second: %v", err)
		}
		start := time.Now()
		if _, err := post(t.Context(), rt); err != nil || time.Since(start) != time.Second {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
		expect(t, h, 2, nil)
	})
}
