package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-kms/sluice/client"
)

func (p *program) public() *cobra.Command {
	var version uint32
	var format, file string
	c := &cobra.Command{
		Use:   "public KEY",
		Short: "Show the public half of a key",
		Long: `Show the public half of a key version as PEM, DER or JWK. It works on disabled
keys, too. There is no JWK for SM2.`,
		Example: `  sluice public payments/orders > orders.pem
  sluice public payments/orders --version 1 --format jwk
  sluice public payments/orders --format der --out orders.der`,
	}
	f := c.Flags()
	versionFlag(c, &version)
	f.StringVar(&format, "format", "pem", "`FORMAT`: pem, der or jwk")
	f.StringVar(&file, "out", "-", "write it to this `FILE`, mode 0600; - is standard output")
	choices(c, "format", "pem", "der", "jwk")
	cmd := p.keyVerb(c, func(s *session, key string) error {
		if format != "pem" && format != "der" && format != "jwk" {
			return usage(c, "--format must be pem, der or jwk")
		}
		ctx, api, err := s.connect()
		if err != nil {
			return err
		}
		k, err := api.PublicKey(ctx, key, version)
		if err != nil {
			return err
		}
		if s.json {
			return s.show(k, nil)
		}
		data, err := encodePublic(k, format)
		if err != nil {
			return err
		}
		return s.writeFile(file, data)
	})
	exclusive(cmd, "json", "format")
	return exclusive(cmd, "json", "out")
}

func encodePublic(k *client.PublicKey, format string) ([]byte, error) {
	switch format {
	case "der":
		return k.DER()
	case "jwk":
		if k.JWK == nil {
			return nil, fmt.Errorf("there is no JWK for keys of spec %s", k.Spec)
		}
		return append(k.JWK, '\n'), nil
	}
	return []byte(strings.TrimSuffix(k.PEM, "\n") + "\n"), nil
}
