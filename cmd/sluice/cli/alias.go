package cli

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/sluice-kms/sluice/client"
)

func (p *program) keyAliases() *cobra.Command {
	return group("alias", "Manage further names of keys",
		`Manage aliases, further names of keys. An alias can be moved to another key, so
that programs keep their reference while the key behind it changes.`,
		p.aliasSet(), p.aliasDelete(), p.aliasList())
}

func (p *program) aliasSet() *cobra.Command {
	c := tries(&cobra.Command{
		Use:   "set ALIAS KEY",
		Short: "Give a key an alias, or move one to it",
		Long: `Give a key an alias. If it is another key's, it is moved: whoever names the alias
uses the new key from then on.`,
		Example: "  sluice key alias set payments/current payments/orders-2026",
		Args:    arguments("ALIAS", "KEY"),
	})
	s := p.session(c)
	c.ValidArgsFunction = s.completeAt(1, keyNames)
	return s.verb(func(s *session) error {
		ctx, api, err := s.connect()
		if err != nil {
			return err
		}
		set, err := api.SetAlias(ctx, s.args[0], s.args[1])
		if err != nil {
			return err
		}
		return s.show(set, func(w io.Writer) error {
			return details(w, field{"Alias", set.Name}, field{"Key", set.KeyID})
		})
	})
}

func (p *program) aliasDelete() *cobra.Command {
	c := tries(&cobra.Command{
		Use:     "delete ALIAS",
		Short:   "Delete an alias",
		Long:    "Delete an alias. The key stays.",
		Example: "  sluice key alias delete payments/current",
		Args:    argument("ALIAS"),
	})
	s := p.session(c)
	c.ValidArgsFunction = s.completeAt(0, aliasNames)
	return s.verb(func(s *session) error {
		ctx, api, err := s.connect()
		if err != nil {
			return err
		}
		deleted, err := api.DeleteAlias(ctx, s.args[0])
		if err != nil {
			return err
		}
		return s.show(deleted, func(w io.Writer) error {
			return details(w, field{"Deleted", deleted.Name})
		})
	})
}

func (p *program) aliasList() *cobra.Command {
	var limit int
	c := &cobra.Command{
		Use:     "list",
		Short:   "List aliases",
		Long:    "List the aliases of the keys that the credential sees, by name.",
		Example: "  sluice key alias list",
		Args:    noArguments,
	}
	limitFlag(c, &limit, "aliases")
	return p.verb(c, func(s *session) error {
		ctx, api, err := s.connect()
		if err != nil {
			return err
		}
		aliases, err := collect(api.ListAliases(ctx), limit)
		if err != nil {
			return err
		}
		return s.show(struct {
			Aliases []*client.Alias `json:"aliases"`
		}{aliases}, func(w io.Writer) error {
			rows := make([][]string, len(aliases))
			for i, a := range aliases {
				rows[i] = []string{a.Name, a.KeyID}
			}
			return table(w, []string{"ALIAS", "KEY"}, rows)
		})
	})
}
