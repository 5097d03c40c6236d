package client_test

import (
	"errors"
	"net/http"
	"reflect"
	"testing"

	"github.com/sluice-kms/sluice/api"
	"github.com/sluice-kms/sluice/client"
	"github.com/sluice-kms/sluice/kms"
)

// TestDryRunAsksAndReturnsNoOutput runs every method on a client that only
// asks: those of routes that can be asked return the price as their error and
// nothing else, those of others are not sent.
func TestDryRunAsksAndReturnsNoOutput(t *testing.T) {
	for _, tc := range calls {
		t.Run(tc.name, func(t *testing.T) {
			route := routeOf(tc.method, tc.target)
			asked := 0
			c := serve(t, func(w http.ResponseWriter, r *http.Request) {
				asked++
				if r.FormValue("dry_run") != "true" {
					t.Errorf("sent %s", r.RequestURI)
				}
				w.Header().Set("Content-Type", "application/json")
				w.Write([]byte(`{"dry_run":true,"cost":12.5,"request_id":"r-1","protection":"HSM"}`))
			}).WithDryRun()
			got, err := tc.do(t.Context(), c)
			if v := reflect.ValueOf(got); v.IsValid() && !v.IsNil() {
				t.Errorf("an output: %+v", got)
			}
			if !takesDryRun(route) {
				if asked != 0 || !errors.Is(err, client.ErrInvalidArgument) {
					t.Errorf("asked %d times, %v", asked, err)
				}
				return
			}
			dry, ok := errors.AsType[*client.DryRun](err)
			if !ok || asked != 1 || *dry != (client.DryRun{Cost: 12.5, RequestID: "r-1", Protection: client.ProtectionHSM}) {
				t.Errorf("asked %d times, %v", asked, err)
			}
		})
	}
}

func takesDryRun(r *api.Route) bool {
	return r.Op.Info().Changes || r.Op.Info().Class == kms.ClassUse
}

func TestDryRunIsRefusedAsTheCallWouldBe(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusForbidden)
		w.Write([]byte(`{"code":"permission_denied"}`))
	}).WithDryRun()
	if err := use(t.Context(), c); !errors.Is(err, client.ErrPermissionDenied) {
		t.Errorf("error %v", err)
	}
}

// A proxy that drops the query makes a dry run a real one: the caller must
// learn of it.
func TestAnswerOfARealRunIsNoDryRun(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Write([]byte(`{"signature":"AA==","cost":12,"request_id":"r-1"}`))
	}).WithDryRun()
	err := use(t.Context(), c)
	if _, dry := errors.AsType[*client.DryRun](err); dry || !errors.Is(err, client.ErrBadAnswer) {
		t.Errorf("error %v", err)
	}
}

func TestDryRunDoesNotStick(t *testing.T) {
	queries := make(chan string, 2)
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		queries <- r.URL.RawQuery
		w.Header().Set("Content-Type", "application/json")
		w.Write([]byte(`{"dry_run":true}`))
	})
	_ = use(t.Context(), c.WithDryRun())
	if err := use(t.Context(), c); err != nil {
		t.Error(err)
	}
	if first, second := <-queries, <-queries; first != "dry_run=true" || second != "" {
		t.Errorf("queries %q and %q", first, second)
	}
}
