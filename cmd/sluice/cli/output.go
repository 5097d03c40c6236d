package cli

import (
	"encoding/base64"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
)

// show prints an answer: as the JSON of the API, or by text.
func (s *session) show(answer any, text func(io.Writer) error) error {
	out := s.cmd.OutOrStdout()
	if !s.json {
		return text(out)
	}
	err := json.MarshalWrite(out, answer, json.Deterministic(true), jsontext.WithIndent("  "))
	if err != nil {
		return fmt.Errorf("writing the answer: %w", err)
	}
	_, err = fmt.Fprintln(out)
	return err
}

// say tells a person something beside the answer.
func (s *session) say(format string, args ...any) {
	fmt.Fprintln(s.cmd.ErrOrStderr(), printable(fmt.Sprintf(format, args...)))
}

// table writes rows in aligned columns. No cell can break out of its own.
func table(w io.Writer, header []string, rows [][]string) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range append([][]string{header}, rows...) {
		cells := make([]string, len(row))
		for i, c := range row {
			cells[i] = printable(c)
		}
		fmt.Fprintln(t, strings.TrimRight(strings.Join(cells, "\t"), "\t"))
	}
	return t.Flush()
}

// field is a line of details.
type field struct{ name, value string }

// details writes the fields that have a value.
func details(w io.Writer, fields ...field) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, f := range fields {
		if f.value != "" {
			fmt.Fprintf(t, "%s\t%s\n", f.name, printable(f.value))
		}
	}
	return t.Flush()
}

// date is how times are shown; "" for the zero time.
func date(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

// sink says where binary output goes.
type sink struct {
	raw  bool
	file string
}

// flags adds --raw and --out, of which --json can be the third.
func (k *sink) flags(c *cobra.Command, what string) {
	f := c.Flags()
	f.BoolVar(&k.raw, "raw", false, "print the bytes of the "+what+" instead of base64")
	f.StringVar(&k.file, "out", "", "write the bytes of the "+what+" to this `FILE`, mode 0600")
}

// exclusive marks the ways to show an answer as exclusive; it comes after
// verb, which adds --json.
func exclusive(c *cobra.Command, names ...string) *cobra.Command {
	c.MarkFlagsMutuallyExclusive(names...)
	return c
}

// write puts binary output where the flags say, as base64 when they say
// nothing.
func (k *sink) write(s *session, answer any, data []byte) error {
	switch {
	case k.file != "":
		return s.writeFile(k.file, data)
	case k.raw:
		_, err := s.cmd.OutOrStdout().Write(data)
		return err
	}
	return s.show(answer, func(w io.Writer) error {
		_, err := fmt.Fprintln(w, base64.StdEncoding.EncodeToString(data))
		return err
	})
}

// writeFile replaces a file by one that only its owner can read, or leaves it
// as it is. "-" is standard output, and what is no regular file (a device, a
// pipe) is written to.
func (s *session) writeFile(name string, data []byte) (err error) {
	if name == "-" {
		_, err := s.cmd.OutOrStdout().Write(data)
		return err
	}
	if info, err := os.Stat(name); err == nil && !info.Mode().IsRegular() {
		if err := os.WriteFile(name, data, 0o600); err != nil {
			return fmt.Errorf("writing the output: %w", err)
		}
		return nil
	}
	f, err := os.CreateTemp(filepath.Dir(name), ".sluice-*") // mode 0600
	if err != nil {
		return fmt.Errorf("creating the output file: %w", err)
	}
	defer func() {
		if err != nil {
			os.Remove(f.Name())
		}
	}()
	_, err = f.Write(data)
	if err == nil {
		// A credential that is shown once must survive what comes next.
		err = f.Sync()
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		return fmt.Errorf("writing the output file: %w", err)
	}
	return nil
}
