package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-kms/sluice/cmd/sluice/wire/wiretest"
)

// The short form: it asserts what does not depend on how fast the machine is.
func TestTheAbuserAloneIsRefused(t *testing.T) {
	wiretest.Require(t)
	dir := t.TempDir()
	program := filepath.Join(dir, "sluice")
	if out, err := exec.Command("go", "build", "-o", program, "github.com/sluice-kms/sluice/cmd/sluice").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	r, err := measure(t.Context(), config{sluice: program, rounds: 1, each: 2 * time.Second, engines: 4, small: 50 * time.Millisecond}, dir, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("\n%s", r.markdown())
	if err := r.check(); err != nil {
		t.Errorf("the report is not complete: %v", err)
	}
	ours := r.Servers[0]
	if ours.Errors > 0 || r.Slow.Errors > 0 {
		t.Errorf("%d of %d of the victims' requests failed, %d with a slow node", ours.Errors, ours.Requests, r.Slow.Errors)
	}
	if ours.Refused == 0 {
		t.Error("the abuser was not refused")
	}
	out := t.TempDir()
	if err := r.write(out); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"isolation.md", "isolation.json", "isolation.svg"} {
		if info, err := os.Stat(filepath.Join(out, name)); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAReportWithAHoleFails(t *testing.T) {
	good := func() *report {
		side := func(name string) *isolation {
			return &isolation{Server: name, Alone: latency{P99: 1}, Beside: latency{P99: 1}, Ratios: []float64{1}, ShareErrors: []float64{0},
				BesideUsed: 0.9, Asked: 1, Shares: []share{{Tenant: "gold", SlotTime: 1}}}
		}
		return &report{Rounds: 1, Servers: []*isolation{side(serverSluice), side(serverThin)}, Loaded: loaded{Found: 1, Home: 1}, Slow: slow{Part: 0.3, Requests: 1}}
	}
	if err := good().check(); err != nil {
		t.Fatal(err)
	}
	for want, spoil := range map[string]func(*report){
		"a round is missing":            func(r *report) { r.Rounds = 2 },
		"no victim was served":          func(r *report) { r.Servers[1].Beside.P99 = 0 },
		"the abuser asked for nothing":  func(r *report) { r.Servers[0].Asked = 0 },
		"gold was not served":           func(r *report) { r.Servers[0].Shares[0].SlotTime = 0 },
		"nobody shared":                 func(r *report) { r.Servers[1].Shares = nil },
		"slow node was not measured":    func(r *report) { r.Slow.Requests = 0 },
		"no node served the victims al": func(r *report) { r.Loaded.Found = 0 },
	} {
		r := good()
		spoil(r)
		if err := r.check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
}
