package cli

import (
	"context"
	"encoding/json/v2"
	"encoding/pem"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/sluice-kms/sluice/client"
)

// maxParameters bounds a file of import parameters, in bytes.
const maxParameters = 16 << 10

func (p *program) keyImport() *cobra.Command {
	var in client.ImportKeyInput
	var tags []string
	var file, parameters, wrapped string
	c := tries(&cobra.Command{
		Use:   "import --spec SPEC [NAME]",
		Short: "Import a key",
		Long: `Make a key of material from outside. The key's origin says so for good: whoever had
the material before may have it still.

With --in the material is wrapped in this process, for the service alone, and never
sent in the clear. A symmetric key is its bytes, any other PKCS #8 in PEM or DER.

In two steps the material need not come near this machine: get parameters with
"sluice key import-parameters", wrap the key where it is, and import what that gave
with --parameters and --wrapped.`,
		Example: `  sluice key import --spec ECC_NIST_P256 --in old-key.pem orders/eu
  head -c 32 /dev/urandom | sluice key import --spec AES_256 --in - backups
  sluice key import --spec SM2 --parameters parameters.json --wrapped wrapped.bin seal`,
		Args: nameOrNone,
	})
	newKeyFlags(c, &in.CreateKeyInput, &tags)
	f := c.Flags()
	f.StringVar(&file, "in", "", "read the key from this `FILE`; - is standard input")
	f.StringVar(&parameters, "parameters", "", "`FILE` that \"key import-parameters\" wrote")
	f.StringVar(&wrapped, "wrapped", "", "read the wrapped key from this `FILE`; - is standard input")
	c.MarkFlagsMutuallyExclusive("in", "parameters")
	c.MarkFlagsOneRequired("in", "parameters")
	c.MarkFlagsRequiredTogether("parameters", "wrapped")
	return p.verb(c, func(s *session) error {
		if err := readNewKey(s, &in.CreateKeyInput, tags); err != nil {
			return err
		}
		var material []byte
		defer func() { clear(material) }()
		var err error
		if parameters != "" {
			err = readWrapped(s, &in, parameters, wrapped)
		} else {
			material, err = readMaterial(s, file)
		}
		if err != nil {
			return err
		}
		ctx, api, err := s.connect()
		if err != nil {
			return err
		}
		if material != nil {
			if err := wrapMaterial(ctx, s, api, &in, material); err != nil {
				return err
			}
		}
		return s.showKey(api.ImportKey(ctx, in))
	})
}

// readWrapped reads what the two steps before this one made.
func readWrapped(s *session, in *client.ImportKeyInput, parameters, wrapped string) error {
	raw, err := s.readFile(parameters, "import parameters", maxParameters)
	if err != nil {
		return err
	}
	var made client.ImportParameters
	if err := json.Unmarshal(raw, &made); err != nil {
		return fmt.Errorf("the import parameters are not what \"sluice key import-parameters --out\" writes")
	}
	in.Wrapping, in.Token = made.Wrapping, made.Token
	in.WrappedKey, err = s.readFile(wrapped, "wrapped key", client.MaxImportKey)
	return err
}

// readMaterial reads a key: its bytes, or what is inside PEM.
func readMaterial(s *session, file string) ([]byte, error) {
	material, err := s.readFile(file, "key", client.MaxImportKey)
	if err != nil {
		return nil, err
	}
	if len(material) == 0 {
		return nil, fmt.Errorf("the key is empty")
	}
	block, _ := pem.Decode(material)
	if block == nil {
		return material, nil
	}
	clear(material)
	if block.Type != "PRIVATE KEY" {
		return nil, fmt.Errorf("the PEM must hold a PRIVATE KEY, which is PKCS #8 without a passphrase; \"openssl pkcs8 -topk8 -nocrypt\" makes one")
	}
	return block.Bytes, nil
}

// wrapMaterial gets import parameters and wraps the key for them.
func wrapMaterial(ctx context.Context, s *session, api *client.Client, in *client.ImportKeyInput, material []byte) error {
	in.Wrapping = client.ImportRSAAES
	if s.dryRun() {
		// What is not imported need not be wrapped.
		in.Token, in.WrappedKey = []byte{0}, []byte{0}
		return nil
	}
	parameters, err := api.ImportParameters(ctx, in.Wrapping)
	if err != nil {
		return err
	}
	in.Token = parameters.Token
	in.WrappedKey, err = client.WrapKey(parameters, material)
	return err
}

func (p *program) keyImportParameters() *cobra.Command {
	var wrapping client.ImportWrapping
	var file, public string
	c := &cobra.Command{
		Use:   "import-parameters",
		Short: "Get what a key is wrapped for to be imported",
		Long: `Get a public key to wrap a key for, and a token that goes with it, good for 24 hours
and any number of keys. They are no secrets.

With OpenSSL, for RSA_AES_KEY_WRAP_SHA_256: encrypt 32 random bytes for the public key
by RSAES-OAEP with SHA-256, wrap the key under them with id-aes256-wrap-pad, and put the
second after the first.`,
		Example: `  sluice key import-parameters --out parameters.json --public-key wrapping.pem`,
		Args:    noArguments,
	}
	f := c.Flags()
	f.StringVar((*string)(&wrapping), "wrapping", string(client.ImportRSAAES), "`WRAPPING`: "+
		join([]client.ImportWrapping{client.ImportRSAAES, client.ImportSM2, client.ImportSM2Enveloped}))
	f.StringVar(&file, "out", "-", "write the parameters, JSON, to this `FILE`; - is standard output")
	f.StringVar(&public, "public-key", "", "write the public key, PEM, to this `FILE` as well")
	choices(c, "wrapping", client.ImportRSAAES, client.ImportSM2, client.ImportSM2Enveloped)
	return p.verb(c, func(s *session) error {
		ctx, api, err := s.connect()
		if err != nil {
			return err
		}
		parameters, err := api.ImportParameters(ctx, wrapping)
		if err != nil {
			return err
		}
		raw, err := json.Marshal(parameters)
		if err != nil {
			return err
		}
		if public != "" {
			if err := s.writeFile(public, []byte(parameters.PublicKey)); err != nil {
				return err
			}
		}
		if file == "-" {
			return s.show(parameters, func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "%s\n", raw)
				return err
			})
		}
		return s.writeFile(file, append(raw, '\n'))
	})
}
