package cli

import (
	"encoding/hex"

	"github.com/spf13/cobra"

	"github.com/sluice-kms/sluice/client"
	"github.com/sluice-kms/sluice/kms"
)

// vector is the initialisation vector of CBC.
type vector struct{ hex string }

func (v *vector) flag(c *cobra.Command, name string) {
	c.Flags().StringVar(&v.hex, name, "", "initialisation vector in `HEX`, for data that an older system encrypted with CBC")
	noCompletion(c, name)
}

// read returns nil when there is none.
func (v *vector) read(s *session, name string) ([]byte, error) {
	if v.hex == "" {
		return nil, nil
	}
	decoded, err := hex.DecodeString(v.hex)
	if err != nil {
		return nil, usage(s.cmd, "--%s is not hexadecimal", name)
	}
	return decoded, nil
}

func (p *program) reencrypt() *cobra.Command {
	var in client.ReencryptInput
	var ciphertext source
	var aad additional
	var iv vector
	var destinationAAD string
	var out sink
	c := tries(&cobra.Command{
		Use:   "reencrypt KEY --source KEY",
		Short: "Encrypt anew what another key encrypted",
		Long: `Decrypt a ciphertext with the key --source and encrypt it with KEY, a symmetric
one, or with the newest version of the same. The plaintext does not leave the
service.`,
		Example: `  sluice reencrypt backups-2026 --source backups-2025 --in old.enc --out new.enc
  sluice reencrypt backups --source backups --aad shop < schema.b64
  sluice reencrypt backups --source legacy --source-algorithm AES_CBC_PKCS7 \
    --source-iv 000102030405060708090a0b0c0d0e0f --in old.bin`,
	})
	f := c.Flags()
	f.StringVar(&in.SourceKey, "source", "", "`KEY` that decrypts (required)")
	ciphertext.fileFlag(c, "ciphertext")
	aad.flags(c)
	f.StringVar(&destinationAAD, "destination-aad", "", "additional authenticated data of the new ciphertext as `TEXT` (default: the same)")
	f.StringVar((*string)(&in.SourceAlgorithm), "source-algorithm", "", "`ALGORITHM` that decrypts (default: the first of the key)")
	f.Uint32Var(&in.SourceVersion, "source-version", 0, "asymmetric keys and CBC: `NUMBER` of the version that decrypts (default: the primary one)")
	f.StringVar((*string)(&in.SourceOrder), "source-order", "", "SM2: `ORDER` of the ciphertext's parts, C1C3C2, C1C2C3 or ASN1 (default: C1C3C2)")
	iv.flag(c, "source-iv")
	choices(c, "source-algorithm", algorithms(kms.UsageEncryptDecrypt)...)
	choices(c, "source-order", kms.SM2OrderC1C3C2, kms.SM2OrderC1C2C3, kms.SM2OrderASN1)
	noCompletion(c, "destination-aad", "source-version")
	out.flags(c, "ciphertext")
	s := p.session(c)
	c.Args = argument("KEY")
	c.ValidArgsFunction = s.completeAt(0, keyNames)
	s.completeFlag("source", keyNames)
	return exclusive(s.verb(func(s *session) (err error) {
		if in.SourceKey == "" {
			return usage(c, "--source is missing")
		}
		if in.AAD, err = aad.read(s); err != nil {
			return err
		}
		if f.Changed("destination-aad") {
			in.DestinationAAD = []byte(destinationAAD)
		}
		if in.SourceIV, err = iv.read(s, "source-iv"); err != nil {
			return err
		}
		if in.Ciphertext, err = ciphertext.readBinary(s); err != nil {
			return err
		}
		ctx, api, err := s.connect()
		if err != nil {
			return err
		}
		sealed, err := api.Reencrypt(ctx, s.args[0], in)
		if err != nil {
			return err
		}
		return out.write(s, sealed, sealed.Ciphertext)
	}), "json", "raw", "out")
}
