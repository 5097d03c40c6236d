package main

import (
	"fmt"
	"os"
	"path/filepath"

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

func newRestore() *cobra.Command {
	var from, dir string
	c := &cobra.Command{
		Use:   "restore",
		Short: "Unpack a backup into a new data folder",
		Long: `Unpack a backup into a data folder that does not exist or is empty. Every file
is checked against the backup's manifest and the journal is verified; when
anything is wrong, nothing is left behind.

Then configure "sluice server" with the folder, the domain's description in it
(domain-0.json), and tokens of the domain. What was revoked, disabled or
destroyed after the backup is not known to it: do it again before you serve.`,
		Example: `  sluice restore --from /backup/sluice-2026-11-30.tar --data-dir /var/lib/sluice`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			abs, err := filepath.Abs(dir)
			if err != nil {
				return err
			}
			m, err := wire.Restore(from, abs)
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "the state of %s is in %s\n", m.Created.Format("2006-01-02 15:04:05 UTC"), abs)
			return nil
		},
	}
	c.Flags().StringVar(&from, "from", "", "backup file (required)")
	c.Flags().StringVar(&dir, "data-dir", "", "folder to make (required)")
	c.MarkFlagRequired("from")
	c.MarkFlagRequired("data-dir")
	return c
}
