package outcome_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/sluice-kms/sluice/client/outcome"
	"github.com/sluice-kms/sluice/client/outcome/outcometest"
)

var now = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// judge gives an answer to what reads it: Stream when it streams, Of otherwise.
func judge(c *outcometest.Case, body io.Reader) outcome.Verdict {
	if !c.Stream {
		text, err := io.ReadAll(body)
		if err != nil {
			return outcome.Broken(err)
		}
		return outcome.Of(c.Provider, c.Status, c.FullHeader(), text, now)
	}
	s := outcome.NewStream(c.Provider, c.FullHeader().Get("Content-Type"))
	if _, err := io.Copy(s, body); err != nil {
		return outcome.Broken(err)
	}
	return s.Verdict()
}

func TestEveryRowOfTheTableJudgesItsAnswers(t *testing.T) {
	decided := map[string]bool{}
	for _, c := range outcometest.Answers() {
		t.Run(c.Name, func(t *testing.T) {
			var body io.Reader = strings.NewReader(c.Body)
			if c.Breaks {
				body = io.MultiReader(body, broken{})
			}
			got := judge(&c, body)
			decided[got.Row] = true
			if got != c.Want {
				t.Errorf("\n got %+v\nwant %+v", got, c.Want)
			}
		})
	}
	for _, c := range outcometest.Errors() {
		t.Run(c.Name, func(t *testing.T) {
			got := outcome.OfError(c.Err)
			decided[got.Row] = true
			if got != c.Want {
				t.Errorf("\n got %+v\nwant %+v", got, c.Want)
			}
		})
	}
	for _, r := range outcome.Table() {
		if !decided[r.Name] {
			t.Errorf("no answer is judged by the row %q: give it one in outcometest", r.Name)
		}
	}
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// The same answers mean the same when they have gone through HTTP.
func TestAProviderThatGivesEveryAnswerIsJudgedTheSame(t *testing.T) {
	var provider outcometest.Provider
	server := httptest.NewServer(&provider)
	defer server.Close()
	client := server.Client()
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	for _, c := range outcometest.Answers() {
		t.Run(c.Name, func(t *testing.T) {
			provider.Play(c)
			answer, err := client.Post(server.URL, "application/json", strings.NewReader("{}"))
			if err != nil {
				t.Fatal(err)
			}
			defer answer.Body.Close()
			if answer.StatusCode != c.Status {
				t.Fatalf("status %d, want %d", answer.StatusCode, c.Status)
			}
			if got := judge(&c, answer.Body); got != c.Want {
				t.Errorf("\n got %+v\nwant %+v", got, c.Want)
			}
		})
	}
	provider.Play(outcometest.Case{Err: errors.New("gone")})
	if _, err := client.Post(server.URL, "application/json", strings.NewReader("{}")); err == nil || outcome.OfError(err).Row != "connection" {
		t.Errorf("a broken connection: %v", err)
	}
	if got, want := provider.Requests(), len(outcometest.Answers())+1; got != want {
		t.Errorf("the provider saw %d requests, want %d", got, want)
	}
}

// A stream may be cut anywhere on its way.
func TestAStreamIsJudgedTheSameHoweverItIsCut(t *testing.T) {
	for _, c := range outcometest.Answers() {
		if !c.Stream || c.Breaks {
			continue
		}
		for size := range 40 {
			s := outcome.NewStream(c.Provider, c.FullHeader().Get("Content-Type"))
			for rest := c.Body; rest != ""; {
				n := min(size+1, len(rest))
				s.Write([]byte(rest[:n]))
				rest = rest[n:]
			}
			if got := s.Verdict(); got != c.Want {
				t.Fatalf("%s in pieces of %d: %+v, want %+v", c.Name, size+1, got, c.Want)
			}
		}
	}
}

// Rows are found in order: one that can never be reached is a mistake.
func TestNoRowHasTheNameOfAnother(t *testing.T) {
	names := map[string]bool{}
	for _, r := range outcome.Table() {
		if names[r.Name] || r.Name == "" {
			t.Errorf("the name %q is used twice, or empty", r.Name)
		}
		names[r.Name] = true
		if r.Class == outcome.Transient != (r.Scope == outcome.Endpoint) {
			t.Errorf("%s: what is transient, and nothing else, is the endpoint's", r.Name)
		}
		if r.Class == outcome.RateLimit && (r.Scope != outcome.KeyModel || !r.Retryable) {
			t.Errorf("%s: a rate limit is of a key and a model, and ends", r.Name)
		}
		if (r.Class == outcome.Credential || r.Class == outcome.Quota || r.Class == outcome.Caller) && r.Retryable {
			t.Errorf("%s: nothing changes by repetition", r.Name)
		}
	}
}

func TestAVeryLongLineOfAStreamIsContentAndCostsNoMemory(t *testing.T) {
	s := outcome.NewStream(outcome.OpenAI, "text/event-stream")
	piece := []byte(strings.Repeat("x", 1<<10))
	if n := testing.AllocsPerRun(1, func() {
		for range 10 << 10 {
			s.Write(piece)
		}
	}); n > 20 {
		t.Errorf("10 MiB in a line: %v allocations", n)
	}
	s.Write([]byte("\n\nevent: error\ndata: {}\n"))
	if got := s.Verdict(); got.Row != "stream-error" {
		t.Errorf("the error behind it: %+v", got)
	}
}

func FuzzAnswersAreJudgedWithinBounds(f *testing.F) {
	for _, c := range outcometest.Answers() {
		f.Add(string(c.Provider), c.Status, c.Header.Get("Retry-After"), c.Body)
	}
	f.Fuzz(func(t *testing.T, provider string, status int, after, body string) {
		h := http.Header{"Content-Type": {"application/json"}, "Retry-After": {after}, "X-Ratelimit-Reset": {after}, "Retry-After-Ms": {after}}
		v := outcome.Of(outcome.Provider(provider), status, h, []byte(body), now)
		check(t, v)
		for _, media := range []string{"text/event-stream", "application/vnd.amazon.eventstream"} {
			s := outcome.NewStream(outcome.Provider(provider), media)
			io.WriteString(s, body)
			v = s.Verdict()
			check(t, v)
			if v.Retryable {
				t.Errorf("a broken stream can be repeated: %+v", v)
			}
		}
	})
}

func check(t *testing.T, v outcome.Verdict) {
	t.Helper()
	const week = 7 * 24 * time.Hour
	if v.Class == "" || v.Row == "" || v.RetryAfter < 0 || v.RetryAfter > week || v.Cool < 0 || v.Cool > week {
		t.Errorf("out of bounds: %+v", v)
	}
	if v.Class == outcome.RateLimit && (v.Cool < time.Second || v.Cool > time.Minute) {
		t.Errorf("the pause of a rate limit: %v", v.Cool)
	}
}

func BenchmarkAStreamThatPasses(b *testing.B) {
	chunk := []byte("data: {\"choices\":[{\"delta\":{\"content\":\"hello\"}}]}\n\n")
	s := outcome.NewStream(outcome.OpenAI, "text/event-stream")
	b.SetBytes(int64(len(chunk)))
	b.ReportAllocs()
	for b.Loop() {
		s.Write(chunk)
	}
}
