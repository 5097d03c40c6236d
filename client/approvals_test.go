package client_test

import (
	"errors"
	"net/http"
	"testing"

	"github.com/sluice-kms/sluice/client"
)

// TestApprovalThatIsRequiredIsNamedAndSent goes the way of who asks.
func TestApprovalThatIsRequiredIsNamedAndSent(t *testing.T) {
	const id = "01920000-0000-7000-8000-00000000000f"
	asked := 0
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		asked++
		if r.Header.Get("Sluice-Approval") == id {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusAccepted)
			w.Write([]byte(`{"name":"acme","state":"DELETING","deletion":{"requested_at":"2026-01-02T03:04:05Z","void_at":"2027-02-06T03:04:05Z"}}`))
			return
		}
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusConflict)
		w.Write([]byte(`{"code":"approval_required","approval":"` + id + `"}`))
	})
	_, err := c.DeleteTenant(t.Context(), "acme")
	e, ok := errors.AsType[*client.Error](err)
	if !ok || !errors.Is(err, client.ErrApprovalRequired) || e.Approval != id || asked != 1 {
		t.Fatalf("%v after %d requests", err, asked)
	}
	gone, err := c.WithApproval(e.Approval).DeleteTenant(t.Context(), "acme")
	if err != nil || gone.State != client.TenantDeleting || gone.Deletion.VoidAt.Year() != 2027 || !gone.Deletion.ErasedAt.IsZero() {
		t.Errorf("%+v, %v", gone, err)
	}
	if _, err := c.DeleteTenant(t.Context(), "acme"); !errors.Is(err, client.ErrApprovalRequired) {
		t.Errorf("the first client names the approval too: %v", err)
	}
}
