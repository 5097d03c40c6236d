package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-kms/sluice/cmd/sluice/cli"
	"github.com/sluice-kms/sluice/cmd/sluice/wire"
	"github.com/sluice-kms/sluice/kms"
)

func ceremonyFlag(c *cobra.Command, path *string) {
	c.Flags().StringVar(path, "ceremony", "", "ceremony file, YAML (required)")
	c.MarkFlagRequired("ceremony")
	c.MarkFlagFilename("ceremony", "yaml", "yml")
}

func configFlag(c *cobra.Command, path *string) {
	c.Flags().StringVar(path, "config", "", "configuration file of the service, YAML (required)")
	c.MarkFlagRequired("config")
	c.MarkFlagFilename("config", "yaml", "yml")
}

func newHSMRotateRoot() *cobra.Command {
	var path string
	c := &cobra.Command{
		Use:   "rotate-root",
		Short: "Make the next generation of a domain's root keys",
		Long: `Make the next generation of a domain's root keys, on all its member and backup
tokens, which the ceremony file names as it did for "sluice hsm init". The root
keys in use stay; the service may be running.

For each target token the command shows the fingerprint of its transport key,
which two people compare and confirm, as in "sluice hsm init". At the end it
writes the domain's description. Interrupted, it can be run again: it goes on
where it ended.

Then restart every API node with the new description, in one go: it makes new
keys under the new root keys, which a node that was not restarted cannot use,
and old ones open still. Only then go on with "sluice hsm rewrap" and "sluice
hsm retire-root".`,
		Example: `  sluice hsm rotate-root --ceremony ceremony.yaml`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := harden(); err != nil {
				return err
			}
			domain, file, err := wire.ReplaceRoots(cmd.Context(), path, confirmation(cmd), progress(cmd))
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "the root keys of generation %d are on all tokens, and in %s\nrestart every API node with that file, then run: sluice hsm rewrap\n",
				domain.Generation, file)
			return nil
		},
	}
	ceremonyFlag(c, &path)
	return c
}

func newHSMRewrap() *cobra.Command {
	var config, path string
	var batch int
	var yes bool
	c := &cobra.Command{
		Use:   "rewrap",
		Short: "Move everything stored under earlier root keys to the newest",
		Long: `Move everything that is stored under earlier root keys of a domain to the
newest: first the tenants' sealing keys, then the versions of all keys. It is
done inside a backup token, the first of the ceremony file that is connected;
outside of it nothing is in the clear.

A service on PostgreSQL may be running, as long as every API node was restarted
after "sluice hsm rotate-root": one that was not refuses what was rewrapped. A
service on SQLite has to be stopped. Interrupted, the command can be run again:
what is done stays done. It is in the journal, beside a running service in a
folder of its own, the journal's with "-roots" at the end.`,
		Example: `  sluice hsm rewrap --config /etc/sluice/sluice.yaml --ceremony ceremony.yaml
  sluice hsm rewrap --config sluice.yaml --ceremony ceremony.yaml --batch 1000 --yes`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := harden(); err != nil {
				return err
			}
			if !yes {
				if err := cli.Confirm(cmd, "An API node that was not restarted since \"sluice hsm rotate-root\" will refuse keys that are rewrapped."); err != nil {
					return err
				}
			}
			settings, err := wire.LoadConfig(config, os.Environ)
			if err != nil {
				return err
			}
			done, err := wire.Rewrap(cmd.Context(), wire.RewrapConfig{Config: settings, Ceremony: path, Batch: batch,
				Log: newLog(slog.LevelWarn), Progress: rewrapProgress(cmd.ErrOrStderr(), time.Now)})
			if err != nil {
				return fmt.Errorf("%d sealing keys and %d versions were rewrapped, %d were not: %w", done.Tenants, done.Versions, done.Failed, err)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%d sealing keys and %d versions were rewrapped in %v; nothing is left under earlier root keys\n",
				done.Tenants, done.Versions, done.Elapsed.Round(time.Millisecond))
			return nil
		},
	}
	configFlag(c, &config)
	ceremonyFlag(c, &path)
	c.Flags().IntVar(&batch, "batch", kms.DefaultRewrapBatch, fmt.Sprintf("keys that are read at once, 1 to %d", kms.MaxPageSize))
	c.Flags().BoolVar(&yes, "yes", false, "do not ask whether every API node was restarted")
	return c
}

// rewrapInterval is how often progress is shown: a person's patience.
const rewrapInterval = time.Second

// rewrapProgress shows how far rewrapping has come.
func rewrapProgress(w io.Writer, now func() time.Time) func(kms.RewrapProgress) {
	var last time.Time
	return func(p kms.RewrapProgress) {
		if now().Sub(last) < rewrapInterval {
			return
		}
		last = now()
		fmt.Fprintf(w, "sealing keys %d of %d, versions %d of %d, failed %d, %.0f a second, %v left\n",
			p.Tenants, p.Total.Tenants, p.Versions, p.Total.Versions, p.Failed, p.Rate(), p.Left().Round(time.Second))
	}
}

func newHSMRetireRoot() *cobra.Command {
	var config, path string
	var generation uint32
	var yes bool
	c := &cobra.Command{
		Use:   "retire-root",
		Short: "Destroy an earlier generation of a domain's root keys, for good",
		Long: `Destroy an earlier generation of a domain's root keys on all member and backup
tokens that the ceremony file names, and write the domain's description without
it. It refuses while anything is stored under that generation ("sluice hsm
rewrap"), and where a token does not hold the newest root keys.

Afterwards nothing opens that was stored under the generation: no backup of the
database from before, and no copy of a tenant that was deleted before. Name all
tokens: one that is left out keeps its root keys ("sluice hsm backup-check"
finds them). Then restart every API node, so that deleted tenants can become
SHREDDED. The command can be repeated.`,
		Example: `  sluice hsm retire-root --config /etc/sluice/sluice.yaml --ceremony ceremony.yaml --generation 1`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := harden(); err != nil {
				return err
			}
			if !yes {
				if err := cli.Confirm(cmd, fmt.Sprintf("The root keys of generation %d are destroyed on all tokens; backups of the database from before the rewrapping become useless.", generation)); err != nil {
					return err
				}
			}
			settings, err := wire.LoadConfig(config, os.Environ)
			if err != nil {
				return err
			}
			if err := wire.RetireRoots(cmd.Context(), settings, path, generation, newLog(slog.LevelWarn), progress(cmd)); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "the root keys of generation %d are gone from all tokens of the ceremony file; restart every API node\n", generation)
			return nil
		},
	}
	configFlag(c, &config)
	ceremonyFlag(c, &path)
	c.Flags().Uint32Var(&generation, "generation", 0, "generation to destroy (required)")
	c.MarkFlagRequired("generation")
	c.Flags().BoolVar(&yes, "yes", false, "do not ask for confirmation")
	return c
}

// errBackups ends a check that found something.
var errBackups = errors.New("not all backup tokens are in order")

func newHSMBackupCheck() *cobra.Command {
	var path string
	c := &cobra.Command{
		Use:   "backup-check",
		Short: "Verify that a domain's backup tokens hold its root keys",
		Long: `Open every backup token of the ceremony file and verify that it holds the root
keys of every generation in the domain's description, by their check values,
that they can be given to further tokens and used for nothing else, and that it
holds no others. It changes nothing. The exit code is 1 when a token is not in
order, or cannot be opened.`,
		Example: `  sluice hsm backup-check --ceremony ceremony.yaml`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := harden(); err != nil {
				return err
			}
			checks, err := wire.CheckBackups(cmd.Context(), path)
			if err != nil {
				return err
			}
			return backupTable(cmd.OutOrStdout(), checks)
		},
	}
	ceremonyFlag(c, &path)
	return c
}

func backupTable(w io.Writer, checks []wire.BackupCheck) (bad error) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "BACKUP\tTOKEN\tSERIAL\tGENERATIONS\tRESULT")
	for _, c := range checks {
		result := "ok"
		if c.Err != nil {
			result, bad = strings.ReplaceAll(c.Err.Error(), "\n", "; "), errBackups
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", orDash(c.ID), orDash(c.Label), orDash(c.Serial), orDash(strings.Trim(fmt.Sprint(c.Generations), "[]")), result)
	}
	return errors.Join(t.Flush(), bad)
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
