package client

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/sluice-kms/sluice/client/outcome"
)

// TransportOptions are the settings of a Handle's Transport.
type TransportOptions struct {
	// Base sends the requests; nil is http.DefaultTransport.
	Base http.RoundTripper
	// Header carries the value: "Authorization", as a bearer token, or another
	// one, such as "X-Api-Key", which is the value itself. "" is what the
	// secret's provider takes.
	Header string
	// Provider is whose answers they are; "" is the secret's provider.
	Provider outcome.Provider
	// RoutingKey names a request for the choice of the version: an id that its
	// repetitions share. nil is the header X-Request-Id; a request without one
	// is given a version by chance, and keeps it.
	RoutingKey func(*http.Request) string
	// MaxAttempts bounds how often a request is sent. 0 is 2: more is for
	// routes, which try another provider. Repetitions are a tenth of the
	// requests at most, and some.
	MaxAttempts int
	// PlainHTTP allows to send the value without TLS to other hosts than this
	// one.
	PlainHTTP bool
	// Observe, if set, is told of each attempt, from the goroutine that sends
	// the request or reads the answer.
	Observe func(Attempt)
}

// Attempt is what came of sending a request.
type Attempt struct {
	Path    string // of the secret
	Version uint32
	outcome.Verdict
}

// credentialHeaders are what providers take keys in. Those of a request are
// removed: a client's own key is not for the provider.
var credentialHeaders = []string{"Authorization", "X-Api-Key", "Api-Key", "X-Goog-Api-Key"}

// headers by provider; others take a bearer token.
var headers = map[outcome.Provider]string{
	outcome.Anthropic:   "X-Api-Key",
	outcome.AzureOpenAI: "Api-Key",
	outcome.Gemini:      "X-Goog-Api-Key",
}

// Errors of requests that are not sent.
var (
	errRedirected = errors.New("the secret is not sent where a redirect leads")
	errPlainHTTP  = errors.New("the secret is not sent without TLS")
)

const defaultSends = 2

// Transport returns an http.RoundTripper that puts the secret's value into each
// request, so that the program never holds it, judges the answers, and reports
// what came of them. It repeats what a pause may help, honours Retry-After, and
// keeps one version for all attempts. It waits for a value when there is none.
// No error of it shows the value, and a redirect to another host never gets it.
func (h *Handle) Transport(o TransportOptions) http.RoundTripper {
	if o.Base == nil {
		o.Base = http.DefaultTransport
	}
	if o.RoutingKey == nil {
		o.RoutingKey = func(r *http.Request) string { return r.Header.Get(headerRequestID) }
	}
	if o.MaxAttempts <= 0 {
		o.MaxAttempts = defaultSends
	}
	return &transport{h: h, o: o, budget: retryBudget{left: budgetFloor}}
}

type transport struct {
	h      *Handle
	o      TransportOptions
	budget retryBudget
}

// RoundTrip sends a request with the secret's value.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if err := t.permit(req); err != nil {
		closeBody(req)
		return nil, err
	}
	key := t.o.RoutingKey(req)
	if key == "" {
		key = rand.Text()
	}
	t.budget.request()
	for attempt := 1; ; attempt++ {
		res, verdict, err := t.send(req, key, attempt)
		if verdict.Class == "" || attempt == t.o.MaxAttempts || !t.again(req, verdict, attempt) {
			return res, err
		}
		if res != nil {
			res.Body.Close()
		}
	}
}

// permit tells whether a request may have the value.
func (t *transport) permit(req *http.Request) error {
	if from := req.Response; from != nil && from.Request != nil &&
		(from.Request.URL.Host != req.URL.Host || from.Request.URL.Scheme != req.URL.Scheme) {
		return errRedirected
	}
	if req.URL.Scheme != "https" && !t.o.PlainHTTP && !loopback(req.URL.Hostname()) {
		return errPlainHTTP
	}
	return nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// send makes one attempt. Its verdict is zero when there is nothing to repeat:
// no value to send, or an answer that is being passed on.
func (t *transport) send(req *http.Request, key string, attempt int) (*http.Response, outcome.Verdict, error) {
	held, secret, err := t.value(req, key)
	if err != nil {
		closeBody(req)
		return nil, outcome.Verdict{}, err
	}
	out := req.Clone(req.Context())
	if attempt > 1 && req.GetBody != nil {
		if out.Body, err = req.GetBody(); err != nil {
			return nil, outcome.Verdict{}, err
		}
	}
	t.authorize(out, secret)
	res, err := t.o.Base.RoundTrip(out)
	if err != nil {
		verdict := outcome.OfError(err)
		t.observe(held, verdict)
		return nil, verdict, scrub(err, held.value)
	}
	res.Request = req // not the one with the value
	if res.StatusCode >= 200 && res.StatusCode <= 299 {
		t.follow(res, held)
		return res, outcome.Verdict{}, nil
	}
	verdict := outcome.Of(t.provider(), res.StatusCode, res.Header, peek(res), time.Now())
	t.observe(held, verdict)
	return res, verdict, nil
}

// value is the value for a request. One that is wiped while it is being taken
// is asked for once more.
func (t *transport) value(req *http.Request, key string) (*heldVersion, string, error) {
	for range 2 {
		held, err := t.h.await(req.Context(), key)
		if err != nil {
			return nil, "", err
		}
		if secret := held.value.Reveal(); secret != "" {
			return held, secret, nil
		}
	}
	return nil, "", ErrRevoked
}

func (t *transport) provider() outcome.Provider {
	if t.o.Provider != "" {
		return t.o.Provider
	}
	return t.h.Provider()
}

func (t *transport) authorize(out *http.Request, secret string) {
	for _, name := range credentialHeaders {
		out.Header.Del(name)
	}
	name := t.o.Header
	if name == "" {
		name = headers[t.provider()]
	}
	if name == "" || http.CanonicalHeaderKey(name) == "Authorization" {
		name, secret = "Authorization", "Bearer "+secret
	}
	out.Header.Set(name, secret)
}

func (t *transport) observe(held *heldVersion, v outcome.Verdict) {
	t.h.report(held, v.Class)
	if t.o.Observe != nil {
		t.o.Observe(Attempt{Path: t.h.path, Version: held.version, Verdict: v})
	}
}

// again tells whether to send a request once more, after the pause that this
// takes.
func (t *transport) again(req *http.Request, v outcome.Verdict, attempt int) bool {
	replayable := req.Body == nil || req.Body == http.NoBody || req.GetBody != nil
	if !v.Retryable || !replayable || v.RetryAfter > maxRetryAfter || !t.budget.retry() {
		return false
	}
	return sleep(req.Context(), pause(&Error{RetryAfter: v.RetryAfter}, attempt))
}

// peek reads as much of an error's body as says what it is, and leaves the body
// as it was.
func peek(res *http.Response) []byte {
	said, err := io.ReadAll(io.LimitReader(res.Body, outcome.MaxBody))
	rest := io.Reader(res.Body)
	if err != nil {
		rest = failing{err}
	}
	res.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(said), rest), res.Body}
	return said
}

// failing is the rest of a body that broke off.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// follow has an answer of success reported when its body has ended: until then
// it can still fail.
func (t *transport) follow(res *http.Response, held *heldVersion) {
	res.Body = &followedBody{ReadCloser: res.Body, done: func(v outcome.Verdict) { t.observe(held, v) },
		stream: outcome.NewStream(t.provider(), mediaType(res.Header))}
}

// followedBody is a body that tells how it ended, once.
type followedBody struct {
	io.ReadCloser
	done func(outcome.Verdict)

	mu     sync.Mutex // Close may come while Read waits
	stream *outcome.Stream
	ended  bool
}

func (b *followedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stream.Write(p[:n])
	switch v := b.stream.Verdict(); {
	case err != nil && err != io.EOF:
		b.endLocked(outcome.Broken(err))
	case err != nil || v.MidStream:
		b.endLocked(v)
	}
	return n, err
}

// Close ends a body that may not have been read to its end: what came was fine.
func (b *followedBody) Close() error {
	b.mu.Lock()
	b.endLocked(b.stream.Verdict())
	b.mu.Unlock()
	return b.ReadCloser.Close()
}

func (b *followedBody) endLocked(v outcome.Verdict) {
	if !b.ended {
		b.ended = true
		b.done(v)
	}
}

func closeBody(req *http.Request) {
	if req.Body != nil {
		req.Body.Close()
	}
}

// retryBudget bounds repetitions to a share of the requests, so that a provider
// in trouble gets no more of them.
type retryBudget struct {
	mu   sync.Mutex
	left float64 // repetitions
}

const (
	// budgetShare of the requests may be repeated, and budgetFloor more.
	budgetShare = 0.1
	budgetFloor = 10
)

func (b *retryBudget) request() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.left = min(b.left+budgetShare, budgetFloor)
}

func (b *retryBudget) retry() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.left < 1 {
		return false
	}
	b.left--
	return true
}
