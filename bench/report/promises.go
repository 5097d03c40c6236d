package main

import (
	"regexp"
	"strings"
)

// repeated is how often a figure is taken: medians of at least five.
const repeated = 5

// The promises that are shown in the report, in this order. A promise without a
// figure fails a test.
var promises = []struct{ id, what string }{
	{"P1", "throughput over the thin wrapper"},
	{"P2", "a decision: admit, enqueue, dispatch, settle"},
	{"P3", "authentication of a warm credential"},
	{"P4", "metadata and handle of a warm key"},
	{"P5", "crossings into the module"},
	{"P6", "the journal"},
	{"P7", "scale"},
	{"P8", "isolation"},
	{"P9", "fetch of a provider's key"},
	{"P10", "more nodes"},
}

// goTest is a benchmark of a package, repeated. More are further arguments.
func goTest(pattern, folder, time string, more ...string) []string {
	args := []string{"go", "test", "-run", "^$", "-bench", pattern, "-benchtime", time, "-count", "5", "-timeout", "20m", folder}
	return append(args, more...)
}

// once is such a command without its repetitions.
func once(args []string, time string) []string {
	short := append([]string(nil), args...)
	for i := range short {
		switch {
		case short[i] == "-count":
			short[i+1] = "1"
		case short[i] == "-benchtime":
			short[i+1] = time
		}
	}
	return short
}

// Names of the runs.
const (
	runOverhead  = "overhead"
	runDecision  = "decision"
	runAdmit     = "admit"
	runWarmAuth  = "authentication"
	runWarm      = "warm request"
	runCrossings = "crossings"
	runGroup     = "journal"
	runDisk      = "journal on disk"
	runScale     = "scale"
	runIsolation = "isolation"
	runHandles   = "handles"
	runFetch     = "fetch"
	runNodes     = "nodes"
	runIdle      = "idle tenants"
)

// allRuns are the commands in the order in which they run. sluice is the program
// to measure, profile where its CPU profile goes, and isolation the folder of
// that report.
func allRuns(sluice, profile, isolation string) []run {
	benchmark := func(name, pattern, folder, time, short string, more ...string) run {
		args := goTest(pattern, folder, time, more...)
		return run{name: name, args: args, shortened: once(args, short)}
	}
	// What has its rounds inside, in turns, is not repeated around them.
	single := func(name, pattern, time, short string) run {
		args := once(goTest(pattern, "./cmd/sluice/wire", ""), time)
		return run{name: name, args: args, shortened: once(args, short)}
	}
	overhead := []string{"go", "run", "./bench/overhead", "-sluice", sluice, "-connections", "128", "-json", "-profile", profile}
	isolated := []string{"go", "run", "./bench/isolation", "-sluice", sluice, "-rounds", "5", "-each", "4s", "-out", isolation}
	idle := []string{"go", "test", "-run", "^TestIdleTenantTakesAKibibyteAtMost$", "-count", "5", "-v", "./quota"}
	scale := append(single("", "^BenchmarkScale$", "1x", "").args, "-scale.tenants")
	scale = scale[:len(scale):len(scale)]
	overhead = overhead[:len(overhead):len(overhead)]
	crossings := []string{"go", "test", "-run", "^TestWarmOperationIsOneCrossing$", "-count", "5", "-v", "./hsm"}
	return []run{
		{name: runOverhead, args: append(overhead, "-each", "2s"), shortened: append(overhead, "-each", "300ms", "-rounds", "1")},
		benchmark(runDecision, "^BenchmarkDecision$/nodes=4", "./scheduler", "0.5s", "100x"),
		benchmark(runAdmit, "^BenchmarkEngineAdmit$/10000tenants", "./quota", "0.5s", "20000x"),
		benchmark(runWarmAuth, "^BenchmarkAuthenticateWarm$", "./kms", "0.5s", "1000x", "-cpu", "1"),
		single(runWarm, "^BenchmarkWarmRequest$", "300x", "20x"),
		{name: runCrossings, args: crossings, shortened: once(crossings, "")},
		benchmark(runGroup, "^BenchmarkRecord256Writers$", "./audit", "1s", "2000x"),
		single(runDisk, "^BenchmarkJournalOnDiskAndInMemory$", "1x", "1x"),
		single(runNodes, "^BenchmarkNodes$", "1x", "1x"),
		// From here on the disk has what is written for minutes to come.
		{name: runScale, args: append(scale, "10000"), shortened: append(scale, "1100")},
		{name: runIdle, args: idle, shortened: once(idle, "")},
		{name: runIsolation, args: isolated, shortened: []string{"go", "run", "./bench/isolation", "-sluice", sluice, "-rounds", "1", "-each", "2s", "-engines", "4", "-service", "50ms", "-out", isolation}},
		benchmark(runHandles, "^(BenchmarkAHeldHandle|BenchmarkByPath)$", "./client", "0.5s", "1000x", "-cpu", "1"),
		benchmark(runFetch, "^BenchmarkFetch$", "./cmd/sluice/wire", "1s", "50x"),
	}
}

// overhead is what bench/overhead writes, as far as it is read here.
type overhead struct {
	Operations []struct {
		Name   string    `json:"name"`
		Budget float64   `json:"budget"`
		Ratios []float64 `json:"ratios"`
		Raw    float64   `json:"raw"`
		Thin   struct {
			Rate float64 `json:"rate"`
		} `json:"thin"`
		Sluice struct {
			Rate float64 `json:"rate"`
		} `json:"sluice"`
	} `json:"operations"`
}

// isolation is what bench/isolation writes, as far as it is read here.
type isolation struct {
	Servers []struct {
		Ratios      []float64
		ShareErrors []float64
		BesideUsed  float64
		Errors      int
		Requests    int
	}
}

// figures are the lines of the report.
func figures() []figure {
	decision := func(flows, unit string) func(outputs) ([]float64, error) {
		return goBench(runDecision, "BenchmarkDecision/nodes=4/flows="+flows, unit)
	}
	admit := func(unit string) func(outputs) ([]float64, error) {
		return goBench(runAdmit, "BenchmarkEngineAdmit/10000tenants", unit)
	}
	ours := func(read func(i *isolation) []float64) func(outputs) ([]float64, error) {
		return fromJSON(runIsolation, func(i *isolation) []float64 {
			if len(i.Servers) == 0 || i.Servers[0].Requests == 0 {
				return nil
			}
			return read(i)
		})
	}
	var all []figure
	for _, op := range []string{"AES-256-GCM, 64 B", "ECDSA P-256", "RSA-2048 PSS"} {
		all = append(all, figure{"P1", "requests/s over those of the thin wrapper, " + op, "", 0.85, true, repeated, []string{runOverhead}, overWrapper(op)})
	}
	both := []string{runDecision, runAdmit}
	return append(all,
		figure{"P2", "one decision at 10,000 tenants, processor time", "ns", 3000, false, repeated, both,
			combined(sum, decision("10000", "cpu-ns/op"), admit("admit-cpu-ns/op"), admit("settle-cpu-ns/op"))},
		figure{"P2", "its allocations", "", 2, false, repeated, both, combined(sum, decision("10000", "allocs/op"), admit("allocs/op"))},
		// log2 of 100,000 is five times that of 10.
		figure{"P2", "its time at 100,000 tenants over that at 10", "", 5, false, repeated, both[:1],
			combined(quotient, decision("100000", "cpu-ns/op"), decision("10", "cpu-ns/op"))},
		figure{"P3", "authentication", "ns", 3000, false, repeated, []string{runWarmAuth}, goBench(runWarmAuth, "BenchmarkAuthenticateWarm", "ns/op")},
		figure{"P3", "database look-ups of a warm request, authentication included", "", 0, false, 1, []string{runWarm},
			goBench(runWarm, "BenchmarkWarmRequest", "store-loads/op")},
		figure{"P4", "module calls beside the operation's own", "", 0, false, 1, []string{runWarm},
			goBench(runWarm, "BenchmarkWarmRequest", "other-calls/op")},
		figure{"P5", "crossings of a warm operation, four kinds of keys", "", 1, false, repeated, []string{runCrossings},
			passed(runCrossings, "TestWarmOperationIsOneCrossing", 1)},
		figure{"P6", "entries/s, 256 writers", "", 50_000, true, repeated, []string{runGroup}, goBench(runGroup, "BenchmarkRecord256Writers", "entries/s")},
		figure{"P6", "throughput over that with the journal in memory", "", 0.9, true, 1, []string{runDisk},
			goBench(runDisk, "BenchmarkJournalOnDiskAndInMemory", "throughput-ratio")},
		figure{"P6", "added to P50, over one fdatasync", "", 1, false, 1, []string{runDisk},
			combined(quotient, goBench(runDisk, "BenchmarkJournalOnDiskAndInMemory", "added-p50-µs"), goBench(runDisk, "BenchmarkJournalOnDiskAndInMemory", "fdatasync-p50-µs"))},
		figure{"P7", "start with 10,000 tenants of 10 keys", "ms", 2000, false, 1, []string{runScale}, goBench(runScale, "BenchmarkScale", "start-ms")},
		figure{"P7", "warm median over that of 1,500 keys, difference", "%", 10, false, 1, []string{runScale}, goBench(runScale, "BenchmarkScale", "%slower")},
		figure{"P7", "the same with all keys cached", "%", 10, false, 1, []string{runScale}, goBench(runScale, "BenchmarkScale", "%slower-cached")},
		figure{"P7", "memory of an idle tenant, in the quota; elsewhere he has none", "B", 1024, false, repeated, []string{runIdle},
			logged(runIdle, regexp.MustCompile(`(\d+) when idle`))},
		figure{"P8", "victims' P99 beside an abuser at 10 times its share, over that alone", "", 1.25, false, repeated, []string{runIsolation},
			ours(func(i *isolation) []float64 { return i.Servers[0].Ratios })},
		figure{"P8", "largest share error", "%", 2, false, repeated, []string{runIsolation},
			ours(func(i *isolation) []float64 { return times(100, i.Servers[0].ShareErrors) })},
		figure{"P8", "victims' errors", "", 0, false, 1, []string{runIsolation},
			ours(func(i *isolation) []float64 { return []float64{float64(i.Servers[0].Errors)} })},
		figure{"P9", "a held handle", "ns", 10, false, repeated, []string{runHandles}, goBench(runHandles, "BenchmarkAHeldHandle/one_version", "ns/op")},
		figure{"P9", "cached, by path", "ns", 1000, false, repeated, []string{runHandles}, goBench(runHandles, "BenchmarkByPath", "ns/op")},
		figure{"P9", "remote on the same host, P50", "µs", 500, false, repeated, []string{runFetch}, goBench(runFetch, "BenchmarkFetch", "p50-µs")},
		figure{"P9", "remote on the same host, P99", "µs", 5000, false, repeated, []string{runFetch}, goBench(runFetch, "BenchmarkFetch", "p99-µs")},
		figure{"P10", "throughput of 2 nodes over twice that of one", "", 0.95, true, 1, []string{runNodes}, goBench(runNodes, "BenchmarkNodes", "2-of-linear")},
		figure{"P10", "throughput of 4 nodes over four times that of one", "", 0.95, true, 1, []string{runNodes}, goBench(runNodes, "BenchmarkNodes", "4-of-linear")},
	)
}

// overWrapper reads the ratios of an operation.
func overWrapper(op string) func(outputs) ([]float64, error) {
	return fromJSON(runOverhead, func(o *overhead) []float64 {
		for _, one := range o.Operations {
			if strings.EqualFold(one.Name, op) {
				return one.Ratios
			}
		}
		return nil
	})
}

func times(factor float64, x []float64) (all []float64) {
	for _, v := range x {
		all = append(all, factor*v)
	}
	return all
}
