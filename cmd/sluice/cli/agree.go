package cli

import (
	"encoding/pem"

	"github.com/spf13/cobra"

	"github.com/sluice-kms/sluice/client"
	"github.com/sluice-kms/sluice/kms"
)

func (p *program) sharedSecret() *cobra.Command {
	var in client.SharedSecretInput
	var peer string
	var out sink
	c := tries(&cobra.Command{
		Use:   "shared-secret KEY --peer FILE",
		Short: "Compute an ECDH shared secret",
		Long: `Compute the ECDH shared secret of a key and another party's public key on the
same curve. It is printed as base64: feed it to a key derivation function.`,
		Example: "  sluice shared-secret tunnel --peer partner.pem --out secret.bin",
	})
	c.Flags().StringVar(&peer, "peer", "", "the other party's public key, as PEM or DER, from this `FILE`; - is standard input (required)")
	versionFlag(c, &in.Version)
	out.flags(c, "secret")
	return exclusive(p.keyVerb(c, func(s *session, key string) error {
		if peer == "" {
			return usage(c, "--peer is missing")
		}
		data, err := s.readBinary(peer, "public key")
		if err != nil {
			return err
		}
		in.PublicKey = data
		if block, _ := pem.Decode(data); block != nil {
			in.PublicKey = block.Bytes
		}
		ctx, api, err := s.connect()
		if err != nil {
			return err
		}
		made, err := api.SharedSecret(ctx, key, in)
		if err != nil {
			return err
		}
		return out.write(s, made, made.Secret)
	}), "json", "raw", "out")
}

func (p *program) derive() *cobra.Command {
	var in client.DeriveInput
	var text, file string
	var out sink
	c := tries(&cobra.Command{
		Use:   "derive KEY",
		Short: "Derive bytes from a key",
		Long: `Derive bytes from a key that was made for it. They are the same for the same key
version, context and length, and printed as base64.`,
		Example: `  sluice derive tokens --context "session 17" --bytes 32
  sluice derive tokens --context-file context.bin --raw | xxd -p`,
	})
	f := c.Flags()
	f.StringVar(&text, "context", "", "what the bytes are for, as `TEXT`; others give others")
	f.StringVar(&file, "context-file", "", "read the context from this `FILE`; - is standard input")
	f.IntVar(&in.Bytes, "bytes", 32, "`NUMBER` of bytes, 16 to 8160")
	algorithmFlag(c, &in.Algorithm, kms.UsageDerive)
	versionFlag(c, &in.Version)
	out.flags(c, "derived bytes")
	c.MarkFlagsMutuallyExclusive("context", "context-file")
	noCompletion(c, "context", "bytes")
	return exclusive(p.keyVerb(c, func(s *session, key string) (err error) {
		in.Context = []byte(text)
		if file != "" {
			if in.Context, err = s.readFile(file, "context", client.MaxDeriveContext); err != nil {
				return err
			}
		}
		ctx, api, err := s.connect()
		if err != nil {
			return err
		}
		made, err := api.Derive(ctx, key, in)
		if err != nil {
			return err
		}
		return out.write(s, made, made.Derived)
	}), "json", "raw", "out")
}

func (p *program) encapsulate() *cobra.Command {
	var in client.EncapsulateInput
	var secretOut, ciphertextOut string
	c := tries(&cobra.Command{
		Use:   "encapsulate KEY",
		Short: "Make a shared secret for the holder of a key",
		Long: `Make a shared secret and its encapsulation by ML-KEM. Whoever may use the key gets
the secret back from it by "sluice decapsulate".`,
		Example: "  sluice encapsulate mailbox --secret-out secret.bin --out secret.kem",
	})
	versionFlag(c, &in.Version)
	c.Flags().StringVar(&secretOut, "secret-out", "", "write the bytes of the secret to this `FILE`, mode 0600")
	c.Flags().StringVar(&ciphertextOut, "out", "", "write the bytes of the encapsulation to this `FILE`, mode 0600")
	cmd := p.keyVerb(c, func(s *session, key string) error {
		ctx, api, err := s.connect()
		if err != nil {
			return err
		}
		made, err := api.Encapsulate(ctx, key, in)
		if err != nil {
			return err
		}
		return s.writeHalves(made, half{"Secret", secretOut, made.Secret}, half{"Ciphertext", ciphertextOut, made.Ciphertext})
	})
	exclusive(cmd, "json", "out")
	return exclusive(cmd, "json", "secret-out")
}

func (p *program) decapsulate() *cobra.Command {
	var in client.DecapsulateInput
	var ciphertext source
	var out sink
	c := tries(&cobra.Command{
		Use:   "decapsulate KEY",
		Short: "Recover a shared secret",
		Long: `Recover a shared secret from its encapsulation by ML-KEM. It is printed as base64.
An encapsulation that was changed gives another secret, not an error.`,
		Example: "  sluice decapsulate mailbox --in secret.kem --out secret.bin",
	})
	ciphertext.fileFlag(c, "encapsulation")
	versionFlag(c, &in.Version)
	out.flags(c, "secret")
	return exclusive(p.keyVerb(c, func(s *session, key string) (err error) {
		if in.Ciphertext, err = ciphertext.readBinary(s); err != nil {
			return err
		}
		ctx, api, err := s.connect()
		if err != nil {
			return err
		}
		made, err := api.Decapsulate(ctx, key, in)
		if err != nil {
			return err
		}
		return out.write(s, made, made.Secret)
	}), "json", "raw", "out")
}
