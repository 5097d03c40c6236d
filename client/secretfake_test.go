package client_test

import (
	"context"
	"encoding/json/v2"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-kms/sluice/client"
)

// fakeService is the contract of secret values in memory, with faults: an
// http.RoundTripper, so that it runs in virtual time.
type fakeService struct {
	fresh, lease time.Duration
	skew         time.Duration // of the service's clock

	mu       sync.Mutex
	revision uint64
	history  map[string][]fakeSecret // by path, oldest first
	events   []fakeEvent
	lag      uint64 // revisions that the answering node does not know yet
	lagSince time.Time
	careless bool          // it answers as of what it knows, whatever is asked for
	delay    time.Duration // between making an answer and giving it
	fault    func(*http.Request) (*http.Response, error)
	mute     bool // the watch gives nothing
	streams  map[*io.PipeWriter]chan struct{}

	fetched []fakeFetch
	reports []fakeReport
}

type fakeSecret struct {
	revision uint64
	status   string // "ok", "disabled", "not_found", "denied" or "unavailable"
	versions []fakeVersion
}

type fakeVersion struct {
	Version uint32 `json:"version"`
	Weight  int    `json:"weight"`
	Value   string `json:"value"`
}

type fakeEvent struct {
	kind     string
	Revision uint64 `json:"revision"`
	Path     string `json:"path,omitzero"`
}

type fakeFetch struct {
	Items []struct {
		Path         string `json:"path"`
		HaveRevision uint64 `json:"have_revision"`
	} `json:"items"`
	MinRevision uint64 `json:"min_revision"`
}

type fakeReport struct {
	SecretID   string `json:"secret_id"`
	Version    uint32 `json:"version"`
	OK         uint64 `json:"ok"`
	Credential uint64 `json:"credential"`
	Quota      uint64 `json:"quota"`
	RateLimit  uint64 `json:"rate_limit"`
	Transient  uint64 `json:"transient"`
}

func newFake() *fakeService {
	return &fakeService{fresh: 5 * time.Minute, lease: time.Hour, history: map[string][]fakeSecret{}, streams: map[*io.PipeWriter]chan struct{}{}, revision: 1}
}

// put gives a path a new state, and tells the watchers.
func (f *fakeService) put(path, kind, status string, versions ...fakeVersion) uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.revision++
	f.history[path] = append(f.history[path], fakeSecret{f.revision, status, versions})
	f.events = append(f.events, fakeEvent{kind, f.revision, path})
	f.nudge()
	return f.revision
}

// set makes one version the secret's value.
func (f *fakeService) set(path string, version uint32) uint64 {
	return f.put(path, "changed", "ok", fakeVersion{version, 100, valueOf(path, version)})
}

func valueOf(path string, version uint32) string {
	return fmt.Sprintf("sk-canary-%s-%d", path, version)
}

// nudge has the watches look for events.
func (f *fakeService) nudge() {
	for _, c := range f.streams {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

func (f *fakeService) do(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
	f.nudge()
}

// cut breaks all watches.
func (f *fakeService) cut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for w := range f.streams {
		w.CloseWithError(io.ErrUnexpectedEOF)
	}
	clear(f.streams)
}

func (f *fakeService) fetches() []fakeFetch {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.fetched
}

// RoundTrip answers a request.
func (f *fakeService) RoundTrip(r *http.Request) (*http.Response, error) {
	body := ""
	if r.Body != nil {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		body = string(b)
	}
	f.mu.Lock()
	fault, delay := f.fault, f.delay
	f.mu.Unlock()
	if fault != nil {
		if res, err := fault(r); res != nil || err != nil {
			return res, err
		}
	}
	switch r.URL.Path {
	case "/v1/secret-values/fetch":
		res := f.fetch(body)
		select {
		case <-time.After(delay):
			return res, nil
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	case "/v1/secret-values/watch":
		return f.watch(r), nil
	case "/v1/secret-values/report":
		var in struct{ Items []fakeReport }
		if err := json.Unmarshal([]byte(body), &in, json.MatchCaseInsensitiveNames(true)); err != nil {
			return nil, err
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		f.reports = append(f.reports, in.Items...)
		return ok(`{}`), nil
	}
	return problem(404, client.ErrNotFound, nil), nil
}

// maxLag is for how long a node serves that hears nothing of the others.
const maxLag = 30 * time.Second

func (f *fakeService) fetch(body string) *http.Response {
	f.mu.Lock()
	defer f.mu.Unlock()
	var in fakeFetch
	if err := json.Unmarshal([]byte(body), &in, json.RejectUnknownMembers(true)); err != nil || len(in.Items) == 0 || len(in.Items) > 100 {
		return problem(400, client.ErrMalformed, nil)
	}
	f.fetched = append(f.fetched, in)
	known := f.revision - min(f.lag, f.revision)
	if f.lag > 0 && time.Since(f.lagSince) > maxLag {
		return problem(503, client.ErrStoreUnavailable, nil)
	}
	if in.MinRevision > known && !f.careless {
		return problem(412, client.ErrStaleReplica, nil)
	}
	now := time.Now().Add(f.skew)
	var items []string
	for _, i := range in.Items {
		items = append(items, f.item(i.Path, i.HaveRevision, known, now))
	}
	h := http.Header{"Date": {now.UTC().Format(http.TimeFormat)}}
	return answer(200, h, "application/json", fmt.Sprintf(`{"revision":%d,"items":[%s],"cost":0,"request_id":"r"}`, known, strings.Join(items, ",")))
}

// item is a secret as a node that knows of a revision sees it.
func (f *fakeService) item(path string, have, known uint64, now time.Time) string {
	s := fakeSecret{status: "not_found"}
	for _, h := range f.history[path] {
		if h.revision <= known {
			s = h
		}
	}
	times := fmt.Sprintf(`"fresh_until":%q,"lease_end":%q`, now.Add(f.fresh).UTC().Format(time.RFC3339Nano), now.Add(f.lease).UTC().Format(time.RFC3339Nano))
	switch {
	case s.status == "unavailable":
		return fmt.Sprintf(`{"path":%q,"status":"unavailable","retry_after_ms":1000}`, path)
	case s.status != "ok":
		return fmt.Sprintf(`{"path":%q,"status":%q,"revision":%d}`, path, s.status, s.revision)
	case s.revision == have:
		return fmt.Sprintf(`{"path":%q,"status":"unchanged","secret_id":"id-%s","revision":%d,%s}`, path, path, s.revision, times)
	}
	versions, err := json.Marshal(s.versions)
	if err != nil {
		panic(err)
	}
	return fmt.Sprintf(`{"path":%q,"status":"ok","secret_id":"id-%s","provider":"openai","revision":%d,"metadata":{"base_url":"https://llm.test"},%s,"versions":%s}`,
		path, path, s.revision, times, versions)
}

const heartbeat = 15 * time.Second

// watch answers with a stream of the events since a revision.
func (f *fakeService) watch(r *http.Request) *http.Response {
	from, err := strconv.ParseUint(r.URL.Query().Get("from_revision"), 10, 64)
	if err != nil {
		return problem(400, client.ErrMalformed, nil)
	}
	out, in := io.Pipe()
	nudged := make(chan struct{}, 1)
	f.mu.Lock()
	f.streams[in] = nudged
	f.mu.Unlock()
	go f.stream(r.Context(), in, nudged, from)
	return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: out, Request: r}
}

func (f *fakeService) stream(ctx context.Context, w *io.PipeWriter, nudged chan struct{}, from uint64) {
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.streams, w)
		w.CloseWithError(io.ErrUnexpectedEOF)
	}()
	for at := 0; ; {
		f.mu.Lock()
		var text strings.Builder
		known := f.revision - min(f.lag, f.revision)
		for ; at < len(f.events) && f.events[at].Revision <= known && !f.mute; at++ {
			if e := f.events[at]; e.Revision > from || e.kind == "resync" {
				data, err := json.Marshal(e)
				if err != nil {
					panic(err)
				}
				fmt.Fprintf(&text, "id: %d\nevent: %s\ndata: %s\n\n", e.Revision, e.kind, data)
			}
		}
		if text.Len() == 0 && !f.mute {
			fmt.Fprintf(&text, ": nothing new\nid: %d\nevent: heartbeat\ndata: {\"revision\":%d}\n\n", known, known)
		}
		f.mu.Unlock()
		if _, err := io.WriteString(w, text.String()); err != nil {
			return
		}
		select {
		case <-time.After(heartbeat):
		case <-nudged:
		case <-ctx.Done():
			return
		}
	}
}

// newSecrets is a cache over the fake; it ends with the test.
func newSecrets(t testing.TB, f *fakeService, o client.SecretsOptions) *client.Secrets {
	t.Helper()
	c := newClient(t, client.Options{Address: "http://kms.test", HTTPClient: &http.Client{Transport: f}})
	s, err := c.Secrets(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// expect wants a handle to give a version of the path; 0: the error want.
func expect(t *testing.T, h *client.Handle, version uint32, want error) {
	t.Helper()
	v, err := h.Get("request")
	if version == 0 {
		if err == nil || !isError(err, want) {
			t.Errorf("%s: got a value: %v, error %v, want %v", h.Path(), !v.IsZero(), err, want)
		}
		return
	}
	if got := v.Reveal(); err != nil || got != valueOf(h.Path(), version) {
		t.Errorf("%s: got %q, %v, want version %d", h.Path(), got, err, version)
	}
}
