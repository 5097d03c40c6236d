package main

import (
	"bufio"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-kms/sluice/cmd/sluice/wire"
)

func newHSMInit() *cobra.Command {
	var path string
	c := &cobra.Command{
		Use:   "init",
		Short: "Make a domain: its root keys on all member and backup tokens",
		Long: `Make a domain: its root keys, on every member token and on at least two offline
backup tokens, all of which the ceremony file names at once, since a root can
leave no serving token afterwards.

For each target token the command shows the fingerprint of its transport key.
Two people compare it with what the target's own console shows, and type the
fingerprint's first 8 characters to confirm. The description of the domain is
written to the file that the ceremony file names; the configuration of
"sluice server" refers to it. Interrupted, the command can be run again.

What is done is recorded beside the description, in a folder of the same name
that ends with ".journal" ("journal" in the ceremony file names another one).

Keep the backup tokens offline: they hold the roots in a form that can be
moved to further tokens.`,
		Example: `  sluice hsm init --ceremony ceremony.yaml

  # ceremony.yaml
  name: production
  file: /etc/sluice/domain.json
  members:
    - {id: hsm-1, module: /opt/vendor/lib.so, serial: "0123", pin_file: hsm-1.pin, so_pin_file: hsm-1.so}
  backups:
    - {id: backup-1, module: /opt/vendor/lib.so, serial: "0901", pin_file: b1.pin, so_pin_file: b1.so}
    - {id: backup-2, module: /opt/vendor/lib.so, serial: "0902", pin_file: b2.pin, so_pin_file: b2.so}`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := harden(); err != nil {
				return err
			}
			file, err := wire.InitDomain(cmd.Context(), path, confirmation(cmd), progress(cmd))
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "the domain is made; its description is in %s\n", file)
			return nil
		},
	}
	c.Flags().StringVar(&path, "ceremony", "", "ceremony file, YAML (required)")
	c.MarkFlagRequired("ceremony")
	c.MarkFlagFilename("ceremony", "yaml", "yml")
	return c
}

func newHSMJoin() *cobra.Command {
	var path string
	c := &cobra.Command{
		Use:   "join",
		Short: "Give a domain's root keys to further tokens, from a backup token",
		Long: `Give a domain's root keys to further tokens, from its backup tokens: to add an
HSM, to replace one, or to bring a service back on a new machine. The ceremony
file is that of "sluice hsm init" with the new tokens as members and the
domain's backup tokens, connected for the occasion; its file is the domain's
description. Tokens that hold the roots already are left as they are.`,
		Example: `  sluice hsm join --ceremony join.yaml`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := harden(); err != nil {
				return err
			}
			if err := wire.JoinDomain(cmd.Context(), path, confirmation(cmd), progress(cmd)); err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), "the tokens hold the domain's roots; disconnect the backup tokens")
			return nil
		},
	}
	c.Flags().StringVar(&path, "ceremony", "", "ceremony file, YAML (required)")
	c.MarkFlagRequired("ceremony")
	c.MarkFlagFilename("ceremony", "yaml", "yml")
	return c
}

// confirmation asks the two people at the terminal about each fingerprint.
func confirmation(cmd *cobra.Command) func(token, fingerprint string) error {
	in := bufio.NewReader(cmd.InOrStdin())
	return func(token, fingerprint string) error {
		fmt.Fprintf(cmd.OutOrStdout(), "token %s\n  transport key %s\n  type its first 8 characters to confirm: ", token, fingerprint)
		answer, err := in.ReadString('\n')
		if err != nil {
			return fmt.Errorf("reading the confirmation: %w", err)
		}
		if len(fingerprint) < 8 || strings.TrimSpace(answer) != fingerprint[:8] {
			return fmt.Errorf("token %s: the fingerprint was not confirmed", token)
		}
		return nil
	}
}

func progress(cmd *cobra.Command) func(string) {
	return func(what string) { fmt.Fprintln(cmd.ErrOrStderr(), what) }
}
