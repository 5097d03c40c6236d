package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/sluice-kms/sluice/cmd/sluice/wire/wiretest"
	"github.com/sluice-kms/sluice/kms"
)

// The README's table of algorithms stands between these marks. It is made from
// the code: SLUICE_UPDATE=1 writes it anew.
const (
	tableBegin = "<!-- algorithms: made by TestREADMETableOfAlgorithmsIsTrue -->\n"
	tableEnd   = "<!-- /algorithms -->\n"
)

func TestREADMETableOfAlgorithmsIsTrue(t *testing.T) {
	wiretest.Require(t)
	s := wiretest.Start(t, t.TempDir())
	tenant, err := s.App.Store.TenantByRef(context.Background(), "demo")
	if err != nil {
		t.Fatal(err)
	}
	var table strings.Builder
	table.WriteString("| spec | usage: algorithms, the default first | on SoftHSM |\n|---|---|---|\n")
	for _, info := range kms.Specs() {
		protection, err := s.App.Device.ProtectionFor(tenant.Sealing.Domain, info.Spec)
		if err != nil {
			t.Fatal(err)
		}
		var usages []string
		for _, u := range info.Usages {
			var names []string
			for _, a := range u.Algorithms {
				names = append(names, string(a))
			}
			usages = append(usages, fmt.Sprintf("%s: %s", u.Usage, strings.Join(names, ", ")))
		}
		fmt.Fprintf(&table, "| `%s` | %s | %s |\n", info.Spec, strings.Join(usages, "; "), protection)
	}
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(readme), tableBegin)
	stands, after, ok2 := strings.Cut(rest, tableEnd)
	if !ok || !ok2 {
		t.Fatal("the README has no marks for the table")
	}
	if stands == table.String() {
		return
	}
	if os.Getenv("SLUICE_UPDATE") == "" {
		t.Fatalf("the README's table is not what the code offers; SLUICE_UPDATE=1 go test ./cmd/sluice writes it. Want:\n%s", table.String())
	}
	if err := os.WriteFile("../../README.md", []byte(before+tableBegin+table.String()+tableEnd+after), 0o644); err != nil {
		t.Fatal(err)
	}
}
