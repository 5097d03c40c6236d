package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	"github.com/sluice-kms/sluice/bench/limits"
	"github.com/sluice-kms/sluice/bench/servers"
	"github.com/sluice-kms/sluice/client"
)

// benchCredits is more than any load of one machine comes to: what is measured
// is what a decision costs, not what a tenant has bought.
const benchCredits = 1_000_000

// liftLimits raises the limits of the demo tenant's tier by a policy of its
// own, as a benchmark of throughput has to.
func liftLimits(ctx context.Context, p *servers.Process, data string) error {
	token, err := os.ReadFile(filepath.Join(data, "operator.credential"))
	if err != nil {
		return err
	}
	operator, err := client.New(client.Options{Address: "http://" + p.Address, Credential: client.NewToken(strings.TrimSpace(string(token)))})
	if err != nil {
		return err
	}
	return limits.Set(ctx, operator, "a benchmark of throughput", map[client.Tier]map[string]any{"platinum": {
		"credits_per_second": benchCredits, "burst_credits": 4 * benchCredits, "day_credits": limits.Day,
		"concurrency": limits.Concurrency, "key_percent": 100,
	}})
}
