package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-kms/sluice/cmd/sluice/wire"
)

func newBackup() *cobra.Command {
	var config, dir, out string
	c := &cobra.Command{
		Use:   "backup",
		Short: "Write a backup of a service's state, running or not",
		Long: `Write a backup of a service's state: the description of its domains, a
consistent snapshot of the database, and the journal, which is verified. The
service may be running.

Keys in a backup are of use only to tokens of their domain, and no PIN and no
credential is in it. To bring a service back on a new machine: join new tokens
to the domain from a backup token ("sluice hsm join"), then "sluice restore".`,
		Example: `  sluice backup --config /etc/sluice/sluice.yaml --out /backup/sluice-2026-11-30.tar
  sluice backup --data-dir .sluice --out sluice.tar`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := backupConfig(config, dir)
			if err != nil {
				return err
			}
			m, err := wire.Backup(cmd.Context(), c, out)
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%d files; the journal's %d entries verify, its head is %s\n", len(m.Files), m.Records, m.Head)
			return nil
		},
	}
	c.Flags().StringVar(&config, "config", "", "configuration file of the service, YAML")
	c.Flags().StringVar(&dir, "data-dir", "", "instead: data folder of `sluice dev`")
	c.Flags().StringVar(&out, "out", "", "file to write, which must not exist (required)")
	c.MarkFlagRequired("out")
	c.MarkFlagsOneRequired("config", "data-dir")
	c.MarkFlagsMutuallyExclusive("config", "data-dir")
	return c
}

func backupConfig(config, dir string) (*wire.Config, error) {
	if config != "" {
		return wire.LoadConfig(config, os.Environ)
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	return wire.DevConfig(dir), nil
}

// restoreFlags are those of `sluice restore`.
type restoreFlags struct {
	from, dir      string
	config, asOf   string
	later          wire.Later
	withoutJournal bool
}

func newRestore() *cobra.Command {
	var f restoreFlags
	c := &cobra.Command{
		Use:   "restore",
		Short: "Unpack a backup into a new data folder, or follow a restored database",
		Long: `Unpack a backup into a data folder that does not exist or is empty. Every file
is checked against the backup's manifest and the journal is verified; when
anything is wrong, nothing is left behind.

What was disabled, revoked or destroyed after the backup is not known to it.
Give the journal as it is now, from the machine that wrote it or from where it
is archived: it takes the place of the backup's, and the next start does all
that again before it serves. Of several API nodes give all journals. Where a
journal is lost, a trail that "sluice audit export" wrote does as well (--trail),
though nothing proves it, and it is not put in the journal's place. Changes
that give something, or only describe, are not made again; the start tells how
many there were. Without a journal say so: --without-journal.

Then configure "sluice server" with the folder, the domain's description in it
(domain-0.json), and tokens of the domain.

With --config and --as-of nothing is unpacked: PostgreSQL was put back by its own
tools, to how it was at a time, and the next start of this API node is to do
again what its journal, and those given, have since. Do so on every node, all of
them stopped, before the first is started.`,
		Example: `  sluice restore --from /backup/sluice-2026-11-30.tar --data-dir /var/lib/sluice --journal /old/journal
  sluice restore --config /etc/sluice/sluice.yaml --as-of 2026-11-30T04:00:00Z --journal /mnt/api-2/journal`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd.OutOrStdout()) },
	}
	c.Flags().StringVar(&f.from, "from", "", "backup file")
	c.Flags().StringVar(&f.dir, "data-dir", "", "folder to make")
	c.Flags().StringVar(&f.config, "config", "", "instead: configuration file of a service whose database was put back")
	c.Flags().StringVar(&f.asOf, "as-of", "", "as of when that database is, RFC 3339")
	c.Flags().StringArrayVar(&f.later.Journals, "journal", nil, "folder with a journal as it is now; may be given several times")
	c.Flags().StringArrayVar(&f.later.Trails, "trail", nil, "file that `sluice audit export` wrote, where a journal is lost; may be given several times")
	c.Flags().BoolVar(&f.withoutJournal, "without-journal", false, "accept that changes after the backup are lost, revocations among them")
	c.MarkFlagsOneRequired("from", "config")
	c.MarkFlagsMutuallyExclusive("from", "config")
	c.MarkFlagsRequiredTogether("from", "data-dir")
	c.MarkFlagsRequiredTogether("config", "as-of")
	c.MarkFlagsMutuallyExclusive("journal", "without-journal")
	c.MarkFlagsMutuallyExclusive("trail", "without-journal")
	return c
}

func (f *restoreFlags) run(out io.Writer) error {
	if f.config != "" {
		return f.follow(out)
	}
	if len(f.later.Journals)+len(f.later.Trails) == 0 && !f.withoutJournal {
		return errors.New("without the journal as it is now, keys and credentials that were disabled, revoked or destroyed after the backup work again: " +
			"give it with --journal, or an exported trail with --trail, or accept that with --without-journal")
	}
	abs, err := filepath.Abs(f.dir)
	if err != nil {
		return err
	}
	m, err := wire.Restore(f.from, abs, f.later)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "the state of %s is in %s\n", m.Created.Format("2006-01-02 15:04:05 UTC"), abs)
	return nil
}

// follow notes that the database of a configuration was put back.
func (f *restoreFlags) follow(out io.Writer) error {
	since, err := time.Parse(time.RFC3339, f.asOf)
	if err != nil {
		return errors.New("as-of: must be a time such as 2026-11-30T04:00:00Z")
	}
	c, err := wire.LoadConfig(f.config, os.Environ)
	if err != nil {
		return err
	}
	if err := wire.DatabaseRestored(c, since, f.later); err != nil {
		return err
	}
	fmt.Fprintf(out, "the next start does again what was disabled, revoked and destroyed since %s\n", since.UTC().Format("2006-01-02 15:04:05 UTC"))
	return nil
}
