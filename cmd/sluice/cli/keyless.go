package cli

import (
	"encoding/hex"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/sluice-kms/sluice/client"
)

func (p *program) random() *cobra.Command {
	var bytes int
	var out sink
	c := tries(&cobra.Command{
		Use:   "random",
		Short: "Get random bytes from an HSM",
		Long:  "Get random bytes from an HSM. They are printed as base64.",
		Example: `  sluice random
  sluice random --bytes 16 --raw | xxd -p`,
		Args: noArguments,
	})
	c.Flags().IntVar(&bytes, "bytes", 32, "`NUMBER` of bytes, 1 to 1024")
	noCompletion(c, "bytes")
	out.flags(c, "random bytes")
	return exclusive(p.verb(c, func(s *session) error {
		ctx, api, err := s.connect()
		if err != nil {
			return err
		}
		made, err := api.Random(ctx, bytes)
		if err != nil {
			return err
		}
		return out.write(s, made, made.Random)
	}), "json", "raw", "out")
}

func (p *program) digest() *cobra.Command {
	var algorithm string
	var data source
	var raw bool
	c := tries(&cobra.Command{
		Use:   "digest",
		Short: "Compute a digest",
		Long: `Compute a digest (hash). It is printed in hexadecimal, as "sluice sign
--digest-hex" takes it.`,
		Example: `  sluice digest --algorithm SM3 --message abc
  sluice digest --in contract.pdf`,
		Args: noArguments,
	})
	f := c.Flags()
	f.StringVar(&algorithm, "algorithm", string(client.HashSHA256), "hash `FUNCTION`: SHA_224, SHA_256, SHA_384, SHA_512 or SM3")
	choices(c, "algorithm", client.HashSHA224, client.HashSHA256, client.HashSHA384, client.HashSHA512, client.HashSM3)
	data.fileFlag(c, "data")
	data.messageFlag(c)
	noCompletion(c, "message")
	f.BoolVar(&raw, "raw", false, "print the bytes of the digest instead of hexadecimal")
	return exclusive(p.verb(c, func(s *session) error {
		in, err := data.read(s)
		if err != nil {
			return err
		}
		ctx, api, err := s.connect()
		if err != nil {
			return err
		}
		made, err := api.Digest(ctx, client.HashFunction(algorithm), in)
		if err != nil {
			return err
		}
		return s.show(made, func(w io.Writer) error {
			if raw {
				_, err := w.Write(made.Digest)
				return err
			}
			_, err := fmt.Fprintln(w, hex.EncodeToString(made.Digest))
			return err
		})
	}), "json", "raw")
}
