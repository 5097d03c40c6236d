package cli

import (
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/sluice-kms/sluice/client"
)

func (p *program) quota() *cobra.Command {
	c := &cobra.Command{
		Use:   "quota",
		Short: "Show what may be used and was used",
		Long: `Show what a tenant may use and has used, in credits: the bucket that refills by
the second, the totals of day and month with their resets, the elastic pool that
a day draws on beyond its total, what is owed, the limits of bandwidth,
concurrency and storage, and the cost breaker; and, where it is not as it should,
how the tenant obeys Retry-After. With --tenant an operator does so for any tenant.`,
		Example: `  sluice quota
  sluice quota --tenant acme --json`,
		Args: noArguments,
	}
	c.AddCommand(p.quotaTenants(), p.quotaIncidents(), p.quotaLift())
	s := p.session(c)
	s.tenantFlag()
	return s.verb(func(s *session) error {
		ctx, api, err := s.connect()
		if err != nil {
			return err
		}
		q, err := api.Quota(ctx, s.tenant)
		if err != nil {
			return err
		}
		return s.show(q, func(w io.Writer) error { return showQuota(w, q) })
	})
}

func showQuota(w io.Writer, q *client.Quota) error {
	fields := []field{
		{"Tier", fmt.Sprintf("%s, policy version %d", q.Tier, q.PolicyVersion)},
		{"Bucket", fmt.Sprintf("%s of %s credits, %s more a second", credits(q.Available), credits(q.Burst), credits(q.PerSecond))},
	}
	if q.Ramp < 1000 {
		fields = append(fields, field{"New tenant", permille(q.Ramp) + " of the full rate for now"})
	}
	if q.LoadShare < 1000 {
		fields = append(fields, field{"Load", permille(q.LoadShare) + " of the refill while the HSMs are busy"})
	}
	if q.Overdraft > 0 {
		fields = append(fields, field{"Overdraft", fmt.Sprintf("%s of %s credits owed", credits(q.Debt), credits(q.Overdraft))})
	}
	for _, t := range []struct {
		name  string
		total client.QuotaTotal
	}{{"Day", q.Day}, {"Month", q.Month}} {
		text := fmt.Sprintf("%s of %s credits used, resets %s", credits(t.total.Used), credits(t.total.Limit), date(t.total.ResetsAt))
		if t.total.Soft {
			text += "; the soft limit is reached"
		}
		fields = append(fields, field{t.name, text})
	}
	if q.Pool.Size > 0 {
		text := fmt.Sprintf("%s of %s credits left", credits(q.Pool.Left), credits(q.Pool.Size))
		if q.Pool.Lowered {
			text += "; the day runs one notch lower until it is full"
		}
		fields = append(fields, field{"Elastic pool", text})
	}
	for _, pack := range q.Packs {
		fields = append(fields, field{"Pack " + pack.ID, fmt.Sprintf("%s credits left, expires %s", credits(pack.Left), date(pack.ExpiresAt))})
	}
	fields = append(fields, field{"Bandwidth", usedOf(q.Bandwidth, "bytes today")}, field{"In flight", usedOf(q.Concurrency, "requests")})
	for _, stored := range q.Storage {
		if stored.Used >= 0 {
			fields = append(fields, field{"Stored " + stored.Kind, usedOf(client.QuotaUse{Used: stored.Used, Limit: stored.Limit}, "")})
		}
	}
	fields = append(fields, costFields(&q.CostBreaker)...)
	fields = append(fields, field{"Requests", fmt.Sprintf("%d admitted, %d refused since the service started", q.Admitted, q.Refused)})
	if r := q.Retries; r.Calls > 0 {
		text := fmt.Sprintf("%s of %d calls came before their Retry-After was over", permille(r.Share), r.Calls)
		if r.Spike > 0 {
			text += fmt.Sprintf(", %d times as many in the second after it as in others", r.Spike)
		}
		if r.Note != "" {
			text += "; " + r.Note
		}
		fields = append(fields, field{"Retries", text})
	}
	return details(w, fields...)
}

// credits writes an amount without the exponent of large numbers.
func credits(c float64) string { return strconv.FormatFloat(c, 'f', -1, 64) }

func permille(n int) string { return strconv.FormatFloat(float64(n)/10, 'f', -1, 64) + "%" }

func usedOf(u client.QuotaUse, unit string) string {
	text := strconv.FormatInt(u.Used, 10)
	if u.Limit > 0 {
		text += " of " + strconv.FormatInt(u.Limit, 10)
	}
	if unit != "" {
		text += " " + unit
	}
	return text
}

func (p *program) quotaTenants() *cobra.Command {
	var limit int
	c := &cobra.Command{
		Use:   "tenants",
		Short: "List the tenants near a limit, or beyond one (operators)",
		Long: `List the tenants that owe credits, have drawn on their elastic pool, run one
notch lower or have come to the soft part of a total, the nearest to its limit
first. EARLY is the part of a tenant's requests that came before the Retry-After
it was given was over. It is what the API node that answers knows.
` + operators,
		Example: "  sluice quota tenants\n  sluice quota tenants --limit 10 --json",
		Args:    noArguments,
	}
	c.Flags().IntVar(&limit, "limit", 50, "show at most this `NUMBER` of tenants, 1 to 200")
	noCompletion(c, "limit")
	return p.operatorVerb(c, func(s *session) error {
		ctx, api, err := s.connect()
		if err != nil {
			return err
		}
		q, err := api.QuotaStandings(ctx, limit)
		if err != nil {
			return err
		}
		return s.show(q, func(w io.Writer) error {
			rows := make([][]string, len(q.Tenants))
			for i, t := range q.Tenants {
				rows[i] = []string{t.Tenant, string(t.Tier), permille(t.Near), credits(t.Debt), credits(t.Drawn), lowered(t.Lowered),
					strconv.FormatUint(t.Refused, 10), permille(t.RetryShare)}
			}
			if err := table(w, []string{"TENANT", "TIER", "USED", "DEBT", "DRAWN", "DAY", "REFUSED", "EARLY"}, rows); err != nil {
				return err
			}
			if left := q.Total - len(q.Tenants); left > 0 {
				s.say("%d more; see --limit.", left)
			}
			return nil
		})
	})
}

func lowered(l bool) string {
	if l {
		return "lowered"
	}
	return "full"
}
