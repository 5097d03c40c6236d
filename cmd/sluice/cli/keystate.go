package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/sluice-kms/sluice/client"
)

// keyCall is a call that changes a key and takes nothing else.
type keyCall func(c *client.Client, ctx context.Context, key string) (*client.KeyOutput, error)

func (p *program) keyChange(c *cobra.Command, call keyCall) *cobra.Command {
	return p.keyVerb(tries(c), func(s *session, key string) error {
		ctx, api, err := s.connect()
		if err != nil {
			return err
		}
		return s.showKey(call(api, ctx, key))
	})
}

func (p *program) keyRotate() *cobra.Command {
	return p.keyChange(&cobra.Command{
		Use:   "rotate KEY",
		Short: "Give a key a new version",
		Long: `Give a key a new version, which signs and encrypts from now on. What older
versions signed or encrypted can still be verified and decrypted.`,
		Example: "  sluice key rotate payments/orders",
	}, (*client.Client).RotateKey)
}

func (p *program) keyRotation() *cobra.Command {
	var days int
	var never bool
	c := tries(&cobra.Command{
		Use:   "rotation KEY --days NUMBER",
		Short: "Schedule a key's rotations",
		Long: `Schedule a key's rotations: the first one a number of days from now, and then as
often. With --never there are none.`,
		Example: `  sluice key rotation payments/orders --days 90
  sluice key rotation payments/orders --never`,
	})
	c.Flags().IntVar(&days, "days", 0, "`NUMBER` of days between rotations, 1 to 3650")
	c.Flags().BoolVar(&never, "never", false, "end the scheduled rotations")
	c.MarkFlagsMutuallyExclusive("days", "never")
	noCompletion(c, "days")
	return p.keyVerb(c, func(s *session, key string) error {
		if !never && days < 1 {
			return usage(c, "give --days of at least 1, or --never")
		}
		ctx, api, err := s.connect()
		if err != nil {
			return err
		}
		return s.showKey(api.SetKeyRotation(ctx, key, days))
	})
}

func (p *program) keyEnable() *cobra.Command {
	return p.keyChange(&cobra.Command{
		Use:     "enable KEY",
		Short:   "Switch a disabled key on",
		Long:    "Switch a disabled key on. An enabled key stays as it is.",
		Example: "  sluice key enable payments/orders",
	}, (*client.Client).EnableKey)
}

func (p *program) keyDisable() *cobra.Command {
	return p.keyChange(&cobra.Command{
		Use:   "disable KEY",
		Short: "Switch a key off",
		Long: `Switch a key off: every use of it is refused until "sluice key enable". Its
public half stays available.`,
		Example: "  sluice key disable payments/orders",
	}, (*client.Client).DisableKey)
}

func (p *program) keyScheduleDeletion() *cobra.Command {
	var days int
	var confirm confirmation
	c := tries(&cobra.Command{
		Use:   "schedule-deletion KEY",
		Short: "Disable a key and destroy it later",
		Long: `Disable a key at once and have it destroyed after a number of days. What it
encrypted is lost then, for good. Until the date "sluice key cancel-deletion"
takes it back.`,
		Example: `  sluice key schedule-deletion old/orders
  sluice key schedule-deletion old/orders --days 7 --yes`,
	})
	c.Flags().IntVar(&days, "days", 30, "`NUMBER` of days until the key is destroyed, 7 to 30")
	noCompletion(c, "days")
	confirm.flag(c)
	return p.keyVerb(c, func(s *session, key string) error {
		if err := confirm.ask(s, "The key %s stops working now and is destroyed in %d days.", key, days); err != nil {
			return err
		}
		ctx, api, err := s.connect()
		if err != nil {
			return err
		}
		return s.showKey(api.ScheduleKeyDeletion(ctx, key, days))
	})
}

func (p *program) keyCancelDeletion() *cobra.Command {
	return p.keyChange(&cobra.Command{
		Use:   "cancel-deletion KEY",
		Short: "Take a scheduled deletion back",
		Long: `Take a scheduled deletion back. The key stays disabled until "sluice key
enable", so that a mistake is noticed twice.`,
		Example: "  sluice key cancel-deletion old/orders",
	}, (*client.Client).CancelKeyDeletion)
}
