package cli

import (
	"github.com/spf13/cobra"

	"github.com/sluice-kms/sluice/client"
)

func versionFlag(c *cobra.Command, version *uint32) {
	c.Flags().Uint32Var(version, "version", 0, "`NUMBER` of the key version (default: the primary one)")
	noCompletion(c, "version")
}

func (p *program) wrap() *cobra.Command {
	var plaintext source
	var out sink
	c := tries(&cobra.Command{
		Use:   "wrap KEY",
		Short: "Wrap a key of yours",
		Long: `Wrap bytes of at most 4 KiB, such as a key, under a key of the service by RFC
5649. It is printed as base64. For systems that speak it; for anything else
"sluice encrypt" is the better choice.`,
		Example: "  sluice wrap transport --in device.key --out device.wrapped",
	})
	plaintext.fileFlag(c, "plaintext")
	out.flags(c, "wrapped bytes")
	return exclusive(p.keyVerb(c, func(s *session, key string) (err error) {
		var in client.WrapInput
		if in.Plaintext, err = plaintext.read(s); err != nil {
			return err
		}
		ctx, api, err := s.connect()
		if err != nil {
			return err
		}
		wrapped, err := api.Wrap(ctx, key, in)
		if err != nil {
			return err
		}
		return out.write(s, wrapped, wrapped.Wrapped)
	}), "json", "raw", "out")
}

func (p *program) unwrap() *cobra.Command {
	var in client.UnwrapInput
	var wrapped source
	var file string
	c := tries(&cobra.Command{
		Use:   "unwrap KEY",
		Short: "Unwrap what was wrapped",
		Long: `Unwrap what "sluice wrap" gave, as bytes or base64. The plaintext is written as
it is. What was wrapped does not name its version: after a rotation name it.`,
		Example: "  sluice unwrap transport --in device.wrapped --version 1 --out device.key",
	})
	wrapped.fileFlag(c, "wrapped bytes")
	versionFlag(c, &in.Version)
	c.Flags().StringVar(&file, "out", "-", "write the plaintext to this `FILE`, mode 0600; - is standard output")
	return exclusive(p.keyVerb(c, func(s *session, key string) (err error) {
		if in.Wrapped, err = wrapped.readBinary(s); err != nil {
			return err
		}
		ctx, api, err := s.connect()
		if err != nil {
			return err
		}
		opened, err := api.Unwrap(ctx, key, in)
		if err != nil {
			return err
		}
		if s.json {
			return s.show(opened, nil)
		}
		return s.writeFile(file, opened.Plaintext)
	}), "json", "out")
}
