package load

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// stream is an open load of a rate on a handler.
func stream(t *testing.T, rate float64, handler http.HandlerFunc) Stream {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		handler(w, r)
	}))
	t.Cleanup(s.Close)
	return Stream{Request: Request{Address: strings.TrimPrefix(s.URL, "http://"), Path: "/", Body: "{}"}, Rate: rate, Patience: 20 * time.Second}
}

func TestAnOpenLoadDoesNotWaitForAnswers(t *testing.T) {
	const held = 20
	var arrived atomic.Int64
	all := make(chan struct{})
	s := stream(t, 400, func(w http.ResponseWriter, _ *http.Request) {
		if arrived.Add(1) == held {
			close(all)
		}
		<-all // nobody is answered before so many have come
		fmt.Fprint(w, "{}")
	})
	samples, err := Play(t.Context(), []Stream{s}, 500*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if got := samples[0]; int64(len(got)) != arrived.Load() || len(got) < held {
		t.Fatalf("%d samples of %d requests", len(got), arrived.Load())
	}
	// The first was held from its intended start until the last of them came.
	first, last := samples[0][0], time.Duration(0)
	for _, s := range samples[0] {
		if s.Intended < first.Intended {
			first = s
		}
	}
	n := 0
	for _, s := range samples[0] {
		if s.Intended < first.Done {
			n++
			last = max(last, s.Intended)
		}
	}
	if n < held || first.Latency() < last-first.Intended-(last-first.Intended)/2 {
		t.Errorf("%d were sent while the first was held for %v", n, first.Latency())
	}
}

func TestWhatIsNotAnsweredInTimeIsGivenUp(t *testing.T) {
	s := stream(t, 50, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	s.Patience = 50 * time.Millisecond
	samples, err := Play(t.Context(), []Stream{s}, 200*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if len(samples[0]) == 0 {
		t.Fatal("nothing was sent")
	}
	for _, s := range samples[0] {
		if s.Status != 0 || s.Latency() < 50*time.Millisecond {
			t.Fatalf("%+v", s)
		}
	}
}

func TestRefusalsAndTheServersTimesAreInTheSamples(t *testing.T) {
	var n atomic.Int64
	s := stream(t, 0, func(w http.ResponseWriter, _ *http.Request) {
		if n.Add(1)%2 == 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Server-Timing", "queue;dur=1.500, hsm;dur=40.250, total;dur=42.000")
	})
	s.Clients = 2
	samples, err := Play(t.Context(), []Stream{s}, 200*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	byStatus := make(map[int]int)
	for _, s := range samples[0] {
		byStatus[s.Status]++
		if s.Status == 200 && (s.Queued != 1500*time.Microsecond || s.HSM != 40250*time.Microsecond) {
			t.Fatalf("%+v", s)
		}
	}
	if byStatus[200] == 0 || byStatus[503] == 0 || len(byStatus) != 2 {
		t.Errorf("statuses %v", byStatus)
	}
}

func TestOnlyLoopbackIsDriven(t *testing.T) {
	for _, s := range []Stream{
		{Request: Request{Address: "192.0.2.1:80"}, Rate: 1, Patience: time.Second},
		{Request: Request{Address: "example.com:80"}, Rate: 1, Patience: time.Second},
		{Request: Request{Address: "127.0.0.1:80"}, Patience: time.Second},
		{Request: Request{Address: "127.0.0.1:80"}, Rate: 1},
	} {
		if _, err := Play(context.Background(), []Stream{s}, time.Millisecond); err == nil {
			t.Errorf("%+v was driven", s)
		}
	}
}

func TestConstantArrivalsKeepTheirInterval(t *testing.T) {
	s := stream(t, 100, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "{}") })
	s.Constant = true
	samples, err := Play(t.Context(), []Stream{s}, 105*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if len(samples[0]) != 10 {
		t.Fatalf("%d requests", len(samples[0]))
	}
	seen := make(map[time.Duration]bool)
	for _, s := range samples[0] {
		if seen[s.Intended] = true; s.Intended%(10*time.Millisecond) != 0 {
			t.Errorf("a request was to be sent at %v", s.Intended)
		}
	}
	if len(seen) != 10 {
		t.Errorf("%d different times", len(seen))
	}
}

func TestPoissonArrivalsHaveTheirRate(t *testing.T) {
	c := &caller{Stream: Stream{Rate: 1000}}
	rnd := rand.New(rand.NewPCG(1, 2))
	var sum, squares float64
	const n = 100_000
	for range n {
		x := c.interval(rnd).Seconds()
		sum, squares = sum+x, squares+x*x
	}
	mean := sum / n
	// Of an exponential distribution, deviation and mean are the same.
	if deviation := math.Sqrt(squares/n - mean*mean); math.Abs(mean*1000-1) > 0.02 || math.Abs(deviation/mean-1) > 0.02 {
		t.Errorf("mean %v s, deviation %v s", mean, deviation)
	}
}

func TestABrokenConnectionEndsTheRunOrIsASample(t *testing.T) {
	s := stream(t, 100, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	if _, err := Play(t.Context(), []Stream{s}, 100*time.Millisecond); err == nil {
		t.Error("the run went on")
	}
	var got []Sample
	s.Tolerant, s.Observe = true, func(s Sample) { got = append(got, s) }
	if _, err := Play(t.Context(), []Stream{s}, 100*time.Millisecond); err != nil || len(got) == 0 {
		t.Fatalf("%d samples, %v", len(got), err)
	}
	for _, s := range got {
		if s.Status != StatusBroken {
			t.Errorf("%+v", s)
		}
	}
}

func TestAnswersOfOtherServersAreReadToTheirEnd(t *testing.T) {
	var n atomic.Int64
	s := stream(t, 0, func(w http.ResponseWriter, r *http.Request) {
		switch n.Add(1) % 3 {
		case 0: // chunked
			for range 3 {
				fmt.Fprint(w, strings.Repeat("x", 5000))
				http.NewResponseController(w).Flush()
			}
		case 1:
			w.WriteHeader(http.StatusNoContent)
		case 2:
			w.Header().Set("Connection", "close")
			fmt.Fprint(w, "bye")
		}
	})
	s.Clients = 1
	samples, err := Play(t.Context(), []Stream{s}, 200*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	byStatus := make(map[int]int)
	for _, s := range samples[0] {
		byStatus[s.Status]++
	}
	if byStatus[200] < 2 || byStatus[204] < 1 || len(byStatus) != 2 {
		t.Errorf("statuses %v", byStatus)
	}
}

func TestARunThatIsEndedKeepsWhatItHas(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	s := stream(t, 200, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "{}"); stop() })
	samples, err := Play(ctx, []Stream{s}, time.Hour)
	if !errors.Is(err, context.Canceled) || len(samples[0]) == 0 {
		t.Errorf("%d samples, %v", len(samples[0]), err)
	}
}

func TestAServerBehindTLSIsDriven(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "{}") }))
	defer server.Close()
	roots := server.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	s := Stream{Request: Request{Address: strings.TrimPrefix(server.URL, "https://"), Path: "/", TLS: &tls.Config{RootCAs: roots, ServerName: "example.com"}},
		Clients: 1, Patience: 20 * time.Second}
	samples, err := Play(t.Context(), []Stream{s}, 100*time.Millisecond)
	if err != nil || len(samples[0]) == 0 || samples[0][0].Status != 200 {
		t.Errorf("%v, %v", samples, err)
	}
}

func TestRequestsOfAStreamTakeTurns(t *testing.T) {
	var mu sync.Mutex
	seen := make(map[string]int)
	s := stream(t, 0, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		seen[r.URL.Path+" "+r.Host]++
	})
	s.Clients, s.Path, s.Host = 1, "/a", "kms.test"
	s.More = []Request{{Path: "/b", Host: "kms.test", Body: "{}"}}
	if _, err := Play(t.Context(), []Stream{s}, 100*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	a, b := seen["/a kms.test"], seen["/b kms.test"]
	if len(seen) != 2 || a == 0 || a != b && a != b+1 {
		t.Errorf("%v", seen)
	}
}

// A connection that its server may be closing is not used again, nor any that has
// been idle for longer.
func TestConnectionsThatWereIdleForLongAreNotUsed(t *testing.T) {
	s := stream(t, 1, func(http.ResponseWriter, *http.Request) {})
	c := &caller{Stream: s}
	until := time.Now().Add(s.Patience)
	open := func() *conn {
		t.Helper()
		k, err := c.connection(until)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { k.Close() })
		return k
	}
	oldest, old, fresh := open(), open(), open()
	now := time.Now()
	oldest.idle, old.idle, fresh.idle = now.Add(-2*maxIdle), now.Add(-maxIdle), now
	c.idle = []*conn{oldest, old, fresh}
	if k := open(); k != fresh {
		t.Error("one that was used just now is not used again")
	}
	if k := open(); k == old || k == oldest || len(c.idle) > 0 {
		t.Error("one that was idle for long is kept")
	}
	for _, k := range []*conn{oldest, old} {
		if _, err := k.Write([]byte("x")); err == nil {
			t.Error("one that was idle for long is open")
		}
	}
}
