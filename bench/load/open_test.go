package load

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
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
