package cli

import (
	"context"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/sluice-kms/sluice/client"
)

func (p *program) keyVersions() *cobra.Command {
	return group("version", "Manage single versions of a key",
		`Manage single versions of a key. "sluice key get" lists them.`,
		p.versionEnable(), p.versionDisable(), p.versionScheduleDestruction(), p.versionCancelDestruction())
}

// versionVerb is a verb whose arguments are a key and the number of one of its
// versions.
func (p *program) versionVerb(c *cobra.Command, run func(s *session, key string, version uint32) error) *cobra.Command {
	s := p.session(tries(c))
	c.Args = arguments("KEY", "VERSION")
	c.ValidArgsFunction = s.completeAt(0, keyNames)
	return s.verb(func(s *session) error {
		version, err := strconv.ParseUint(s.args[1], 10, 32)
		if err != nil || version == 0 {
			return usage(c, "VERSION must be a number from 1")
		}
		return run(s, s.args[0], uint32(version))
	})
}

// versionCall is a call that changes a version and takes nothing else.
type versionCall func(c *client.Client, ctx context.Context, key string, version uint32) (*client.KeyOutput, error)

func (p *program) versionChange(c *cobra.Command, call versionCall) *cobra.Command {
	return p.versionVerb(c, func(s *session, key string, version uint32) error {
		ctx, api, err := s.connect()
		if err != nil {
			return err
		}
		return s.showKey(call(api, ctx, key, version))
	})
}

func (p *program) versionEnable() *cobra.Command {
	return p.versionChange(&cobra.Command{
		Use:     "enable KEY VERSION",
		Short:   "Switch a disabled version on",
		Long:    "Switch a disabled version of a key on. An enabled one stays as it is.",
		Example: "  sluice key version enable payments/orders 1",
	}, (*client.Client).EnableKeyVersion)
}

func (p *program) versionDisable() *cobra.Command {
	return p.versionChange(&cobra.Command{
		Use:   "disable KEY VERSION",
		Short: "Switch a version off",
		Long: `Switch a version of a key off: what it signed or encrypted can be neither
verified nor decrypted until "sluice key version enable".`,
		Example: "  sluice key version disable payments/orders 1",
	}, (*client.Client).DisableKeyVersion)
}

func (p *program) versionScheduleDestruction() *cobra.Command {
	var days int
	var confirm confirmation
	c := &cobra.Command{
		Use:   "schedule-destruction KEY VERSION",
		Short: "Disable a version and destroy it later",
		Long: `Disable a version of a key at once and have its material erased after a number of
days. What it encrypted is lost then, for good. The primary version cannot go:
rotate the key first. Until the date "sluice key version cancel-destruction"
takes it back.`,
		Example: "  sluice key version schedule-destruction payments/orders 1 --days 7 --yes",
	}
	c.Flags().IntVar(&days, "days", 30, "`NUMBER` of days until the version is destroyed, 7 to 30")
	noCompletion(c, "days")
	confirm.flag(c)
	return p.versionVerb(c, func(s *session, key string, version uint32) error {
		if err := confirm.ask(s, "Version %d of the key %s stops working now and is destroyed in %d days.", version, key, days); err != nil {
			return err
		}
		ctx, api, err := s.connect()
		if err != nil {
			return err
		}
		return s.showKey(api.ScheduleVersionDestruction(ctx, key, version, days))
	})
}

func (p *program) versionCancelDestruction() *cobra.Command {
	return p.versionChange(&cobra.Command{
		Use:   "cancel-destruction KEY VERSION",
		Short: "Take a scheduled destruction back",
		Long: `Take the scheduled destruction of a version back. It stays disabled until "sluice
key version enable".`,
		Example: "  sluice key version cancel-destruction payments/orders 1",
	}, (*client.Client).CancelVersionDestruction)
}
