package cli

import (
	"net/netip"

	"github.com/spf13/cobra"

	"github.com/sluice-kms/sluice/client"
	"github.com/sluice-kms/sluice/kms"
)

func (p *program) csr() *cobra.Command {
	var in client.CSRInput
	var addresses []string
	var format, file string
	c := tries(&cobra.Command{
		Use:   "csr KEY",
		Short: "Make a certification request for a key",
		Long: `Make a PKCS #10 certification request for a key, signed with the key itself, as PEM
or DER. Every flag of a name can be repeated, but for --common-name.`,
		Example: `  sluice csr www --common-name www.example.com --organization "Example Ltd" --country CN \
    --dns www.example.com --dns example.com --out www.csr
  sluice csr gateway --uri spiffe://example.com/gateway --format der --out gateway.csr`,
	})
	f := c.Flags()
	f.StringVar(&in.Subject.CommonName, "common-name", "", "common `NAME` of the subject")
	for _, attribute := range []struct {
		flag, usage string
		values      *[]string
	}{
		{"organization", "`ORGANIZATION` of the subject", &in.Subject.Organization},
		{"unit", "organizational `UNIT` of the subject", &in.Subject.OrganizationalUnit},
		{"country", "`COUNTRY` of the subject, two letters", &in.Subject.Country},
		{"province", "`PROVINCE` of the subject", &in.Subject.Province},
		{"locality", "`LOCALITY` of the subject", &in.Subject.Locality},
		{"dns", "alternative name: a DNS `NAME`", &in.DNSNames},
		{"email", "alternative name: an `ADDRESS`", &in.Emails},
		{"ip", "alternative name: an IP `ADDRESS`", &addresses},
		{"uri", "alternative name: an absolute `URI`", &in.URIs},
	} {
		f.StringArrayVar(attribute.values, attribute.flag, nil, attribute.usage)
		noCompletion(c, attribute.flag)
	}
	algorithmFlag(c, &in.Algorithm, kms.UsageSignVerify)
	versionFlag(c, &in.Version)
	f.StringVar(&format, "format", "pem", "`FORMAT`: pem or der")
	f.StringVar(&file, "out", "-", "write it to this `FILE`, mode 0600; - is standard output")
	choices(c, "format", "pem", "der")
	noCompletion(c, "common-name")
	cmd := p.keyVerb(c, func(s *session, key string) error {
		if format != "pem" && format != "der" {
			return usage(c, "--format must be pem or der")
		}
		for _, text := range addresses {
			a, err := netip.ParseAddr(text)
			if err != nil {
				return usage(c, "--ip must be an IP address such as 192.0.2.1")
			}
			in.Addresses = append(in.Addresses, a)
		}
		ctx, api, err := s.connect()
		if err != nil {
			return err
		}
		made, err := api.CSR(ctx, key, in)
		switch {
		case err != nil:
			return err
		case s.json:
			return s.show(made, nil)
		case format == "pem":
			return s.writeFile(file, []byte(made.CSR))
		}
		der, err := made.DER()
		if err != nil {
			return err
		}
		return s.writeFile(file, der)
	})
	exclusive(cmd, "json", "format")
	return exclusive(cmd, "json", "out")
}
