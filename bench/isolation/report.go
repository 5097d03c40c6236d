package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sluice-kms/sluice/bench/plot"
)

// The servers that are compared.
const (
	serverSluice = "Sluice"
	serverThin   = "FIFO pool (thin wrapper)"
)

// report is what was measured; isolation.json has all of it.
type report struct {
	Cores   int
	Rounds  int
	Seconds float64 // of one measurement of latency
	// ShareSeconds is the time over which shares are looked at.
	ShareSeconds float64
	Slots        int
	Servers      []*isolation
	Loaded       loaded // while the victims were alone
	Slow         slow
}

// loaded counts uses of keys by whether the node had them loaded, and by whether
// it was the one that the key prefers.
type loaded struct{ Found, Missing, Home, Away uint64 }

// add adds what was counted between two looks.
func (l *loaded) add(after, before loaded) {
	l.Found += after.Found - before.Found
	l.Missing += after.Missing - before.Missing
	l.Home += after.Home - before.Home
	l.Away += after.Away - before.Away
}

// isolation is what the victims got from one server.
type isolation struct {
	Server        string
	Alone, Beside latency
	// AloneQueued and BesideQueued are the times that victims waited for a
	// slot, as the server says; of a server that does not, 0.
	AloneQueued, BesideQueued latency
	// Ratios are P99 beside the abuser over P99 alone, of each round.
	Ratios                []float64
	AloneUsed, BesideUsed float64 // part of the slots, the median of the rounds
	Requests, Errors      int     // of the victims
	// Failures are Errors by status; 0: no answer came in time.
	Failures                 map[int]int
	Asked, Refused, Answered int // of the abuser; the rest gave up
	ShareErrors              []float64
	Shares                   []share // of the last round

	// Of all rounds, in ms.
	alone, beside, aloneQueued, besideQueued []float64

	used, usedAlone []float64
}

// latency are percentiles in ms.
type latency struct{ P50, P90, P99, P999 float64 }

// share is a tenant's part of the slot time.
type share struct {
	Tenant    string
	Bought    float64 // by its weight
	Got       float64
	SlotTime  float64 // in s
	Completed int
}

// slow is what a node did that had become slower.
type slow struct {
	Part             float64 // of the work of another node, while all have work
	Latency          latency // of the victims at half of all slots
	Ratio            float64 // of their P99 to that with all nodes well
	Requests, Errors int
}

// queued adds the times that served requests waited for a slot, in ms.
func queued(all []outcome, to []float64) []float64 {
	for _, o := range all {
		for _, s := range o.samples {
			if s.Status == 200 {
				to = append(to, s.Queued.Seconds()*1000)
			}
		}
	}
	return to
}

// latencies adds those of the served requests, in ms.
func latencies(all []outcome, to []float64) []float64 {
	for _, o := range all {
		for _, s := range o.samples {
			if s.Status == 200 {
				to = append(to, s.Latency().Seconds()*1000)
			}
		}
	}
	return to
}

// percentiles sorts and reads off.
func percentiles(ms []float64) (l latency) {
	slices.Sort(ms)
	at := func(p float64) float64 {
		if len(ms) == 0 {
			return 0
		}
		return ms[min(len(ms)-1, int(p*float64(len(ms))))]
	}
	return latency{at(0.5), at(0.9), at(0.99), at(0.999)}
}

// count returns all requests and those that did not end well.
func count(all []outcome) (requests, bad int) {
	for _, o := range all {
		requests += len(o.samples)
		for _, s := range o.samples {
			if s.Status != 200 {
				bad++
			}
		}
	}
	return requests, bad
}

// add takes in a round. The abuser is the last of beside.
func (i *isolation) add(alone, beside []outcome, aloneUsed, besideUsed float64) {
	victims, abuser := beside[:len(beside)-1], beside[len(beside)-1]
	i.Ratios = append(i.Ratios, percentiles(latencies(victims, nil)).P99/percentiles(latencies(alone, nil)).P99)
	i.alone, i.beside = latencies(alone, i.alone), latencies(victims, i.beside)
	i.used, i.usedAlone = append(i.used, besideUsed), append(i.usedAlone, aloneUsed)
	i.aloneQueued, i.besideQueued = queued(alone, i.aloneQueued), queued(victims, i.besideQueued)
	for _, part := range [][]outcome{alone, victims} {
		requests, bad := count(part)
		i.Requests, i.Errors = i.Requests+requests, i.Errors+bad
		i.fail(part)
	}
	for _, s := range abuser.samples {
		i.Asked++
		switch s.Status {
		case 200:
			i.Answered++
		case 429, 503, 504:
			i.Refused++
		}
	}
}

// fail counts the victims' failures.
func (i *isolation) fail(victims []outcome) {
	if i.Failures == nil {
		i.Failures = make(map[int]int)
	}
	for _, o := range victims {
		for _, s := range o.samples {
			if s.Status != 200 {
				i.Failures[s.Status]++
			}
		}
	}
}

// addShares takes in a round of those who always have more to do. An operation
// counts as far as it lies in the time that is looked at.
func (i *isolation) addShares(all []outcome, window time.Duration, t times) {
	from := window / (warmPart - 1)
	to := from + window
	i.Shares = nil
	total, weights := 0.0, 0
	for _, o := range all {
		nominal := t.small
		if o.large {
			nominal = t.large
		}
		s := share{Tenant: o.name}
		for _, sample := range o.all {
			if sample.Status == 200 {
				took := cmp.Or(sample.HSM, nominal) // the thin wrapper does not say
				s.SlotTime += max(0, min(sample.Done, to)-max(sample.Done-took, from)).Seconds()
				s.Completed++
			}
		}
		total += s.SlotTime
		weights += o.weight()
		i.Shares = append(i.Shares, s)
	}
	worst := 0.0
	for k, o := range all {
		s := &i.Shares[k]
		s.Bought, s.Got = float64(o.weight())/float64(weights), s.SlotTime/total
		worst = max(worst, math.Abs(s.Got/s.Bought-1))
	}
	i.ShareErrors = append(i.ShareErrors, worst)
}

func (i *isolation) summarise() {
	i.Alone, i.Beside = percentiles(i.alone), percentiles(i.beside)
	i.AloneQueued, i.BesideQueued = percentiles(i.aloneQueued), percentiles(i.besideQueued)
	i.AloneUsed, i.BesideUsed = median(i.usedAlone), median(i.used)
}

func median(x []float64) float64 {
	if len(x) == 0 {
		return math.NaN()
	}
	x = slices.SortedFunc(slices.Values(x), cmp.Compare[float64])
	return x[len(x)/2]
}

// check fails when something was not measured: a report with a hole in it
// must not look like a good one.
func (r *report) check() error {
	var errs []error
	for _, i := range r.Servers {
		check := func(ok bool, what string) {
			if !ok {
				errs = append(errs, fmt.Errorf("%s: %s", i.Server, what))
			}
		}
		check(len(i.Ratios) == r.Rounds && len(i.ShareErrors) > 0, "a round is missing")
		check(i.Alone.P99 > 0 && i.Beside.P99 > 0, "no victim was served")
		check(i.Asked > 0, "the abuser asked for nothing")
		check(i.BesideUsed > 0, "no slot worked")
		check(len(i.Shares) > 0, "nobody shared")
		for _, s := range i.Shares {
			check(s.SlotTime > 0, s.Tenant+" was not served")
		}
	}
	if r.Loaded.Found == 0 || r.Loaded.Home == 0 {
		errs = append(errs, errors.New("no node served the victims alone"))
	}
	if r.Slow.Requests == 0 || r.Slow.Part == 0 {
		errs = append(errs, errors.New("the slow node was not measured"))
	}
	return errors.Join(errs...)
}

// markdown writes the tables.
func (r *report) markdown() []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "%d cores, %d slots on HSMs that saturate like hardware, %d rounds of %.0f s for each figure, open load\n\n", r.Cores, r.Slots, r.Rounds, r.Seconds)
	b.WriteString("| victims' latency, ms | P50 alone / beside | P99 alone / beside | P99.9 alone / beside | P99 ratio | errors | slots used alone / beside | abuser refused / gave up |\n|---|---|---|---|---|---|---|---|\n")
	for _, i := range r.Servers {
		asked := float64(i.Asked)
		fmt.Fprintf(&b, "| %s | %.1f / %.1f | %.1f / %.1f | %.1f / %.1f | %.2f (%s) | %d of %d | %.1f %% / %.1f %% | %.1f %% / %.1f %% |\n",
			i.Server, i.Alone.P50, i.Beside.P50, i.Alone.P99, i.Beside.P99, i.Alone.P999, i.Beside.P999, median(i.Ratios), ratios(i.Ratios),
			i.Errors, i.Requests, 100*i.AloneUsed, 100*i.BesideUsed, 100*float64(i.Refused)/asked, 100*float64(i.Asked-i.Answered-i.Refused)/asked)
	}
	ours := r.Servers[0]
	fmt.Fprintf(&b, "\nThe ratio is the median of the rounds; all of them are in brackets. Of the victims' latency at Sluice, waiting for a slot is\nP50 %.1f / %.1f ms, P99 %.1f / %.1f ms, P99.9 %.1f / %.1f ms alone / beside; the rest is the operation and the machine.\n\n",
		ours.AloneQueued.P50, ours.BesideQueued.P50, ours.AloneQueued.P99, ours.BesideQueued.P99, ours.AloneQueued.P999, ours.BesideQueued.P999)
	fmt.Fprintf(&b, "| slot time over %.0f s | bought |", r.ShareSeconds)
	for _, i := range r.Servers {
		fmt.Fprintf(&b, " %s |", i.Server)
	}
	b.WriteString("\n|---|---|" + strings.Repeat("---|", len(r.Servers)) + "\n")
	for k, s := range r.Servers[0].Shares {
		fmt.Fprintf(&b, "| %s | %.2f %% |", s.Tenant, 100*s.Bought)
		for _, i := range r.Servers {
			fmt.Fprintf(&b, " %.2f %% |", 100*i.Shares[k].Got)
		}
		b.WriteString("\n")
	}
	b.WriteString("| largest error, median of the rounds | |")
	for _, i := range r.Servers {
		fmt.Fprintf(&b, " %.2f %% |", 100*median(i.ShareErrors))
	}
	fmt.Fprintf(&b, "\n\nOf %d operations of victims alone %.2f %% found their key loaded on the node that served them, and %.1f %% ran\non the node that their key prefers.\n",
		r.Loaded.Found+r.Loaded.Missing, 100*float64(r.Loaded.Found)/float64(r.Loaded.Found+r.Loaded.Missing),
		100*float64(r.Loaded.Home)/float64(r.Loaded.Home+r.Loaded.Away))
	fmt.Fprintf(&b, "\nOne of %d nodes %d times slower: while all have work it does %.3f of another node's operations; victims at half of all slots\nhave P50 %.1f ms and P99 %.1f ms, %.2f times that with all nodes well, and %d errors in %d requests.\n",
		nodes, slowFactor, r.Slow.Part, r.Slow.Latency.P50, r.Slow.Latency.P99, r.Slow.Ratio, r.Slow.Errors, r.Slow.Requests)
	return []byte(b.String())
}

func ratios(x []float64) string {
	var all []string
	for _, v := range x {
		all = append(all, fmt.Sprintf("%.2f", v))
	}
	return strings.Join(all, ", ")
}

// chart is the victims' latency by percentile.
func (r *report) chart() ([]byte, error) {
	chart := plot.Lines{Title: "Victims' latency, alone and beside a tenant at 10 times its share", XAxis: "percentile", YAxis: "latency, ms", LogY: true}
	for _, i := range r.Servers {
		for _, s := range []struct {
			name string
			ms   []float64
		}{{i.Server + ", beside", i.beside}, {i.Server + ", alone", i.alone}} {
			series := plot.Series{Name: s.name}
			for p := 0; p < 100 && len(s.ms) > 0; p++ {
				series.X, series.Y = append(series.X, float64(p)), append(series.Y, s.ms[len(s.ms)*p/100])
			}
			chart.Series = append(chart.Series, series)
		}
	}
	return chart.SVG()
}

// write puts report, data and chart into a folder.
func (r *report) write(folder string) error {
	svg, err := r.chart()
	if err != nil {
		return err
	}
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	for name, content := range map[string][]byte{
		"isolation.md":   append([]byte("# Isolation, measured\n\nWritten by `make bench-isolation`; [isolation.json](isolation.json) has the figures.\n\n![victims' latency](isolation.svg)\n\n"), r.markdown()...),
		"isolation.json": append(data, '\n'), "isolation.svg": svg,
	} {
		if err := os.WriteFile(filepath.Join(folder, name), content, 0o644); err != nil {
			return err
		}
	}
	return nil
}
