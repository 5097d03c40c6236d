package client_test

import (
	"errors"
	"io"
	"net/http"
	"testing"

	"github.com/sluice-kms/sluice/client"
)

func TestReportIsTakenInTheFormThatWasAskedFor(t *testing.T) {
	given := client.ReportPDF
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/quota/incidents/id" || r.Header.Get("Accept") != client.ReportPDF {
			t.Errorf("%s %s is asked for", r.URL.Path, r.Header.Get("Accept"))
		}
		w.Header().Set("Content-Type", given)
		io.WriteString(w, "%PDF-")
	})
	if body, err := c.CostReportDocument(t.Context(), "", "id", client.ReportPDF); err != nil || string(body) != "%PDF-" {
		t.Errorf("%q, %v", body, err)
	}
	given = "application/json"
	if body, err := c.CostReportDocument(t.Context(), "", "id", client.ReportPDF); !errors.Is(err, client.ErrBadAnswer) {
		t.Errorf("another form: %q, %v", body, err)
	}
}
