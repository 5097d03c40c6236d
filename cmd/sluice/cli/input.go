package cli

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/sluice-kms/sluice/client"
)

// source says where an input comes from: a file, standard input or, where
// that may be seen, the command line.
type source struct {
	file    string
	message string
	what    string // "message", for messages
}

// fileFlag adds --in.
func (i *source) fileFlag(c *cobra.Command, what string) {
	i.what = what
	c.Flags().StringVar(&i.file, "in", "-", "read the "+what+" from this `FILE`; - is standard input")
}

// messageFlag adds --message beside --in.
func (i *source) messageFlag(c *cobra.Command) {
	c.Flags().StringVar(&i.message, "message", "", "take this `TEXT` as the message")
	c.MarkFlagsMutuallyExclusive("in", "message")
}

// read returns the input.
func (i *source) read(s *session) ([]byte, error) {
	if s.cmd.Flags().Changed("message") {
		return []byte(i.message), nil
	}
	data, err := s.readFile(i.file, i.what, client.MaxInput)
	if err != nil {
		return nil, err
	}
	return data, nil
}

// readBinary returns an input that is bytes or their base64.
func (i *source) readBinary(s *session) ([]byte, error) {
	return s.readBinary(i.file, i.what)
}

// readFile reads at most limit bytes of a file, "-" for standard input. The
// result is never nil.
func (s *session) readFile(name, what string, limit int) ([]byte, error) {
	var r io.Reader
	if name == "-" {
		r = s.cmd.InOrStdin()
		if s.interactive(r) {
			s.say("reading the %s from the terminal; Ctrl-D ends it", what)
		}
	} else {
		f, err := os.Open(name)
		if err != nil {
			return nil, fmt.Errorf("opening the %s: %w", what, err)
		}
		defer f.Close()
		r = f
	}
	data, err := io.ReadAll(io.LimitReader(r, int64(limit)+1))
	if err != nil {
		return nil, fmt.Errorf("reading the %s: %w", what, err)
	}
	if len(data) > limit {
		return nil, fmt.Errorf("the %s is longer than %d bytes; sign the digest of what is long (--digest-file), and encrypt it locally under a key of \"sluice datakey\"", what, limit)
	}
	return data, nil
}

// maxEncoded bounds the base64 of an input, line breaks included.
const maxEncoded = client.MaxInput*4/3 + client.MaxInput/32

// readBinary reads bytes or their base64 from a file.
func (s *session) readBinary(name, what string) ([]byte, error) {
	data, err := s.readFile(name, what, maxEncoded)
	if err != nil {
		return nil, err
	}
	return binary(data), nil
}

// binary returns what data is the base64 of, or data if it is none. Nothing
// that verbs take this way is mistaken: our envelopes hold zero bytes, SM2
// ciphertexts and DER hold tags that are not letters, and for 28 random bytes,
// the shortest MAC, to be base64 by chance has the odds of 1 to 2⁵⁵.
func binary(data []byte) []byte {
	text := bytes.TrimSpace(data)
	decoded, err := base64.StdEncoding.Strict().DecodeString(string(text))
	if err != nil || len(text) == 0 {
		return data
	}
	return decoded
}

// proof is a signature or MAC to check, given as base64 or in a file.
type proof struct {
	text, file string
	name       string
}

// flags adds --NAME and --NAME-file, of which one must be given.
func (p *proof) flags(c *cobra.Command, name, what string) {
	p.name = name
	f := c.Flags()
	f.StringVar(&p.text, name, "", "the "+what+" in `BASE64`")
	f.StringVar(&p.file, name+"-file", "", "read the "+what+", bytes or base64, from this `FILE`; - is standard input")
	c.MarkFlagsMutuallyExclusive(name, name+"-file")
	c.MarkFlagsOneRequired(name, name+"-file")
	noCompletion(c, name)
}

func (p *proof) read(s *session) ([]byte, error) {
	if p.file != "" {
		return s.readBinary(p.file, p.name)
	}
	decoded, err := base64.StdEncoding.DecodeString(p.text)
	if err != nil {
		return nil, usage(s.cmd, "--%s is not base64", p.name)
	}
	return decoded, nil
}

// digest is a digest that was computed elsewhere.
type digest struct{ file, hex string }

func (d *digest) flags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&d.file, "digest-file", "", "instead of a message, take the digest whose bytes are in this `FILE`")
	f.StringVar(&d.hex, "digest-hex", "", "instead of a message, take this digest in `HEX`")
	c.MarkFlagsMutuallyExclusive("in", "message", "digest-file", "digest-hex")
}

func (d *digest) given() bool { return d.file != "" || d.hex != "" }

// maxDigest is the length of the longest digest in bytes.
const maxDigest = 64

func (d *digest) read(s *session) ([]byte, error) {
	if d.file != "" {
		return s.readFile(d.file, "digest", maxDigest)
	}
	decoded, err := hex.DecodeString(d.hex)
	if err != nil {
		return nil, usage(s.cmd, "--digest-hex is not hexadecimal")
	}
	return decoded, nil
}
