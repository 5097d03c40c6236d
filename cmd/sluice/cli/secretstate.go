package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-kms/sluice/client"
	"github.com/sluice-kms/sluice/kms"
)

func (p *program) secretActivate() *cobra.Command {
	var in client.ActivateSecretInput
	var steps []uint
	var interval, observe time.Duration
	c := &cobra.Command{
		Use:   "activate PATH VERSION",
		Short: "Bring a version into use",
		Long: `Bring a version into use: at once, or with --steps in steps, in which it gets that
part of the calls in hundredths. A version that the provider refuses is then rolled
back by itself; see the documentation of secrets for the rule.`,
		Example: `  sluice secret activate llm/openai 2
  sluice secret activate llm/openai 2 --steps 10,30,100 --step-interval 10m`,
	}
	f := c.Flags()
	f.UintSliceVar(&steps, "steps", nil, "`WEIGHTS` of the version, ascending to 100")
	f.DurationVar(&interval, "step-interval", 0, "`DURATION` of a step (default 1m)")
	f.DurationVar(&observe, "observe", 0, "`DURATION` for which the version that is replaced is kept (default 168h)")
	noCompletion(c, "steps", "step-interval", "observe")
	return p.secretVerb(c, []string{"VERSION"}, func(s *session, api *client.Client, ctx context.Context, secret *client.Secret) (err error) {
		if in.Version, err = versionArgument(s); err != nil {
			return err
		}
		for _, n := range steps {
			in.Steps = append(in.Steps, uint32(n))
		}
		in.StepInterval, in.Observe = int(interval/time.Second), int(observe/time.Second)
		out, err := api.ActivateSecret(ctx, secret.ID, in)
		if err != nil {
			return err
		}
		return s.showSecret(out)
	})
}

func (p *program) secretRollback() *cobra.Command {
	return p.secretVerb(&cobra.Command{
		Use:   "rollback PATH",
		Short: "Go back to the version before",
		Long: `Go back to the version before: the one that a running rollout replaces, or the one
that was retired last.`,
		Example: "  sluice secret rollback llm/openai",
	}, nil, func(s *session, api *client.Client, ctx context.Context, secret *client.Secret) error {
		out, err := api.RollbackSecret(ctx, secret.ID, 0)
		if err != nil {
			return err
		}
		return s.showSecret(out)
	})
}

func (p *program) secretDisable() *cobra.Command {
	var confirm confirmation
	c := &cobra.Command{
		Use:   "disable PATH VERSION",
		Short: "Take a version out of use at once",
		Long: `Take a version out of use at once, whatever its state, and though it be the last one:
then nobody gets a value of the secret any more. Gateways that watch hear of it within
a second.`,
		Example: "  sluice secret disable llm/openai 2 --yes",
	}
	confirm.flag(c)
	return p.secretVerb(c, []string{"VERSION"}, func(s *session, api *client.Client, ctx context.Context, secret *client.Secret) error {
		version, err := versionArgument(s)
		if err != nil {
			return err
		}
		if err := confirm.ask(s, "Version %d of %s is not handed out any more.", version, secret.Path); err != nil {
			return err
		}
		out, err := api.DisableSecretVersion(ctx, secret.ID, version, 0)
		if err != nil {
			return err
		}
		return s.showSecret(out)
	})
}

func (p *program) secretDestroy() *cobra.Command {
	var confirm confirmation
	var days int
	c := &cobra.Command{
		Use:   "destroy PATH VERSION",
		Short: "Schedule a version's destruction",
		Long: `Schedule the destruction of a version that is not in use. Until then "sluice secret
restore" takes it back; afterwards its value is gone for good.`,
		Example: "  sluice secret destroy llm/openai 1 --days 7 --yes",
	}
	confirm.flag(c)
	c.Flags().IntVar(&days, "days", 0, "`DAYS` until then, 7 to 30 (default 30)")
	noCompletion(c, "days")
	return p.secretVerb(c, []string{"VERSION"}, func(s *session, api *client.Client, ctx context.Context, secret *client.Secret) error {
		version, err := versionArgument(s)
		if err != nil {
			return err
		}
		if err := confirm.ask(s, "Version %d of %s will be destroyed.", version, secret.Path); err != nil {
			return err
		}
		out, err := api.DestroySecretVersion(ctx, secret.ID, version, days, 0)
		if err != nil {
			return err
		}
		return s.showSecret(out)
	})
}

func (p *program) secretRestore() *cobra.Command {
	return p.secretVerb(&cobra.Command{
		Use:   "restore PATH VERSION",
		Short: "Take a disabled or retired version back",
		Long: `Take a disabled or retired version back. It is STAGED then, and not in use until it is
activated. The deletion of the secret is cancelled.`,
		Example: "  sluice secret restore llm/openai 1",
	}, []string{"VERSION"}, func(s *session, api *client.Client, ctx context.Context, secret *client.Secret) error {
		version, err := versionArgument(s)
		if err != nil {
			return err
		}
		out, err := api.RestoreSecretVersion(ctx, secret.ID, version, 0)
		if err != nil {
			return err
		}
		return s.showSecret(out)
	})
}

func (p *program) secretDelete() *cobra.Command {
	var confirm confirmation
	c := &cobra.Command{
		Use:   "delete PATH",
		Short: "Take a secret out of use and destroy it in 30 days",
		Long: `Take a secret out of use at once and destroy it in 30 days. Until then restoring a
version takes it back.`,
		Example: "  sluice secret delete llm/openai --yes",
	}
	confirm.flag(c)
	return p.secretVerb(c, nil, func(s *session, api *client.Client, ctx context.Context, secret *client.Secret) error {
		if err := confirm.ask(s, "Nobody gets %s any more, and it will be destroyed.", secret.Path); err != nil {
			return err
		}
		out, err := api.DeleteSecret(ctx, secret.ID)
		if err != nil {
			return err
		}
		return s.showSecret(out)
	})
}

func (p *program) secretGrant() *cobra.Command {
	var give, take []string
	c := &cobra.Command{
		Use:   "grant PATH",
		Short: "Show and change who may read a secret",
		Long: `Show which credentials may read a secret and, with --to and --from, change that: a
grant is the scope secret:read:PATH of a credential. Wider scopes, such as
secret:read:llm/*, stay as they are. It takes an administrator of the tenant.`,
		Example: `  sluice secret grant llm/openai
  sluice secret grant llm/openai --to 01920c5e-0000-7000-8000-000000000000`,
	}
	f := c.Flags()
	f.StringArrayVar(&give, "to", nil, "`ID` of a credential that shall have the grant; repeat for more")
	f.StringArrayVar(&take, "from", nil, "`ID` of a credential that shall not have it; repeat for more")
	noCompletion(c, "to", "from")
	return p.secretVerb(c, nil, func(s *session, api *client.Client, ctx context.Context, secret *client.Secret) error {
		grants, err := api.GetSecretGrants(ctx, secret.ID)
		if err != nil {
			return err
		}
		if len(give)+len(take) > 0 {
			var wanted []string
			for _, g := range grants.Grants {
				if g.Exact && !slices.Contains(take, g.Credential) && !slices.Contains(give, g.Credential) {
					wanted = append(wanted, g.Credential)
				}
			}
			if grants, err = api.SetSecretGrants(ctx, secret.ID, append(wanted, give...)); err != nil {
				return err
			}
		}
		return s.show(grants, func(w io.Writer) error {
			rows := make([][]string, len(grants.Grants))
			for i, g := range grants.Grants {
				rows[i] = []string{g.Credential, g.Name, g.Scope}
			}
			return table(w, []string{"CREDENTIAL", "NAME", "BY"}, rows)
		})
	})
}

func (p *program) secretWatch() *cobra.Command {
	var after int64
	var count int
	c := &cobra.Command{
		Use:   "watch",
		Short: "Tell of changes of secrets as they happen",
		Long: `Tell of changes of the secrets that the credential may read, one on a line, until
--timeout, --count or Ctrl-C: their revision, what happened, and the path. resync says
that changes may have been missed.`,
		Example: "  sluice secret watch --timeout 1h",
		Args:    noArguments,
	}
	f := c.Flags()
	f.Int64Var(&after, "after", -1, "begin after this `REVISION` (default: now)")
	f.IntVar(&count, "count", 0, "end after this `NUMBER` of events; 0 is never")
	noCompletion(c, "after", "count")
	return p.session(c).verb(func(s *session) error {
		ctx, api, err := s.connect()
		if err != nil {
			return err
		}
		var from *uint64
		if after >= 0 {
			n := uint64(after)
			from = &n
		}
		shown := 0
		for e, err := range api.WatchSecrets(ctx, from) {
			if err != nil {
				if ctx.Err() != nil {
					return nil // its time is over
				}
				return err
			}
			if e.Kind == string(kms.SecretHeartbeat) {
				continue
			}
			if err := s.show(e, func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "%d\t%s\t%s\n", e.Revision, printable(e.Kind), printable(e.Path))
				return err
			}); err != nil {
				return err
			}
			if shown++; shown == count {
				return nil
			}
		}
		return nil
	})
}
