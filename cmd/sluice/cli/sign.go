package cli

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/sluice-kms/sluice/client"
	"github.com/sluice-kms/sluice/kms"
)

// signing is what signing and verifying have in common.
type signing struct {
	in     client.SignInput
	source source
	digest digest
}

func (g *signing) flags(c *cobra.Command) {
	f := c.Flags()
	g.source.fileFlag(c, "message")
	g.source.messageFlag(c)
	g.digest.flags(c)
	f.StringVar((*string)(&g.in.Algorithm), "algorithm", "", "signature `ALGORITHM` (default: the first of the key; see \"sluice key get\")")
	f.StringVar(&g.in.UserID, "user-id", "", "SM2: `ID` of the signer (default: 1234567812345678)")
	f.Uint32Var(&g.in.Version, "version", 0, "`NUMBER` of the key version (default: the primary one; to verify, all)")
	f.StringVar((*string)(&g.in.Format), "format", "", "ECDSA and SM2: `FORMAT` of the signature, der or raw, which is r and s side by side (default: der)")
	choices(c, "algorithm", algorithms(kms.UsageSignVerify)...)
	choices(c, "format", kms.FormatDER, kms.FormatRaw)
	noCompletion(c, "message", "digest-hex", "user-id", "version")
}

// read reads what is signed.
func (g *signing) read(s *session) (err error) {
	if g.digest.given() {
		g.in.Digest, err = g.digest.read(s)
	} else {
		g.in.Message, err = g.source.read(s)
	}
	return err
}

func (p *program) sign() *cobra.Command {
	var g signing
	var out sink
	c := tries(&cobra.Command{
		Use:   "sign KEY",
		Short: "Sign a message or a digest",
		Long: `Sign a message, or its digest that was computed elsewhere. The signature is
printed as base64.

For SM2 a digest is the one over the signer's identity and the message
(GB/T 32918.2, 6.1), which "sluice digest" does not compute.`,
		Example: `  echo -n "order 4711" | sluice sign payments/orders
  sluice sign payments/orders --message "order 4711" --user-id alice
  sluice sign releases --in sluice.tar.gz --out sluice.tar.gz.sig
  sluice sign releases --digest-hex $(sha256sum < image.iso | cut -c 1-64)`,
	})
	g.flags(c)
	out.flags(c, "signature")
	return exclusive(p.keyVerb(c, func(s *session, key string) error {
		if err := g.read(s); err != nil {
			return err
		}
		ctx, api, err := s.connect()
		if err != nil {
			return err
		}
		signed, err := api.Sign(ctx, key, g.in)
		if err != nil {
			return err
		}
		return out.write(s, signed, signed.Signature)
	}), "json", "raw", "out")
}

func (p *program) verify() *cobra.Command {
	var g signing
	var signature proof
	c := tries(&cobra.Command{
		Use:   "verify KEY",
		Short: "Check a signature",
		Long: `Check the signature of a message or digest. Prints "valid" or "invalid", and
ends with exit code 3 when the signature is not valid.`,
		Example: `  sluice verify payments/orders --message "order 4711" --signature MEUCIQ...
  sluice verify releases --in sluice.tar.gz --signature-file sluice.tar.gz.sig`,
	})
	g.flags(c)
	signature.flags(c, "signature", "signature")
	return p.keyVerb(c, func(s *session, key string) error {
		if signature.file == "-" && !g.digest.given() && g.source.file == "-" && !c.Flags().Changed("message") {
			return usage(c, "message and signature cannot both come from standard input")
		}
		sig, err := signature.read(s)
		if err != nil {
			return err
		}
		if err := g.read(s); err != nil {
			return err
		}
		ctx, api, err := s.connect()
		if err != nil {
			return err
		}
		checked, err := api.Verify(ctx, key, client.VerifyInput{SignInput: g.in, Signature: sig})
		if err != nil {
			return err
		}
		return s.showValidity(checked, checked.Valid)
	})
}

// showValidity prints the answer of a verification and decides on the exit
// code.
func (s *session) showValidity(answer any, valid bool) error {
	err := s.show(answer, func(w io.Writer) error {
		word := "valid"
		if !valid {
			word = "invalid"
		}
		_, err := fmt.Fprintln(w, word)
		return err
	})
	if err == nil && !valid {
		return errNotValid
	}
	return err
}
