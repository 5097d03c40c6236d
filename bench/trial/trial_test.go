package trial

import (
	"context"
	"encoding/json/v2"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-kms/sluice/bench/scenarios"
	"github.com/sluice-kms/sluice/bench/target"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func scenario(steps ...float64) *scenarios.Scenario {
	return &scenarios.Scenario{Name: "test", About: "a test", WarmUp: 50 * time.Millisecond, Duration: 200 * time.Millisecond, Patience: 20 * time.Second, Seed: 1, Steps: steps,
		Streams: []scenarios.Stream{
			{Name: "a", Operation: scenarios.Encrypt, Spec: "AES_256", Bytes: 8, Keys: 1, Arrivals: scenarios.Constant, Rate: 100},
			{Name: "b", Operation: scenarios.Sign, Spec: "ECC_NIST_P256", Bytes: 8, Keys: 1, Arrivals: scenarios.Closed, Clients: 1},
		}}
}

func thin(t *testing.T, h http.HandlerFunc) *target.Target {
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	at, err := target.Open(t.Context(), target.Options{Kind: target.Thin, URL: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	return at
}

func serve(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "{}") }

func TestATrialCountsWhatCameAfterTheWarmUp(t *testing.T) {
	var odd atomic.Int64
	at := thin(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/encrypt" && odd.Add(1)%2 == 0 {
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		serve(w, r)
	})
	r, err := Run(t.Context(), scenario(1, 2), at, nil)
	if err != nil {
		t.Fatal(err)
	}
	if !r.Complete || len(r.Steps) != 2 {
		t.Fatalf("%+v", r)
	}
	for i, step := range r.Steps {
		a := step.Streams[0]
		// At equal intervals, those at 50 ms and later were looked at.
		if want := int64(20 * step.Factor); a.Sent != want || a.OK+a.Failed["429"] != a.Sent || a.Failed["429"] == 0 {
			t.Errorf("step %d: %+v, want %d sent", i, a, want)
		}
		if b := step.Streams[1]; b.OK == 0 || b.Offered != 0 || b.Latency.P99 < b.Latency.P50 || len(b.Percentiles) != len(Parts) {
			t.Errorf("step %d: %+v", i, b)
		}
	}
}

func TestATrialThatIsEndedKeepsWhatItHasAndSaysSo(t *testing.T) {
	s := scenario(1, 2)
	s.Duration = time.Hour
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	told := 0
	r, err := Run(ctx, s, thin(t, serve), func(p Progress) {
		if told++; p.OK > 0 && p.Step == 1 && p.Steps == 2 && p.P99 > 0 && p.Done > s.WarmUp {
			stop()
		}
	})
	if !errors.Is(err, context.Canceled) || r == nil || r.Complete || len(r.Steps) != 1 || r.Steps[0].Streams[0].OK == 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	if told == 0 || !strings.Contains(string(r.Markdown()), "Not complete") {
		t.Errorf("told %d times; %s", told, r.Markdown())
	}
}

func TestATrialWithoutAnAnswerFails(t *testing.T) {
	_, err := Run(t.Context(), scenario(1), thin(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }), nil)
	if err == nil || !strings.Contains(err.Error(), "stream a") || !strings.Contains(err.Error(), "403") {
		t.Error(err)
	}
}

func TestAResultIsReadAsItWasWrittenAndCompared(t *testing.T) {
	at := thin(t, serve)
	var all []*Result
	folder := t.TempDir()
	for range 2 {
		r, err := Run(t.Context(), scenario(1, 2), at, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Command = "the command"
		files, err := r.Write(folder)
		if err != nil {
			t.Fatal(err)
		}
		if len(files) != 4 {
			t.Errorf("wrote %v", files)
		}
		for _, f := range files {
			if info, err := os.Stat(f); err != nil || info.Size() == 0 {
				t.Errorf("%s: %v", f, err)
			}
			if strings.HasSuffix(f, ".json") {
				got, err := Read(f)
				if err != nil {
					t.Fatal(err)
				}
				was, _ := json.Marshal(r, json.Deterministic(true))
				is, _ := json.Marshal(got, json.Deterministic(true))
				if string(was) != string(is) {
					t.Errorf("read %s, wrote %s", is, was)
				}
				all = append(all, got)
			}
		}
	}
	report, err := Compare(all)
	if err != nil || !strings.Contains(string(report), "the command") || strings.Count(string(report), "| 2 | a |") != 2 {
		t.Errorf("%v: %s", err, report)
	}
	if files, err := WriteComparison(folder, all); err != nil || len(files) != 3 {
		t.Errorf("%v, %v", files, err)
	}
	if _, err := Compare(all[:1]); err == nil {
		t.Error("one result is compared with nothing")
	}
	all[1].Steps[0].Streams[0].Offered++
	if _, err := Compare(all); err == nil {
		t.Error("different loads are compared")
	}
	bad := folder + "/bad.json"
	for _, text := range []string{"{}", `{"scenario":"x"}`, `{"scenario":"x","more":1}`, "["} {
		os.WriteFile(bad, []byte(text), 0o600)
		if _, err := Read(bad); err == nil {
			t.Errorf("%s is a result", text)
		}
	}
}
