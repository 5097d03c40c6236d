package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"
)

// The marks in the README between which the table stands.
const (
	markBegin = "<!-- bench: written by make bench -->\n"
	markEnd   = "<!-- /bench -->\n"
)

// section is what stands between the marks.
func (r *report) section() string {
	var b strings.Builder
	missed := 0
	for _, l := range r.Lines {
		if !l.Met {
			missed++
		}
	}
	fmt.Fprintf(&b, "Measured %s, %d of %d budgets met. %s\n\n", r.Started.Format(time.DateOnly), len(r.Lines)-missed, len(r.Lines), r.where())
	r.table(&b)
	b.WriteString("\n")
	r.throughputTable(&b)
	fmt.Fprintf(&b, "\n![measured, in parts of the budget](bench/results/%s-budgets.svg)\n\n", r.name())
	fmt.Fprintf(&b, "[bench/results/%s.md](bench/results/%[1]s.md) has the command of each line, and a CPU profile.\n", r.name())
	return b.String()
}

// intoREADME puts the section between the marks of a file.
func (r *report) intoREADME(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	before, _, after, err := split(string(text))
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return os.WriteFile(file, []byte(before+markBegin+r.section()+markEnd+after), 0o644)
}

// split takes a text apart at the marks.
func split(text string) (before, section, after string, err error) {
	before, rest, begins := strings.Cut(text, markBegin)
	section, after, ends := strings.Cut(rest, markEnd)
	if !begins || !ends {
		return "", "", "", errors.New("the marks of the performance table are missing")
	}
	return before, section, after, nil
}
