package cli

import (
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/sluice-kms/sluice/client"
)

func (p *program) hsmStatus() *cobra.Command {
	return p.operatorVerb(&cobra.Command{
		Use:   "status",
		Short: "Show the nodes of the HSM pool",
		Long: `Show the nodes of the HSM pool: HSM tokens, and "cpu", the engine inside the
service for what the tokens lack.

HITS is the share of uses that found the key loaded. ENFORCED tells whether the
token itself refuses to give keys away in the clear.`,
		Example: `  sluice hsm status
  watch -n 1 sluice hsm status`,
		Args: noArguments,
	}, func(s *session) error {
		ctx, api, err := s.connect()
		if err != nil {
			return err
		}
		pool, err := api.Nodes(ctx)
		if err != nil {
			return err
		}
		return s.show(pool, func(w io.Writer) error {
			rows := make([][]string, len(pool.Nodes))
			for i := range pool.Nodes {
				rows[i] = nodeRow(&pool.Nodes[i])
			}
			return table(w, []string{"NODE", "STATE", "DOMAIN", "DRIVER", "TOKEN", "ENFORCED", "SLOTS", "BUSY", "KEYS", "HITS",
				"OPERATIONS", "ERRORS", "LAST ERROR"}, rows)
		})
	})
}

func nodeRow(n *client.Node) []string {
	hits := "-"
	if all := n.Hits + n.Misses; all > 0 {
		hits = fmt.Sprintf("%.1f%%", 100*float64(n.Hits)/float64(all))
	}
	enforced := "-"
	if n.DomainID != "" {
		enforced = map[bool]string{true: "yes", false: "NO"}[n.Enforced]
	}
	dash := func(s string) string {
		if s == "" {
			return "-"
		}
		return s
	}
	return []string{n.ID, n.State, dash(n.Domain), n.Driver, dash(n.Label), enforced, strconv.Itoa(n.Slots), strconv.Itoa(n.Busy),
		strconv.Itoa(n.Handles), hits, strconv.FormatUint(n.Operations, 10), strconv.FormatUint(n.Errors, 10), n.LastError}
}
