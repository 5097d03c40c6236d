package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-kms/sluice/bench/machine"
)

// benchmarks is the output of a benchmark with a value of each metric, repeated.
func benchmarks(n int, lines ...string) []byte {
	var b strings.Builder
	b.WriteString("goos: linux\npkg: x\n")
	for range n {
		for _, l := range lines {
			b.WriteString(l + "\n")
		}
	}
	b.WriteString("PASS\nok x 1.0s\n")
	return []byte(b.String())
}

// complete is output of all runs.
func complete() outputs {
	operation := func(name string) string {
		return fmt.Sprintf(`{"name":%q,"budget":0.85,"ratios":[0.8,0.9,0.9,0.9,1],"ratio":0.9,"raw":5000,"thin":{"rate":1000},"sluice":{"rate":900}}`, name)
	}
	return outputs{
		runOverhead: []byte(`{"connections":128,"operations":[` + operation("AES-256-GCM, 64 B") + "," + operation("ECDSA P-256") + "," + operation("RSA-2048 PSS") + `]}`),
		runDecision: benchmarks(5, "BenchmarkDecision/nodes=4/flows=10-2 100 200.0 cpu-ns/op 999999 ns/op 0 B/op 0 allocs/op",
			"BenchmarkDecision/nodes=4/flows=10000-2 100 900.0 cpu-ns/op 999999 ns/op 0 B/op 1 allocs/op", "BenchmarkDecision/nodes=4/flows=100000-2 100 950 cpu-ns/op 999999 ns/op 0 B/op 1 allocs/op"),
		runAdmit:     benchmarks(5, "BenchmarkEngineAdmit/10000tenants-2 100 800 ns/op 700 admit-cpu-ns/op 300 settle-cpu-ns/op 0 B/op 0 allocs/op"),
		runWarmAuth:  benchmarks(5, "BenchmarkAuthenticateWarm 1000 1100 ns/op 0 B/op 0 allocs/op"),
		runWarm:      benchmarks(1, "BenchmarkWarmRequest-2 300 4226693 ns/op 2.000 calls/op 0 other-calls/op 0 store-loads/op"),
		runCrossings: benchmarks(5, "--- PASS: TestWarmOperationIsOneCrossing (1.00s)"),
		runGroup:     benchmarks(5, "BenchmarkRecord256Writers-2 1000 9000 ns/op 111111 entries/s 100 entries/sync"),
		runDisk: benchmarks(1, "BenchmarkJournalOnDiskAndInMemory-2 1 900 added-p50-µs 1200 disk-p50-µs 1000 disk-requests/s 1000 fdatasync-p50-µs "+
			"1050 memory-requests/s 0.95 throughput-ratio"),
		runIdle:      benchmarks(5, "    bench_test.go:143: a tenant takes 1500 bytes with a credential and a key in use, 632 when idle"),
		runScale:     benchmarks(1, "BenchmarkScale-2 1 99436476885 ns/op -0.2657 %slower 2.904 %slower-cached 997 B/tenant 252.0 start-ms"),
		runIsolation: []byte(`{"Cores":2,"Servers":[{"Server":"Sluice","Ratios":[1.03,1.04,1.03,1.02,1.01],"ShareErrors":[0.001,0.002,0.001,0.001,0.001],"Errors":0,"Requests":100}]}`),
		runHandles:   benchmarks(5, "BenchmarkAHeldHandle/one_version 100 8 ns/op", "BenchmarkAHeldHandle/two_versions 100 9 ns/op", "BenchmarkByPath 100 300 ns/op"),
		runFetch:     benchmarks(5, "BenchmarkFetch-2 100 400000 ns/op 300 p50-µs 2000 p99-µs"),
		runNodes:     benchmarks(1, "BenchmarkNodes-2 1 500 1-requests/s 990 2-requests/s 1900 4-requests/s 1 1-of-linear 0.99 2-of-linear 0.9 4-of-linear"),
	}
}

func runs() []run {
	return allRuns("bin/sluice", "/no/such/folder/cpu.pprof", "/no/such/folder/isolation")
}

func TestEveryPromiseHasAFigureAndEveryRunIsUsed(t *testing.T) {
	used := make(map[string]bool)
	var shown []string
	for _, f := range figures() {
		shown = append(shown, f.promise)
		for _, name := range f.runs {
			used[name] = true
		}
	}
	for i, p := range promises {
		if p.id != fmt.Sprint("P", i+1) || !slices.Contains(shown, p.id) {
			t.Errorf("%s has no figure", p.id)
		}
	}
	if len(promises) != 10 {
		t.Errorf("%d promises", len(promises))
	}
	for _, r := range runs() {
		if !used[r.name] {
			t.Errorf("no figure is read from %s", r.name)
		}
		delete(used, r.name)
	}
	for name := range used {
		t.Errorf("a figure is read from %s, which does not run", name)
	}
}

func TestACompleteRunMakesAReport(t *testing.T) {
	r, err := build(complete(), runs(), false)
	if err != nil {
		t.Fatal(err)
	}
	r.Started, r.Profile = time.Date(2026, 5, 6, 0, 0, 0, 0, time.UTC), "flat cum"
	if len(r.Lines) != len(figures()) || len(r.Throughput) != 3 {
		t.Errorf("%d lines, %d throughputs", len(r.Lines), len(r.Throughput))
	}
	for _, l := range r.Lines {
		missed := l.Promise == "P10" && strings.Contains(l.What, "4 nodes")
		if l.Met == missed || len(l.Commands) == 0 {
			t.Errorf("%+v", l)
		}
	}
	text := string(r.markdown())
	if strings.Contains(text, "/no/such") {
		t.Error("a folder of this machine is in the report")
	}
	for _, want := range []string{"| P2 | one decision at 10,000 tenants, processor time | ≤ 3,000 ns | 1,900 ns | met |", "| ≥ 0.95 | 0.9 | **missed** |",
		"    go test -run '^$' -bench '^BenchmarkDecision$/nodes=4'"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	folder := t.TempDir()
	if err := r.write(folder); err != nil {
		t.Fatal(err)
	}
	again, err := readReport(filepath.Join(folder, "2026-05-06.json"))
	if err != nil {
		t.Fatal(err)
	}
	if string(again.markdown()) != text || again.section() != r.section() {
		t.Error("the report is another one when it is read again")
	}
	for _, chart := range []string{"budgets", "throughput"} {
		if info, err := os.Stat(filepath.Join(folder, "2026-05-06-"+chart+".svg")); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", chart, err)
		}
	}
}

func TestAReportOfABusyMachineSaysSo(t *testing.T) {
	for load, want := range map[float64]bool{-1: false, 0.3: false, 5: true} {
		r := &report{Machine: machine.Machine{Cores: 2, Load: load}}
		if got := strings.Contains(r.section(), "Other work had the machine"); got != want {
			t.Errorf("at a load of %v: %v", load, got)
		}
	}
}

func TestAReportOfARunThatIsMissingFails(t *testing.T) {
	for _, r := range runs() {
		o := complete()
		delete(o, r.name)
		if _, err := build(o, runs(), false); err == nil || !strings.Contains(err.Error(), r.name+" did not run") {
			t.Errorf("without %s: %v", r.name, err)
		}
	}
}

func TestAReportOfWhatCannotBeReadFails(t *testing.T) {
	for name, change := range map[string]struct{ run, old, new string }{
		"no JSON":                {runOverhead, "{", "["},
		"an operation missing":   {runOverhead, "ECDSA", "EdDSA"},
		"no rate":                {runOverhead, `"raw":5000`, `"raw":0`},
		"a metric missing":       {runDisk, "throughput-ratio", "ratio"},
		"a benchmark missing":    {runDecision, "flows=100000-2", "flows=50000-2"},
		"a value that is none":   {runWarmAuth, "1100 ns/op", "many ns/op"},
		"not a number":           {runNodes, "0.99 2-of-linear", "NaN 2-of-linear"},
		"infinite":               {runNodes, "0.99 2-of-linear", "+Inf 2-of-linear"},
		"a log without a number": {runIdle, "632 when idle", "some when idle"},
		"a failed test":          {runCrossings, "--- PASS", "--- FAIL"},
		"nobody's requests":      {runIsolation, `"Requests":100`, `"Requests":0`},
		"isolation without data": {runIsolation, `"Servers"`, `"Others"`},
	} {
		o := complete()
		was := string(o[change.run])
		o[change.run] = []byte(strings.Replace(was, change.old, change.new, 1))
		if string(o[change.run]) == was {
			t.Fatalf("%s changes nothing", name)
		}
		if name == "a benchmark missing" || name == "a metric missing" || name == "an operation missing" || name == "a failed test" || name == "a log without a number" {
			o[change.run] = []byte(strings.ReplaceAll(was, change.old, change.new))
		}
		if _, err := build(o, runs(), false); err == nil {
			t.Errorf("%s: a report was made", name)
		}
	}
}

func TestTooFewSamplesFailButInTheShortForm(t *testing.T) {
	o := complete()
	o[runWarmAuth] = benchmarks(4, "BenchmarkAuthenticateWarm 1000 1100 ns/op")
	if _, err := build(o, runs(), false); err == nil || !strings.Contains(err.Error(), "4 samples") {
		t.Errorf("%v", err)
	}
	if r, err := build(o, runs(), true); err != nil || !r.Short || !strings.Contains(string(r.markdown()), "Short form") {
		t.Errorf("the short form: %v", err)
	}
}

func TestACommandThatFailsIsTold(t *testing.T) {
	if _, err := execute(t.Context(), []string{"go", "tool", "no-such-tool"}); err == nil || !strings.Contains(err.Error(), "no-such-tool") {
		t.Errorf("%v", err)
	}
}

// The README says what the newest report says, and nothing else.
func TestTheREADMEHasTheNewestReport(t *testing.T) {
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _, err := split(string(text))
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("../results/20[0-9][0-9]-[0-9][0-9]-[0-9][0-9].json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no report: %v", err)
	}
	newest := slices.Max(files)
	r, err := readReport(newest)
	if err != nil {
		t.Fatal(err)
	}
	if section != r.section() {
		t.Errorf("the README does not say what %s says: go run ./bench/report -rewrite bench/results/%s -readme README.md", newest, filepath.Base(newest))
	}
	report, err := os.ReadFile(strings.TrimSuffix(newest, ".json") + ".md")
	if err != nil || string(report) != string(r.markdown()) {
		t.Errorf("the report beside %s is another one: %v", newest, err)
	}
}
