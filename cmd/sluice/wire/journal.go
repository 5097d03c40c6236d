package wire

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/sluice-kms/sluice/audit"
	"github.com/sluice-kms/sluice/hsm/soft"
	"github.com/sluice-kms/sluice/keystore"
	"github.com/sluice-kms/sluice/kms"
)

// The anchors' names, in log and metrics.
const (
	anchorDatabase = "database"
	anchorFile     = "anchor_file"
)

// The values of journal.chain.
const (
	chainSHA256 = "sha256"
	chainSM3    = "sm3"
)

func (c *JournalConfig) chain() audit.ChainHash {
	if c.Chain == chainSM3 {
		return audit.ChainSM3
	}
	return audit.ChainSHA256
}

func (c *JournalConfig) grouped() []kms.Op {
	var ops []kms.Op
	for _, name := range c.Grouped {
		ops = append(ops, kms.Op(name))
	}
	return ops
}

// headAlgorithm goes with the chain: who wants SM3 wants no other curve.
func (c *JournalConfig) headAlgorithm() kms.Algorithm {
	if c.Chain == chainSM3 {
		return kms.AlgSM2DSA
	}
	return kms.AlgECDSASHA256
}

func (a *App) openJournal(ctx context.Context) (err error) {
	a.Journal, err = audit.Open(ctx, audit.Config{
		Dir: a.config.Journal.Dir, Node: a.config.Node,
		SegmentBytes: a.config.Journal.SegmentBytes, ReserveBytes: a.config.Journal.ReserveBytes,
		Grouped: a.config.Journal.grouped(),
		Chain:   a.config.Journal.chain(), SM3: soft.NewSM3,
		Clock: time.Now, Registerer: a.Metrics,
	})
	if err == nil {
		a.closes = append(a.closes, a.Journal.Close)
	}
	return err
}

// startSigner measures the journal by its anchor and starts to sign its head.
func (a *App) startSigner(ctx context.Context) error {
	if err := a.checkAnchor(ctx); err != nil {
		return err
	}
	key, err := a.Service.NewHeadSigner(a.System, headSpecs[a.config.Journal.headAlgorithm()])
	if err != nil {
		return err
	}
	anchors := []audit.Anchor{{Name: anchorDatabase, Put: a.anchorHead}}
	if path := a.config.Journal.AnchorFile; path != "" {
		file := audit.AnchorFile(path)
		anchors = append(anchors, audit.Anchor{Name: anchorFile, Put: func(_ context.Context, h audit.SignedHead) error { return file(h) }})
	}
	signer, err := a.Journal.StartSigner(audit.SignerConfig{
		Sign: func(ctx context.Context, message []byte) (audit.HeadSignature, error) {
			s, err := key.Sign(ctx, message)
			return audit.HeadSignature(s), err
		},
		Anchors: anchors, Log: a.log, Registerer: a.Metrics, Interval: a.config.Journal.SignInterval,
	})
	if err != nil {
		return err
	}
	a.closes = append(a.closes, func() error {
		// The journal is whole all the same, and the next start signs it.
		if err := signer.Close(); err != nil {
			a.log.Error("the service stops with a head that is not proven", slog.Any("error", err))
		}
		return nil
	})
	return nil
}

func (a *App) anchorHead(ctx context.Context, h audit.SignedHead) error {
	return a.Store.PutJournalHead(ctx, &kms.JournalHead{
		Node: h.Node, Sequence: h.Sequence, Hash: h.Hash, Signed: h.Time,
		Algorithm: h.Algorithm, KeyVersion: h.KeyVersion, Signature: h.Signature,
	})
}

// journalRevisions tells the store, from this node's journal, which revisions
// rows have had.
type journalRevisions struct {
	stop  context.CancelFunc
	ended chan struct{}
}

// startRevisions begins to read the journal, which takes some seconds for each
// gigabyte; the service need not wait for it.
func (a *App) startRevisions() *journalRevisions {
	ctx, stop := context.WithCancel(context.Background())
	r := &journalRevisions{stop: stop, ended: make(chan struct{})}
	until := a.Journal.Head().Sequence // of what comes later the store knows itself
	go func() {
		defer close(r.ended)
		known := make(map[kms.StoredRevision]uint64) // by the revision of no revision
		err := audit.Changes(ctx, a.config.Journal.Dir, until, func(intent *kms.Entry, made bool) {
			if intent.Op == kms.OpRestore && made {
				clear(known) // the rows are older than the journal since then
			}
			for _, row := range intent.StoredRevisions(made) {
				revision := row.Revision
				row.Revision = 0
				known[row] = max(known[row], revision)
			}
		}, soft.NewSM3)
		for row, revision := range known {
			row.Revision = revision
			a.Store.KnowRevisions(row)
		}
		if err != nil && ctx.Err() == nil {
			a.log.Error("the journal could not be read for the revisions of rows: those that were put back are not found", slog.Any("error", err))
		}
	}()
	return r
}

// Close stops the reading and waits for its end.
func (r *journalRevisions) Close() error {
	r.stop()
	<-r.ended
	return nil
}

// anchoredHours is how many hours' heads a start looks at, and Anchors returns.
const anchoredHours = kms.MaxPageSize

// Anchors returns the signed heads of a node's journal that the database holds,
// of the last hours that had any, the last first.
func Anchors(ctx context.Context, store kms.JournalHeads, node string) ([]audit.SignedHead, error) {
	stored, err := store.JournalHeads(ctx, node, anchoredHours)
	if err != nil {
		return nil, err
	}
	heads := make([]audit.SignedHead, len(stored))
	for i, h := range stored {
		heads[i] = audit.SignedHead{
			Node: h.Node, Head: audit.Head{Sequence: h.Sequence, Hash: h.Hash}, Time: h.Signed,
			Algorithm: h.Algorithm, KeyVersion: h.KeyVersion, Signature: h.Signature,
		}
	}
	return heads, nil
}

// checkAnchor tells the log when the journal is not the one of which the
// database has the last head: it was cut off, put back to an earlier state, or
// written anew. The service starts all the same: what is gone is gone, and what
// happens from here on is to be recorded.
func (a *App) checkAnchor(ctx context.Context) error {
	anchors, err := Anchors(ctx, a.Store, a.config.Node)
	if err != nil {
		return fmt.Errorf("reading the journal's anchor: %w", err)
	}
	if len(anchors) == 0 {
		return nil
	}
	found, err := audit.Holds(a.config.Journal.Dir, anchors[0].Head, soft.NewSM3)
	if _, corrupt := errors.AsType[*audit.CorruptError](err); corrupt {
		found, err = false, nil
	}
	if err == nil && !found {
		a.log.Error("the journal is not the one that was anchored: entries were lost or changed; verify it with `sluice audit verify`",
			slog.Uint64("anchored_sequence", anchors[0].Sequence), slog.String("anchored_hash", anchors[0].Hash.String()),
			slog.Uint64("sequence", a.Journal.Head().Sequence), slog.String("alarm", "journal_anchor"))
	}
	return err
}

// AnchorsOf is Anchors for the node and the database that a configuration
// names. The service may be running.
func AnchorsOf(ctx context.Context, c *Config) (heads []audit.SignedHead, err error) {
	if c.Database.Driver == "sqlite" { // which would make a file that is missing
		if _, err := os.Stat(c.Database.Path); err != nil {
			return nil, err
		}
	}
	driver, err := (&App{}).openDatabase(ctx, c.Database)
	if err != nil {
		return nil, err
	}
	store := keystore.New(driver, keystore.Options{})
	defer func() { err = errors.Join(err, store.Close()) }()
	return Anchors(ctx, store, c.Node)
}
