package main

import (
	"encoding/hex"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sluice-kms/sluice/audit"
)

func newAudit() *cobra.Command {
	c := &cobra.Command{
		Use:   "audit",
		Short: "Read and verify the journal",
		Args:  cobra.NoArgs,
	}
	c.AddCommand(newAuditVerify())
	return c
}

func newAuditVerify() *cobra.Command {
	var dir, head string
	var sequence uint64
	var running bool
	c := &cobra.Command{
		Use:   "verify",
		Short: "Verify a journal offline",
		Long: `Verify a journal offline: every record's checksum, the hash chain, the sequence
and the links between segments. What is wrong is named with segment, offset and
sequence. With --expect-head and --expect-sequence the journal must still hold
that record, so that a cut tail or a chain computed anew is found too.`,
		Example: `  sluice audit verify --journal .sluice/journal
  sluice audit verify --journal /backup/journal --expect-sequence 48213 --expect-head 9f2c…`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o := audit.VerifyOptions{TornTail: running}
			if (head == "") != (sequence == 0) {
				return fmt.Errorf("--expect-head and --expect-sequence come together")
			}
			if head != "" {
				hash, err := hex.DecodeString(head)
				if err != nil || len(hash) != len(audit.Hash{}) {
					return fmt.Errorf("--expect-head: must be %d hexadecimal digits", 2*len(audit.Hash{}))
				}
				o.Head = audit.Head{Sequence: sequence, Hash: audit.Hash(hash)}
			}
			report, err := audit.Verify(dir, o)
			for _, f := range report.Faults {
				fmt.Fprintln(cmd.ErrOrStderr(), f)
			}
			if err != nil {
				return fmt.Errorf("the journal does not verify: %w", err)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%d entries in %d segments verify\nhead: sequence %d, hash %s\n",
				report.Entries, report.Segments, report.Head.Sequence, report.Head.Hash)
			return nil
		},
	}
	c.Flags().StringVar(&dir, "journal", "", "folder of the journal (required)")
	c.Flags().StringVar(&head, "expect-head", "", "chain hash of a record that the journal must hold, hexadecimal")
	c.Flags().Uint64Var(&sequence, "expect-sequence", 0, "sequence of that record")
	c.Flags().BoolVar(&running, "running", false, "accept an incomplete last record, as a service that runs or has crashed leaves")
	c.MarkFlagRequired("journal")
	c.MarkFlagDirname("journal")
	return c
}
