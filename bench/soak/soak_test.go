package main

import (
	"bytes"
	"context"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-kms/sluice/cmd/sluice/wire/wiretest"
)

// series are readings a second apart with a growth per second, noise of a
// twentieth, and single values that are far off.
func series(n int, growth float64) (all []reading) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for i := range n {
		r := reading{at: time.Duration(i) * time.Second}
		for range gauges {
			v := 200 + growth*float64(i) + 20*(rnd.Float64()-0.5)
			if i%17 == 0 {
				v *= 3
			}
			r.values = append(r.values, v)
		}
		all = append(all, r)
	}
	return all
}

func TestGrowthIsDriftAndNoiseIsNot(t *testing.T) {
	for growth, want := range map[float64]bool{0: false, 0.1: false, -2: false, 2: true} {
		all, err := drifts(series(120, growth))
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range all {
			if d.grew() != want {
				t.Errorf("growth of %v/s: %s", growth, d.String())
			}
		}
	}
}

func TestAWarmUpIsNoDrift(t *testing.T) {
	all := series(120, 0)
	for i := range 40 { // the first third
		for k := range all[i].values {
			all[i].values[k] = float64(i)
		}
	}
	ds, err := drifts(all)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range ds {
		if d.grew() {
			t.Error(d.String())
		}
	}
}

func TestTooFewReadingsAreNoVerdict(t *testing.T) {
	if _, err := drifts(series(10, 0)); err == nil {
		t.Error("ten readings were enough")
	}
}

func TestTroubleEndsWithTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		if pause(ctx, time.Hour) {
			t.Error("a pause outlasted the run")
		}
		if pause(ctx, 0) && ctx.Err() == nil {
			t.Error("the run goes on")
		}
	})
}

// The long form is `make soak`; this one shows that its parts work.
func TestAShortSoakFindsNothing(t *testing.T) {
	if os.Getenv("SLUICE_CHAOS") != "full" {
		t.Skip("half a minute; set SLUICE_CHAOS=full, as make test-chaos does")
	}
	wiretest.Require(t)
	program := filepath.Join(t.TempDir(), "sluice")
	if out, err := exec.Command("go", "build", "-o", program, "github.com/sluice-kms/sluice/cmd/sluice").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var out bytes.Buffer
	if err := run(t.Context(), config{sluice: program, time: 25 * time.Second, rate: 20}, &out); err != nil {
		t.Errorf("%v\n%s", err, out.Bytes())
	}
	t.Logf("\n%s", out.Bytes())
}
