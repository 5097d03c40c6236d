package main

import (
	"encoding/json/v2"
	"fmt"
	"math"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// run is a command whose output holds figures.
type run struct {
	name string
	// args is the command. What is short form only comes from shortened.
	args []string
	// shortened makes the command of the short form, which only shows that the
	// figures can be taken; nil: the same.
	shortened []string
}

// command returns the words of a run.
func (r *run) command(short bool) []string {
	if short && r.shortened != nil {
		return r.shortened
	}
	return r.args
}

// shown is the command for a reader, whose files are not in a folder of ours.
func (r *run) shown(short bool) (words []string) {
	for _, w := range r.command(short) {
		if filepath.IsAbs(w) {
			w = filepath.Base(w)
		}
		words = append(words, w)
	}
	return words
}

// outputs are what the commands wrote, by the names of their runs.
type outputs map[string][]byte

// figure is one line of the report: how it is read and what it has to be.
type figure struct {
	promise string // P1 …
	what    string
	unit    string // "": a ratio
	budget  float64
	atLeast bool // the budget is a lower bound, not an upper one
	samples int  // that there must be at least
	runs    []string
	read    func(outputs) ([]float64, error)
}

// goBench reads a metric of a benchmark from the output of `go test -bench`: a
// sample for each repetition. The name is without the number of processors.
func goBench(run, name, unit string) func(outputs) ([]float64, error) {
	return func(o outputs) ([]float64, error) {
		var samples []float64
		for line := range strings.Lines(string(o[run])) {
			fields := strings.Fields(line)
			if len(fields) < 4 || withoutProcessors(fields[0]) != name {
				continue
			}
			// After the name and the number of iterations: value unit value unit …
			for i := 2; i+1 < len(fields); i += 2 {
				if fields[i+1] != unit {
					continue
				}
				v, err := strconv.ParseFloat(fields[i], 64)
				if err != nil {
					return nil, fmt.Errorf("%s: %s %q is no number", name, unit, fields[i])
				}
				samples = append(samples, v)
			}
		}
		if len(samples) == 0 {
			return nil, fmt.Errorf("%s did not report %s", name, unit)
		}
		return samples, nil
	}
}

// withoutProcessors cuts the suffix that the testing package appends: "-" and
// GOMAXPROCS, when that is not 1.
func withoutProcessors(name string) string {
	i := strings.LastIndexByte(name, '-')
	if i < 0 {
		return name
	}
	if _, err := strconv.Atoi(name[i+1:]); err != nil {
		return name
	}
	return name[:i]
}

// passed reads how many runs of a test passed, in the output of `go test -v`:
// the value is given for each.
func passed(run, test string, value float64) func(outputs) ([]float64, error) {
	return func(o outputs) ([]float64, error) {
		var samples []float64
		for line := range strings.Lines(string(o[run])) {
			if strings.HasPrefix(line, "--- PASS: "+test+" ") {
				samples = append(samples, value)
			}
		}
		if len(samples) == 0 {
			return nil, fmt.Errorf("%s did not pass", test)
		}
		return samples, nil
	}
}

// logged reads a number that a test writes into its log, in each run of the test.
func logged(run string, number *regexp.Regexp) func(outputs) ([]float64, error) {
	return func(o outputs) ([]float64, error) {
		var samples []float64
		for _, found := range number.FindAllSubmatch(o[run], -1) {
			v, err := strconv.ParseFloat(string(found[1]), 64)
			if err != nil {
				return nil, err
			}
			samples = append(samples, v)
		}
		if len(samples) == 0 {
			return nil, fmt.Errorf("%s did not log %s", run, number)
		}
		return samples, nil
	}
}

// combined makes samples of those of several others, one by one.
func combined(f func(...float64) float64, parts ...func(outputs) ([]float64, error)) func(outputs) ([]float64, error) {
	return func(o outputs) ([]float64, error) {
		var columns [][]float64
		n := math.MaxInt
		for _, read := range parts {
			column, err := read(o)
			if err != nil {
				return nil, err
			}
			columns, n = append(columns, column), min(n, len(column))
		}
		var samples []float64
		for i := range n {
			var row []float64
			for _, column := range columns {
				row = append(row, column[i])
			}
			samples = append(samples, f(row...))
		}
		return samples, nil
	}
}

func sum(x ...float64) (total float64) {
	for _, v := range x {
		total += v
	}
	return total
}

func quotient(x ...float64) float64 { return x[0] / x[1] }

// fromJSON reads samples from the JSON that a program wrote.
func fromJSON[T any](run string, read func(*T) []float64) func(outputs) ([]float64, error) {
	return func(o outputs) ([]float64, error) {
		var v T
		if err := json.Unmarshal(o[run], &v); err != nil {
			return nil, fmt.Errorf("the output of %s: %w", run, err)
		}
		samples := read(&v)
		if len(samples) == 0 {
			return nil, fmt.Errorf("%s did not report it", run)
		}
		return samples, nil
	}
}

// median of samples, the upper one of an even number.
func median(x []float64) float64 {
	x = slices.Clone(x)
	slices.Sort(x)
	return x[len(x)/2]
}

// take reads a figure and judges it.
func (f *figure) take(o outputs, runs map[string]*run, short bool) (line, error) {
	samples, err := f.read(o)
	if err != nil {
		return line{}, err
	}
	if want := f.samples; len(samples) < want && !short {
		return line{}, fmt.Errorf("%d samples, and %d are wanted", len(samples), want)
	}
	for _, v := range samples {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return line{}, fmt.Errorf("a sample is %v", v)
		}
	}
	l := line{Promise: f.promise, What: f.what, Unit: f.unit, Budget: f.budget, AtLeast: f.atLeast, Measured: median(samples), Samples: samples}
	l.Met = l.Measured <= f.budget
	if f.atLeast {
		l.Met = l.Measured >= f.budget
	}
	for _, name := range f.runs {
		l.Commands = append(l.Commands, strings.Join(quoted(runs[name].shown(short)), " "))
	}
	return l, nil
}

// quoted are the words of a command for a shell.
func quoted(words []string) (all []string) {
	for _, w := range words {
		if strings.ContainsAny(w, "^$|*() ") {
			w = "'" + w + "'"
		}
		all = append(all, w)
	}
	return all
}
