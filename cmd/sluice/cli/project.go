package cli

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/sluice-kms/sluice/client"
)

func (p *program) projectCreate() *cobra.Command {
	c := &cobra.Command{
		Use:   "create NAME",
		Short: "Create a project",
		Long:  "Create a project, a namespace for keys and credentials inside a tenant.",
		Example: `  sluice project create payments
  sluice project create payments --tenant acme`,
		Args: argument("NAME"),
	}
	s := p.session(c)
	s.tenantFlag()
	return s.verb(func(s *session) error {
		ctx, api, err := s.connect()
		if err != nil {
			return err
		}
		made, err := api.CreateProject(ctx, s.tenant, s.args[0])
		if err != nil {
			return err
		}
		return s.show(made, func(w io.Writer) error {
			return details(w, field{"Name", made.Name}, field{"Created", date(made.CreatedAt)})
		})
	})
}

func (p *program) projectList() *cobra.Command {
	var limit int
	c := &cobra.Command{
		Use:   "list",
		Short: "List projects",
		Long:  "List a tenant's projects by name.",
		Example: `  sluice project list
  sluice project list --tenant acme`,
		Args: noArguments,
	}
	limitFlag(c, &limit, "projects")
	s := p.session(c)
	s.tenantFlag()
	return s.verb(func(s *session) error {
		ctx, api, err := s.connect()
		if err != nil {
			return err
		}
		projects, err := collect(api.ListProjects(ctx, s.tenant), limit)
		if err != nil {
			return err
		}
		return s.show(struct {
			Projects []*client.Project `json:"projects"`
		}{projects}, func(w io.Writer) error {
			rows := make([][]string, len(projects))
			for i, p := range projects {
				rows[i] = []string{p.Name, date(p.CreatedAt)}
			}
			return table(w, []string{"NAME", "CREATED"}, rows)
		})
	})
}
