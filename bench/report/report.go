package main

import (
	"encoding/json/jsontext"
	"encoding/json/v2"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sluice-kms/sluice/bench/machine"
	"github.com/sluice-kms/sluice/bench/plot"
)

// report is what was measured. It is written as JSON.
type report struct {
	Started    time.Time       `json:"started"`
	Seconds    float64         `json:"seconds"` // it took
	Short      bool            `json:"short"`   // the short form, whose figures say nothing
	Commit     string          `json:"commit"`
	Machine    machine.Machine `json:"machine"`
	Lines      []line          `json:"lines"`
	Throughput []throughput    `json:"throughput"`
	// Profile is the head of a CPU profile of Sluice while it encrypts.
	Profile string `json:"profile"`
}

// line is a figure beside its budget.
type line struct {
	Promise  string    `json:"promise"`
	What     string    `json:"what"`
	Unit     string    `json:"unit,omitzero"`
	Budget   float64   `json:"budget"`
	AtLeast  bool      `json:"at_least"`
	Measured float64   `json:"measured"` // the median of the samples
	Samples  []float64 `json:"samples"`
	Met      bool      `json:"met"`
	Commands []string  `json:"commands"`
}

// throughput is an operation's, per second: of the module in a loop, of the thin
// wrapper, and of Sluice.
type throughput struct {
	Operation string  `json:"operation"`
	Raw       float64 `json:"raw"`
	Thin      float64 `json:"thin"`
	Sluice    float64 `json:"sluice"`
}

// build reads all figures out of what the commands wrote. It fails with all that
// is missing.
func build(o outputs, runs []run, short bool) (*report, error) {
	byName := make(map[string]*run, len(runs))
	var errs []error
	for i := range runs {
		byName[runs[i].name] = &runs[i]
		if len(o[runs[i].name]) == 0 {
			errs = append(errs, fmt.Errorf("%s did not run", runs[i].name))
		}
	}
	r := &report{Short: short}
	for _, f := range figures() {
		l, err := f.take(o, byName, short)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s, %s: %w", f.promise, f.what, err))
			continue
		}
		r.Lines = append(r.Lines, l)
	}
	_, err := fromJSON(runOverhead, func(v *overhead) (rates []float64) {
		for _, op := range v.Operations {
			r.Throughput = append(r.Throughput, throughput{op.Name, op.Raw, op.Thin.Rate, op.Sluice.Rate})
			rates = append(rates, op.Raw, op.Thin.Rate, op.Sluice.Rate)
		}
		if slices.Contains(rates, 0) {
			return nil
		}
		return rates
	})(o)
	if err != nil {
		errs = append(errs, fmt.Errorf("throughput: %w", err))
	}
	return r, errors.Join(errs...)
}

// readReport reads a report that write wrote.
func readReport(file string) (*report, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	r := new(report)
	if err := json.Unmarshal(text, r, json.RejectUnknownMembers(true)); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if len(r.Lines) == 0 || len(r.Throughput) == 0 {
		return nil, fmt.Errorf("%s has no figures", file)
	}
	return r, nil
}

// name is what the files of the report are called.
func (r *report) name() string {
	if r.Short {
		return r.Started.Format(time.DateOnly) + "-short"
	}
	return r.Started.Format(time.DateOnly)
}

// write puts report, data and charts into a folder.
func (r *report) write(folder string) error {
	data, err := json.Marshal(r, jsontext.WithIndent("  "), json.Deterministic(true))
	if err != nil {
		return err
	}
	budgets, errB := r.budgetChart()
	rates, errT := r.throughputChart()
	if err := errors.Join(errB, errT); err != nil {
		return err
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	for suffix, content := range map[string][]byte{
		".json": append(data, '\n'), ".md": r.markdown(), "-budgets.svg": budgets, "-throughput.svg": rates,
	} {
		if err := os.WriteFile(filepath.Join(folder, r.name()+suffix), content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// markdown is the report for people.
func (r *report) markdown() []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "# Performance, measured %s\n\n", r.Started.Format(time.DateOnly))
	if r.Short {
		b.WriteString("**Short form: it shows that every figure can be taken. The values say nothing.**\n\n")
	}
	fmt.Fprintf(&b, "Written by `make bench`; [%s.json](%[1]s.json) has the figures. %s\n\n", r.name(), r.where())
	fmt.Fprintf(&b, "![measured, in parts of the budget](%s-budgets.svg)\n\n", r.name())
	r.table(&b)
	fmt.Fprintf(&b, "\nA figure is the median of its samples; those of one line were taken in one run, in turns where two things are compared.\n\n## Throughput\n\n![throughput](%s-throughput.svg)\n\n", r.name())
	r.throughputTable(&b)
	b.WriteString("\nThe loop has no HTTP before it: one call of the module after the other from as many threads as there are sessions.\n\n## Commands\n\n")
	for _, p := range promises {
		var seen []string
		for _, l := range r.of(p.id) {
			for _, c := range l.Commands {
				if !slices.Contains(seen, c) {
					seen = append(seen, c)
				}
			}
		}
		fmt.Fprintf(&b, "%s, %s:\n\n    %s\n\n", p.id, p.what, strings.Join(seen, "\n    "))
	}
	fmt.Fprintf(&b, "## Where the processor's time goes\n\nSluice while it encrypts 64 bytes for 128 connections:\n\n```\n%s\n```\n", strings.TrimSpace(r.Profile))
	return []byte(b.String())
}

// where says what was measured on what.
func (r *report) where() string {
	of := ""
	if r.Commit != "" {
		of = "Of " + r.Commit + ", on "
	} else {
		of = "On "
	}
	text := fmt.Sprintf("%s%s, client and server on the same machine, in %.0f s.", of, r.Machine, r.Seconds)
	if r.Machine.Load > busy*float64(r.Machine.Cores) {
		text += " Other work had the machine too: times are longer than they are without it, and what waits for a processor looks worse than it is."
	}
	return text
}

// busy is the load for each core above which a report says that its machine was.
const busy = 0.5

func (r *report) of(promise string) (lines []line) {
	for _, l := range r.Lines {
		if l.Promise == promise {
			lines = append(lines, l)
		}
	}
	return lines
}

func (r *report) table(b *strings.Builder) {
	b.WriteString("| | what | budget | measured | |\n|---|---|---|---|---|\n")
	for _, l := range r.Lines {
		sign, verdict := "≤ ", "met"
		switch {
		case l.AtLeast:
			sign = "≥ "
		case l.Budget == 0:
			sign = ""
		}
		if !l.Met {
			verdict = "**missed**"
		}
		fmt.Fprintf(b, "| %s | %s | %s%s | %s | %s |\n", l.Promise, l.What, sign, amount(l.Budget, l.Unit), amount(l.Measured, l.Unit), verdict)
	}
}

func (r *report) throughputTable(b *strings.Builder) {
	b.WriteString("| operations/s | module in a loop | thin wrapper | Sluice |\n|---|---|---|---|\n")
	for _, t := range r.Throughput {
		fmt.Fprintf(b, "| %s | %.0f | %.0f | %.0f |\n", t.Operation, t.Raw, t.Thin, t.Sluice)
	}
}

// amount writes a value with its unit, to three digits that count.
func amount(v float64, unit string) string {
	text := ""
	switch {
	case v == float64(int64(v)):
		text = grouped(int64(v))
	case v >= 100 || v <= -100:
		text = grouped(int64(v + 0.5))
	default:
		text = fmt.Sprintf("%.3g", v)
	}
	if unit != "" {
		text += " " + unit
	}
	return text
}

// grouped writes a number with commas between thousands.
func grouped(v int64) string {
	if v < 0 {
		return "-" + grouped(-v)
	}
	if v < 1000 {
		return fmt.Sprint(v)
	}
	return fmt.Sprintf("%s,%03d", grouped(v/1000), v%1000)
}

// budgetChart shows each figure in parts of its budget, of which more than one
// is a budget missed. A budget of 0 has no parts.
func (r *report) budgetChart() ([]byte, error) {
	chart := plot.Bars{Title: "Measured, in parts of the budget", Axis: "below 1: the budget is met", Line: 1, LineLabel: "budget"}
	for _, l := range r.Lines {
		part := l.Measured / l.Budget
		if l.AtLeast {
			part = l.Budget / l.Measured
		}
		if l.Budget == 0 || l.Measured < 0 || l.AtLeast && l.Measured == 0 {
			continue
		}
		chart.Bars = append(chart.Bars, plot.Bar{Label: l.Promise + " " + short(l.What), Value: part, Ours: l.Met})
	}
	return chart.SVG()
}

// labelLength is what a label of a bar has room for.
const labelLength = 30

func short(text string) string {
	if letters := []rune(text); len(letters) > labelLength {
		return string(letters[:labelLength-1]) + "…"
	}
	return text
}

func (r *report) throughputChart() ([]byte, error) {
	chart := plot.Bars{Title: "Operations per second", Axis: "operations/s", Log: true}
	for _, t := range r.Throughput {
		chart.Bars = append(chart.Bars,
			plot.Bar{Label: short(t.Operation + ", module"), Value: t.Raw},
			plot.Bar{Label: short(t.Operation + ", thin"), Value: t.Thin},
			plot.Bar{Label: short(t.Operation + ", Sluice"), Value: t.Sluice, Ours: true})
	}
	return chart.SVG()
}
