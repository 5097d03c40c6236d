package trial

import (
	"encoding/json/v2"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"encoding/json/jsontext"

	"github.com/sluice-kms/sluice/bench/plot"
)

// Read reads a result that Write wrote.
func Read(file string) (*Result, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading a result: %w", err)
	}
	r := new(Result)
	if err := json.Unmarshal(text, r, json.RejectUnknownMembers(true)); err != nil {
		return nil, fmt.Errorf("%s is no result of a trial: %w", file, err)
	}
	if r.Scenario == "" || len(r.Steps) == 0 {
		return nil, fmt.Errorf("%s is no result of a trial: it has no step", file)
	}
	return r, nil
}

// Name is what the files of a result are called.
func (r *Result) Name() string {
	return fmt.Sprintf("%s-%s-%s", r.Scenario, r.Kind, r.Started.Format("20060102-150405"))
}

// JSON is the result for programs.
func (r *Result) JSON() ([]byte, error) {
	text, err := json.Marshal(r, jsontext.WithIndent("  "), json.Deterministic(true))
	return append(text, '\n'), err
}

// Write puts result, report and charts into a folder and returns the files.
func (r *Result) Write(folder string) (files []string, err error) {
	data, err := r.JSON()
	if err != nil {
		return nil, err
	}
	return write(folder, r.Name(), []*Result{r}, map[string][]byte{r.Name() + ".json": data}, r.Markdown())
}

// write adds the report and the charts that can be drawn to the files.
func write(folder, name string, results []*Result, files map[string][]byte, report []byte) (written []string, err error) {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return nil, err
	}
	charts, err := charts(results)
	if err != nil {
		return nil, err
	}
	for _, kind := range slices.Sorted(maps.Keys(charts)) {
		file := name + "-" + kind + ".svg"
		files[file] = charts[kind]
		report = fmt.Appendf(report, "\n![%s](%s)\n", kind, file)
	}
	files[name+".md"] = report
	for _, file := range slices.Sorted(maps.Keys(files)) {
		path := filepath.Join(folder, file)
		if err := os.WriteFile(path, files[file], 0o644); err != nil {
			return nil, err
		}
		written = append(written, path)
	}
	return written, nil
}

// Markdown is the result for people.
func (r *Result) Markdown() []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s on %s\n\n%s.\n\n", r.Scenario, r.Target, r.About)
	r.heading(&b)
	b.WriteString("\n| step | stream | offered/s | served/s | not served | P50 ms | P90 ms | P99 ms | P99.9 ms | longest ms |\n|---|---|---|---|---|---|---|---|---|---|\n")
	for i := range r.Steps {
		step := &r.Steps[i]
		for k, s := range step.Streams {
			fmt.Fprintf(&b, "| %g | %s | %s | %.1f | %s | %.2f | %.2f | %.2f | %.2f | %.2f |\n", step.Factor, s.Name, offered(s.Offered), step.Rate(k),
				failures(s.Failed), s.Latency.P50, s.Latency.P90, s.Latency.P99, s.Latency.P999, s.Latency.Max)
		}
	}
	return []byte(b.String())
}

// heading says how and where it was measured, and whether that was all of it.
func (r *Result) heading(b *strings.Builder) {
	if !r.Complete {
		b.WriteString("**Not complete: it was ended early, and the last step is shorter than the others.**\n\n")
	}
	fmt.Fprintf(b, "%s, of %s. Load generator: %s.\nLatency counts from the intended start.\n\n    %s\n", r.Target, r.Started.Format("2006-01-02 15:04:05 MST"), r.Machine, r.Command)
}

func offered(rate float64) string {
	if rate == 0 {
		return "closed"
	}
	return fmt.Sprintf("%.1f", rate)
}

// failures names what was not served.
func failures(by map[string]int64) string {
	if len(by) == 0 {
		return "0"
	}
	var all []string
	for _, status := range slices.Sorted(maps.Keys(by)) {
		all = append(all, fmt.Sprintf("%d × %s", by[status], status))
	}
	return strings.Join(all, ", ")
}

// charts draws the latency by percentile at the last step, and, of more than one
// step, P99 over the rate that was offered. A stream that was not served in any
// step has no place in a chart.
func charts(results []*Result) (map[string][]byte, error) {
	curves := plot.Lines{Title: "Latency by percentile, last step", XAxis: "percentile", YAxis: "latency, ms", LogY: true}
	rising := plot.Lines{Title: "P99 over the offered rate", XAxis: "requests/s", YAxis: "P99, ms", LogX: true, LogY: true}
	for _, r := range results {
		for k := range r.Steps[0].Streams {
			name := r.Steps[0].Streams[k].Name
			if len(results) > 1 {
				name = r.label() + ", " + name
			}
			curves.Series = append(curves.Series, curve(name, &r.Steps[len(r.Steps)-1].Streams[k])...)
			rising.Series = append(rising.Series, rise(name, r.Steps, k)...)
		}
	}
	drawn := make(map[string][]byte)
	for kind, chart := range map[string]*plot.Lines{"percentiles": &curves, "rates": &rising} {
		if len(chart.Series) == 0 {
			continue
		}
		chart.Series = chart.Series[:min(len(chart.Series), plot.MaxSeries)]
		svg, err := chart.SVG()
		if err != nil {
			return nil, err
		}
		drawn[kind] = svg
	}
	return drawn, nil
}

// label names a result among others.
func (r *Result) label() string { return string(r.Kind) }

func curve(name string, s *Stream) []plot.Series {
	if s.OK == 0 {
		return nil
	}
	series := plot.Series{Name: name, Y: s.Percentiles}
	for _, part := range Parts {
		series.X = append(series.X, 100*part)
	}
	return []plot.Series{series}
}

func rise(name string, steps []Step, stream int) []plot.Series {
	series := plot.Series{Name: name}
	for _, step := range steps {
		if s := step.Streams[stream]; s.OK > 0 && s.Offered > 0 {
			series.X, series.Y = append(series.X, s.Offered), append(series.Y, s.Latency.P99)
		}
	}
	if len(series.X) < 2 {
		return nil
	}
	return []plot.Series{series}
}

// Compare is the report of several results of one scenario, the first of which
// the others are held against.
func Compare(results []*Result) ([]byte, error) {
	if len(results) < 2 {
		return nil, errors.New("there is nothing to compare: give two results or more")
	}
	first := results[0]
	var b strings.Builder
	fmt.Fprintf(&b, "# %s, compared\n\n%s.\n\n", first.Scenario, first.About)
	for _, r := range results {
		if err := first.comparable(r); err != nil {
			return nil, err
		}
		r.heading(&b)
		b.WriteString("\n")
	}
	b.WriteString("| step | stream | target | offered/s | served/s | × first | not served | P50 ms | P99 ms | × first |\n|---|---|---|---|---|---|---|---|---|---|\n")
	for i := range first.Steps {
		for k := range first.Steps[i].Streams {
			for _, r := range results {
				if i >= len(r.Steps) {
					continue // it was ended before
				}
				step, base := &r.Steps[i], &first.Steps[i]
				s := &step.Streams[k]
				fmt.Fprintf(&b, "| %g | %s | %s | %s | %.1f | %s | %s | %.2f | %.2f | %s |\n", step.Factor, s.Name, r.Target, offered(s.Offered), step.Rate(k),
					ratio(step.Rate(k), base.Rate(k)), failures(s.Failed), s.Latency.P50, s.Latency.P99, ratio(s.Latency.P99, base.Streams[k].Latency.P99))
			}
		}
	}
	return []byte(b.String()), nil
}

func ratio(a, b float64) string {
	if b == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", a/b)
}

// comparable fails when the two did not play the same load.
func (r *Result) comparable(o *Result) error {
	if r.Scenario != o.Scenario || len(r.Steps[0].Streams) != len(o.Steps[0].Streams) {
		return fmt.Errorf("%s and %s are of different scenarios", r.Name(), o.Name())
	}
	for i := range min(len(r.Steps), len(o.Steps)) {
		for k, s := range r.Steps[i].Streams {
			if t := o.Steps[i].Streams[k]; s.Name != t.Name || s.Offered != t.Offered {
				return fmt.Errorf("%s and %s offer different loads in step %d", r.Name(), o.Name(), i+1)
			}
		}
	}
	return nil
}

// WriteComparison puts the comparison and its charts into a folder and returns
// the files.
func WriteComparison(folder string, results []*Result) ([]string, error) {
	report, err := Compare(results)
	if err != nil {
		return nil, err
	}
	return write(folder, results[0].Scenario+"-compared", results, map[string][]byte{}, report)
}
