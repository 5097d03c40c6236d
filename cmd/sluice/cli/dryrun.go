package cli

import (
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/sluice-kms/sluice/client"
)

const dryRunName = "dry-run"

// tries adds --dry-run to a verb that uses a key or changes something.
func tries(c *cobra.Command) *cobra.Command {
	c.Flags().Bool(dryRunName, false, "check permission, arguments, limits and price only; nothing is done")
	return c
}

// dryRun tells whether the verb only asks. Verbs that only read have no such
// flag.
func (s *session) dryRun() bool {
	dry, err := s.cmd.Flags().GetBool(dryRunName)
	return err == nil && dry
}

// showDryRun prints what a verb would have cost.
func (s *session) showDryRun(d *client.DryRun) error {
	return s.show(struct {
		DryRun     bool              `json:"dry_run"`
		Cost       float64           `json:"cost"`
		RequestID  string            `json:"request_id"`
		Protection client.Protection `json:"protection,omitzero"`
		Refused    int               `json:"refused,omitzero"`
	}{true, d.Cost, d.RequestID, d.Protection, d.Refused}, func(w io.Writer) error {
		return details(w,
			field{"Dry run", "nothing was done"},
			field{"Cost", strconv.FormatFloat(d.Cost, 'f', -1, 64) + " credits"},
			field{"Protection", string(d.Protection)},
			field{"Refused", refusedItems(d.Refused)})
	})
}

// refusedItems says how many items of a batch would be refused; "" for none.
func refusedItems(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n) + " items"
}
