package client_test

import (
	"errors"
	"net/http"
	"reflect"
	"testing"

	"github.com/sluice-kms/sluice/client"
)

func TestAWatchYieldsEventsUntilItEnds(t *testing.T) {
	var asked string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		asked = r.URL.RequestURI()
		w.Header().Set("Content-Type", "text/event-stream")
		w.Write([]byte(": open\n\nevent: changed\nid: 8\ndata: {\"revision\":8,\"path\":\"llm/a\"}\n\n" +
			"event: heartbeat\nid: 9\ndata: {\"revision\":9}\n\n"))
	})
	after := uint64(7)
	var got []client.SecretEvent
	var end error
	for e, err := range c.WatchSecrets(t.Context(), &after) {
		if err != nil {
			end = err
			break
		}
		got = append(got, *e)
	}
	want := []client.SecretEvent{{Kind: "changed", Revision: 8, Path: "llm/a"}, {Kind: "heartbeat", Revision: 9}}
	if !reflect.DeepEqual(got, want) || !errors.Is(end, client.ErrNoAnswer) || asked != "/v1/secret-values/watch?from_revision=7" {
		t.Errorf("asked for %s: %+v, %v", asked, got, end)
	}
}

func TestAWatchThatIsRefusedSaysWhy(t *testing.T) {
	for status, want := range map[int]error{http.StatusForbidden: client.ErrPermissionDenied, http.StatusOK: client.ErrBadAnswer} {
		c := serve(t, func(w http.ResponseWriter, r *http.Request) {
			if status != http.StatusOK {
				w.Header().Set("Content-Type", "application/problem+json")
				w.WriteHeader(status)
				w.Write([]byte(`{"code":"permission_denied","status":403}`))
				return
			}
			w.Write([]byte("event: changed\ndata: nonsense\n\n"))
		})
		for _, err := range c.WatchSecrets(t.Context(), nil) {
			if !errors.Is(err, want) {
				t.Errorf("%d: %v", status, err)
			}
		}
	}
}
