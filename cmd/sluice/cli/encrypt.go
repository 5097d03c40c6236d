package cli

import (
	"encoding/base64"
	"io"

	"github.com/spf13/cobra"

	"github.com/sluice-kms/sluice/client"
	"github.com/sluice-kms/sluice/kms"
)

// additional is the additional authenticated data of an encryption.
type additional struct{ text, file string }

func (a *additional) flags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&a.text, "aad", "", "additional authenticated data as `TEXT`; it is not hidden, and needed again to decrypt")
	f.StringVar(&a.file, "aad-file", "", "read the additional authenticated data from this `FILE`")
	c.MarkFlagsMutuallyExclusive("aad", "aad-file")
	noCompletion(c, "aad")
}

// read returns nil for none; empty data is some.
func (a *additional) read(s *session) ([]byte, error) {
	switch {
	case s.cmd.Flags().Changed("aad"):
		return []byte(a.text), nil
	case a.file == "-":
		// Standard input is where plaintexts and ciphertexts come from.
		return nil, usage(s.cmd, "--aad-file must be a file")
	case a.file != "":
		return s.readFile(a.file, "additional data", client.MaxInput)
	}
	return nil, nil
}

func algorithmFlag(c *cobra.Command, algorithm *client.Algorithm, u kms.Usage) {
	c.Flags().StringVar((*string)(algorithm), "algorithm", "", "`ALGORITHM` (default: the first of the key; see \"sluice key get\")")
	choices(c, "algorithm", algorithms(u)...)
}

func asymmetricFlags(c *cobra.Command, version *uint32, order *client.SM2Order) {
	f := c.Flags()
	f.Uint32Var(version, "version", 0, "asymmetric keys and CBC: `NUMBER` of the key version (default: the primary one)")
	f.StringVar((*string)(order), "order", "", "SM2: `ORDER` of the ciphertext's parts, C1C3C2, C1C2C3 or ASN1 (default: C1C3C2)")
	noCompletion(c, "version")
	choices(c, "order", kms.SM2OrderC1C3C2, kms.SM2OrderC1C2C3, kms.SM2OrderASN1)
}

func (p *program) encrypt() *cobra.Command {
	var in client.EncryptInput
	var plaintext source
	var aad additional
	var out sink
	c := tries(&cobra.Command{
		Use:   "encrypt KEY",
		Short: "Encrypt data",
		Long: `Encrypt data of at most 1 MiB. The ciphertext is printed as base64. Symmetric
keys give an envelope that names key and version; asymmetric keys give the
standard ciphertext of the algorithm.

The plaintext is never taken from the command line, which others can see. For
more data than that, encrypt locally under a key of "sluice datakey".`,
		Example: `  sluice encrypt backups --in password.txt --out password.enc
  pg_dump --schema-only shop | sluice encrypt backups --aad shop > schema.b64
  sluice encrypt mailbox --order ASN1 < letter`,
	})
	plaintext.fileFlag(c, "plaintext")
	aad.flags(c)
	algorithmFlag(c, &in.Algorithm, kms.UsageEncryptDecrypt)
	asymmetricFlags(c, &in.Version, &in.Order)
	out.flags(c, "ciphertext")
	return exclusive(p.keyVerb(c, func(s *session, key string) (err error) {
		if in.AAD, err = aad.read(s); err != nil {
			return err
		}
		if in.Plaintext, err = plaintext.read(s); err != nil {
			return err
		}
		ctx, api, err := s.connect()
		if err != nil {
			return err
		}
		sealed, err := api.Encrypt(ctx, key, in)
		if err != nil {
			return err
		}
		return out.write(s, sealed, sealed.Ciphertext)
	}), "json", "raw", "out")
}

func (p *program) decrypt() *cobra.Command {
	var in client.DecryptInput
	var ciphertext source
	var aad additional
	var iv vector
	var file string
	c := tries(&cobra.Command{
		Use:   "decrypt KEY",
		Short: "Decrypt data",
		Long: `Decrypt what "sluice encrypt" gave, as bytes or base64. The plaintext is written
as it is.

What an older system encrypted with CBC is decrypted with --algorithm and --iv, by
credentials with the scope key:decrypt-legacy.`,
		Example: `  sluice decrypt backups --in password.enc
  sluice decrypt backups --aad shop < schema.b64 --out schema.sql`,
	})
	ciphertext.fileFlag(c, "ciphertext")
	aad.flags(c)
	algorithmFlag(c, &in.Algorithm, kms.UsageEncryptDecrypt)
	asymmetricFlags(c, &in.Version, &in.Order)
	iv.flag(c, "iv")
	c.Flags().StringVar(&file, "out", "-", "write the plaintext to this `FILE`, mode 0600; - is standard output")
	return exclusive(p.keyVerb(c, func(s *session, key string) (err error) {
		if in.AAD, err = aad.read(s); err != nil {
			return err
		}
		if in.IV, err = iv.read(s, "iv"); err != nil {
			return err
		}
		if in.Ciphertext, err = ciphertext.readBinary(s); err != nil {
			return err
		}
		ctx, api, err := s.connect()
		if err != nil {
			return err
		}
		opened, err := api.Decrypt(ctx, key, in)
		if err != nil {
			return err
		}
		if s.json {
			return s.show(opened, nil)
		}
		return s.writeFile(file, opened.Plaintext)
	}), "json", "out")
}

func (p *program) dataKey() *cobra.Command {
	var in client.DataKeyInput
	var aad additional
	var wrapped bool
	var plaintextOut, ciphertextOut string
	c := tries(&cobra.Command{
		Use:   "datakey KEY",
		Short: "Make a key for encrypting data locally",
		Long: `Make a random data key for use outside, and encrypt it under a symmetric key of
the service. Keep the ciphertext beside the data; "sluice decrypt" gives the
data key back.`,
		Example: `  sluice datakey backups --plaintext-out key.bin --out key.enc
  sluice datakey backups --spec SM4 --aad host-17 --json
  sluice datakey backups --wrapped > key.b64`,
	})
	f := c.Flags()
	f.IntVar(&in.Bytes, "bytes", 0, "length of the data key as `NUMBER` of bytes, 16 to 1024 (default: 32)")
	f.StringVar((*string)(&in.Spec), "spec", "", "instead of a length, the `SPEC` that it is for: AES_128, AES_256 or SM4")
	aad.flags(c)
	f.BoolVar(&wrapped, "wrapped", false, "give the ciphertext only")
	f.StringVar(&plaintextOut, "plaintext-out", "", "write the bytes of the data key to this `FILE`, mode 0600")
	f.StringVar(&ciphertextOut, "out", "", "write the bytes of the ciphertext to this `FILE`, mode 0600")
	c.MarkFlagsMutuallyExclusive("bytes", "spec")
	c.MarkFlagsMutuallyExclusive("wrapped", "plaintext-out")
	noCompletion(c, "bytes")
	choices(c, "spec", kms.SpecAES128, kms.SpecAES256, kms.SpecSM4)
	cmd := p.keyVerb(c, func(s *session, key string) (err error) {
		if in.AAD, err = aad.read(s); err != nil {
			return err
		}
		if in.Bytes == 0 && in.Spec == "" {
			in.Bytes = 32
		}
		ctx, api, err := s.connect()
		if err != nil {
			return err
		}
		if wrapped {
			made, err := api.DataKeyWrapped(ctx, key, in)
			if err != nil {
				return err
			}
			out := sink{file: ciphertextOut}
			return out.write(s, made, made.Ciphertext)
		}
		made, err := api.DataKey(ctx, key, in)
		if err != nil {
			return err
		}
		return s.writeHalves(made, half{"Plaintext", plaintextOut, made.Plaintext}, half{"Ciphertext", ciphertextOut, made.Ciphertext})
	})
	exclusive(cmd, "json", "out")
	return exclusive(cmd, "json", "plaintext-out")
}

// half is one of two outputs of a verb, with the file that it goes to.
type half struct {
	name, file string
	data       []byte
}

// writeHalves writes the halves of an answer to their files, and prints those
// that have none.
func (s *session) writeHalves(answer any, halves ...half) error {
	var shown []field
	for _, h := range halves {
		if h.file == "" {
			shown = append(shown, field{h.name, base64.StdEncoding.EncodeToString(h.data)})
			continue
		}
		if err := s.writeFile(h.file, h.data); err != nil {
			return err
		}
	}
	return s.show(answer, func(w io.Writer) error { return details(w, shown...) })
}
