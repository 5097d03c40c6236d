// Package limits connects benchmarks to a service, and changes what its tiers may
// use where no quota shall be what bounds a load.
package limits

import (
	"context"
	"encoding/json/v2"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/sluice-kms/sluice/client"
)

// The largest that a policy can have.
const (
	Day         = 90_000_000_000
	Concurrency = 65_536
)

// Connect makes a client of a server at host:port, without TLS.
func Connect(address string, token client.Token) (*client.Client, error) {
	return client.New(client.Options{Address: "http://" + address, Credential: token})
}

// Operator connects with the operator's credential in a data folder.
func Operator(address, data string) (*client.Client, error) {
	token, err := os.ReadFile(filepath.Join(data, "operator.credential"))
	if err != nil {
		return nil, err
	}
	return Connect(address, client.NewToken(strings.TrimSpace(string(token))))
}

// Set puts the policy in force with other limits for some tiers, by the names of
// the policy's fields. It sells more than the HSMs can do.
func Set(ctx context.Context, operator *client.Client, comment string, tiers map[client.Tier]map[string]any) error {
	now, err := operator.GetPolicy(ctx)
	if err != nil {
		return err
	}
	var document map[string]any
	if err := json.Unmarshal(now.Document, &document); err != nil {
		return fmt.Errorf("reading the policy: %w", err)
	}
	all, _ := document["tiers"].(map[string]any)
	for tier, changes := range tiers {
		limits, ok := all[string(tier)].(map[string]any)
		if !ok {
			return fmt.Errorf("the policy has no tier %s", tier)
		}
		for name, value := range changes {
			limits[name] = value
		}
	}
	changed, err := json.Marshal(document)
	if err != nil {
		return err
	}
	_, err = operator.PutPolicy(ctx, client.PutPolicyInput{Document: changed, Previous: uint32(now.Stored), Comment: comment, Force: true})
	return err
}

// liftedCredits is more than any load of one machine comes to: what is measured
// is what a decision costs, not what a tenant has bought.
const liftedCredits = 1_000_000

// Lift raises the limits of the demo tenant's tier of a `sluice dev`, as a
// benchmark of throughput has to.
func Lift(ctx context.Context, address, data string) error {
	operator, err := Operator(address, data)
	if err != nil {
		return err
	}
	defer operator.Close()
	return Set(ctx, operator, "a benchmark of throughput", map[client.Tier]map[string]any{"platinum": {
		"credits_per_second": liftedCredits, "burst_credits": 4 * liftedCredits, "day_credits": Day,
		"concurrency": Concurrency, "key_percent": 100,
	}})
}
