package cli

import (
	"context"
	"fmt"
	"io"
	"iter"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-kms/sluice/client"
)

// The forms of a report.
const (
	formText = "text"
	formHTML = "html"
	formPDF  = "pdf"
	formJSON = "json"
)

func (p *program) quotaIncidents() *cobra.Command {
	var limit int
	var form, file string
	c := &cobra.Command{
		Use:   "incidents [ID]",
		Short: "List incidents of the cost breaker, or show the report of one",
		Long: `List the incidents of a tenant's cost breaker, the latest first: times in which so
much was used that the day or month would have been used up long before its end.
With an ID, show the report of that incident: what happened when, who used most,
what it is likely to come from and what can be done about it. --format html or pdf
writes the report to a file (--out). Each API node has its own part of an incident.
With --tenant an operator does so for any tenant.`,
		Example: `  sluice quota incidents
  sluice quota incidents 01920c5e-0000-7000-8000-000000000000
  sluice quota incidents 01920c5e-0000-7000-8000-000000000000 --format pdf --out report.pdf`,
	}
	f := c.Flags()
	f.StringVar(&form, "format", formText, "`FORM` of the report: text, html, pdf or json")
	f.StringVar(&file, "out", "", "write the report to this `FILE`, - for standard output")
	choices(c, "format", formText, formHTML, formPDF, formJSON)
	limitFlag(c, &limit, "incidents")
	s := p.session(c)
	s.tenantFlag()
	c.Args = func(c *cobra.Command, args []string) error {
		switch {
		case len(args) > 1:
			return usage(c, "there are arguments after ID")
		case len(args) == 0 && (c.Flags().Changed("format") || file != ""):
			return usage(c, "--format and --out are of the report of one incident: give its ID")
		case form != formText && form != formHTML && form != formPDF && form != formJSON:
			return usage(c, "--format is text, html, pdf or json")
		case file == "" && (form == formHTML || form == formPDF):
			return usage(c, "give --out: a report of this form is a file")
		case file != "" && (form == formText || form == formJSON):
			return usage(c, "--out is for --format html and pdf")
		}
		return nil
	}
	c.ValidArgsFunction = s.completeAt(0, func(ctx context.Context, api *client.Client) iter.Seq[cobra.Completion] {
		return func(yield func(cobra.Completion) bool) {
			for i, err := range api.CostIncidents(ctx, s.tenant) {
				if err != nil || !yield(cobra.CompletionWithDesc(i.ID, date(i.Began))) {
					return
				}
			}
		}
	})
	return s.verb(func(s *session) error {
		ctx, api, err := s.connect()
		switch {
		case err != nil:
			return err
		case len(s.args) == 0:
			return s.listIncidents(ctx, api, limit)
		case form == formHTML:
			return s.saveReport(ctx, api, client.ReportHTML, file)
		case form == formPDF:
			return s.saveReport(ctx, api, client.ReportPDF, file)
		}
		r, err := api.CostReport(ctx, s.tenant, s.args[0])
		if err != nil {
			return err
		}
		s.json = s.json || form == formJSON
		return s.show(r, func(w io.Writer) error { return showReport(w, r) })
	})
}

func (s *session) listIncidents(ctx context.Context, api *client.Client, limit int) error {
	list, err := collect(api.CostIncidents(ctx, s.tenant), limit)
	if err != nil {
		return err
	}
	return s.show(struct {
		Incidents []*client.CostIncident `json:"incidents"`
	}{list}, func(w io.Writer) error {
		rows := make([][]string, len(list))
		for n, i := range list {
			rows[n] = []string{i.ID, date(i.Began), i.Ended.Sub(i.Began).String(), times(i.PeakRisk), credits(i.Over), date(i.Stopped), i.Component, strings.Join(i.Causes, " ")}
		}
		return table(w, []string{"ID", "BEGAN", "LASTED", "RISK", "OVER", "STOPPED", "COMPONENT", "CAUSES"}, rows)
	})
}

func (s *session) saveReport(ctx context.Context, api *client.Client, form, file string) error {
	body, err := api.CostReportDocument(ctx, s.tenant, s.args[0], form)
	if err != nil {
		return err
	}
	return s.writeFile(file, body)
}

func showReport(w io.Writer, r *client.CostReport) error {
	fields := []field{
		{"Incident", r.ID}, {"API node", r.Node}, {"Began", date(r.Began)}, {"Ended", date(r.Ended)}, {"Stopped", date(r.Stopped)},
		{"Predicted", fmt.Sprintf("%s with %s credits", date(r.PredictedStop), credits(r.PredictedTotal))},
		{"Highest risk", fmt.Sprintf("%s of a line of %s, at %s", times(r.PeakRisk), times(r.Line), date(r.PeakAt))},
		{"Used", fmt.Sprintf("%s credits, %s over the plan", credits(r.Used), credits(r.Over))},
		{"Calls", fmt.Sprintf("%d admitted, %d refused", r.Calls, r.RefusedCalls)},
	}
	for _, a := range r.Advice {
		fields = append(fields, field{a.Cause, a.Detail + "; " + a.Advice})
	}
	if err := details(w, fields...); err != nil {
		return err
	}
	var changes, uses [][]string
	for _, c := range r.Changes {
		of := "component " + c.Component
		if c.WholeTenant {
			of = "the tenant"
		}
		changes = append(changes, []string{date(c.At), of, c.From, c.To, times(c.Risk), credits(c.PerMinute)})
	}
	for _, kind := range []struct {
		name string
		list []client.CostShare
	}{{"component", r.Components}, {"operation", r.Operations}, {"key", r.Keys}, {"credential", r.Credentials}} {
		for _, u := range kind.list {
			uses = append(uses, []string{kind.name, u.Name, credits(u.Credits), fmt.Sprint(u.Calls)})
		}
	}
	fmt.Fprintln(w)
	if err := table(w, []string{"AT", "OF", "FROM", "TO", "RISK", "CREDITS/MIN"}, changes); err != nil {
		return err
	}
	fmt.Fprintln(w)
	return table(w, []string{"WHAT", "NAME", "CREDITS", "CALLS"}, uses)
}

func (p *program) quotaLift() *cobra.Command {
	c := &cobra.Command{
		Use:   "lift-stop",
		Short: "Lift the stop of the cost breaker",
		Long: `Lift the stop of a tenant's cost breaker: everything is let through again until the
incident is over; answers go on to be marked. The next incident is another one.
With --tenant an operator does so for any tenant.`,
		Example: `  sluice quota lift-stop
  sluice quota lift-stop --tenant acme`,
		Args: noArguments,
	}
	s := p.session(c)
	s.tenantFlag()
	return s.verb(func(s *session) error {
		ctx, api, err := s.connect()
		if err != nil {
			return err
		}
		l, err := api.LiftCost(ctx, s.tenant)
		if err != nil {
			return err
		}
		return s.show(l, func(w io.Writer) error { return details(w, costFields(&l.CostBreaker)...) })
	})
}

// times writes a risk, which is a number of times in thousandths.
func times(permille int) string { return strconv.FormatFloat(float64(permille)/1000, 'f', -1, 64) }

// costFields show a cost breaker.
func costFields(b *client.CostBreaker) []field {
	if !b.Enabled {
		return []field{{"Cost breaker", "off"}}
	}
	text := fmt.Sprintf("risk %s of a line of %s: %s credits in the last minute, the rest of day and month allows %s",
		times(b.Risk), times(b.Line), credits(b.PerMinute), credits(b.Allowed))
	if b.Lifted {
		text += "; its stop was lifted until the incident is over"
	}
	fields := []field{{"Cost breaker", text}}
	for _, s := range b.Stages {
		name := "Component " + s.Component
		if s.WholeTenant {
			name = "Whole tenant"
		}
		text := s.Stage + ", stops at " + date(s.StopsAt) + " with " + credits(s.StopCredits) + " credits"
		if s.Stage == "stopped" {
			text = "stopped since " + date(s.StopsAt)
		}
		fields = append(fields, field{name, text})
	}
	return fields
}
