package cli

import (
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-kms/sluice/client"
)

func (p *program) capacity() *cobra.Command {
	return p.operatorVerb(&cobra.Command{
		Use:   "capacity",
		Short: "Show what the HSMs can do and what of it was sold (operators)",
		Long: `Show what the HSMs can do, in credits a second, and what of it was sold to
tenants. It is measured from what the HSMs complete, once there was enough load;
until then the policy's figure holds (capacity.credits_per_second). The safe part
of it (gate.capacity_percent), less the rates of all tenants that are not deleted,
can still be sold: FITS says how many tenants of each tier that is. Whoever sells
more is refused unless he forces it.`,
		Example: `  sluice capacity
  sluice capacity --json`,
		Args: noArguments,
	}, func(s *session) error {
		ctx, api, err := s.connect()
		if err != nil {
			return err
		}
		c, err := api.Capacity(ctx)
		if err != nil {
			return err
		}
		return s.show(c, func(w io.Writer) error { return showCapacity(w, c) })
	})
}

func showCapacity(w io.Writer, c *client.CapacityOutput) error {
	unknown := c.Source == "unknown"
	fields := []field{{"Slots", strconv.Itoa(c.Slots)}, {"Capacity", "unknown: nothing was measured, and the policy names no figure"}}
	if !unknown {
		fields[1].value = fmt.Sprintf("%d credits/s, %s", c.PerSecond, c.Source)
	}
	if c.SlotNsPerCredit > 0 {
		what := c.Operation
		if c.Spec != "" {
			what += " with " + string(c.Spec)
		}
		fields = append(fields, field{"Measured", fmt.Sprintf("%v of a slot for a credit of %s, from %d operations until %s",
			time.Duration(c.SlotNsPerCredit), what, c.Operations, date(c.MeasuredAt))})
	}
	if !unknown {
		fields = append(fields, field{"May be sold", fmt.Sprintf("%d credits/s, %d%% of it", c.Sellable, c.SafetyPercent)})
	}
	fields = append(fields, field{"Sold", fmt.Sprintf("%d credits/s", c.Committed)})
	switch {
	case c.Oversold:
		fields = append(fields, field{"Left", fmt.Sprintf("nothing: %d credits/s too much are sold", -c.Available)})
	case !unknown:
		fields = append(fields, field{"Left", fmt.Sprintf("%d credits/s", c.Available)})
	}
	if err := details(w, fields...); err != nil {
		return err
	}
	rows := make([][]string, len(c.Tiers))
	for i, t := range c.Tiers {
		fits := strconv.FormatInt(t.Fits, 10)
		if unknown {
			fits = "-"
		}
		rows[i] = []string{string(t.Tier), strconv.FormatInt(t.PerSecond, 10), strconv.FormatInt(t.Tenants, 10), fits}
	}
	fmt.Fprintln(w)
	return table(w, []string{"TIER", "CREDITS/S", "TENANTS", "FITS"}, rows)
}

// forceFlag lets an operator sell more than the HSMs can do.
func forceFlag(c *cobra.Command, force *bool) {
	c.Flags().BoolVar(force, "force", false, `do it although the HSMs cannot keep what is promised then: see "sluice capacity"`)
}
