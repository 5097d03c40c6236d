package main

import (
	"context"
	"fmt"
	"math"
	"os/exec"
	"time"

	"github.com/sluice-kms/sluice/audit"
	"github.com/sluice-kms/sluice/client"
	"github.com/sluice-kms/sluice/kms"
)

// ledgerPatience is how long usage may take to have all of the journal; the
// alert line of the lag is 10 s.
const ledgerPatience = 30 * time.Second

// journalSums are the sums of a journal by tenant.
func journalSums(journal string) (map[string]kms.UsageSum, error) {
	sums := make(map[string]kms.UsageSum)
	err := audit.Read(journal, 1, func(e *kms.Entry, _ audit.Position) error {
		if key, sum, ok := e.Usage(); ok {
			s := sums[key.Tenant.String()]
			s.Add(sum)
			sums[key.Tenant.String()] = s
		}
		return nil
	})
	return sums, err
}

// ledgerIsJournal compares what the service says that a tenant used with what
// its journal says, and waits for what is on its way. It returns the requests.
func ledgerIsJournal(ctx context.Context, operator *client.Client, journal string, t *tenant, from time.Time) (int64, error) {
	var last error
	for end := time.Now().Add(ledgerPatience); time.Now().Before(end); {
		sums, err := journalSums(journal)
		if err != nil {
			return 0, err
		}
		want := sums[t.id]
		report, err := operator.Usage(ctx, t.name, client.UsageQuery{From: from})
		if err != nil {
			return 0, err
		}
		var got kms.UsageSum
		for _, row := range report.Rows {
			got.Requests += row.Requests
			got.Charged += kms.Credits(math.Round(row.Credits * float64(kms.Credit)))
			got.Bytes += row.Bytes
		}
		if got.Requests == want.Requests && got.Charged == want.Charged && got.Bytes == want.Bytes && got.Requests > 0 {
			return got.Requests, nil
		}
		last = fmt.Errorf("%s: usage is %d requests, %d micro-credits and %d bytes; the journal has %d, %d and %d", t.name,
			got.Requests, got.Charged, got.Bytes, want.Requests, want.Charged, want.Bytes)
		if !pause(ctx, 500*time.Millisecond) {
			return 0, ctx.Err()
		}
	}
	return 0, last
}

// verifyJournal has the program verify the journal that the server left.
func verifyJournal(ctx context.Context, program, journal string) error {
	if out, err := exec.CommandContext(ctx, program, "audit", "verify", "--journal", journal).CombinedOutput(); err != nil {
		return fmt.Errorf("the journal does not verify: %w: %s", err, out)
	}
	return nil
}
