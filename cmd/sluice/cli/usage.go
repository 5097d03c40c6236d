package cli

import (
	"encoding/csv"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-kms/sluice/client"
)

// usageColumns are the dimensions as columns, in the order of the answer's rows.
var usageColumns = []struct {
	dimension, header string
	value             func(*client.UsageRow) string
}{
	{"tenant", "tenant", func(u *client.UsageRow) string { return u.Tenant }},
	{"project", "project", func(u *client.UsageRow) string { return u.Project }},
	{"component", "component", func(u *client.UsageRow) string { return u.Component }},
	{"key", "key", func(u *client.UsageRow) string { return u.Key }},
	{"algorithm", "algorithm", func(u *client.UsageRow) string { return u.Algorithm }},
	{"operation", "operation", func(u *client.UsageRow) string { return u.Operation }},
	{"reason", "reason", func(u *client.UsageRow) string { return u.Reason }},
	{"policy", "policy_version", func(u *client.UsageRow) string { return strconv.FormatUint(u.Policy, 10) }},
}

const usageHelp = `Usage is summed up from the entries of the audit trail, about a second after
they were recorded, by periods of UTC. A tenant's credential needs the scope
usage:read; an operator sees all tenants together, or with --tenant one.`

func (p *program) usageVerb() *cobra.Command {
	var q client.UsageQuery
	var from, to string
	var where []string
	var asCSV bool
	c := &cobra.Command{
		Use:   "usage",
		Short: "Show who used what, by period",
		Long: `Show usage by period and, with --by, by project, component, key, algorithm,
operation, reason and policy version. A reason is why requests were not served: a
gate's code, the code of a problem, dry_run, or replayed; it is empty for those
that were served.
` + usageHelp,
		Example: `  sluice usage --by component,key
  sluice usage --from 2026-01-01 --by reason --csv`,
		Args: noArguments,
	}
	f := c.Flags()
	f.StringVar(&from, "from", "", "periods of this `TIME` or later: RFC 3339, a day of UTC, or how long ago, such as 2h; the default is today")
	f.StringVar(&to, "to", "", "periods that begin before this `TIME`; the default is now")
	f.StringVar(&q.Granularity, "granularity", "day", "`LENGTH` of the periods: minute, hour or day")
	f.StringSliceVar(&q.By, "by", nil, "tell apart by these `DIMENSIONS`")
	f.StringArrayVar(&where, "where", nil, "only of one value of a dimension, `DIMENSION=VALUE`; may be given again")
	f.BoolVar(&asCSV, "csv", false, "print CSV")
	choices(c, "granularity", "minute", "hour", "day")
	dimensions := make([]string, len(usageColumns))
	for i, column := range usageColumns {
		dimensions[i] = column.dimension
	}
	choices(c, "by", dimensions...)
	noCompletion(c, "from", "to", "where")
	s := p.session(c)
	s.tenantFlag()
	c.AddCommand(p.usageBill(), p.usageServiceLevel())
	verb := s.verb(func(s *session) (err error) {
		now := time.Now()
		if q.From, err = moment(from, now); err != nil {
			return usage(c, "--from: %v", err)
		}
		if q.To, err = moment(to, now); err != nil {
			return usage(c, "--to: %v", err)
		}
		if q.Where, err = pairs(where); err != nil {
			return usage(c, "--where: %v", err)
		}
		ctx, api, err := s.connect()
		if err != nil {
			return err
		}
		u, err := api.Usage(ctx, s.tenant, q)
		if err != nil {
			return err
		}
		if asCSV {
			return usageCSV(s.cmd.OutOrStdout(), q.By, u.Rows)
		}
		return s.show(u, func(w io.Writer) error {
			if err := usageTable(w, q.By, u.Rows); err != nil {
				return err
			}
			s.sayComplete(&u.Completeness)
			return nil
		})
	})
	return exclusive(verb, "csv", "json")
}

// pairs reads NAME=VALUE.
func pairs(list []string) (map[string]string, error) {
	m := make(map[string]string, len(list))
	for _, pair := range list {
		name, value, ok := strings.Cut(pair, "=")
		if !ok || name == "" {
			return nil, fmt.Errorf("%q is not DIMENSION=VALUE", pair)
		}
		m[name] = value
	}
	return m, nil
}

func (s *session) sayComplete(c *client.Completeness) {
	if c.CompleteUntil.IsZero() {
		s.say("No API node has told yet up to when this is complete.")
		return
	}
	s.say("Complete until %s.", date(c.CompleteUntil))
}

// usageHeader are the columns of rows by some dimensions.
func usageHeader(by []string) []string {
	header := []string{"start"}
	for _, c := range usageColumns {
		if slices.Contains(by, c.dimension) {
			header = append(header, c.header)
		}
	}
	return append(header, "requests", "credits", "bytes", "hsm_ms", "queue_ms")
}

func usageCells(by []string, u *client.UsageRow) []string {
	cells := []string{date(u.Start)}
	for _, c := range usageColumns {
		if slices.Contains(by, c.dimension) {
			cells = append(cells, c.value(u))
		}
	}
	return append(cells, sumCells(&u.UsageSum)...)
}

func sumCells(u *client.UsageSum) []string {
	return []string{strconv.FormatInt(u.Requests, 10), credits(u.Credits), strconv.FormatInt(u.Bytes, 10), credits(u.HSMMS), credits(u.QueueMS)}
}

func usageTable(w io.Writer, by []string, rows []client.UsageRow) error {
	header := usageHeader(by)
	for i := range header {
		header[i] = strings.ToUpper(strings.ReplaceAll(header[i], "_", " "))
	}
	cells := make([][]string, len(rows))
	for i := range rows {
		cells[i] = usageCells(by, &rows[i])
		for j, c := range cells[i] {
			if c == "" {
				cells[i][j] = "-"
			}
		}
	}
	return table(w, header, cells)
}

func usageCSV(w io.Writer, by []string, rows []client.UsageRow) error {
	out := csv.NewWriter(w)
	out.Write(usageHeader(by))
	for i := range rows {
		cells := usageCells(by, &rows[i])
		for j, c := range cells {
			cells[j] = printable(c)
		}
		out.Write(cells)
	}
	out.Flush()
	return out.Error()
}

// billBy are the dimensions of a bill's lines.
var billBy = []string{"project", "component", "key", "policy"}

func (p *program) usageBill() *cobra.Command {
	var day string
	var asCSV bool
	c := &cobra.Command{
		Use:   "bill",
		Short: "Show what a day is charged",
		Long: `Show what a day of UTC is charged, by project, component, key and policy version,
whose cost table set the prices. Each line is the sum of the entries that "sluice
audit query" shows of that day, project, component and key. With --csv the lines
alone are printed, with all digits.
` + usageHelp,
		Example: `  sluice usage bill --day 2026-01-31
  sluice usage bill --day 2026-01-31 --tenant acme --csv`,
		Args: noArguments,
	}
	c.Flags().StringVar(&day, "day", "", "the `DAY`, such as 2026-01-31; the default is today")
	c.Flags().BoolVar(&asCSV, "csv", false, "print CSV")
	noCompletion(c, "day")
	s := p.session(c)
	s.tenantFlag()
	verb := s.verb(func(s *session) error {
		ctx, api, err := s.connect()
		if err != nil {
			return err
		}
		bill, err := api.Bill(ctx, s.tenant, day)
		if err != nil {
			return err
		}
		if asCSV {
			return usageCSV(s.cmd.OutOrStdout(), billBy, bill.Lines)
		}
		return s.show(bill, func(w io.Writer) error { return s.showBill(w, bill) })
	})
	return exclusive(verb, "csv", "json")
}

func (s *session) showBill(w io.Writer, bill *client.Bill) error {
	if err := usageTable(w, billBy, bill.Lines); err != nil {
		return err
	}
	fmt.Fprintf(w, "\n%s, tenant %s: %s credits for %d requests\n", printable(bill.Day), printable(bill.Tenant), credits(bill.Total.Credits), bill.Total.Requests)
	if !bill.Final {
		s.say("More may come.")
		s.sayComplete(&bill.Completeness)
	}
	return nil
}

func (p *program) usageServiceLevel() *cobra.Command {
	var month string
	c := &cobra.Command{
		Use:   "service-level",
		Short: "Show by tier what share of a month's requests succeeded",
		Long: `Show by tier what share of a month's requests the service did not fail, beside
the share that the policy promises. Failures are the service's own: what is asked
wrongly, or beyond a tenant's limits, is none. It is for operators, and summed up
from the same usage as "sluice usage".`,
		Example: `  sluice usage service-level
  sluice usage service-level --month 2026-01 --json`,
		Args: noArguments,
	}
	c.Flags().StringVar(&month, "month", "", "the `MONTH` of UTC, such as 2026-01; the default is this one")
	noCompletion(c, "month")
	s := p.session(c)
	return s.verb(func(s *session) error {
		ctx, api, err := s.connect()
		if err != nil {
			return err
		}
		level, err := api.ServiceLevel(ctx, month)
		if err != nil {
			return err
		}
		return s.show(level, func(w io.Writer) error { return s.showServiceLevel(w, level) })
	})
}

func (s *session) showServiceLevel(w io.Writer, level *client.ServiceLevel) error {
	rows := make([][]string, len(level.Tiers))
	for i, l := range level.Tiers {
		kept := "yes"
		if !l.Kept {
			kept = "NO"
		}
		rows[i] = []string{l.Tier, strconv.FormatInt(l.Tenants, 10), strconv.FormatInt(l.Requests, 10), strconv.FormatInt(l.Failed, 10),
			percent(l.Success), kept, strconv.FormatInt(l.TenantsBelow, 10)}
	}
	if err := table(w, []string{"TIER", "TENANTS", "REQUESTS", "FAILED", "SUCCEEDED", "KEPT", "TENANTS BELOW"}, rows); err != nil {
		return err
	}
	fmt.Fprintf(w, "\n%s: %s is promised\n", printable(level.Month), percent(level.Promise))
	if !level.Final {
		s.say("More may come.")
		s.sayComplete(&level.Completeness)
	}
	return nil
}

// percent shows a share with all of its ten-thousandths.
func percent(share float64) string { return strconv.FormatFloat(share*100, 'f', 2, 64) + "%" }
