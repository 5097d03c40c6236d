package client_test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/sluice-kms/sluice/client"
)

const twoResults = `{"index":5,"status":200,"result":{"mac":"+/8="},"cost":1,"request_id":"r-5"}
{"index":6,"status":422,"problem":{"status":422,"code":"invalid_argument","request_id":"r-6"},"cost":0,"request_id":"r-6"}
`

// readResults reads results until they end, and how.
func readResults(t *testing.T, c *client.Client, from int64) (list []*client.JobResult, end error) {
	t.Helper()
	for r, err := range c.JobResults(t.Context(), "id", from) {
		if err != nil {
			return list, err
		}
		list = append(list, r)
	}
	return list, nil
}

func TestResultsOfAJobAreReadAsFarAsTheyAre(t *testing.T) {
	for name, tc := range map[string]struct {
		complete, answer string
		results          int
		end              error
	}{
		"all":             {"true", twoResults, 2, nil},
		"so far":          {"false", twoResults, 2, client.ErrJobUnfinished},
		"none":            {"false", "", 0, client.ErrJobUnfinished},
		"cut off":         {"true", twoResults[:len(twoResults)-5], 1, client.ErrNoAnswer},
		"another index":   {"true", strings.Replace(twoResults, `"index":6`, `"index":7`, 1), 1, client.ErrBadAnswer},
		"something else":  {"true", "results\n", 0, client.ErrBadAnswer},
		"an endless line": {"true", strings.Repeat("x", 5<<20), 0, client.ErrNoAnswer},
	} {
		t.Run(name, func(t *testing.T) {
			c := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if r.RequestURI != "/v1/jobs/id/results?from=5" {
					t.Errorf("asked for %s", r.RequestURI)
				}
				w.Header().Set("Content-Type", "application/x-ndjson")
				w.Header().Set("Sluice-Results-Complete", tc.complete)
				io.WriteString(w, tc.answer)
			})
			list, end := readResults(t, c, 5)
			if len(list) != tc.results || !errors.Is(end, tc.end) || end != nil && tc.end == nil {
				t.Fatalf("%d results, %v", len(list), end)
			}
			if len(list) == 2 {
				var out client.MACOutput
				if err := list[0].Into(&out); err != nil || !bytes.Equal(out.MAC, []byte{0xfb, 0xff}) || list[0].Cost != 1 {
					t.Errorf("%+v, %v", out, err)
				}
				if e, ok := errors.AsType[*client.Error](list[1].Err()); !ok || e.Status != 422 || list[1].RequestID != "r-6" {
					t.Errorf("the problem is %v", list[1].Err())
				}
			}
		})
	}
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusNotFound)
		io.WriteString(w, `{"status":404,"code":"not_found"}`)
	})
	if _, end := readResults(t, c, 0); !errors.Is(end, client.ErrNotFound) {
		t.Errorf("of a missing job: %v", end)
	}
}

// What cannot be read again is sent once; what can is sent again from its
// beginning, under the same key.
func TestAJobIsSentAgainIfItCanBeReadAgain(t *testing.T) {
	var keys []string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		keys = append(keys, r.Header.Get("Idempotency-Key"))
		if body := readAll(t, r.Body); body != "items\n" {
			t.Errorf("sent %q", body)
		}
		w.Header().Set("Content-Type", "application/problem+json")
		w.Header().Set("Retry-After", "0")
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	if _, err := c.SubmitJob(t.Context(), io.LimitReader(strings.NewReader("items\n"), 100), nil); err == nil || len(keys) != 1 {
		t.Errorf("%d attempts, %v", len(keys), err)
	}
	keys = nil
	if _, err := c.SubmitJob(t.Context(), strings.NewReader("items\n"), nil); err == nil || len(keys) < 2 || keys[0] == "" || keys[0] != keys[1] {
		t.Errorf("the keys of the attempts are %q, %v", keys, err)
	}
}
