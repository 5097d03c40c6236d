package cli

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/sluice-kms/sluice/client"
	"github.com/sluice-kms/sluice/kms"
)

// tenantVerb is an operator's verb whose argument is a tenant.
func (p *program) tenantVerb(c *cobra.Command, run func(s *session, tenant string) error) *cobra.Command {
	s := p.session(c)
	s.operator = true
	c.Args = argument("TENANT")
	c.ValidArgsFunction = s.completeAt(0, tenantNames)
	return s.verb(func(s *session) error { return run(s, s.args[0]) })
}

func tierFlag(c *cobra.Command, tier *client.Tier, usage string) {
	c.Flags().StringVar((*string)(tier), "tier", "", usage)
	choices(c, "tier", kms.Tiers()...)
}

func (p *program) tenantCreate() *cobra.Command {
	var in client.CreateTenantInput
	c := &cobra.Command{
		Use:   "create NAME",
		Short: "Create a tenant",
		Long: `Create a tenant with its project "default". It has no credential yet: mint the
first one with "sluice credential create --tenant NAME". Where the HSMs cannot keep
what its tier promises, it is refused unless forced.`,
		Example: `  sluice tenant create acme --tier gold
  sluice credential create admin --tenant acme --scope tenant:admin --out acme.credential`,
		Args: argument("NAME"),
	}
	tierFlag(c, &in.Tier, "`TIER`: platinum, gold, silver or free (default: free)")
	c.Flags().BoolVar(&in.AllowSealed, "allow-sealed", false,
		"make keys that no HSM offers SEALED (sealed by an HSM, used in process memory) without being asked to")
	c.Flags().StringVar(&in.Domain, "domain", "", "`DOMAIN` of HSM nodes that its keys live in, for good: name or id (default: the first one configured)")
	forceFlag(c, &in.Force)
	s := p.session(c)
	s.operator = true
	s.completeFlag("domain", domainNames)
	return s.verb(func(s *session) error {
		in.Name = s.args[0]
		ctx, api, err := s.connect()
		if err != nil {
			return err
		}
		return s.showTenant(api.CreateTenant(ctx, in))
	})
}

func (p *program) tenantList() *cobra.Command {
	var limit int
	c := &cobra.Command{
		Use:     "list",
		Short:   "List tenants",
		Long:    "List the tenants by name.",
		Example: "  sluice tenant list",
		Args:    noArguments,
	}
	limitFlag(c, &limit, "tenants")
	return p.operatorVerb(c, func(s *session) error {
		ctx, api, err := s.connect()
		if err != nil {
			return err
		}
		tenants, err := collect(api.ListTenants(ctx), limit)
		if err != nil {
			return err
		}
		return s.show(struct {
			Tenants []*client.Tenant `json:"tenants"`
		}{tenants}, func(w io.Writer) error {
			rows := make([][]string, len(tenants))
			for i, t := range tenants {
				rows[i] = []string{t.Name, string(t.Tier), string(t.State), date(t.CreatedAt), t.ID}
			}
			return table(w, []string{"NAME", "TIER", "STATE", "CREATED", "ID"}, rows)
		})
	})
}

func (p *program) tenantGet() *cobra.Command {
	return p.tenantVerb(&cobra.Command{
		Use:     "get TENANT",
		Short:   "Show a tenant",
		Long:    "Show a tenant, named by its id or name.",
		Example: "  sluice tenant get acme",
	}, func(s *session, tenant string) error {
		ctx, api, err := s.connect()
		if err != nil {
			return err
		}
		return s.showTenant(api.GetTenant(ctx, tenant))
	})
}

func (p *program) tenantUpdate() *cobra.Command {
	var in client.UpdateTenantInput
	var sealed bool
	c := &cobra.Command{
		Use:   "update TENANT",
		Short: "Change a tenant's tier or its consent to SEALED keys",
		Long: `Change a tenant's tier or its consent to SEALED keys. What is not named stays as
it is. Where the HSMs cannot keep what a higher tier promises, it is refused unless
forced.`,
		Example: "  sluice tenant update acme --tier platinum\n  sluice tenant update acme --allow-sealed=false",
	}
	tierFlag(c, &in.Tier, "new `TIER`: platinum, gold, silver or free")
	c.Flags().BoolVar(&sealed, "allow-sealed", false, "make keys that no HSM offers SEALED without being asked to; =false does not")
	forceFlag(c, &in.Force)
	return p.tenantVerb(c, func(s *session, tenant string) error {
		if c.Flags().Changed("allow-sealed") {
			in.AllowSealed = &sealed
		}
		if in.Tier == "" && in.AllowSealed == nil {
			return usage(c, "there is nothing to change")
		}
		ctx, api, err := s.connect()
		if err != nil {
			return err
		}
		return s.showTenant(api.UpdateTenant(ctx, tenant, in))
	})
}

func (p *program) tenantSuspend() *cobra.Command {
	var confirm confirmation
	c := &cobra.Command{
		Use:     "suspend TENANT",
		Short:   "Refuse all requests of a tenant",
		Long:    `Refuse all requests of a tenant until "sluice tenant resume".`,
		Example: "  sluice tenant suspend acme",
	}
	confirm.flag(c)
	return p.tenantVerb(c, func(s *session, tenant string) error {
		if err := confirm.ask(s, "All requests of the tenant %s will be refused.", tenant); err != nil {
			return err
		}
		ctx, api, err := s.connect()
		if err != nil {
			return err
		}
		return s.showTenant(api.SuspendTenant(ctx, tenant))
	})
}

func (p *program) tenantResume() *cobra.Command {
	return p.tenantVerb(&cobra.Command{
		Use:     "resume TENANT",
		Short:   "End a tenant's suspension",
		Long:    "End a tenant's suspension: its requests are served again.",
		Example: "  sluice tenant resume acme",
	}, func(s *session, tenant string) error {
		ctx, api, err := s.connect()
		if err != nil {
			return err
		}
		return s.showTenant(api.ResumeTenant(ctx, tenant))
	})
}

func (p *program) tenantDelete() *cobra.Command {
	var confirm confirmation
	c := &cobra.Command{
		Use:   "delete TENANT",
		Short: "Delete a suspended tenant, for good",
		Long: `Delete a suspended tenant, for good. Its credentials end and its sealing key is
erased at once, its keys after that; nobody can bring them back. Copies in
backups are void by the date that is shown. The name stays taken.

Where the service wants two operators, the verb says the id of an approval:
another operator runs "sluice approval approve ID", then repeat the verb with
--approval ID.`,
		Example: `  sluice tenant suspend acme
  sluice tenant delete acme
  sluice tenant delete acme --approval 01920c5e-0000-7000-8000-000000000000`,
	}
	confirm.flag(c)
	s := p.session(c)
	s.operator = true
	s.approvalFlag()
	c.Args = argument("TENANT")
	c.ValidArgsFunction = s.completeAt(0, tenantNames)
	return s.verb(func(s *session) error {
		tenant := s.args[0]
		if err := confirm.ask(s, "The tenant %s and all its keys are erased, for good.", tenant); err != nil {
			return err
		}
		ctx, api, err := s.connect()
		if err != nil {
			return err
		}
		return s.showTenant(api.DeleteTenant(ctx, tenant))
	})
}

func (s *session) showTenant(t *client.TenantOutput, err error) error {
	if err != nil {
		return err
	}
	return s.show(t, func(w io.Writer) error {
		fields := []field{{"Name", t.Name}, {"Id", t.ID}, {"Tier", string(t.Tier)}, {"State", string(t.State)},
			{"Sealed keys", onOff(t.AllowSealed)}, {"Domain", t.Domain}, {"Created", date(t.CreatedAt)}}
		if d := t.Deletion; d != nil {
			fields = append(fields, field{"Deleted", date(d.RequestedAt)}, field{"Keys erased", date(d.ErasedAt)},
				field{"Copies void", date(d.VoidAt)}, field{"Shredded", date(d.ShreddedAt)})
		}
		return details(w, fields...)
	})
}
