package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-kms/sluice/audit"
	"github.com/sluice-kms/sluice/cmd/sluice/wire"
	"github.com/sluice-kms/sluice/hsm/soft"
)

func newAuditKey() *cobra.Command {
	var dir string
	c := &cobra.Command{
		Use:   "key",
		Short: "Print the public keys that sign the journal's heads",
		Long: `Print the public keys that sign the journal's heads, in PEM, as they lie beside
the journal. Whoever verifies the journal keeps a copy elsewhere from the
beginning, and gets a longer one after a rotation of the key. The first time,
compare it with what the service says ("sluice key public sluice.journal/ecdsa"
with a credential of the system tenant): the folder is what is to be verified.`,
		Example: `  sluice audit key --journal .sluice/journal > journal-keys.pem`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			keys, err := audit.HeadKeys(dir)
			if err != nil {
				return err
			}
			_, err = cmd.OutOrStdout().Write(keys)
			return err
		},
	}
	journalFlag(c, &dir)
	return c
}

func journalFlag(c *cobra.Command, dir *string) {
	c.Flags().StringVar(dir, "journal", "", "folder of the journal (required)")
	c.MarkFlagRequired("journal")
	c.MarkFlagDirname("journal")
}

// auditVerify is what `sluice audit verify` is told.
type auditVerify struct {
	dir, head  string
	sequence   uint64
	running    bool
	publicKey  string
	heads      []string
	config     string
	signatures *wire.HeadKeys
}

func newAuditVerify() *cobra.Command {
	var v auditVerify
	c := &cobra.Command{
		Use:   "verify",
		Short: "Verify a journal offline",
		Long: `Verify a journal offline: every record's checksum, the hash chain, the sequence
and the links between segments. What is wrong is named with segment, offset and
sequence.

With --public-key the signed heads beside the journal are checked too: every
change before the last of them is found, a chain computed anew included, and
entries that no head stands for are a fault, unless --running says that the
service runs or has crashed. Keep the keys elsewhere ("sluice audit key").

A tail that was cut off together with its heads shows only against what was kept
elsewhere: signed heads (--heads, a file that journal.anchor_file names, or
--config, the database that the service's configuration names), or one record
(--expect-head with --expect-sequence).

Times in which entries were recorded and not signed are reported; they are no
fault.`,
		Example: `  sluice audit verify --journal .sluice/journal
  sluice audit verify --journal /backup/journal --public-key journal-keys.pem --heads /mnt/worm/heads
  sluice audit verify --journal /var/lib/sluice/journal --running --public-key journal-keys.pem --config /etc/sluice/sluice.yaml
  sluice audit verify --journal /backup/journal --expect-sequence 48213 --expect-head 9f2c…`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return v.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	journalFlag(c, &v.dir)
	c.Flags().StringVar(&v.head, "expect-head", "", "chain hash of a record that the journal must hold, hexadecimal")
	c.Flags().Uint64Var(&v.sequence, "expect-sequence", 0, "sequence of that record")
	c.Flags().BoolVar(&v.running, "running", false, "accept an incomplete last record, zeros behind it and an unsigned tail, as a service that runs or has crashed leaves")
	c.Flags().StringVar(&v.publicKey, "public-key", "", "file with the public keys that signed the heads, PEM")
	c.Flags().StringArrayVar(&v.heads, "heads", nil, "file with signed heads that were kept elsewhere; may be repeated")
	c.Flags().StringVar(&v.config, "config", "", "configuration of the service in whose database heads are anchored, YAML")
	c.MarkFlagFilename("public-key")
	c.MarkFlagFilename("heads")
	c.MarkFlagFilename("config", "yaml", "yml")
	return c
}

func (v *auditVerify) run(ctx context.Context, out, faults io.Writer) (err error) {
	o, err := v.options(ctx)
	if v.signatures != nil {
		defer func() { err = errors.Join(err, v.signatures.Close()) }()
	}
	if err != nil {
		return err
	}
	report, err := audit.Verify(v.dir, o)
	for _, f := range report.Faults {
		fmt.Fprintln(faults, f)
	}
	if o.Signed != nil {
		v.showGaps(faults, report)
	}
	if err != nil {
		return fmt.Errorf("the journal does not verify: %w", err)
	}
	fmt.Fprintf(out, "%d entries in %d segments verify\nhead: sequence %d, hash %s\n",
		report.Entries, report.Segments, report.Head.Sequence, report.Head.Hash)
	if o.Signed != nil {
		fmt.Fprintf(out, "signed: up to sequence %d; %d entries after it are not\n", report.Signed.Sequence, report.Unsigned)
	}
	return nil
}

func (v *auditVerify) showGaps(w io.Writer, r audit.Report) {
	for _, g := range r.Gaps {
		fmt.Fprintf(w, "gap: sequences %d to %d were signed %v late\n", g.First, g.Last, g.Delay.Round(time.Second))
	}
}

func (v *auditVerify) options(ctx context.Context) (o audit.VerifyOptions, err error) {
	o.TornTail, o.SM3 = v.running, soft.NewSM3
	if (v.head == "") != (v.sequence == 0) {
		return o, errors.New("--expect-head and --expect-sequence come together")
	}
	if v.head != "" {
		hash, err := hex.DecodeString(v.head)
		if err != nil || len(hash) != len(audit.Hash{}) {
			return o, fmt.Errorf("--expect-head: must be %d hexadecimal digits", 2*len(audit.Hash{}))
		}
		o.Head = audit.Head{Sequence: v.sequence, Hash: audit.Hash(hash)}
	}
	if v.publicKey == "" {
		if len(v.heads) > 0 || v.config != "" {
			return o, errors.New("--heads and --config need --public-key: heads are as good as their signatures")
		}
		return o, nil
	}
	text, err := os.ReadFile(v.publicKey)
	if err != nil {
		return o, fmt.Errorf("--public-key: %w", err)
	}
	if v.signatures, err = wire.OpenHeadKeys(text); err != nil {
		return o, fmt.Errorf("--public-key: %w", err)
	}
	o.Signed = v.signatures.Signed
	o.Anchors, err = v.anchors(ctx)
	return o, err
}

// anchors reads the heads that were kept elsewhere.
func (v *auditVerify) anchors(ctx context.Context) (all []audit.SignedHead, err error) {
	for _, path := range v.heads {
		heads, err := audit.ReadHeads(path)
		if err != nil {
			return nil, fmt.Errorf("--heads: %w", err)
		}
		all = append(all, heads...)
	}
	if v.config == "" {
		return all, nil
	}
	c, err := wire.LoadConfig(v.config, os.Environ)
	if err != nil {
		return nil, err
	}
	heads, err := wire.AnchorsOf(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("reading the heads in the database: %w", err)
	}
	return append(all, heads...), nil
}
