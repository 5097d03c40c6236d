package main

import (
	"context"
	"encoding/json/v2"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/sluice-kms/sluice/client"
)

// Limits that no load of one machine comes to: what is measured is what a
// decision costs, not what a tenant has bought.
const (
	benchCredits     = 1_000_000
	benchDay         = 90_000_000_000
	benchConcurrency = 65_536
)

// liftLimits raises the limits of the demo tenant's tier by a policy of its
// own, as a benchmark of throughput has to.
func liftLimits(p *process, data string) error {
	token, err := os.ReadFile(filepath.Join(data, "operator.credential"))
	if err != nil {
		return err
	}
	operator, err := client.New(client.Options{Address: "http://" + p.address, Credential: client.NewToken(strings.TrimSpace(string(token)))})
	if err != nil {
		return err
	}
	ctx := context.Background()
	now, err := operator.GetPolicy(ctx)
	if err != nil {
		return err
	}
	var document map[string]any
	if err := json.Unmarshal(now.Document, &document); err != nil {
		return fmt.Errorf("reading the policy: %w", err)
	}
	tiers, _ := document["tiers"].(map[string]any)
	platinum, ok := tiers["platinum"].(map[string]any)
	if !ok {
		return errors.New("the policy has no tier platinum")
	}
	for name, value := range map[string]any{
		"credits_per_second": benchCredits, "burst_credits": 4 * benchCredits, "day_credits": benchDay,
		"concurrency": benchConcurrency, "key_percent": 100,
	} {
		platinum[name] = value
	}
	lifted, err := json.Marshal(document)
	if err != nil {
		return err
	}
	_, err = operator.PutPolicy(ctx, client.PutPolicyInput{Force: true, Document: lifted, Previous: uint32(now.Stored), Comment: "a benchmark of throughput"})
	return err
}
