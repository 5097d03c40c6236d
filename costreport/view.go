package costreport

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-kms/sluice/kms"
)

// Reports writes reports. Its methods are safe for concurrent use.
type Reports struct{}

// view is what both forms show: words and numbers ready to be written.
type view struct {
	ID, Tenant string
	Title      string
	Facts      []fact
	Summary    []string
	Changes    [][]string
	Timeline   []point
	Span       string
	Shares     []shares
	Causes     []kms.CostCause
}

type fact struct{ Name, Value string }

// point is a span of the timeline. Used and Refused are parts of the highest
// span, in percent.
type point struct {
	At, Credits, RefusedCredits, Risk, Stage string
	Calls                                    int64
	Used, Refused                            float64
}

// shares are the largest of a kind.
type shares struct {
	What string
	Rows [][]string
}

func viewOf(i *kms.CostIncident) *view {
	v := &view{ID: i.ID.String(), Tenant: i.Tenant.String(), Title: "Incident of the cost breaker", Causes: i.Causes, Span: seconds(i.SpanSeconds)}
	v.Facts = []fact{
		{"Tenant", v.Tenant}, {"Incident", v.ID}, {"API node", i.Node},
		{"Began", moment(i.Began)}, {"Ended", moment(i.Ended)}, {"Lasted", i.Ended.Sub(i.Began).Round(time.Second).String()},
		{"Tier", string(i.Tier)}, {"Policy version", strconv.FormatUint(i.PolicyVersion, 10)},
		{"Credits used", credits(i.Used)}, {"Planned for that time", credits(i.Planned)}, {"Credits over the plan", credits(i.Over)},
		{"Credits refused", credits(i.Refused)}, {"Calls", fmt.Sprintf("%s admitted, %s refused", grouped(i.Calls), grouped(i.RefusedCalls))},
		{"Highest risk", fmt.Sprintf("%s at %s (line %s, recovery %s, factor %s)", decimal(i.PeakRisk), moment(i.PeakAt), decimal(i.Line), decimal(i.Recover), decimal(i.Factor))},
	}
	v.Summary = summary(i)
	for _, c := range i.Changes {
		v.Changes = append(v.Changes, []string{moment(c.At), whose(&c), c.From.String(), c.To.String(), decimal(c.Risk), credits(c.PerMinute)})
	}
	v.Timeline = timeline(i)
	for _, s := range []struct {
		what string
		list []kms.CostShare
	}{{"Components", i.Components}, {"Operations", i.Operations}, {"Keys", i.Keys}, {"Credentials", i.Credentials}} {
		if len(s.list) > 0 {
			v.Shares = append(v.Shares, shares{s.what, rows(s.list, i.Used+i.Refused)})
		}
	}
	return v
}

// summary says in sentences what happened.
func summary(i *kms.CostIncident) []string {
	list := []string{fmt.Sprintf("From %s to %s the use of a minute was above what the rest of the day or month allowed: the risk came to %s, and %s credits were used, %s over the plan.",
		moment(i.Began), moment(i.Ended), decimal(i.PeakRisk), credits(i.Used), credits(i.Over))}
	if i.Stopped.IsZero() {
		list = append(list, "Nothing was stopped.")
	} else {
		list = append(list, fmt.Sprintf("The stop came at %s, with %s credits used. The first stage had said %s and %s credits.",
			moment(i.Stopped), credits(i.StoppedUsed), moment(i.Predicted.StopsAt), credits(i.Predicted.Credits)))
	}
	if i.Lifted {
		list = append(list, "An administrator lifted the stop.")
	}
	return list
}

func timeline(i *kms.CostIncident) []point {
	highest := kms.Credits(1)
	for _, p := range i.Timeline {
		highest = max(highest, p.Used+p.Refused)
	}
	list := make([]point, len(i.Timeline))
	for n, p := range i.Timeline {
		list[n] = point{At: moment(i.Began.Add(time.Duration(n*i.SpanSeconds) * time.Second)), Credits: credits(p.Used), RefusedCredits: credits(p.Refused),
			Risk: decimal(p.Risk), Stage: p.Stage.String(), Calls: p.Calls,
			Used: percent(p.Used, highest), Refused: percent(p.Refused, highest)}
	}
	return list
}

func rows(list []kms.CostShare, all kms.Credits) [][]string {
	table := make([][]string, len(list))
	for n, s := range list {
		name := s.Name
		if name == "" {
			name = "(none)"
		}
		table[n] = []string{name, credits(s.Credits), strconv.FormatFloat(percent(s.Credits, max(all, 1)), 'f', 1, 64) + " %", grouped(s.Calls)}
	}
	return table
}

// whose names what a change is of.
func whose(c *kms.CostChange) string {
	switch {
	case c.Whole:
		return "the tenant"
	case c.Component == "":
		return "component (none)"
	}
	return "component " + c.Component
}

func percent(part, of kms.Credits) float64 { return float64(part) / float64(of) * 100 }

func moment(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return t.UTC().Format("2006-01-02 15:04:05 UTC")
}

// credits writes whole credits: a report is about millions.
func credits(c kms.Credits) string { return grouped(int64(c / kms.Credit)) }

// decimal writes thousandths.
func decimal(permille int) string {
	return strconv.FormatFloat(float64(permille)/1000, 'f', -1, 64)
}

func seconds(n int) string { return (time.Duration(n) * time.Second).String() }

// grouped writes a number with spaces between thousands.
func grouped(n int64) string {
	digits := strconv.FormatInt(n, 10)
	var b strings.Builder
	for i, d := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 && digits[i-1] != '-' {
			b.WriteByte(' ')
		}
		b.WriteRune(d)
	}
	return b.String()
}
