package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-kms/sluice/client"
)

func (p *program) why() *cobra.Command {
	c := &cobra.Command{
		Use:   "why REQUEST",
		Short: "Show why a request took as long as it did, or was refused",
		Long: `Show why a request took as long as it did, or was refused: what it waited for
and how long, with the numbers, what that means and what can be done about it.
REQUEST is the id that the answer has as request_id and in its header
X-Request-Id. An operator can ask about any tenant's. After ten minutes it tells
what the audit trail has.`,
		Example: `  sluice why 01920000-0000-7000-8000-000000000001
  sluice why 01920000-0000-7000-8000-000000000001 --json`,
		Args: argument("REQUEST"),
	}
	return p.verb(c, func(s *session) error {
		ctx, api, err := s.connect()
		if err != nil {
			return err
		}
		r, err := api.Why(ctx, s.args[0])
		if err != nil {
			return err
		}
		return s.show(r, func(w io.Writer) error { return showWhy(w, r) })
	})
}

func showWhy(w io.Writer, r *client.RequestReport) error {
	where := r.Node
	if r.Away {
		where += ", not the one preferred"
	}
	if r.ColdLoad {
		where += ", where the key had to be loaded first"
	}
	class := r.Urgency
	if r.Class != "" {
		class = r.Class + ", " + r.Urgency
	}
	fields := []field{
		{"Request", r.Request}, {"Operation", strings.TrimSpace(r.Operation + " " + r.Key)}, {"Ended", date(r.EndedAt)}, {"Outcome", r.Outcome},
		{"Summary", r.Summary}, {"Class", class},
		{"Time", fmt.Sprintf("%.3f ms: %.3f in the queue, %.3f on the HSM", r.TotalMS, r.QueueMS, r.HSMMS)},
		{"Node", where},
		{"Price", fmt.Sprintf("%s credits, of which %s were charged, by policy version %d", credits(r.Reserved), credits(r.Charged), r.PolicyVersion)},
	}
	if r.EstimateMS > 0 {
		fields = append(fields, field{"Expected wait", fmt.Sprintf("%.3f ms", r.EstimateMS)})
	}
	if err := details(w, fields...); err != nil {
		return err
	}
	for i := range r.Reasons {
		reason := &r.Reasons[i]
		took := "refused it"
		if reason.WaitMS > 0 {
			took = fmt.Sprintf("%.3f ms, %.0f %%", reason.WaitMS, 100*reason.Share)
		}
		fmt.Fprintf(w, "\n%s  %s\n", printable(reason.Code), took)
		if reason.Explanation != "" {
			fmt.Fprintln(w, printable("  "+reason.Explanation))
		}
		if reason.Advice != "" {
			fmt.Fprintln(w, printable("  advice: "+reason.Advice))
		}
	}
	return nil
}
