package sim

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-kms/sluice/bench/plot"
)

// result is what all servers made of a workload.
type result struct {
	name  string
	alone time.Duration // the victims' P99 without the others; 0: they are alone
	rows  []row
}

// row returns a server's; the zero row, of which nothing is true, when it was
// not compared.
func (r *result) row(server string) row {
	if i := slices.IndexFunc(r.rows, func(row row) bool { return row.server == server }); i >= 0 {
		return r.rows[i]
	}
	return row{server: server}
}

// table writes the rows.
func (r *result) table() string {
	var b strings.Builder
	fmt.Fprintf(&b, "### %s\n\n", r.name)
	if r.alone > 0 {
		fmt.Fprintf(&b, "Victims alone: P99 %v\n\n", r.alone.Round(10*time.Microsecond))
	}
	b.WriteString("| | P50 | P99 | × alone | longest wait | share error | Jain | slots used | refused | served | at home | wait estimate off | slow node's work |\n|---|---|---|---|---|---|---|---|---|---|---|---|---|\n")
	part := func(x float64, ok bool) string {
		if !ok {
			return "–"
		}
		return fmt.Sprintf("%.2f %%", 100*x)
	}
	for _, w := range r.rows {
		victims, ratio, shared, slow := w.p99 > 0, "–", w.jain > 0, "–"
		p50, p99, jain := "–", "–", "–"
		if victims {
			p50, p99 = w.p50.Round(10*time.Microsecond).String(), w.p99.Round(10*time.Microsecond).String()
		}
		if victims && r.alone > 0 {
			ratio = fmt.Sprintf("%.2f", w.p99.Seconds()/r.alone.Seconds())
		}
		if shared {
			jain = fmt.Sprintf("%.4f", w.jain)
		}
		if w.slowPart > 0 {
			slow = fmt.Sprintf("%.2f", w.slowPart)
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %v | %s | %s | %.1f %% | %s | %d | %s | %s | %s |\n", w.server, p50, p99, ratio,
			w.longest.Round(100*time.Microsecond), part(w.shareError, shared), jain, 100*w.used, part(w.refused, victims), w.served,
			part(w.home, w.explains && w.slowPart > 0), part(w.estimate, w.estimate > 0), slow)
	}
	for _, w := range r.rows {
		if w.obeyed > 0 {
			fmt.Fprintf(&b, "\n%s: %.1f %% of the first repetitions by clients who wait as told were served.\n", w.server, 100*w.obeyed)
		}
	}
	return b.String()
}

// incomplete tells what is missing in results: a workload that did not run, a
// server that is not in it, one that served nothing.
func incomplete(all []workload, results []result) error {
	var errs []error
	for _, w := range all {
		i := slices.IndexFunc(results, func(r result) bool { return r.name == w.name })
		if i < 0 {
			errs = append(errs, fmt.Errorf("%s did not run", w.short()))
			continue
		}
		compared := w.servers
		if compared == nil {
			compared = servers()
		}
		for _, s := range compared {
			if results[i].row(s.name).served == 0 {
				errs = append(errs, fmt.Errorf("%s: %s served nothing", w.short(), s.name))
			}
		}
	}
	return errors.Join(errs...)
}

// charts are the report's, by file.
func charts(results []result) (map[string][]byte, error) {
	byWorkload := func(short string) *result {
		for i := range results {
			if (workload{name: results[i].name}).short() == short {
				return &results[i]
			}
		}
		return &result{}
	}
	w1, w2 := byWorkload("W1"), byWorkload("W2")
	isolation := plot.Bars{Title: "Victims' P99 beside a tenant that asks for 10 times its share", Axis: "P99, ms (logarithmic)", Log: true,
		Line: w2.alone.Seconds() * 1000, LineLabel: "alone"}
	for _, r := range w2.rows {
		isolation.Bars = append(isolation.Bars, plot.Bar{Label: r.server, Value: r.p99.Seconds() * 1000, Ours: r.server == nameOurs,
			Note: fmt.Sprintf(" ms, %.0f %% refused", 100*r.refused)})
	}
	shares := plot.Bars{Title: "Largest error of a tenant's share of slot time, 8 tenants who always have more to do", Axis: "error, % (logarithmic)", Log: true}
	for _, r := range w1.rows {
		shares.Bars = append(shares.Bars, plot.Bar{Label: r.server, Value: 100 * r.shareError, Ours: r.server == nameOurs, Note: " %"})
	}
	files := make(map[string][]byte)
	for name, chart := range map[string]plot.Bars{"sim-isolation.svg": isolation, "sim-shares.svg": shares} {
		svg, err := chart.SVG()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		files[name] = svg
	}
	return files, nil
}

// data is the results as they are written beside the charts.
func data(results []result) ([]byte, error) {
	type server struct {
		Server                                                                                 string
		P50, P99, Longest                                                                      float64 // ms
		ShareError, Jain, Used, Refused, SlowNodeWork, WaitEstimateError, AtHome, ObeyedServed float64
		Served                                                                                 int
	}
	type run struct {
		Workload string
		Alone    float64 // the victims' P99, ms
		Servers  []server
	}
	var runs []run
	for _, r := range results {
		one := run{Workload: r.name, Alone: r.alone.Seconds() * 1000}
		for _, w := range r.rows {
			one.Servers = append(one.Servers, server{w.server, w.p50.Seconds() * 1000, w.p99.Seconds() * 1000, w.longest.Seconds() * 1000,
				w.shareError, w.jain, w.used, w.refused, w.slowPart, w.estimate, w.home, w.obeyed, w.served})
		}
		runs = append(runs, one)
	}
	return json.MarshalIndent(map[string]any{"simulated_seconds": *seconds, "runs": runs}, "", "  ")
}

// write puts the report, its data and its charts into a folder.
func write(folder string, all []workload, results []result) error {
	if err := incomplete(all, results); err != nil {
		return err
	}
	files, err := charts(results)
	if err != nil {
		return err
	}
	raw, err := data(results)
	if err != nil {
		return err
	}
	files["sim.json"] = append(raw, '\n')
	var b bytes.Buffer
	fmt.Fprintf(&b, "# Scheduling, simulated\n\nWritten by `make sim`, %d simulated seconds of each run; [sim.json](sim.json) has the figures. What the columns mean is in\n[docs/isolation.md](../../docs/isolation.md).\n\n![victims' P99](sim-isolation.svg)\n\n![share errors](sim-shares.svg)\n", *seconds)
	for _, r := range results {
		b.WriteString("\n" + r.table())
	}
	files["sim.md"] = b.Bytes()
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(folder, name), content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// whole is a result of each workload, of all servers.
func whole() (results []result) {
	for _, w := range workloads() {
		r := result{name: w.name, alone: time.Millisecond}
		compared := w.servers
		if compared == nil {
			compared = servers()
		}
		for _, s := range compared {
			r.rows = append(r.rows, row{server: s.name, p99: time.Millisecond, shareError: 0.1, served: 1})
		}
		results = append(results, r)
	}
	return results
}

func TestAReportWithAHoleIsNotWritten(t *testing.T) {
	for name, tt := range map[string]struct {
		spoil func([]result) []result
		want  string
	}{
		"a workload did not run": {func(r []result) []result { return r[1:] }, "W1 did not run"},
		"a server is missing":    {func(r []result) []result { r[1].rows = r[1].rows[1:]; return r }, "W2: FIFO pool served nothing"},
		"a server did nothing":   {func(r []result) []result { r[1].rows[2].served = 0; return r }, "W2: strict + WRR served nothing"},
		"a series is empty":      {func(r []result) []result { r[1].rows[0].p99 = 0; return r }, "no place on the axis"},
	} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			if err := write(folder, workloads(), tt.spoil(whole())); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %q", err, tt.want)
			}
			if left, _ := os.ReadDir(folder); len(left) > 0 {
				t.Errorf("%d files were written", len(left))
			}
		})
	}
	folder := t.TempDir()
	if err := write(folder, workloads(), whole()); err != nil {
		t.Fatal(err)
	}
	if files, _ := os.ReadDir(folder); len(files) != 4 {
		t.Errorf("%d files", len(files))
	}
}
