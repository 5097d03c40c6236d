package cli

import (
	"github.com/spf13/cobra"

	"github.com/sluice-kms/sluice/client"
	"github.com/sluice-kms/sluice/kms"
)

// macing is what computing and checking a MAC have in common.
type macing struct {
	in     client.MACInput
	source source
}

func (m *macing) flags(c *cobra.Command) {
	m.source.fileFlag(c, "message")
	m.source.messageFlag(c)
	algorithmFlag(c, &m.in.Algorithm, kms.UsageGenerateVerifyMAC)
	versionFlag(c, &m.in.Version)
	noCompletion(c, "message")
}

func (p *program) mac() *cobra.Command {
	var m macing
	var out sink
	c := tries(&cobra.Command{
		Use:   "mac KEY",
		Short: "Compute the MAC of a message",
		Long:  "Compute the message authentication code of a message. It is printed as base64.",
		Example: `  echo -n "order 4711" | sluice mac webhooks
  sluice mac webhooks --in body.json --out body.mac`,
	})
	m.flags(c)
	out.flags(c, "MAC")
	return exclusive(p.keyVerb(c, func(s *session, key string) (err error) {
		if m.in.Message, err = m.source.read(s); err != nil {
			return err
		}
		ctx, api, err := s.connect()
		if err != nil {
			return err
		}
		made, err := api.MAC(ctx, key, m.in)
		if err != nil {
			return err
		}
		return out.write(s, made, made.MAC)
	}), "json", "raw", "out")
}

func (p *program) verifyMAC() *cobra.Command {
	var m macing
	var code proof
	c := tries(&cobra.Command{
		Use:   "verify-mac KEY",
		Short: "Check the MAC of a message",
		Long: `Check the message authentication code of a message. Prints "valid" or "invalid",
and ends with exit code 3 when the code is not the message's.`,
		Example: `  sluice verify-mac webhooks --message "order 4711" --mac 3q2+7w==
  sluice verify-mac webhooks --in body.json --mac-file body.mac`,
	})
	m.flags(c)
	code.flags(c, "mac", "MAC")
	return p.keyVerb(c, func(s *session, key string) error {
		if code.file == "-" && m.source.file == "-" && !c.Flags().Changed("message") {
			return usage(c, "message and MAC cannot both come from standard input")
		}
		mac, err := code.read(s)
		if err != nil {
			return err
		}
		if m.in.Message, err = m.source.read(s); err != nil {
			return err
		}
		ctx, api, err := s.connect()
		if err != nil {
			return err
		}
		checked, err := api.VerifyMAC(ctx, key, client.VerifyMACInput{MACInput: m.in, MAC: mac})
		if err != nil {
			return err
		}
		return s.showValidity(checked, checked.Valid)
	})
}
