package main

import (
	"errors"
	"math"
	"net/http"
	"testing"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/audit"
	"github.com/sluice-kms/sluice/kms"
)

// checkLedger compares what a restarted process says that the tenant has used
// this month with what the journal says that it was charged: to the credit, the
// question itself included.
func checkLedger(t *testing.T, p *devProcess, credential, journal string) {
	t.Helper()
	var used, charged kms.Credits
	// The service's keeper acts for the tenant too, and what it is charged can
	// be reserved and not written yet, or the other way round.
	for range 5 {
		status, answer := p.get(credential, "/v1/quota")
		if status != http.StatusOK {
			t.Fatalf("reading the quota: %d %v", status, answer)
		}
		month := answer["month"].(map[string]any)
		used = kms.Credits(math.Round(month["used"].(float64) * float64(kms.Credit)))
		ends, err := time.Parse(time.RFC3339, month["resets_at"].(string))
		if err != nil {
			t.Fatal(err)
		}
		charged = chargedUntil(t, journal, ends.AddDate(0, -1, 0), uuid.MustParse(answer["request_id"].(string)))
		if used == charged {
			return
		}
	}
	t.Errorf("the ledger has %v µcr and the journal %v", used, charged)
}

// errFound ends the reading of the journal.
var errFound = errors.New("found")

// chargedUntil sums up what the journal says that the tenant of a request was
// charged for what it reserved since the month began, that request included.
func chargedUntil(t *testing.T, journal string, began time.Time, request uuid.UUID) (sum kms.Credits) {
	t.Helper()
	byTenant := map[uuid.UUID]kms.Credits{}
	err := audit.Read(journal, 1, func(e *kms.Entry, _ audit.Position) error {
		if e.Phase != kms.PhaseOutcome {
			return nil
		}
		if !e.Time.Add(-e.Total).Before(began) {
			byTenant[e.Tenant] += e.Charged
		}
		if e.RequestID == request {
			sum = byTenant[e.Tenant]
			return errFound
		}
		return nil
	})
	if !errors.Is(err, errFound) {
		t.Fatalf("the request is not in the journal: %v", err)
	}
	return sum
}
