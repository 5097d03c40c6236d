package cli

import (
	"iter"

	"github.com/spf13/cobra"
)

func limitFlag(c *cobra.Command, limit *int, what string) {
	c.Flags().IntVar(limit, "limit", 0, "show at most this `NUMBER` of "+what+"; 0 is all")
	noCompletion(c, "limit")
}

// collect reads a list to its end, or to its limit where that is not 0. It
// never returns nil without an error, so that JSON shows an empty list.
func collect[T any](seq iter.Seq2[*T, error], limit int) ([]*T, error) {
	items := []*T{}
	for item, err := range seq {
		if err != nil {
			return nil, err
		}
		if items = append(items, item); len(items) == limit {
			break
		}
	}
	return items, nil
}
